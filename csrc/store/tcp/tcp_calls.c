/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/tcp_calls.h"

#include "store/tcp/retry.h"

/* Every user key gets a "/" on the wire, which keeps them apart from the client's own. */
static dl_status
run(dl_store *store, dl_call *call, dl_deadline deadline)
{
    dl_tcp_client *self = (dl_tcp_client *)store;

    call->key_prefix = DL_LITERAL("/");
    call->deadline = deadline;
    call->is_legacy = !self->uses_libuv;
    call->is_repeatable = dl_exchange_is_repeatable(call->request.op);
    return dl_retry(&self->pool, call);
}

/* The following differ in what becomes of the reply. */

static dl_status
run_number(dl_store *store, dl_request request, int64_t *number, dl_deadline deadline)
{
    dl_call call = {.request = request};

    DL_TRY(run(store, &call, deadline));
    *number = call.number;
    return DL_OK;
}

static dl_status
run_write(dl_store *store, dl_request request, dl_deadline deadline)
{
    dl_call call = {.request = request};

    return run(store, &call, deadline);
}

static dl_status
run_values(dl_store *store, dl_request request, dl_buffer *values, dl_deadline deadline)
{
    dl_call call = {.request = request, .values = values};

    return run(store, &call, deadline);
}

dl_status
dl_tcp_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    return run_write(store, (dl_request){.op = DL_OP_SET, .key = key, .value = value},
                     deadline);
}

dl_status
dl_tcp_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    return run_values(store, (dl_request){.op = DL_OP_GET, .key = key}, value,
                      deadline);
}

dl_status
dl_tcp_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
           dl_deadline deadline)
{
    return run_number(store, (dl_request){.op = DL_OP_ADD, .key = key, .number = delta},
                      sum, deadline);
}

dl_status
dl_tcp_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                   dl_buffer *held, dl_deadline deadline)
{
    return run_values(store,
                      (dl_request){.op = DL_OP_COMPARE_SET,
                                   .key = key,
                                   .expected = expected,
                                   .value = desired},
                      held, deadline);
}

dl_status
dl_tcp_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    int64_t count;

    DL_TRY(run_number(store, (dl_request){.op = DL_OP_DELETE_KEY, .key = key}, &count,
                      deadline));
    *existed = count > 0;
    return DL_OK;
}

dl_status
dl_tcp_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
             dl_deadline deadline)
{
    dl_call call = {.request = {.op = DL_OP_CHECK, .keys = keys, .count = count}};

    DL_TRY(run(store, &call, deadline));
    *exist = call.is_ready;
    return DL_OK;
}

dl_status
dl_tcp_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    return run_write(
        store, (dl_request){.op = DL_OP_WAIT, .keys = keys, .count = count}, deadline);
}

dl_status
dl_tcp_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    return run_number(store, (dl_request){.op = DL_OP_NUM_KEYS}, count, deadline);
}

/* Names without the leading slash are the clients' own. */
static dl_status
visit_user_keys(dl_bytes names, int64_t count,
                dl_status (*visit)(void *context, dl_bytes key), void *context)
{
    dl_reader reader = dl_reader_of(names);
    dl_bytes name;

    for (int64_t i = 0; i < count; i++) {
        /* Cannot fail: the exchange put `count` of them there itself. */
        dl_take_bytes(&reader, SIZE_MAX, &name);
        if (name.size > 0 && name.data[0] == '/') {
            DL_TRY(visit(context, (dl_bytes){name.data + 1, name.size - 1}));
        }
    }
    return DL_OK;
}

dl_status
dl_tcp_list_keys(dl_store *store, dl_status (*visit)(void *context, dl_bytes key),
                 void *context, dl_deadline deadline)
{
    dl_buffer names = {0};
    dl_call call = {.request = {.op = DL_OP_LIST_KEYS}, .values = &names};

    dl_status status = run(store, &call, deadline);
    if (status == DL_OK) {
        status = visit_user_keys(dl_buffer_bytes(&names), call.number, visit, context);
    }
    dl_buffer_fini(&names);
    return status;
}

dl_status
dl_tcp_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    return run_write(
        store, (dl_request){.op = DL_OP_APPEND, .key = key, .value = value}, deadline);
}

dl_status
dl_tcp_multi_get(dl_store *store, const dl_bytes *keys, size_t count, dl_buffer *values,
                 dl_deadline deadline)
{
    return run_values(store,
                      (dl_request){.op = DL_OP_MULTI_GET, .keys = keys, .count = count},
                      values, deadline);
}

dl_status
dl_tcp_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                 size_t count, dl_deadline deadline)
{
    return run_write(
        store,
        (dl_request){
            .op = DL_OP_MULTI_SET, .keys = keys, .values = values, .count = count},
        deadline);
}

dl_status
dl_tcp_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    return run_write(store,
                     (dl_request){.op = DL_OP_QUEUE_PUSH, .key = key, .value = value},
                     deadline);
}

/* Torch's blocking pop is a WAIT and then a POP; ours pops first, which is one round trip
 * when there is an item. */
dl_status
dl_tcp_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
                 dl_deadline deadline)
{
    dl_call call = {.request = {.op = DL_OP_QUEUE_POP, .key = key},
                    .is_blocking = is_blocking,
                    .values = value};

    return run(store, &call, deadline);
}

dl_status
dl_tcp_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    return run_number(store, (dl_request){.op = DL_OP_QUEUE_LEN, .key = key}, count,
                      deadline);
}

dl_status
dl_tcp_barrier(dl_store *store, dl_bytes key, int64_t world_size, dl_deadline deadline)
{
    return run_write(
        store, (dl_request){.op = DL_OP_BARRIER, .key = key, .number = world_size},
        deadline);
}
