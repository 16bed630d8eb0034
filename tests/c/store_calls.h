/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests of a store that the core itself does not make; the binding passes them on as
 * requests (store/request.h). */
#ifndef DISTLITE_TESTS_STORE_CALLS_H
#define DISTLITE_TESTS_STORE_CALLS_H

#include "base/reader.h"
#include "store/store.h"

/* Calls `visit` for the name of each value; its first failure ends the listing and is
 * returned.  `visit` may use the store. */
static inline dl_status
dl_store_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
                   dl_deadline deadline)
{
    const dl_store_request request = {.op = DL_OP_LIST_KEYS};
    dl_buffer names = {0};
    dl_store_reply reply = {.values = &names};
    dl_bytes name;

    dl_status status = dl_store_execute(store, &request, &reply, deadline);
    dl_reader reader = dl_reader_of(dl_buffer_bytes(&names));
    while (status == DL_OK && dl_take_bytes(&reader, SIZE_MAX, &name) == 1) {
        status = visit(context, name);
    }
    dl_buffer_fini(&names);
    return status;
}

static inline dl_status
dl_store_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_NUM_KEYS};
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, &request, &reply, deadline));
    *count = reply.number;
    return DL_OK;
}

static inline dl_status
dl_store_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_APPEND, .key = key, .value = value};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

static inline dl_status
dl_store_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                   size_t count, dl_deadline deadline)
{
    dl_store_request request = {
        .op = DL_OP_MULTI_SET, .keys = keys, .values = values, .count = count};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

static inline dl_status
dl_store_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_QUEUE_PUSH, .key = key, .value = value};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

/* Returns DL_QUEUE_EMPTY if the queue is empty and `is_blocking` is false. */
static inline dl_status
dl_store_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
                   dl_deadline deadline)
{
    dl_store_request request = {
        .op = DL_OP_QUEUE_POP, .key = key, .is_blocking = is_blocking};

    return dl_store_execute(store, &request, &(dl_store_reply){.values = value},
                            deadline);
}

static inline dl_status
dl_store_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_QUEUE_LEN, .key = key};
    dl_store_reply reply = {0};

    DL_TRY(dl_store_execute(store, &request, &reply, deadline));
    *count = reply.number;
    return DL_OK;
}

static inline dl_status
dl_store_barrier(dl_store *store, dl_bytes key, int64_t world_size,
                 dl_deadline deadline)
{
    dl_store_request request = {.op = DL_OP_BARRIER, .key = key, .number = world_size};

    return dl_store_execute(store, &request, &(dl_store_reply){0}, deadline);
}

#endif
