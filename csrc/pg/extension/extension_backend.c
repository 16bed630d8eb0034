/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/extension/extension_backend.h"

#include <distlite/backend.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/extension/extension_messages.h"
#include "pg/extension/extension_state.h"
#include "tensor/strided.h"

/* The public numbers are the core's. */
#define SAME(public, own) _Static_assert((int)(public) == (int)(own), #public)
SAME(DISTLITE_OK, DL_OK);
SAME(DISTLITE_TIMEOUT, DL_TIMEOUT);
SAME(DISTLITE_INVALID, DL_INVALID);
SAME(DISTLITE_UNSUPPORTED, DL_UNSUPPORTED);
SAME(DISTLITE_NO_MEMORY, DL_NO_MEMORY);
SAME(DISTLITE_PEER_LOST, DL_PEER_LOST);
SAME(DISTLITE_FAILED, DL_BACKEND);
SAME(DISTLITE_CANCELLED, DL_CANCELLED);
SAME(DISTLITE_INTERRUPTED, DL_INTERRUPTED);
SAME(DISTLITE_OPAQUE, DL_OPAQUE);
SAME(DISTLITE_BOOL, DL_BOOL);
SAME(DISTLITE_UINT64, DL_UINT64);
SAME(DISTLITE_FLOAT16, DL_FLOAT16);
SAME(DISTLITE_FLOAT32, DL_FLOAT32);
SAME(DISTLITE_FLOAT64, DL_FLOAT64);
SAME(DISTLITE_FLOAT8_E5M2, DL_FLOAT8_E5M2);
SAME(DISTLITE_SUM, DL_SUM);
SAME(DISTLITE_PREMUL_SUM, DL_PREMUL_SUM);
SAME(DISTLITE_ANY_RANK, DL_ANY_RANK);

/* The part of the table that every backend of this version has. */
#define TABLE_SIZE \
    (offsetof(distlite_backend, all_to_all) + sizeof((distlite_backend *)0)->all_to_all)

typedef struct registered {
    struct registered *next;
    const distlite_backend *table;
    char name[];
} registered;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static registered *tables;

static dl_extension *
extension_of(dl_backend *backend)
{
    return (dl_extension *)backend;
}

static distlite_store *
store_to(dl_store *store)
{
    return (distlite_store *)store;
}

/* The arrays of one operation as the backend gets them, with the memory of the copies
 * that stand in for arrays which are not contiguous. */
typedef struct plain_arrays {
    distlite_array *arrays;
    const dl_tensor **tensors; /* what each of them stands for */
    void **copies;             /* NULL for an array that is passed as it is */
    int count;
    int capacity;
} plain_arrays;

static dl_status
plain_init(plain_arrays *self, int capacity)
{
    *self = (plain_arrays){.capacity = capacity};
    self->arrays = calloc((size_t)capacity + 1, sizeof *self->arrays);
    self->tensors = calloc((size_t)capacity + 1, sizeof *self->tensors);
    self->copies = calloc((size_t)capacity + 1, sizeof *self->copies);
    return self->arrays == NULL || self->tensors == NULL || self->copies == NULL
               ? dl_fail_no_memory()
               : DL_OK;
}

static void
plain_fini(plain_arrays *self)
{
    for (int i = 0; self->copies != NULL && i < self->count; i++) {
        free(self->copies[i]);
    }
    free(self->copies);
    free(self->tensors);
    free(self->arrays);
}

/* Adds `count` arrays, with their elements if `is_read`; `*first` is the first of them,
 * NULL for a list that is NULL. */
static dl_status
plain_add(plain_arrays *self, const dl_tensor *tensors, int count, bool is_read,
          const distlite_array **first)
{
    *first = tensors == NULL ? NULL : &self->arrays[self->count];
    for (int i = 0; tensors != NULL && i < count; i++) {
        const dl_tensor *tensor = &tensors[i];
        size_t size = dl_tensor_size(tensor);
        void *data = tensor->data;
        if (!dl_tensor_is_plain(tensor)) {
            data = malloc(size + 1); /* never of size 0 */
            if (data == NULL) {
                return dl_fail_no_memory();
            }
            self->copies[self->count] = data;
            if (is_read && size > 0) {
                dl_strided_gather_part(data, tensor, 0, size);
            }
        }
        self->tensors[self->count] = tensor;
        self->arrays[self->count++] = (distlite_array){
            .data = data,
            .count = tensor->count,
            .item_size = tensor->item_size,
            .dtype = (int32_t)tensor->dtype,
        };
    }
    return DL_OK;
}

