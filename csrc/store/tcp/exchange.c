/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/exchange.h"

#include "base/thread.h"
#include "store/store.h"

/* A key that WAIT takes for present and GET does not, because it is only a queue's, or
 * that somebody deletes all the time, is asked for at this pace. */
#define FIRST_NAP DL_MILLISECOND
#define LAST_NAP DL_WAIT_SLICE

/* A client that was told of an item, and has stopped instead of popping it, keeps the
 * others from hearing of it: they look for themselves that often. */
#define LOOK_AGAIN DL_SECOND

/* Keeps the call's span, which is what errors name. */
dl_deadline
dl_call_answer_deadline(const dl_call *call)
{
    dl_deadline deadline = call->deadline;
    int64_t grace = dl_now() + DL_ANSWER_GRACE;

    deadline.at = deadline.at > grace ? deadline.at : grace;
    return deadline;
}

static dl_status
ask(dl_connection *connection, dl_call *call, dl_request *request)
{
    return dl_connection_ask(connection, request, call->key_prefix,
                             dl_call_answer_deadline(call));
}

/* SET, APPEND, MULTI_SET, QUEUE_PUSH. */
static dl_status
exchange_write(dl_connection *connection, dl_call *call)
{
    dl_deadline deadline = dl_call_answer_deadline(call);

    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(dl_connection_take_echo(connection, deadline));
    dl_connection_finish(connection);
    return DL_OK;
}

/* ADD, NUM_KEYS, DELETE_KEY, QUEUE_LEN. */
static dl_status
exchange_number(dl_connection *connection, dl_call *call)
{
    dl_deadline deadline = dl_call_answer_deadline(call);

    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(dl_connection_take_i64(connection, deadline, &call->number));
    dl_connection_finish(connection);
    return DL_OK;
}

static dl_status
exchange_check(dl_connection *connection, dl_call *call)
{
    dl_deadline deadline = dl_call_answer_deadline(call);
    uint8_t byte;

    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(dl_connection_take_u8(connection, deadline, &byte));
    if (byte != DL_WIRE_READY && byte != DL_WIRE_NOT_READY) {
        return dl_fail(DL_PROTOCOL, "ready or not_ready response expected");
    }
    call->is_ready = byte == DL_WIRE_READY;
    dl_connection_finish(connection);
    return DL_OK;
}

/* `count` values in a row: GET, COMPARE_SET, MULTI_GET. */
static dl_status
fetch(dl_connection *connection, dl_call *call, size_t count)
{
    dl_deadline deadline = dl_call_answer_deadline(call);

    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    for (size_t i = 0; i < count; i++) {
        /* A call that is done again finds what a lost try left here, and replaces
         * it. */
        DL_TRY(dl_connection_take_blob(connection, deadline, &call->values[i]));
    }
    dl_connection_finish(connection);
    return DL_OK;
}

static dl_status
exchange_compare_set(dl_connection *connection, dl_call *call)
{
    return fetch(connection, call, 1);
}

/* Reads the whole list before anybody sees it: it may have to be asked for again. */
static dl_status
exchange_list_keys(dl_connection *connection, dl_call *call)
{
    dl_deadline deadline = dl_call_answer_deadline(call);
    dl_buffer name = {0};

    dl_buffer_clear(call->values);
    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(dl_connection_take_i64(connection, deadline, &call->number));
    dl_status status = DL_OK;
    for (int64_t i = 0; i < call->number && status == DL_OK; i++) {
        status = dl_connection_take_blob(connection, deadline, &name);
        dl_put_bytes(call->values, dl_buffer_bytes(&name));
    }
    dl_buffer_fini(&name);
    if (status == DL_OK) {
        dl_connection_finish(connection);
        status = dl_buffer_check(call->values);
    }
    return status;
}

static dl_status
fail_wait_byte(void)
{
    return dl_fail(DL_PROTOCOL, "Stop_waiting response is expected");
}

static dl_status
take_wait_byte(dl_connection *connection, dl_deadline deadline, uint8_t *byte)
{
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(dl_connection_take_u8(connection, deadline, byte));
    return *byte == DL_WIRE_READY || *byte == DL_WIRE_CANCELLED ? DL_OK
                                                                : fail_wait_byte();
}

