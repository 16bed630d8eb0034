/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A backend of distlite in C, as small as it can be: "board" moves all data through the
 * group's store.  It is an example for <distlite/backend.h>, and slow.  Build it with
 *
 *     cc -shared -fPIC -I$(python -c "import distlite; print(distlite.get_include())") \
 *         $(python3-config --includes) -o board.so board.c
 */
#include <Python.h>

#include <distlite/backend.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many messages of one tag have gone to a rank, or have come from it. */
typedef struct stream {
    struct stream *next;
    int64_t tag;
    int32_t peer;
    int32_t is_send;
    uint64_t count;
} stream;

/* A message that is under way. */
typedef struct request {
    struct request *next;
    distlite_message message;
} request;

typedef struct board {
    const distlite_host *host;
    distlite_store *store;
    int32_t rank;
    int32_t size;
    stream *streams;
    request *requests; /* in the order in which they were posted */
} board;

#define TRY(call)                     \
    do {                              \
        int result_ = (call);         \
        if (result_ != DISTLITE_OK) { \
            return result_;           \
        }                             \
    } while (0)

/* Keys are "<operation>/<from>/<to>"; a rank that gives all others the same writes it
 * once, for rank -1. */
static int
put(const board *self, const distlite_call *call, int32_t to, const void *data,
    size_t size)
{
    char key[64];

    snprintf(key, sizeof key, "%" PRIu64 "/%" PRId32 "/%" PRId32, call->sequence,
             self->rank, to);
    return self->host->set(self->store, call, key, data, size);
}

static int
take(const board *self, const distlite_call *call, int32_t from, int32_t to, void *data,
     size_t size)
{
    char key[64];
    size_t found;

    snprintf(key, sizeof key, "%" PRIu64 "/%" PRId32 "/%" PRId32, call->sequence, from,
             to);
    TRY(self->host->get(self->store, call, key, data, size, &found));
    if (found != size) {
        return self->host->fail(DISTLITE_FAILED,
                                "rank %d gives %zu bytes, and %zu are expected",
                                (int)from, found, size);
    }
    return DISTLITE_OK;
}

static size_t
size_of(const distlite_array *array)
{
    return array->count * array->item_size;
}

/* All ranks write a key and read those of the others, after which nobody needs the keys of
 * the operation before. */
static int
barrier(void *state, const distlite_call *call)
{
    const board *self = state;
    char nothing;

    TRY(put(self, call, -1, "", 0));
    for (int32_t rank = 0; rank < self->size; rank++) {
        TRY(take(self, call, rank, -1, &nothing, 0));
    }
    return DISTLITE_OK;
}

static int
open_board(const distlite_group *group, const distlite_call *call, void **state)
{
    board *self = malloc(sizeof *self);

    if (self == NULL) {
        return group->host->fail(DISTLITE_NO_MEMORY, "no memory for the group's state");
    }
    *self =
        (board){group->host, group->store, group->rank, group->world_size, NULL, NULL};
    int result = barrier(self, call);
    if (result != DISTLITE_OK) {
        free(self);
        return result;
    }
    *state = self;
    return DISTLITE_OK;
}

static void
close_board(void *state)
{
    board *self = state;

    while (self->streams != NULL) {
        stream *next = self->streams->next;
        free(self->streams);
        self->streams = next;
    }
    free(self);
}

static int
broadcast(void *state, const distlite_call *call, const distlite_array *array,
          int32_t root)
{
    const board *self = state;

    return self->rank == root ? put(self, call, -1, array->data, size_of(array))
                              : take(self, call, root, -1, array->data, size_of(array));
}

/* Combines the arrays of all ranks in `total`, in the order of the ranks. */
static int
combine(const board *self, const distlite_call *call, const distlite_array *array,
        int32_t to, int32_t reduction, void *total, void *next)
{
    for (int32_t rank = 0; rank < self->size; rank++) {
        TRY(take(self, call, rank, to, rank == 0 ? total : next, size_of(array)));
        if (rank > 0) {
            TRY(self->host->reduce(reduction, array->dtype, total, total, next,
                                   array->count));
        }
    }
    return reduction == DISTLITE_AVG
               ? self->host->divide(array->dtype, total, array->count, self->size)
               : DISTLITE_OK;
}

