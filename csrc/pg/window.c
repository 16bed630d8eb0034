/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of a window that does not depend on the backend: making one together, and the
 * checks of each access, after which it is passed on in pieces of contiguous memory. */
#include "pg/window.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/group_state.h"
#include "pg/record/waiting.h"
#include "pg/window_backend.h"
#include "pg/window_part.h"
#include "tensor/strided.h"

/* Bytes of an array with strides that are made contiguous at a time. */
#define STAGE ((size_t)262144)

struct dl_window {
    dl_group *group;
    dl_window_part *part;
    dl_dtype dtype;
    uint32_t opaque_code;
    size_t item_size;
    uint64_t *counts; /* by rank */
    atomic_bool is_closed;
    atomic_uint references; /* the owner's, and one for each submitted access */
    dl_lane lane;           /* the order of the submitted accesses */
    atomic_int submitted;   /* that have not taken effect */
};

/* What every rank sends to the others about its part. */
typedef struct card {
    uint64_t count;
    uint64_t status; /* dl_status of making it, or of joining the others' */
    uint8_t part[DL_WINDOW_CARD_SIZE];
} card;

static dl_tensor
tensor_of_card(const card *what)
{
    return (dl_tensor){
        .data = (void *)(uintptr_t)what,
        .count = sizeof *what,
        .item_size = 1,
        .dtype = DL_UINT8,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
}

/* Exchanges the cards of all ranks.  If some rank has failed, all do. */
static dl_status
exchange_cards(dl_window *self, const dl_tensor *model, const card *own, card *cards,
               dl_deadline deadline)
{
    dl_group *group = self->group;
    dl_tensor *outputs = calloc((size_t)group->size, sizeof *outputs);

    if (outputs == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < group->size; rank++) {
        outputs[rank] = tensor_of_card(&cards[rank]);
    }
    dl_call call = {.op = DL_WINDOW,
                    .tensor = tensor_of_card(own),
                    .inputs = model,
                    .outputs = outputs};
    dl_status status = dl_group_run(group, &call, deadline);
    free(outputs);
    for (int rank = 0; status == DL_OK && rank < group->size; rank++) {
        if (cards[rank].status != DL_OK && rank != group->rank) {
            status =
                dl_fail(DL_BACKEND,
                        "window: rank %d of group %s could not make its part (%s); "
                        "its own error says why",
                        rank, group->name,
                        cards[rank].status <= DL_STATUS_LAST
                            ? dl_status_name((dl_status)cards[rank].status)
                            : "unknown");
        }
    }
    return status;
}

/* Makes the backend's part of this rank. */
static dl_status
make_part(dl_window *self, uint64_t count)
{
    dl_group *group = self->group;
    dl_window_options options = {.dtype = self->dtype, .item_size = self->item_size};

    if (count > SIZE_MAX / 2 / (self->item_size == 0 ? 1 : self->item_size)) {
        return dl_fail(DL_NO_MEMORY,
                       "window: %" PRIu64 " elements of %zu bytes are more than the "
                       "address space",
                       count, self->item_size);
    }
    options.size = count * self->item_size;
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = group->host.window_backend != NULL
                              ? group->host.window_backend
                              : group->host.backend;
    dl_status status = backend == NULL
                           ? dl_fail(DL_CLOSED, "group %s was closed", group->name)
                           : backend->ops->window(backend, &options, &self->part);
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* Fails if the group has no windows.  `*is_left` is whether the group's backend leaves
 * them to another one. */
static dl_status
check_backend(dl_group *group, bool *is_left)
{
    pthread_mutex_lock(&group->lock);
    const dl_backend *backend = group->host.backend;
    *is_left = backend != NULL && backend->ops->leaves_windows;
    bool has_windows = *is_left || (backend != NULL && backend->ops->window != NULL);
    pthread_mutex_unlock(&group->lock);
    return has_windows
               ? DL_OK
               : dl_fail(DL_UNSUPPORTED,
                         "the %s backend of group %s has no windows; make a group for "
                         "them with new_group(backend=\"gloo\")",
                         group->backend_name, group->name);
}

/* Opens the backend that carries the windows in place of the group's.  The ranks
 * exchange cards before, so that a rank which calls another operation is detected as in
 * any collective. */
static dl_status
find_backend(dl_window *self, const dl_tensor *model, card *cards, dl_deadline deadline)
{
    card nothing = {.status = DL_OK};

    DL_TRY(exchange_cards(self, model, &nothing, cards, deadline));
    return dl_window_backend_open(self->group, deadline);
}

/* Makes this rank's part, exchanges cards with the other ranks and joins their parts.
 * A failure of one rank fails all. */
static dl_status
make_together(dl_window *self, const dl_tensor *model, uint64_t count, card *cards,
              dl_deadline deadline)
{
    dl_group *group = self->group;
    dl_status made = make_part(self, count);
    dl_error error = *dl_last_error();
    card own = {.count = count, .status = (uint64_t)made};

    if (made == DL_OK) {
        memcpy(own.part, self->part->card, sizeof own.part);
    }
    dl_status status = exchange_cards(self, model, &own, cards, deadline);
    if (made != DL_OK) {
        return dl_fail_again(&error);
    }
    DL_TRY(status);
    size_t size = (size_t)group->size;
    uint8_t *parts = malloc(size * DL_WINDOW_CARD_SIZE);
    uint64_t *sizes = malloc(size * sizeof *sizes);
    status = parts == NULL || sizes == NULL ? dl_fail_no_memory() : DL_OK;
    for (size_t rank = 0; status == DL_OK && rank < size; rank++) {
        self->counts[rank] = cards[rank].count;
        sizes[rank] = cards[rank].count * self->item_size;
        memcpy(parts + rank * DL_WINDOW_CARD_SIZE, cards[rank].part,
               DL_WINDOW_CARD_SIZE);
    }
    if (status == DL_OK) {
        status = self->part->ops->join(self->part, parts, sizes);
    }
    free(parts);
    free(sizes);
    error = *dl_last_error();
    own.status = (uint64_t)status;
    dl_status met = exchange_cards(self, model, &own, cards, deadline);
    return status == DL_OK ? met : dl_fail_again(&error);
}

dl_status
dl_window_new(dl_group *group, const dl_tensor *model, uint64_t count,
              dl_deadline deadline, dl_window **window)
{
    bool is_left;

    DL_TRY(dl_group_admit(group));
    DL_TRY(check_backend(group, &is_left));
    dl_window *self = calloc(1, sizeof *self);
    card *cards = calloc((size_t)group->size, sizeof *cards);
    dl_status status = cards == NULL ? dl_fail_no_memory() : DL_OK;
    if (self == NULL) {
        status = dl_fail_no_memory();
    } else {
        self->group = dl_group_ref(group);
        atomic_init(&self->references, 1);
        dl_lane_init(&self->lane);
        self->dtype = model->dtype;
        self->opaque_code = model->opaque_code;
        self->item_size = model->item_size;
        self->counts = calloc((size_t)group->size, sizeof *self->counts);
        status = self->counts == NULL ? dl_fail_no_memory() : status;
    }
    if (status == DL_OK && is_left) {
        status = find_backend(self, model, cards, deadline);
    }
    if (status == DL_OK) {
        status = make_together(self, model, count, cards, deadline);
    }
    free(cards);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_window_free(self);
        return dl_fail_again(&error);
    }
    *window = self;
    return DL_OK;
}

static void
unref_window(dl_window *self)
{
    if (atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    dl_blocking_begin();
    if (self->part != NULL) {
        self->part->ops->free(self->part);
    }
    if (!dl_group_is_inherited(self->group)) {
        dl_lane_fini(&self->lane);
    }
    dl_group_unref(self->group);
    free(self->counts);
    free(self);
}

void
dl_window_free(dl_window *window)
{
    if (window == NULL) {
        return;
    }
    if (window->part != NULL) {
        dl_window_end(window);
    }
    unref_window(window);
}

void *
dl_window_own(const dl_window *window)
{
    return window->part->memory;
}

size_t
dl_window_size(const dl_window *window)
{
    return (size_t)window->counts[window->group->rank] * window->item_size;
}

uint64_t
dl_window_count(const dl_window *window, int rank)
{
    return window->counts[rank];
}

dl_group *
dl_window_group(const dl_window *window)
{
    return window->group;
}

/* Informs the group, whose backend may not notice a lost rank by itself, and returns
 * `status`. */
static dl_status
noting_loss(const dl_window *self, dl_status status)
{
    if (status == DL_PEER_LOST) {
        dl_group_note_loss(self->group);
    }
    return status;
}

/* Checks that the window is open, and the rank. */
static dl_status
check_usable(dl_window *self, const char *what, int rank)
{
    dl_group *group = self->group;

    DL_TRY(dl_group_admit(group));
    if (atomic_load(&self->is_closed)) {
        return dl_fail(DL_CLOSED, "%s: the window in group %s was closed", what,
                       group->name);
    }
    if (rank < 0 || rank >= group->size) {
        return dl_fail(DL_INVALID, "%s: rank %d is not in group %s of %d", what, rank,
                       group->name, group->size);
    }
    return DL_OK;
}

static dl_status
check_tensor(const dl_window *self, const char *what, const dl_tensor *tensor,
             bool is_written)
{
    char dtypes[2][DL_DTYPE_TEXT_SIZE];

    if (tensor->device != DL_CPU) {
        return dl_fail(DL_UNSUPPORTED,
                       "%s: the array is on a device; windows take arrays in the CPU's "
                       "memory: copy it there first",
                       what);
    }
    if (tensor->dtype != self->dtype || tensor->opaque_code != self->opaque_code
        || tensor->item_size != self->item_size) {
        dl_dtype_describe(tensor->dtype, tensor->opaque_code, dtypes[0]);
        dl_dtype_describe(self->dtype, self->opaque_code, dtypes[1]);
        return dl_fail(DL_INVALID,
                       "%s: the array has dtype %s, but the window has %s; pass "
                       "x.astype(...)",
                       what, dtypes[0], dtypes[1]);
    }
    if (is_written && (!tensor->is_writable || dl_strided_may_overlap(tensor))) {
        return dl_fail(DL_INVALID,
                       "%s: the array is read-only, or its elements share memory; pass "
                       "a writable copy, such as numpy.array(x)",
                       what);
    }
    if (!tensor->is_contiguous && tensor->ndim > DL_TENSOR_DIMENSIONS) {
        return dl_fail(DL_INVALID, "%s: the array has %d dimensions, more than %d",
                       what, tensor->ndim, DL_TENSOR_DIMENSIONS);
    }
    return DL_OK;
}

/* Returns the tensor whose size is the number of elements accessed. */
static const dl_tensor *
first_of(const dl_window_access *access)
{
    return access->input != NULL ? access->input : access->output;
}

/* Checks the tensors of an access, and that the elements are there. */
static dl_status
check_access(dl_window *self, const char *what, const dl_window_access *access)
{
    const dl_tensor *first = first_of(access);

    DL_TRY(check_usable(self, what, access->rank));
    if (access->input != NULL) {
        DL_TRY(check_tensor(self, what, access->input, false));
    }
    if (access->compared != NULL) {
        DL_TRY(check_tensor(self, what, access->compared, false));
    }
    if (access->output != NULL) {
        DL_TRY(check_tensor(self, what, access->output, true));
        if (access->output->count != first->count) {
            return dl_fail(DL_INVALID,
                           "%s: the output has %zu elements, but the input has %zu",
                           what, access->output->count, first->count);
        }
        if (access->input != NULL
            && dl_tensors_overlap(access->output, access->input)) {
            return dl_fail(DL_INVALID,
                           "%s: the output shares memory with the input; pass a copy, "
                           "such as numpy.array(x)",
                           what);
        }
    }
    uint64_t there = self->counts[access->rank];
    if (access->offset < 0 || (uint64_t)access->offset > there
        || first->count > there - (uint64_t)access->offset) {
        return dl_fail(DL_INVALID,
                       "%s: %zu elements from %" PRId64
                       " on do not lie in the memory of rank %d, which has %" PRIu64,
                       what, first->count, access->offset, access->rank, there);
    }
    return DL_OK;
}

/* Returns where `size` bytes of an array begin, from byte `at` on: in place, or in
 * `stage`, to which they are copied. */
static const void *
contiguous_part(const dl_tensor *tensor, size_t at, size_t size, void *stage)
{
    if (tensor == NULL) {
        return NULL;
    }
    if (stage == NULL) {
        return (const uint8_t *)tensor->data + at;
    }
    dl_strided_gather_part(stage, tensor, at, size);
    return stage;
}

static bool
is_plain(const dl_tensor *tensor)
{
    return tensor == NULL || (tensor->pieces == NULL && dl_tensor_is_plain(tensor));
}

/* Passes an access on, whose arrays are contiguous already. */
static dl_status
carry_out_whole(dl_window *self, dl_access *asked, const dl_window_access *access,
                size_t size, dl_deadline deadline)
{
    asked->size = size;
    asked->input = contiguous_part(access->input, 0, size, NULL);
    asked->compared = contiguous_part(access->compared, 0, size, NULL);
    asked->output = access->output == NULL ? NULL : access->output->data;
    return self->part->ops->access(self->part, asked, deadline);
}

/* The same for arrays with strides, piece by piece. */
static dl_status
carry_out_staged(dl_window *self, dl_access *asked, const dl_window_access *access,
                 size_t size, dl_deadline deadline)
{
    size_t item = self->item_size;
    size_t piece = item > STAGE ? item : STAGE / item * item;
    uint64_t offset = asked->offset;
    dl_status status = DL_OK;

    piece = size < piece ? size : piece;
    uint8_t *stage = malloc(3 * piece);
    if (stage == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t at = 0; status == DL_OK && at < size; at += piece) {
        asked->size = size - at < piece ? size - at : piece;
        asked->offset = offset + at;
        asked->input = contiguous_part(access->input, at, asked->size, stage);
        asked->compared =
            contiguous_part(access->compared, at, asked->size, stage + piece);
        asked->output = access->output == NULL ? NULL : stage + 2 * piece;
        status = self->part->ops->access(self->part, asked, deadline);
        if (status == DL_OK && access->output != NULL) {
            dl_strided_scatter_part(access->output, asked->output, at, asked->size);
        }
    }
    free(stage);
    return status;
}

/* Carries out an access that was checked. */
static dl_status
carry_out(dl_window *self, dl_access_kind kind, const dl_window_access *access,
          dl_deadline deadline)
{
    dl_access asked = {
        .kind = kind,
        .rank = access->rank,
        .offset = (uint64_t)access->offset * self->item_size,
        .update = access->update,
        .factor = access->factor,
    };
    size_t size = dl_tensor_size(first_of(access));
    bool is_contiguous = is_plain(access->input) && is_plain(access->compared)
                         && is_plain(access->output);

    if (size == 0) {
        return DL_OK;
    }
    dl_status status = is_contiguous
                           ? carry_out_whole(self, &asked, access, size, deadline)
                           : carry_out_staged(self, &asked, access, size, deadline);
    return noting_loss(self, status);
}

static const char *
describe_access_kind(dl_access_kind kind, const dl_window_access *access)
{
    switch (kind) {
    case DL_ACCESS_PUT:
        return "put";
    case DL_ACCESS_GET:
        return "get";
    case DL_ACCESS_UPDATE:
        return access->output == NULL ? "accumulate" : "get_accumulate";
    default:
        return "compare_and_swap";
    }
}

/* What a method waits for; a rank of -1 is every rank. */
typedef struct waited {
    const char *what;
    int rank;
} waited;

static void
describe_waited(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const waited *self = subject;

    if (self->rank < 0) {
        snprintf(text, DL_WAIT_ROW_TEXT, "Window.%s()", self->what);
    } else {
        snprintf(text, DL_WAIT_ROW_TEXT, "Window.%s(%d)", self->what, self->rank);
    }
}

/* Elements that are updated may not be larger than what is moved in one piece. */
static dl_status
check_item(const dl_window *self, const char *what)
{
    return self->item_size <= DL_UPDATE_ITEM_LIMIT
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "%s: elements of %zu bytes are not updated atomically, only "
                         "those of up to %zu; use put and get under a lock",
                         what, self->item_size, DL_UPDATE_ITEM_LIMIT);
}

static dl_status
check_update(const dl_window *self, const char *what, int update)
{
    bool is_reduction = update != DL_UPDATE_REPLACE && update != DL_UPDATE_NOTHING;
    dl_tensor model = {.dtype = self->dtype, .opaque_code = self->opaque_code};

    if (update == DL_AVG) {
        return dl_fail(DL_INVALID,
                       "%s of AVG is not supported, as an update does not know how "
                       "many follow; use SUM, and divide the result",
                       what);
    }
    if (is_reduction && dl_reduce_op_has_reducer((dl_reduce_op)update)) {
        return dl_fail(DL_INVALID,
                       "%s of %s is not supported; use put and get under a lock", what,
                       dl_reduce_op_name((dl_reduce_op)update));
    }
    if (is_reduction) {
        DL_TRY(dl_reduce_check((dl_reduce_op)update, &model, what));
    }
    return check_item(self, what);
}

static dl_status
check_swap(const dl_window *self, const dl_window_access *access)
{
    if (access->input->count != 1 || access->compared->count != 1) {
        return dl_fail(DL_INVALID,
                       "compare_and_swap: takes one element, but the value has %zu and "
                       "the expected value %zu",
                       access->input->count, access->compared->count);
    }
    return check_item(self, "compare_and_swap");
}

static dl_status
check_call(dl_window *self, dl_access_kind kind, const dl_window_access *access)
{
    const char *what = describe_access_kind(kind, access);

    if (kind == DL_ACCESS_UPDATE) {
        DL_TRY(check_update(self, what, access->update));
    } else if (kind == DL_ACCESS_SWAP) {
        DL_TRY(check_swap(self, access));
    }
    return check_access(self, what, access);
}

/* Takes the lane's turn, which comes after all accesses that were submitted before. */
static dl_status
take_turn(dl_window *self, const char *what, dl_deadline deadline)
{
    dl_status status = dl_lane_take(&self->lane, deadline);

    return status != DL_TIMEOUT
               ? status
               : dl_fail(DL_TIMEOUT,
                         "%s: the accesses to the window in group %s that began before "
                         "it have not ended within %" PRId64 "ms",
                         what, self->group->name, deadline.limit / DL_MILLISECOND);
}

static bool
has_submitted(const dl_window *self)
{
    return atomic_load_explicit(&self->submitted, memory_order_acquire) > 0;
}

static dl_status
await_submitted(dl_window *self, const char *what, dl_deadline deadline)
{
    if (has_submitted(self)) {
        DL_TRY(take_turn(self, what, deadline));
        dl_lane_pass(&self->lane);
    }
    return DL_OK;
}

static dl_status
run_access(dl_window *self, dl_access_kind kind, const dl_window_access *access,
           dl_deadline deadline)
{
    waited what = {describe_access_kind(kind, access), access->rank};
    dl_waiting waiting;

    DL_TRY(check_call(self, kind, access));
    dl_waiting_begin(&waiting, describe_waited, &what, deadline);
    dl_status status = await_submitted(self, what.what, deadline);
    if (status == DL_OK) {
        status = carry_out(self, kind, access, deadline);
    }
    dl_waiting_end(&waiting);
    return status;
}

dl_status
dl_window_put(dl_window *window, const dl_window_access *access, dl_deadline deadline)
{
    return run_access(window, DL_ACCESS_PUT, access, deadline);
}

dl_status
dl_window_get(dl_window *window, const dl_window_access *access, dl_deadline deadline)
{
    return run_access(window, DL_ACCESS_GET, access, deadline);
}

dl_status
dl_window_update(dl_window *window, const dl_window_access *access,
                 dl_deadline deadline)
{
    return run_access(window, DL_ACCESS_UPDATE, access, deadline);
}

dl_status
dl_window_swap(dl_window *window, const dl_window_access *access, dl_deadline deadline)
{
    return run_access(window, DL_ACCESS_SWAP, access, deadline);
}

/* Accesses to fewer bytes mostly end within a few microseconds. */
#define BRIEF ((size_t)16 << 10)

/* An access that was not waited for, and waits for its turn as a job of the lane. */
typedef struct submitted {
    dl_work work;
    dl_job job;
    dl_window *window; /* with a reference */
    dl_access_kind kind;
    dl_window_access access;
    dl_tensor tensors[3];
    const dl_guard *guard;
    int64_t numbers[]; /* shapes and strides of the tensors */
} submitted;

static submitted *
submitted_of_work(dl_work *work)
{
    return (submitted *)(void *)work;
}

static submitted *
submitted_of_job(dl_job *job)
{
    return DL_LIST_ENTRY(job, submitted, job);
}

static dl_status
wait_submitted(dl_work *work, dl_deadline deadline)
{
    submitted *self = submitted_of_work(work);
    waited what = {describe_access_kind(self->kind, &self->access), self->access.rank};
    dl_waiting waiting;

    dl_waiting_begin(&waiting, describe_waited, &what, deadline);
    dl_status status = dl_lane_join(&self->window->lane, &self->job, deadline);
    dl_waiting_end(&waiting);
    return status;
}

static void
free_submitted(dl_work *work)
{
    submitted *self = submitted_of_work(work);

    unref_window(self->window);
    dl_work_fini(work);
    free(self);
}

static const dl_work_ops submitted_ops = {.wait = wait_submitted,
                                          .free = free_submitted};

static void
finish_submitted(submitted *self, dl_status status)
{
    atomic_fetch_sub_explicit(&self->window->submitted, 1, memory_order_release);
    dl_work_finish(&self->work, status);
}

static void
run_submitted(dl_job *job)
{
    submitted *self = submitted_of_job(job);
    const char *what = describe_access_kind(self->kind, &self->access);
    dl_status status = check_usable(self->window, what, self->access.rank);

    if (status == DL_OK) {
        status = dl_guard_check(self->guard);
    }
    if (status == DL_OK) {
        status = carry_out(self->window, self->kind, &self->access, job->deadline);
    }
    finish_submitted(self, status);
}

static void
fail_submitted(dl_job *job)
{
    submitted *self = submitted_of_job(job);

    finish_submitted(
        self, dl_fail(DL_TIMEOUT,
                      "%s: the accesses to the window in group %s that "
                      "began before it have not ended within %" PRId64 "ms",
                      describe_access_kind(self->kind, &self->access),
                      self->window->group->name, job->deadline.limit / DL_MILLISECOND));
}

static void
release_submitted(dl_job *job)
{
    dl_work_unref(&submitted_of_job(job)->work);
}

/* Copies a tensor of the caller with its shape and strides, for which `*numbers` is the
 * room, and returns the copy. */
static const dl_tensor *
keep_tensor(dl_tensor *copy, const dl_tensor *tensor, int64_t **numbers)
{
    if (tensor == NULL) {
        return NULL;
    }
    *copy = *tensor;
    if (!tensor->is_contiguous) {
        size_t count = (size_t)tensor->ndim;
        copy->shape = memcpy(*numbers, tensor->shape, count * sizeof **numbers);
        copy->strides =
            memcpy(*numbers + count, tensor->strides, count * sizeof **numbers);
        *numbers += 2 * count;
    }
    return copy;
}

static dl_status
submitted_new(dl_window *window, const dl_window_access *access, submitted **made)
{
    const dl_tensor *tensors[] = {access->input, access->compared, access->output};
    size_t room = 0;

    for (int i = 0; i < 3; i++) {
        bool is_kept = tensors[i] != NULL && !tensors[i]->is_contiguous;
        room += is_kept ? 2 * (size_t)tensors[i]->ndim : 0;
    }
    submitted *self = calloc(1, sizeof *self + room * sizeof *self->numbers);
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    int64_t *numbers = self->numbers;
    self->access = *access;
    self->access.input = keep_tensor(&self->tensors[0], tensors[0], &numbers);
    self->access.compared = keep_tensor(&self->tensors[1], tensors[1], &numbers);
    self->access.output = keep_tensor(&self->tensors[2], tensors[2], &numbers);
    self->window = window;
    atomic_fetch_add_explicit(&window->references, 1, memory_order_relaxed);
    *made = self;
    return DL_OK;
}

dl_status
dl_window_submit(dl_window *window, dl_access_kind kind, const dl_window_access *access,
                 const dl_guard *guard, dl_deadline deadline, dl_work **work)
{
    submitted *self = NULL;

    DL_TRY(check_call(window, kind, access));
    DL_TRY(submitted_new(window, access, &self));
    dl_work_init(&self->work, &submitted_ops, DL_WINDOW);
    self->work.is_brief = dl_tensor_size(first_of(access)) < BRIEF;
    self->kind = kind;
    self->guard = guard;
    self->job.deadline = deadline;
    self->job.queued_at = dl_deadline_start(deadline);
    self->job.run = run_submitted;
    self->job.expire = fail_submitted;
    self->job.release = release_submitted;
    atomic_fetch_add_explicit(&window->submitted, 1, memory_order_relaxed);
    dl_status status = dl_lane_submit(&window->lane, &self->job);
    if (status != DL_OK) {
        atomic_fetch_sub_explicit(&window->submitted, 1, memory_order_relaxed);
        free_submitted(&self->work);
        return status;
    }
    *work = &self->work;
    return DL_OK;
}

dl_status
dl_window_lock(dl_window *window, int rank, bool is_shared, dl_deadline deadline)
{
    waited what = {"lock", rank};
    dl_waiting waiting;

    DL_TRY(check_usable(window, what.what, rank));
    dl_waiting_begin(&waiting, describe_waited, &what, deadline);
    dl_status status = window->part->ops->lock(window->part, rank, is_shared, deadline);
    dl_waiting_end(&waiting);
    return noting_loss(window, status);
}

dl_status
dl_window_unlock(dl_window *window, int rank, dl_deadline deadline)
{
    dl_group *group = window->group;
    waited what = {"unlock", rank};
    dl_waiting waiting;

    /* A group that has failed on this rank may still work on others, where ranks may
     * wait for the lock. */
    if (dl_group_is_inherited(group) || atomic_load(&window->is_closed) || rank < 0
        || rank >= group->size) {
        DL_TRY(check_usable(window, what.what, rank));
    }
    dl_waiting_begin(&waiting, describe_waited, &what, deadline);
    dl_status status = await_submitted(window, what.what, deadline);
    if (status == DL_OK) {
        status = window->part->ops->unlock(window->part, rank, deadline);
    }
    dl_waiting_end(&waiting);
    return noting_loss(window, status);
}

dl_status
dl_window_flush(dl_window *window, int rank, dl_deadline deadline)
{
    waited what = {"flush", rank};
    dl_waiting waiting;

    DL_TRY(check_usable(window, what.what, rank < 0 ? 0 : rank));
    dl_waiting_begin(&waiting, describe_waited, &what, deadline);
    dl_status status = await_submitted(window, what.what, deadline);
    if (status == DL_OK) {
        status = window->part->ops->flush(window->part, rank, deadline);
    }
    dl_waiting_end(&waiting);
    return noting_loss(window, status);
}

dl_status
dl_window_fence(dl_window *window, dl_deadline deadline)
{
    DL_TRY(dl_window_flush(window, -1, deadline));
    return dl_group_barrier(window->group, deadline);
}

dl_status
dl_window_close(dl_window *window, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (atomic_load(&window->is_closed)) {
        return DL_OK;
    }
    if (dl_group_admit(window->group) == DL_OK) {
        status = dl_window_fence(window, deadline);
    }
    dl_window_end(window);
    return status;
}

void
dl_window_end(dl_window *window)
{
    if (!atomic_exchange(&window->is_closed, true)) {
        window->part->ops->end(window->part);
    }
}