/* After the wait's answer has begun to arrive. */
static dl_status
end_wait(dl_connection *connection, bool *is_over)
{
    uint8_t byte;

    DL_TRY(take_wait_byte(connection, dl_deadline_after(DL_ANSWER_GRACE), &byte));
    if (byte != DL_WIRE_READY) {
        return fail_wait_byte();
    }
    *is_over = true;
    dl_connection_finish(connection);
    return DL_OK;
}

/* The deadline has passed.  Either the cancellation is answered alone, or the wait was
 * first, having come true before the server heard: then the call has what it wanted. */
static dl_status
cancel_wait(dl_connection *connection, dl_call *call, bool *is_over)
{
    dl_request cancel = {.op = DL_OP_CANCEL_WAIT};
    dl_deadline grace = dl_call_answer_deadline(call);
    uint8_t byte;

    DL_TRY(ask(connection, call, &cancel));
    DL_TRY(take_wait_byte(connection, grace, &byte));
    *is_over = byte == DL_WIRE_READY;
    if (*is_over) {
        DL_TRY(take_wait_byte(connection, grace, &byte));
    }
    if (byte != DL_WIRE_CANCELLED) {
        return fail_wait_byte();
    }
    dl_connection_finish(connection);
    return DL_OK;
}

/* WAIT or BARRIER, and its end.  When its deadline has passed already, the question and
 * its cancellation travel together, and the server decides.  DL_OK with `*is_over`
 * false: it timed out, and so it has when the server does not even cancel. */
static dl_status
wait_for(dl_connection *connection, dl_call *call, dl_request *request,
         dl_deadline deadline, bool *is_over)
{
    /* Of the shortest reply there is; the rest of it is not far then. */
    uint32_t begun = connection->is_ours ? 2 : 1;
    dl_status status = DL_TIMEOUT;

    *is_over = false;
    dl_connection_put(connection, request, call->key_prefix);
    if (!dl_deadline_passed(deadline)) {
        DL_TRY(dl_connection_send(connection, dl_call_answer_deadline(call)));
        status = dl_connection_await(connection, begun, deadline);
    }
    if (status == DL_OK) {
        return end_wait(connection, is_over);
    }
    if (status == DL_TIMEOUT) {
        status = cancel_wait(connection, call, is_over);
    }
    return status == DL_TIMEOUT ? DL_OK : status;
}

static dl_status
wait_for_keys(dl_connection *connection, dl_call *call, const dl_bytes *keys,
              size_t count, dl_deadline deadline)
{
    dl_request wait = {.op = DL_OP_WAIT, .keys = keys, .count = count};
    bool is_over;

    DL_TRY(wait_for(connection, call, &wait, deadline, &is_over));
    return is_over ? DL_OK : dl_store_fail_timeout("/", keys, count, call->deadline);
}

/* No round trip is saved by asking ours with CHECK first: WAIT is answered at once when
 * all keys are there. */
static dl_status
exchange_wait(dl_connection *connection, dl_call *call)
{
    return wait_for_keys(connection, call, call->request.keys, call->request.count,
                         call->deadline);
}

static dl_status
exchange_barrier(dl_connection *connection, dl_call *call)
{
    bool is_over;

    DL_TRY(wait_for(connection, call, &call->request, call->deadline, &is_over));
    return is_over ? DL_OK
                   : dl_store_fail_barrier_timeout(call->request.key, call->deadline);
}

/* Zero at first, since most often one wait suffices; then longer and longer. */
static dl_status
take_nap(dl_call *call, int64_t *nap)
{
    dl_deadline until = dl_deadline_sooner(call->deadline, *nap);
    int64_t longer = *nap == 0 ? FIRST_NAP : 2 * *nap;

    *nap = longer < LAST_NAP ? longer : LAST_NAP;
    return dl_sleep_until(until);
}

/* Ours answers for all keys of one moment.  Torch's may answer a GET after the key was
 * deleted again with an empty value, which cannot be told from one that was set. */
static dl_status
exchange_values(dl_connection *connection, dl_call *call, const dl_bytes *keys,
                size_t count)
{
    int64_t nap = 0;

    if (!connection->is_ours) {
        DL_TRY(wait_for_keys(connection, call, keys, count, call->deadline));
        return fetch(connection, call, count);
    }
    for (;;) {
        dl_status status = fetch(connection, call, count);
        if (status != DL_NOT_FOUND) {
            return status;
        }
        if (dl_deadline_passed(call->deadline)) {
            return dl_store_fail_timeout("/", keys, count, call->deadline);
        }
        DL_TRY(take_nap(call, &nap));
        DL_TRY(wait_for_keys(connection, call, keys, count, call->deadline));
    }
}