/* Copies the elements of written arrays back to where they belong. */
static void
plain_give(const plain_arrays *self, const distlite_array *first, int count)
{
    for (int i = 0; first != NULL && i < count; i++) {
        int place = (int)(first - self->arrays) + i;
        const dl_tensor *tensor = self->tensors[place];
        if (self->copies[place] != NULL && dl_tensor_size(tensor) > 0) {
            dl_strided_scatter_part(tensor, self->copies[place], 0,
                                    dl_tensor_size(tensor));
        }
    }
}

dl_extension_call
dl_extension_call_begin(dl_extension *self, const dl_op_context *op)
{
    return (dl_extension_call){
        .base = {.sequence = op->sequence,
                 .deadline = op->deadline.at,
                 .timeout = op->deadline.limit},
        .self = self,
        .limit = op->deadline,
        .guard = op->guard,
    };
}

/* A backend that fails without a text gets one here. */
dl_status
dl_extension_result(const dl_extension *self, const char *what, int result)
{
    bool has_text = dl_last_error()->text[0] != '\0';
    dl_status status =
        result < 0 || result > DL_STATUS_LAST ? DL_BACKEND : (dl_status)result;

    if (status == DL_OK) {
        return DL_OK;
    }
    if (!has_text) {
        return dl_fail(status,
                       "%s failed on rank %d of %d, with status %d of backend "
                       "%s, which gives no reason",
                       what, self->rank, self->size, result, self->name);
    }
    dl_error error = *dl_last_error();
    return dl_fail(status, "%s on rank %d of %d, backend %s: %.1800s", what, self->rank,
                   self->size, self->name, error.text);
}

void
dl_extension_forget_error(void)
{
    (void)dl_fail_again(&(dl_error){.status = DL_BACKEND});
}

static dl_status
finish_call(dl_extension *self, const dl_op_context *op, int result)
{
    DL_TRY(dl_extension_result(self, dl_op_type_name(op->fingerprint.op), result));
    return dl_op_check_arrays(op);
}

/* Cards are exchanged by an all_gather. */
static dl_op_type
entry_of(const dl_call *call)
{
    return dl_op_type_exchanges_cards(call->op) ? DL_ALL_GATHER : call->op;
}

/* Returns whether the single array of a call is changed in place. */
static bool
is_in_place(const dl_call *call)
{
    return call->op == DL_BROADCAST || call->op == DL_ALL_REDUCE
           || call->op == DL_REDUCE;
}

/* The arrays of a call on the two sides of the table's functions. */
typedef struct sides {
    const dl_tensor *inputs; /* also those that are changed in place; NULL if none */
    const dl_tensor *outputs;
    int input_count;
    int output_count;
} sides;

static sides
sides_of(const dl_extension *self, const dl_call *call)
{
    switch (entry_of(call)) {
    case DL_BARRIER:
        return (sides){0};
    case DL_ALL_GATHER:
    case DL_GATHER:
        return (sides){&call->tensor, call->outputs, 1, self->size};
    case DL_SCATTER:
    case DL_REDUCE_SCATTER:
        return (sides){call->inputs, &call->tensor, self->size, 1};
    case DL_ALL_TO_ALL:
        return (sides){call->inputs, call->outputs, self->size, self->size};
    default:
        return (sides){.inputs = &call->tensor, .input_count = 1};
    }
}

static int
call_table(const dl_extension *self, const distlite_call *base, const dl_call *call,
           const distlite_array *inputs, const distlite_array *outputs)
{
    const distlite_backend *table = self->table;
    int32_t reduction = (int32_t)call->reduction;

    switch (entry_of(call)) {
    case DL_BROADCAST:
        return table->broadcast(self->state, base, inputs, call->root);
    case DL_ALL_REDUCE:
        return table->all_reduce(self->state, base, inputs, reduction, call->factor);
    case DL_REDUCE:
        return table->reduce(self->state, base, inputs, call->root, reduction,
                             call->factor);
    case DL_ALL_GATHER:
        return table->all_gather(self->state, base, inputs, outputs);
    case DL_GATHER:
        return table->gather(self->state, base, inputs, outputs, call->root);
    case DL_SCATTER:
        return table->scatter(self->state, base, inputs, outputs, call->root);
    case DL_REDUCE_SCATTER:
        return table->reduce_scatter(self->state, base, inputs, outputs, reduction,
                                     call->factor);
    case DL_ALL_TO_ALL:
        return table->all_to_all(self->state, base, inputs, outputs);
    default:
        return table->barrier(self->state, base);
    }
}