static int
all_reduce(void *state, const distlite_call *call, const distlite_array *array,
           int32_t reduction, double factor)
{
    const board *self = state;
    size_t size = size_of(array);
    char *total = malloc(2 * size + 1);

    if (total == NULL) {
        return self->host->fail(DISTLITE_NO_MEMORY, "no memory for %zu bytes",
                                2 * size);
    }
    memcpy(total, array->data, size);
    int result = reduction == DISTLITE_PREMUL_SUM
                     ? self->host->scale(array->dtype, total, array->count, factor)
                     : DISTLITE_OK;
    if (result == DISTLITE_OK) {
        result = put(self, call, -1, total, size);
    }
    if (result == DISTLITE_OK) {
        result = combine(self, call, array, -1, reduction, total, total + size);
    }
    if (result == DISTLITE_OK) {
        memcpy(array->data, total, size);
    }
    free(total);
    return result;
}

static int
all_gather(void *state, const distlite_call *call, const distlite_array *input,
           const distlite_array *outputs)
{
    const board *self = state;

    TRY(put(self, call, -1, input->data, size_of(input)));
    for (int32_t rank = 0; rank < self->size; rank++) {
        TRY(take(self, call, rank, -1, outputs[rank].data, size_of(&outputs[rank])));
    }
    return DISTLITE_OK;
}

static int
gather(void *state, const distlite_call *call, const distlite_array *input,
       const distlite_array *outputs, int32_t root)
{
    const board *self = state;

    TRY(put(self, call, root, input->data, size_of(input)));
    for (int32_t rank = 0; self->rank == root && rank < self->size; rank++) {
        TRY(take(self, call, rank, root, outputs[rank].data, size_of(&outputs[rank])));
    }
    return DISTLITE_OK;
}

static int
scatter(void *state, const distlite_call *call, const distlite_array *inputs,
        const distlite_array *output, int32_t root)
{
    const board *self = state;

    for (int32_t rank = 0; self->rank == root && rank < self->size; rank++) {
        TRY(put(self, call, rank, inputs[rank].data, size_of(&inputs[rank])));
    }
    return take(self, call, root, self->rank, output->data, size_of(output));
}

static int
all_to_all(void *state, const distlite_call *call, const distlite_array *inputs,
           const distlite_array *outputs)
{
    const board *self = state;

    for (int32_t rank = 0; rank < self->size; rank++) {
        TRY(put(self, call, rank, inputs[rank].data, size_of(&inputs[rank])));
    }
    for (int32_t rank = 0; rank < self->size; rank++) {
        TRY(take(self, call, rank, self->rank, outputs[rank].data,
                 size_of(&outputs[rank])));
    }
    return DISTLITE_OK;
}

/* Messages.  Those of two ranks with one tag are numbered: "m/<from>/<to>/<tag>/<number>"
 * is the key of one, which its receiver deletes. */

static stream *
open_stream(board *self, int32_t peer, int64_t tag, int32_t is_send)
{
    stream *found = self->streams;

    while (found != NULL
           && (found->peer != peer || found->tag != tag || found->is_send != is_send)) {
        found = found->next;
    }
    if (found == NULL) {
        found = malloc(sizeof *found);
        if (found != NULL) {
            *found = (stream){self->streams, tag, peer, is_send, 0};
            self->streams = found;
        }
    }
    return found;
}

static void
name_message(char key[96], int32_t from, int32_t to, const stream *of)
{
    snprintf(key, 96, "m/%" PRId32 "/%" PRId32 "/%" PRId64 "/%" PRIu64, from, to,
             of->tag, of->count);
}

static int
send_now(board *self, const distlite_call *call, const distlite_message *message)
{
    stream *to = open_stream(self, message->peer, message->tag, 1);
    char key[96];

    if (to == NULL) {
        return self->host->fail(DISTLITE_NO_MEMORY, "no memory for a message");
    }
    name_message(key, self->rank, message->peer, to);
    TRY(self->host->set(self->store, call, key, message->array.data,
                        size_of(&message->array)));
    to->count++;
    return DISTLITE_OK;
}

