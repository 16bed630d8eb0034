/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/exchange.h"

#include "base/thread.h"
#include "net/connect.h"
#include "store/store.h"
#include "store/tcp/tcp_store.h"

/* A key that WAIT takes for present and GET does not, because it is only a queue's, or
 * that somebody deletes all the time, is asked for at this pace. */
#define FIRST_NAP DL_MILLISECOND
#define LAST_NAP DL_WAIT_SLICE

/* A client that was told of an item, and has stopped instead of popping it, keeps the
 * others from hearing of it: they look for themselves that often. */
#define LOOK_AGAIN DL_SECOND

/* Keeps the call's span, which is what errors name. */
dl_deadline
dl_answer_deadline(const dl_tcp_call *call)
{
    dl_deadline deadline = call->deadline;
    int64_t grace = dl_now() + DL_ANSWER_GRACE;

    deadline.at = deadline.at > grace ? deadline.at : grace;
    return deadline;
}

static dl_status
ask(dl_connection *connection, dl_tcp_call *call, dl_store_request *request)
{
    return dl_connection_ask(connection, request, call->key_prefix,
                             dl_answer_deadline(call));
}

static dl_status
take_flag(dl_connection *connection, dl_deadline deadline, int64_t *number)
{
    uint8_t byte;

    DL_TRY(dl_connection_take_u8(connection, deadline, &byte));
    if (byte != DL_WIRE_READY && byte != DL_WIRE_NOT_READY) {
        return dl_fail(DL_PROTOCOL, "ready or not_ready response expected");
    }
    *number = byte == DL_WIRE_READY;
    return DL_OK;
}

/* A call that is done again finds what a lost try left here, and replaces it. */
static dl_status
take_values(dl_connection *connection, dl_deadline deadline, dl_buffer *values,
            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        DL_TRY(dl_connection_take_blob(connection, deadline, &values[i]));
    }
    return DL_OK;
}

static dl_status
take_names(dl_connection *connection, dl_deadline deadline, dl_store_reply *reply)
{
    dl_buffer name = {0};

    dl_buffer_clear(reply->values);
    DL_TRY(dl_connection_take_i64(connection, deadline, &reply->number));
    dl_status status = DL_OK;
    for (int64_t i = 0; i < reply->number && status == DL_OK; i++) {
        status = dl_connection_take_blob(connection, deadline, &name);
        dl_put_bytes(reply->values, dl_buffer_bytes(&name));
    }
    dl_buffer_fini(&name);
    return status == DL_OK ? dl_buffer_check(reply->values) : status;
}

/* The plain reply, which comes after the status of a checked one. */
static dl_status
take_reply(dl_connection *connection, dl_tcp_call *call, dl_deadline deadline)
{
    dl_store_reply *reply = &call->reply;

    switch (dl_request_kinds[call->request.op].reply) {
    case DL_REPLY_NONE:
        return dl_connection_take_echo(connection, deadline);
    case DL_REPLY_ALL_EXIST:
        return take_flag(connection, deadline, &reply->number);
    case DL_REPLY_EXISTED:
    case DL_REPLY_NUMBER:
        return dl_connection_take_i64(connection, deadline, &reply->number);
    case DL_REPLY_VALUE:
        return take_values(connection, deadline, reply->values, 1);
    case DL_REPLY_VALUES:
        return take_values(connection, deadline, reply->values, call->request.count);
    case DL_REPLY_ITEM:
        DL_TRY(dl_connection_take_i64(connection, deadline, &reply->number));
        return take_values(connection, deadline, reply->values, reply->number > 0);
    case DL_REPLY_NAMES:
        return take_names(connection, deadline, reply);
    default:
        return dl_fail(DL_INTERNAL, "the reply to %s is taken elsewhere",
                       dl_wire_op_name(call->request.op));
    }
}