static dl_status
run_on(dl_extension *self, const dl_op_context *op, const dl_call *call,
       plain_arrays *arrays)
{
    dl_extension_call made = dl_extension_call_begin(self, op);
    sides both = sides_of(self, call);
    bool is_root = self->rank == call->root;
    bool is_read = call->op != DL_BROADCAST || is_root;
    bool is_kept =
        call->op == DL_BROADCAST ? is_root : call->op == DL_REDUCE && !is_root;
    const distlite_array *inputs, *outputs;

    DL_TRY(plain_init(arrays, both.input_count + both.output_count));
    DL_TRY(plain_add(arrays, both.inputs, both.input_count, is_read, &inputs));
    DL_TRY(plain_add(arrays, both.outputs, both.output_count, false, &outputs));
    dl_blocking_begin();
    dl_extension_forget_error();
    DL_TRY(finish_call(self, op, call_table(self, &made.base, call, inputs, outputs)));
    plain_give(arrays, is_in_place(call) && !is_kept ? inputs : NULL, both.input_count);
    plain_give(arrays, outputs, both.output_count);
    return DL_OK;
}

/* The entry of every operation.  Fails with the group's cause if it was aborted before
 * the operation began. */
static dl_status
run_collective(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_extension *self = extension_of(backend);
    plain_arrays arrays = {0};

    DL_TRY(dl_extension_check_abort(self));
    dl_status status = run_on(self, op, call, &arrays);
    plain_fini(&arrays);
    return status;
}

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    dl_extension *self = extension_of(backend);

    pthread_mutex_lock(&self->lock);
    bool is_first = self->cause.status == DL_OK;
    if (is_first) {
        self->cause = *cause;
        if (self->table->abort != NULL) {
            self->table->abort(self->state, cause->text);
        }
    }
    pthread_mutex_unlock(&self->lock);
    if (is_first) {
        dl_extension_messages_end(self->messages, cause);
    }
}

/* Peers notice the end by what the backend does in close(). */
static void
leave_backend(dl_backend *backend)
{
    dl_extension *self = extension_of(backend);

    (void)dl_fail(DL_CANCELLED, "the group was left before the message had ended");
    const dl_error cause = *dl_last_error();
    dl_extension_messages_end(self->messages, &cause);
}

static void
free_parts(dl_extension *self)
{
    if (self->messages != NULL) {
        dl_extension_messages_unref(self->messages);
    }
    dl_store_unref(self->store);
    pthread_mutex_destroy(&self->lock);
    free((void *)self->base.ops);
    free(self->name);
    free(self);
}

static void
free_backend(dl_backend *backend)
{
    dl_extension *self = extension_of(backend);

    if (self->fork_generation == dl_fork_generation()) {
        leave_backend(backend);
        self->table->close(self->state);
    }
    free_parts(self);
}

/* The entries for the functions that the table has; the others stay NULL, and the group
 * fails calls of them. */
static dl_backend_ops *
ops_of(const distlite_backend *table, const char *name)
{
    dl_backend_ops *ops = calloc(1, sizeof *ops);

    if (ops != NULL) {
        *ops = (dl_backend_ops){
            .name = name,
            .collectives =
                {
                    [DL_BARRIER] = run_collective,
                    [DL_BROADCAST] = table->broadcast == NULL ? NULL : run_collective,
                    [DL_ALL_REDUCE] = table->all_reduce == NULL ? NULL : run_collective,
                    [DL_REDUCE] = table->reduce == NULL ? NULL : run_collective,
                    [DL_ALL_GATHER] = table->all_gather == NULL ? NULL : run_collective,
                    [DL_GATHER] = table->gather == NULL ? NULL : run_collective,
                    [DL_SCATTER] = table->scatter == NULL ? NULL : run_collective,
                    [DL_REDUCE_SCATTER] =
                        table->reduce_scatter == NULL ? NULL : run_collective,
                    [DL_ALL_TO_ALL] = table->all_to_all == NULL ? NULL : run_collective,
                },
            .post = dl_extension_has_messages(table) ? dl_extension_post : NULL,
            .abort = abort_backend,
            .leave = leave_backend,
            .free = free_backend,
        };
    }
    return ops;
}