static int
post(void *state, const distlite_call *call, const distlite_message *message,
     void **made)
{
    board *self = state;
    request **last = &self->requests;
    request *new = malloc(sizeof *new);

    if (new == NULL) {
        return self->host->fail(DISTLITE_NO_MEMORY, "no memory for a message");
    }
    if (message->is_send) {
        int result = send_now(self, call, message);
        if (result != DISTLITE_OK) {
            free(new);
            return result;
        }
    }
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *new = (request){NULL, *message};
    *last = new;
    *made = new;
    return DISTLITE_OK;
}

static void
drop(board *self, request *old)
{
    request **at = &self->requests;

    while (*at != old) {
        at = &(*at)->next;
    }
    *at = old->next;
    free(old);
}

/* Whether an earlier receive has to get the next message of a rank. */
static int
is_behind(const board *self, const request *mine, int32_t peer)
{
    for (const request *each = self->requests; each != mine; each = each->next) {
        if (!each->message.is_send && each->message.tag == mine->message.tag
            && (each->message.peer == peer
                || each->message.peer == DISTLITE_ANY_RANK)) {
            return 1;
        }
    }
    return 0;
}

static int
look(board *self, const distlite_call *call, request *mine, int32_t peer,
     int32_t *is_done)
{
    const distlite_array *array = &mine->message.array;
    stream *from = open_stream(self, peer, mine->message.tag, 0);
    char key[96];
    size_t size;

    if (from == NULL) {
        return self->host->fail(DISTLITE_NO_MEMORY, "no memory for a message");
    }
    name_message(key, peer, self->rank, from);
    int result =
        self->host->get(self->store, call, key, array->data, size_of(array), &size);
    if (result == DISTLITE_TIMEOUT) {
        return DISTLITE_OK; /* there is none yet */
    }
    TRY(result);
    from->count++;
    TRY(self->host->delete_key(self->store, call, key));
    if (size > size_of(array)) {
        return self->host->fail(DISTLITE_FAILED,
                                "rank %d sends %zu bytes, and there is room for %zu",
                                (int)peer, size, size_of(array));
    }
    *is_done = 1;
    return DISTLITE_OK;
}

static int
test(void *state, const distlite_call *call, void *handle, int32_t *is_done,
     int32_t *source)
{
    board *self = state;
    request *mine = handle;
    int32_t first = mine->message.peer, last = mine->message.peer;
    int result = DISTLITE_OK;

    *is_done = mine->message.is_send;
    if (first == DISTLITE_ANY_RANK) {
        first = 0;
        last = self->size - 1;
    }
    for (int32_t peer = first; peer <= last && !*is_done && result == DISTLITE_OK;
         peer++) {
        if (peer != self->rank && !is_behind(self, mine, peer)) {
            *source = peer;
            result = look(self, call, mine, peer, is_done);
        }
    }
    if (*is_done || result != DISTLITE_OK) {
        drop(self, mine);
    }
    return result;
}

static void
cancel(void *state, void *handle)
{
    drop(state, handle);
}

/* reduce and reduce_scatter are left out: calls of them raise an error that says so. */
static const distlite_backend backend = {
    .version = DISTLITE_BACKEND_VERSION,
    .size = sizeof backend,
    .open = open_board,
    .close = close_board,
    .barrier = barrier,
    .broadcast = broadcast,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .gather = gather,
    .scatter = scatter,
    .all_to_all = all_to_all,
    .post = post,
    .test = test,
    .cancel = cancel,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "board",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit_board(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *capsule = PyCapsule_New((void *)&backend, DISTLITE_BACKEND_CAPSULE, NULL);

    if (module == NULL || capsule == NULL
        || PyModule_AddObjectRef(module, "backend", capsule) < 0) {
        Py_XDECREF(module);
        module = NULL;
    }
    Py_XDECREF(capsule);
    return module;
}
