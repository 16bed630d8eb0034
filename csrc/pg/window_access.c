/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The accesses to a window: their checks, after which they are passed on to the backend's
 * part in pieces of contiguous memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pg/window_part.h"
#include "pg/window_state.h"
#include "tensor/strided.h"

/* Bytes of an array with strides that are made contiguous at a time. */
#define STAGE ((size_t)262144)

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

    DL_TRY(dl_window_check_usable(self, what, access->rank));
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
                       "%s: %zu elements from offset %" PRId64
                       " exceed the memory of rank %d, which has %" PRIu64,
                       what, first->count, access->offset, access->rank, there);
    }
    return DL_OK;
}

static bool
is_plain(const dl_tensor *tensor)
{
    return tensor == NULL || (tensor->pieces == NULL && dl_tensor_is_plain(tensor));
}

/* Returns where `size` bytes of an array begin, from byte `at` on: in place, or in
 * `stage`, to which they are copied if it is not NULL. */
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

/* Passes an access on in pieces, each of which is made contiguous in one of the three
 * stages; these are NULL if the arrays are contiguous already. */
static dl_status
pass_pieces(dl_window *self, const dl_access *asked, const dl_window_access *access,
            size_t piece, uint8_t *const stages[3], dl_deadline deadline)
{
    for (size_t at = 0; at < asked->size; at += piece) {
        dl_access part = *asked;
        part.size = asked->size - at < piece ? asked->size - at : piece;
        part.offset += at;
        part.input = contiguous_part(access->input, at, part.size, stages[0]);
        part.compared = contiguous_part(access->compared, at, part.size, stages[1]);
        part.output = access->output == NULL ? NULL
                      : stages[2] == NULL    ? access->output->data
                                             : stages[2];
        DL_TRY(self->part->ops->access(self->part, &part, deadline));
        if (access->output != NULL && stages[2] != NULL) {
            dl_strided_scatter_part(access->output, stages[2], at, part.size);
        }
    }
    return DL_OK;
}

/* Carries out an access that was checked. */
static dl_status
carry_out_access(dl_window *self, dl_access_kind kind, const dl_window_access *access,
                 dl_deadline deadline)
{
    size_t item = self->item_size;
    dl_access asked = {
        .kind = kind,
        .rank = access->rank,
        .offset = (uint64_t)access->offset * item,
        .size = dl_tensor_size(first_of(access)),
        .update = access->update,
        .factor = access->factor,
    };

    if (asked.size == 0
        || (is_plain(access->input) && is_plain(access->compared)
            && is_plain(access->output))) {
        return pass_pieces(self, &asked, access, asked.size, (uint8_t *[3]){NULL},
                           deadline);
    }
    size_t piece = item > STAGE ? item : STAGE / item * item;
    piece = asked.size < piece ? asked.size : piece;
    uint8_t *stage = malloc(3 * piece);
    if (stage == NULL) {
        return dl_fail_no_memory();
    }
    uint8_t *const stages[3] = {stage, stage + piece, stage + 2 * piece};
    dl_status status = pass_pieces(self, &asked, access, piece, stages, deadline);
    free(stage);
    return status;
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

static dl_status
run_access(dl_window *self, dl_access_kind kind, const dl_window_access *access,
           dl_deadline deadline)
{
    dl_window_wait what = {describe_access_kind(kind, access), access->rank};
    dl_waiting waiting;

    DL_TRY(check_call(self, kind, access));
    dl_waiting_begin(&waiting, dl_window_wait_describe, &what, deadline);
    dl_status status = carry_out_access(self, kind, access, deadline);
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