static registered *
find_locked(const char *name)
{
    for (registered *each = tables; each != NULL; each = each->next) {
        if (strcmp(each->name, name) == 0) {
            return each;
        }
    }
    return NULL;
}

static dl_status
check_table(const char *name, const distlite_backend *table)
{
    if (table->version != (uint32_t)DISTLITE_BACKEND_VERSION) {
        return dl_fail(DL_INVALID,
                       "backend %s was built for version %u of <distlite/backend.h>, "
                       "and this distlite has version %d; build it with the header in "
                       "distlite.get_include()",
                       name, (unsigned)table->version, DISTLITE_BACKEND_VERSION);
    }
    if (table->size < TABLE_SIZE) {
        return dl_fail(DL_INVALID,
                       "backend %s has a table of %u bytes, fewer than the %zu of "
                       "version %d; set its member `size` to "
                       "sizeof(distlite_backend)",
                       name, (unsigned)table->size, TABLE_SIZE,
                       DISTLITE_BACKEND_VERSION);
    }
    const char *missing = table->open == NULL      ? "open"
                          : table->close == NULL   ? "close"
                          : table->barrier == NULL ? "barrier"
                                                   : NULL;
    return missing == NULL
               ? dl_extension_check_messages(name, table)
               : dl_fail(DL_INVALID,
                         "backend %s has no %s(), which every backend needs", name,
                         missing);
}

dl_status
dl_extension_register(const char *name, const dl_extension_table *table)
{
    size_t size = strlen(name) + 1;

    DL_TRY(check_table(name, table));
    pthread_mutex_lock(&lock);
    registered *known = find_locked(name);
    if (known == NULL) {
        known = malloc(sizeof *known + size);
        if (known != NULL) {
            memcpy(known->name, name, size);
            known->next = tables;
            tables = known;
        }
    }
    if (known != NULL) {
        known->table = table;
    }
    pthread_mutex_unlock(&lock);
    return known == NULL ? dl_fail_no_memory() : DL_OK;
}

static const distlite_backend *
find_table(const char *name)
{
    pthread_mutex_lock(&lock);
    const registered *known = find_locked(name);
    const distlite_backend *table = known == NULL ? NULL : known->table;
    pthread_mutex_unlock(&lock);
    return table;
}

bool
dl_extension_is_registered(const char *name)
{
    return find_table(name) != NULL;
}

static dl_status
open_backend(dl_extension *self, const dl_backend_options *options,
             dl_deadline deadline)
{
    dl_extension_call made =
        dl_extension_call_begin(self, &(dl_op_context){.deadline = deadline});
    distlite_group group = {
        .host = &dl_extension_host,
        .store = store_to(self->store),
        .name = options->group_name,
        .rank = self->rank,
        .world_size = self->size,
    };

    dl_blocking_begin();
    dl_extension_forget_error();
    int result = self->table->open(&group, &made.base, &self->state);
    return dl_extension_result(self, "open", result);
}

dl_status
dl_extension_backend_new(const dl_backend_options *options, dl_deadline deadline,
                         dl_backend **backend)
{
    dl_extension *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    pthread_mutex_init(&self->lock, NULL);
    self->table = find_table(options->backend_name);
    self->name = strdup(options->backend_name);
    self->base.ops = self->name == NULL ? NULL : ops_of(self->table, self->name);
    self->base.spans_hosts = true;
    self->store = options->store == NULL ? NULL : dl_store_ref(options->store);
    self->rank = options->rank;
    self->size = options->size;
    self->fork_generation = dl_fork_generation();
    self->messages = dl_extension_messages_new(self);
    dl_status status = self->base.ops == NULL || self->messages == NULL
                           ? dl_fail_no_memory()
                           : open_backend(self, options, deadline);
    if (status != DL_OK) {
        free_parts(self);
        return status;
    }
    *backend = &self->base;
    return DL_OK;
}