/* One request and its reply. */
static dl_status
exchange_once(dl_connection *connection, dl_tcp_call *call)
{
    dl_deadline deadline = dl_answer_deadline(call);

    DL_TRY(ask(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(take_reply(connection, call, deadline));
    dl_connection_finish(connection);
    return DL_OK;
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
cancel_wait(dl_connection *connection, dl_tcp_call *call, bool *is_over)
{
    dl_store_request cancel = {.op = DL_OP_CANCEL_WAIT};
    dl_deadline grace = dl_answer_deadline(call);
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
wait_for(dl_connection *connection, dl_tcp_call *call, dl_store_request *request,
         dl_deadline deadline, bool *is_over)
{
    /* Of the shortest reply there is; the rest of it is not far then. */
    uint32_t begun = connection->is_ours ? 2 : 1;
    dl_status status = DL_TIMEOUT;

    *is_over = false;
    dl_connection_put(connection, request, call->key_prefix);
    if (!dl_deadline_passed(deadline)) {
        DL_TRY(dl_connection_send(connection, dl_answer_deadline(call)));
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
wait_for_keys(dl_connection *connection, dl_tcp_call *call, const dl_bytes *keys,
              size_t count, dl_deadline deadline)
{
    dl_store_request wait = {.op = DL_OP_WAIT, .keys = keys, .count = count};
    bool is_over;

    DL_TRY(wait_for(connection, call, &wait, deadline, &is_over));
    return is_over ? DL_OK : dl_store_fail_timeout("/", keys, count, call->deadline);
}

static dl_status
exchange_barrier(dl_connection *connection, dl_tcp_call *call)
{
    bool is_over;

    DL_TRY(wait_for(connection, call, &call->request, call->deadline, &is_over));
    return is_over ? DL_OK
                   : dl_store_fail_barrier_timeout(call->request.key, call->deadline);
}

/* Zero at first, since most often one wait suffices; then longer and longer. */
static dl_status
take_nap(dl_tcp_call *call, int64_t *nap)
{
    dl_deadline until = dl_deadline_sooner(call->deadline, *nap);
    int64_t longer = *nap == 0 ? FIRST_NAP : 2 * *nap;

    *nap = longer < LAST_NAP ? longer : LAST_NAP;
    return dl_sleep_until(until);
}

/* GET and MULTI_GET.  Ours answers for all keys of one moment.  Torch's may answer a GET
 * after the key was deleted again with an empty value, which cannot be told from one that
 * was set. */
static dl_status
exchange_values(dl_connection *connection, dl_tcp_call *call, const dl_bytes *keys,
                size_t count)
{
    int64_t nap = 0;

    if (!connection->is_ours) {
        DL_TRY(wait_for_keys(connection, call, keys, count, call->deadline));
        return exchange_once(connection, call);
    }
    for (;;) {
        dl_status status = exchange_once(connection, call);
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
pop(dl_connection *connection, dl_tcp_call *call)
{
    /* Every request before this one has been answered. */
    connection->has_sent = false;
    DL_TRY(exchange_once(connection, call));
    return call->reply.number > 0 ? DL_OK : dl_fail(DL_QUEUE_EMPTY, "queue is empty");
}

/* Torch's blocking pop is a WAIT and then a POP; this one pops first, which is one round
 * trip when there is an item.  Several may be woken for one item, or none if the key holds a value as well: whoever
 * finds the queue empty waits again, and looks once more when time is up.  Losing the
 * connection while waiting loses no item. */
static dl_status
exchange_queue_pop(dl_connection *connection, dl_tcp_call *call)
{
    const dl_bytes *key = &call->request.key;
    int64_t nap = 0;

    for (;;) {
        /* With the request an item is on its way, which a second request would not
         * bring back. */
        call->is_repeatable = false;
        dl_status status = pop(connection, call);
        if (status != DL_QUEUE_EMPTY || !call->request.is_blocking) {
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

dl_status
dl_exchange(dl_connection *connection, dl_tcp_call *call)
{
    size_t count;
    const dl_bytes *keys = dl_request_keys(&call->request, &count);

    if (call->is_legacy && !connection->is_ours
        && dl_request_kinds[call->request.op].needs_queues) {
        return dl_fail(DL_UNSUPPORTED,
                       "queues not implemented on legacy TCPStore backend");
    }
    switch (call->request.op) {
    case DL_OP_GET:
    case DL_OP_MULTI_GET:
        return exchange_values(connection, call, keys, count);
    case DL_OP_QUEUE_POP:
        return exchange_queue_pop(connection, call);
    case DL_OP_WAIT:
        return wait_for_keys(connection, call, keys, count, call->deadline);
    case DL_OP_BARRIER:
        return exchange_barrier(connection, call);
    default:
        return exchange_once(connection, call);
    }
}

/* A server that drops one call so often does so because of that call. */
#define LOSSES_MAX 4

typedef struct try_result {
    bool is_lost;       /* the connection was, or could not be made */
    bool was_connected; /* some server was there */
    bool was_idle;      /* the connection may have been dead for long */
    bool is_unknown;    /* what cannot be repeated may have happened */
} try_result;

/* What leaves the two sides in step.  After any other refusal the server may close. */
static bool
is_harmless(dl_status status)
{
    return status == DL_OK || status == DL_TIMEOUT || status == DL_NOT_FOUND
           || status == DL_QUEUE_EMPTY || status == DL_UNSUPPORTED;
}

static dl_status
try_once(dl_connection_pool *pool, dl_tcp_call *call, dl_deadline open_by,
         try_result *result)
{
    dl_connection *connection = dl_connection_pool_take(
        pool, !dl_request_kinds[call->request.op].is_repeatable);

    *result = (try_result){.was_idle = connection != NULL};
    if (connection == NULL) {
        dl_status status = dl_connection_pool_open(pool, NULL, open_by, &connection);
        if (status != DL_OK) {
            result->is_lost = status == DL_NETWORK || status == DL_PROTOCOL;
            return status;
        }
    }
    dl_status status = dl_exchange(connection, call);
    result->was_connected = true;
    /* What a server says of itself leaves the connection clean: that is no loss. */
    result->is_lost = status == DL_NETWORK && !connection->is_clean;
    result->is_unknown =
        !connection->is_clean && !call->is_repeatable && connection->has_sent;
    connection->is_clean = connection->is_clean && is_harmless(status);
    dl_connection_pool_give(pool, connection);
    return status;
}

static dl_status
check_open(const dl_connection_pool *pool, dl_status status)
{
    if (atomic_load(&pool->is_closed) && status != DL_OK && status != DL_INTERRUPTED) {
        return dl_fail(DL_CLOSED, "this TCPStore was closed during the call");
    }
    return status;
}

static dl_status
fail_unknown(const dl_tcp_call *call)
{
    const char *name = dl_request_kinds[call->request.op].name;

    return dl_fail(dl_last_error()->status,
                   "%s. The outcome of %s is unknown: the server may or may not have "
                   "done it.",
                   dl_last_error()->text, name);
}

/* Whether there is another try, and when. */
static dl_status
pause_before(const dl_connection_pool *pool, const try_result *result,
             dl_backoff *backoff, dl_deadline until)
{
    if (result->was_idle) {
        return DL_OK;
    }
    return dl_backoff_sleep(backoff, until, &pool->is_closed);
}

/* A server that is there may take its time to answer; one that is not says so at once. */
static dl_deadline
open_deadline(dl_deadline until)
{
    return (dl_deadline){.at = dl_now() + DL_ANSWER_GRACE, .limit = until.limit};
}

/* After a loss, until there is an answer, or no sense in trying:
 *
 *   the lost connection had been idle   on to a new one at once
 *   it was new, or there was none       pause, longer each time, until the patience that
 *                                       began with the last loss is used up
 *   what it carried must happen once    stop
 *
 * After the loss that `result` and the thread's last error are about. */
static dl_status
try_again(dl_connection_pool *pool, dl_tcp_call *call, try_result *result)
{
    dl_deadline until = dl_deadline_sooner(call->deadline, DL_TCP_STORE_PATIENCE);
    /* What the caller shall hear of if all else fails: why the connection was lost, and
     * not only that nobody listens any more. */
    dl_error loss = *dl_last_error();
    dl_backoff backoff = {0};
    /* Only losses by a server that was there are counted; one that is being restarted
     * may refuse connections for as long as the patience lasts. */
    int losses = result->was_connected;

    dl_connection_pool_drop_idle(pool);
    while (!result->is_unknown && losses <= LOSSES_MAX) {
        dl_status status = pause_before(pool, result, &backoff, until);
        if (status == DL_TIMEOUT) {
            break;
        }
        DL_TRY(status);
        status = try_once(pool, call, open_deadline(until), result);
        if (!result->is_lost) {
            return status;
        }
        if (result->was_connected) {
            until = dl_deadline_sooner(call->deadline, DL_TCP_STORE_PATIENCE);
            loss = *dl_last_error();
            losses++;
        }
    }
    if (result->is_unknown) {
        return DL_NETWORK;
    }
    if (result->was_connected) {
        return dl_fail_again(&loss);
    }
    /* No connection was lost: the last try's text has the time for which it was tried. */
    return losses == 0 ? dl_last_error()->status
                       : dl_fail(DL_NETWORK, "%s. Reconnecting failed: %s", loss.text,
                                 dl_last_error()->text);
}

dl_status
dl_retry(dl_connection_pool *pool, dl_tcp_call *call)
{
    try_result result;
    dl_status status = try_once(pool, call, dl_answer_deadline(call), &result);

    if (result.is_lost && !atomic_load(&pool->is_closed)) {
        status = try_again(pool, call, &result);
    }
    status = check_open(pool, status);
    if (result.is_unknown && (status == DL_NETWORK || status == DL_TIMEOUT)) {
        return fail_unknown(call);
    }
    return status;
}