static dl_status
exchange_get(dl_connection *connection, dl_call *call)
{
    return exchange_values(connection, call, &call->request.key, 1);
}

static dl_status
exchange_multi_get(dl_connection *connection, dl_call *call)
{
    return exchange_values(connection, call, call->request.keys, call->request.count);
}

static dl_status
pop(dl_connection *connection, dl_call *call)
{
    dl_deadline deadline = dl_call_answer_deadline(call);
    int64_t size;

    /* All before it has been answered. */
    connection->has_sent = false;
    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(dl_connection_take_i64(connection, deadline, &size));
    if (size > 0) {
        DL_TRY(dl_connection_take_blob(connection, deadline, call->values));
    }
    dl_connection_finish(connection);
    return size > 0 ? DL_OK : dl_fail(DL_QUEUE_EMPTY, "queue is empty");
}

/* Several may be woken for one item, or none if the key holds a value as well: whoever
 * finds the queue empty waits again, and looks once more when time is up.  Losing the
 * connection while waiting loses no item. */
static dl_status
exchange_queue_pop(dl_connection *connection, dl_call *call)
{
    const dl_bytes *key = &call->request.key;
    int64_t nap = 0;

    for (;;) {
        /* With the request an item is on its way, which a second request would not
         * bring back. */
        call->is_repeatable = false;
        dl_status status = pop(connection, call);
        if (status != DL_QUEUE_EMPTY || !call->is_blocking) {
            return status;
        }
        call->is_repeatable = true;
        if (dl_deadline_passed(call->deadline)) {
            return dl_store_fail_timeout("/", key, 1, call->deadline);
        }
        DL_TRY(take_nap(call, &nap));
        status = wait_for_keys(connection, call, key, 1,
                               dl_deadline_sooner(call->deadline, LOOK_AGAIN));
        if (status == DL_TIMEOUT && connection->is_clean) {
            nap = 0;
        } else {
            DL_TRY(status);
        }
    }
}

/* By request.  Those that no call makes are missing: they are the connection's. */
typedef struct exchange_kind {
    const char *name;
    dl_status (*run)(dl_connection *connection, dl_call *call);
    bool is_repeatable;
} exchange_kind;

static const exchange_kind kinds[DL_OP_COUNT] = {
    [DL_OP_SET] = {"set", exchange_write, true},
    [DL_OP_COMPARE_SET] = {"compare_set", exchange_compare_set, false},
    [DL_OP_GET] = {"get", exchange_get, true},
    [DL_OP_ADD] = {"add", exchange_number, false},
    [DL_OP_CHECK] = {"check", exchange_check, true},
    [DL_OP_WAIT] = {"wait", exchange_wait, true},
    [DL_OP_NUM_KEYS] = {"num_keys", exchange_number, true},
    [DL_OP_DELETE_KEY] = {"delete_key", exchange_number, true},
    [DL_OP_APPEND] = {"append", exchange_write, false},
    [DL_OP_MULTI_GET] = {"multi_get", exchange_multi_get, true},
    [DL_OP_MULTI_SET] = {"multi_set", exchange_write, true},
    [DL_OP_QUEUE_PUSH] = {"queue_push", exchange_write, false},
    [DL_OP_QUEUE_POP] = {"queue_pop", exchange_queue_pop, false},
    [DL_OP_QUEUE_LEN] = {"queue_len", exchange_number, true},
    [DL_OP_LIST_KEYS] = {"list_keys", exchange_list_keys, true},
    [DL_OP_BARRIER] = {"barrier", exchange_barrier, false},
};

bool
dl_exchange_is_repeatable(dl_opcode op)
{
    return kinds[op].is_repeatable;
}

const char *
dl_exchange_name(dl_opcode op)
{
    return kinds[op].name;
}

static bool
is_about_queues(dl_opcode op)
{
    return op == DL_OP_QUEUE_PUSH || op == DL_OP_QUEUE_POP || op == DL_OP_QUEUE_LEN;
}

dl_status
dl_exchange(dl_connection *connection, dl_call *call)
{
    if (call->is_legacy && !connection->is_ours && is_about_queues(call->request.op)) {
        return dl_fail(DL_UNSUPPORTED,
                       "queues not implemented on legacy TCPStore backend");
    }
    return kinds[call->request.op].run(connection, call);
}
