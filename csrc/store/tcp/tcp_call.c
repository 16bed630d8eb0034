/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/tcp_call.h"

#include "base/thread.h"
#include "net/connect.h"
#include "store/store.h"

/* The pauses between tries of a get when WAIT succeeds and GET still finds no value:
 * the key may be deleted again and again. */
#define FIRST_PAUSE DL_MILLISECOND
#define LAST_PAUSE DL_WAIT_SLICE

/* A push wakes only one client of torch's server.  If that client is stopped before it
 * pops the item, the others are not woken, so each tries to pop at this interval. */
#define POP_INTERVAL DL_SECOND

/* The deadline for replies that wait for no key: the call's own, or DL_ANSWER_GRACE
 * from now if that is later.  Only `at` changes: `limit` stays the call's timeout,
 * which error texts name. */
static dl_deadline
answer_deadline(const dl_tcp_call *call)
{
    dl_deadline deadline = call->deadline;
    int64_t grace = dl_now() + DL_ANSWER_GRACE;

    deadline.at = deadline.at > grace ? deadline.at : grace;
    return deadline;
}

static dl_status
ask_server(dl_connection *connection, dl_tcp_call *call, dl_store_request *request)
{
    return dl_connection_ask(connection, request, call->key_prefix,
                             answer_deadline(call));
}

/* Replaces the buffers' contents: a repeated call may find the values of a lost try. */
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

/* Reads the plain reply, which follows the status in the reply to a checked request. */
static dl_status
take_reply(dl_connection *connection, dl_tcp_call *call, dl_deadline deadline)
{
    dl_store_reply *reply = &call->reply;
    bool is_ready;

    switch (dl_request_kinds[call->request.op].reply) {
    case DL_REPLY_NONE:
        return dl_connection_take_echo(connection, deadline);
    case DL_REPLY_ALL_EXIST:
        DL_TRY(dl_connection_take_flag(connection, deadline, &is_ready));
        reply->number = is_ready;
        return DL_OK;
    case DL_REPLY_EXISTED:
    case DL_REPLY_NUMBER:
        return dl_connection_take_i64(connection, deadline, &reply->number);
    case DL_REPLY_VALUE:
    case DL_REPLY_STATS:
        return take_values(connection, deadline, reply->values, 1);
    case DL_REPLY_VALUES:
        return take_values(connection, deadline, reply->values, call->request.count);
    case DL_REPLY_ITEM:
        DL_TRY(dl_connection_take_i64(connection, deadline, &reply->number));
        return take_values(connection, deadline, reply->values, reply->number > 0);
    case DL_REPLY_NAMES:
        return take_names(connection, deadline, reply);
    default:
        return dl_fail(DL_INTERNAL, "the reply to %s has no decoder here",
                       dl_request_kinds[call->request.op].wire_name);
    }
}

/* Sends the call's request and reads its reply. */
static dl_status
exchange_once(dl_connection *connection, dl_tcp_call *call)
{
    dl_deadline deadline = answer_deadline(call);

    DL_TRY(ask_server(connection, call, &call->request));
    DL_TRY(dl_connection_take_status(connection, deadline));
    DL_TRY(take_reply(connection, call, deadline));
    dl_connection_end_reply(connection);
    return DL_OK;
}

/* Reads the reply to a wait.  If it `is_cancelled`, the server answers the cancellation
 * alone, or first the wait, if that ended before the server read the cancellation:
 * `*is_over` is then true, and the call has succeeded. */
static dl_status
end_wait(dl_connection *connection, dl_deadline deadline, bool is_cancelled,
         bool *is_over)
{
    uint8_t byte = DL_WIRE_READY;
    bool was_ready = false;

    for (int i = 0; i <= is_cancelled && byte == DL_WIRE_READY; i++) {
        DL_TRY(dl_connection_take_status(connection, deadline));
        DL_TRY(dl_connection_take_u8(connection, deadline, &byte));
        was_ready |= byte == DL_WIRE_READY;
    }
    if (byte != (is_cancelled ? DL_WIRE_CANCELLED : DL_WIRE_READY)) {
        return dl_fail(DL_PROTOCOL, "Stop_waiting response is expected");
    }
    /* Only now: while a reply is outstanding, the call must send nothing more. */
    *is_over = was_ready;
    dl_connection_end_reply(connection);
    return DL_OK;
}

/* Sends a WAIT or BARRIER and waits for its end.  If the deadline has passed already,
 * the request and its cancellation are sent together, and the server decides which
 * applies.  Returns DL_OK with `*is_over` false on a timeout, also when the server does
 * not answer the cancellation. */
static dl_status
wait_for(dl_connection *connection, dl_tcp_call *call, dl_store_request *request,
         dl_deadline deadline, bool *is_over)
{
    dl_store_request cancel = {.op = DL_OP_CANCEL_WAIT};
    /* Size of the shortest reply; the rest of a longer one follows at once. */
    uint32_t begun = connection->is_distlite ? 2 : 1;
    dl_status status = DL_TIMEOUT;

    *is_over = false;
    dl_connection_put(connection, request, call->key_prefix);
    if (!dl_deadline_passed(deadline)) {
        DL_TRY(dl_connection_send(connection, answer_deadline(call)));
        status = dl_connection_await(connection, begun, deadline);
    }
    if (status == DL_OK) {
        return end_wait(connection, dl_deadline_after(DL_ANSWER_GRACE), false, is_over);
    }
    if (status == DL_TIMEOUT) {
        dl_deadline grace = answer_deadline(call);
        status = ask_server(connection, call, &cancel);
        status = status != DL_OK ? status : end_wait(connection, grace, true, is_over);
    }
    return status == DL_TIMEOUT ? DL_OK : status;
}

static dl_status
fail_without(const dl_connection *connection, dl_tcp_call *call, const dl_bytes *keys,
             size_t count)
{
    call->lacks_keys = connection->is_clean;
    return dl_store_fail_timeout("/", keys, count, call->deadline);
}

static dl_status
wait_for_keys(dl_connection *connection, dl_tcp_call *call, const dl_bytes *keys,
              size_t count, dl_deadline deadline)
{
    dl_store_request wait = {.op = DL_OP_WAIT, .keys = keys, .count = count};
    bool is_over;

    DL_TRY(wait_for(connection, call, &wait, deadline, &is_over));
    return is_over ? DL_OK : fail_without(connection, call, keys, count);
}

static dl_status
exchange_barrier(dl_connection *connection, dl_tcp_call *call)
{
    bool is_over;

    DL_TRY(wait_for(connection, call, &call->request, call->deadline, &is_over));
    return is_over ? DL_OK
                   : dl_store_fail_barrier_timeout(call->request.key, call->deadline);
}

/* Sleeps for `*pause`, which is 0 at first, since one wait usually suffices, and then
 * doubles from FIRST_PAUSE up to LAST_PAUSE. */
static dl_status
pause_once(dl_tcp_call *call, int64_t *pause)
{
    dl_deadline until = dl_deadline_earlier(call->deadline, *pause);
    int64_t longer = *pause == 0 ? FIRST_PAUSE : 2 * *pause;

    *pause = longer < LAST_PAUSE ? longer : LAST_PAUSE;
    return dl_sleep_until(until);
}

/* GET and MULTI_GET.  Our server reports a key that is absent.  Torch's server may
 * answer the GET with an empty value when the key was deleted after the WAIT; it cannot
 * be told from an empty value that was set. */
static dl_status
exchange_values(dl_connection *connection, dl_tcp_call *call, const dl_bytes *keys,
                size_t count)
{
    int64_t pause = 0;

    if (!connection->is_distlite) {
        DL_TRY(wait_for_keys(connection, call, keys, count, call->deadline));
        return exchange_once(connection, call);
    }
    for (;;) {
        dl_status status = exchange_once(connection, call);
        if (status != DL_NOT_FOUND) {
            return status;
        }
        if (dl_deadline_passed(call->deadline)) {
            return fail_without(connection, call, keys, count);
        }
        DL_TRY(pause_once(call, &pause));
        DL_TRY(wait_for_keys(connection, call, keys, count, call->deadline));
    }
}

static dl_status
pop_item(dl_connection *connection, dl_tcp_call *call)
{
    DL_TRY(exchange_once(connection, call));
    return call->reply.number > 0 ? DL_OK : dl_fail(DL_QUEUE_EMPTY, "queue is empty");
}

/* Torch's blocking pop sends a WAIT and then a POP.  This one pops first, which is one
 * round trip when there is an item.  A wait may end although the queue is empty,
 * because all who wait are woken for an item or because the key holds a value as well:
 * the call then waits again, without a pause if it had been waiting, and pops once more
 * when its time is up.  Each pop
 * is a change of its own, and no item is lost with a connection that is lost during the
 * wait. */
static dl_status
exchange_queue_pop(dl_connection *connection, dl_tcp_call *call)
{
    const dl_bytes *key = &call->request.key;
    int64_t pause = 0;

    for (;;) {
        dl_status status = pop_item(connection, call);
        if (status != DL_QUEUE_EMPTY || !call->request.is_blocking) {
            return status;
        }
        if (dl_deadline_passed(call->deadline)) {
            return dl_store_fail_timeout("/", key, 1, call->deadline);
        }
        DL_TRY(pause_once(call, &pause));
        int64_t since = dl_now();
        status = wait_for_keys(connection, call, key, 1,
                               dl_deadline_earlier(call->deadline, POP_INTERVAL));
        if (status != DL_TIMEOUT || !connection->is_clean) {
            DL_TRY(status);
        }
        pause = dl_now() - since < FIRST_PAUSE ? pause : 0;
    }
}

dl_status
dl_tcp_call_once(dl_connection *connection, dl_tcp_call *call)
{
    size_t count;
    const dl_bytes *keys = dl_request_keys(&call->request, &count);

    if (call->is_legacy && !connection->is_distlite
        && dl_request_kinds[call->request.op].needs_queues) {
        return dl_fail(DL_UNSUPPORTED,
                       "queues not implemented on legacy TCPStore backend");
    }
    if (call->request.op == DL_OP_STATS && !connection->is_distlite) {
        return dl_fail(
            DL_UNSUPPORTED,
            "stats: the server of this store is torch's, which has no statistics; "
            "start the server with distlite");
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

/* When a server drops the connection of the same call this often, the call is taken to
 * be the cause. */
#define LOSSES_MAX 4

typedef struct try_result {
    bool is_lost;       /* the connection was lost or could not be made */
    bool was_connected; /* there was a connection, so a server was running */
    bool was_idle;      /* it came from the pool, and may have been dead for long */
    bool is_unknown;    /* a change that cannot be repeated may have been executed */
} try_result;

/* Returns whether the connection can be kept after this status.  After any other
 * refusal the server may close it. */
static bool
is_harmless(dl_status status)
{
    return status == DL_OK || status == DL_TIMEOUT || status == DL_NOT_FOUND
           || status == DL_QUEUE_EMPTY || status == DL_UNSUPPORTED;
}

/* Makes a connection.  If it replaces one whose change may have been executed, the server
 * has known the slot since that one's handshake, unless it had to forget it. */
static dl_status
open_one(dl_connection_pool *pool, const dl_tcp_call *call, dl_deadline open_by,
         dl_connection **connection)
{
    dl_connection *opened;

    DL_TRY(dl_connection_pool_open(pool, call->may_be_done ? &call->slot : NULL, NULL,
                                   open_by, &opened));
    if (call->may_be_done && !opened->server.is_remembered) {
        dl_status status =
            dl_fail(DL_MISMATCH,
                    "the store's server at %s has forgotten this client: it was away "
                    "for too long, or the server's host has crashed meanwhile",
                    opened->peer);
        dl_connection_pool_give(pool, opened);
        return status;
    }
    opened->may_be_done = call->may_be_done;
    *connection = opened;
    return DL_OK;
}

static dl_status
try_once(dl_connection_pool *pool, dl_tcp_call *call, dl_deadline open_by,
         try_result *result)
{
    dl_connection *connection =
        call->may_be_done ? NULL
                          : dl_connection_pool_take(
                                pool, dl_request_kinds[call->request.op].is_change);

    *result = (try_result){.was_idle = connection != NULL};
    if (connection != NULL && dl_connection_pool_is_due(pool, connection)) {
        DL_TRY(dl_connection_pool_take_shortcut(pool, &connection, open_by));
    }
    if (connection == NULL) {
        dl_status status = open_one(pool, call, open_by, &connection);
        if (status != DL_OK) {
            result->is_lost = status == DL_NETWORK || status == DL_PROTOCOL;
            return status;
        }
    }
    dl_status status = dl_tcp_call_once(connection, call);
    result->was_connected = true;
    /* A DL_NETWORK that the server reported itself leaves the connection clean, which
     * is then not lost. */
    result->is_lost = status == DL_NETWORK && !connection->is_clean;
    /* The slot of a connection with an outstanding change is that of the next try. */
    call->may_be_done = connection->may_be_done;
    call->slot = connection->slot;
    result->is_unknown = call->may_be_done && !connection->is_distlite;
    bool is_silent = status == DL_TIMEOUT && !connection->is_clean;
    connection->is_clean = connection->is_clean && is_harmless(status);
    dl_connection_pool_give(pool, connection);
    if (is_silent) {
        /* Of a host that is gone, the next call would wait as long for an answer. */
        dl_connection_pool_drop_idle(pool);
    }
    return status;
}

/* Repeats the call after the loss that `result` and the thread's last error describe,
 * until there is an answer:
 *
 *   the lost connection had been idle   a new one is made at once
 *   it was new, or there was none       pause, longer each time, for at most
 *                                       DL_TCP_STORE_PATIENCE since the last loss
 *   torch's server may have changed     stop: the outcome is unknown
 *   something for the call
 */
static dl_status
try_again(dl_connection_pool *pool, dl_tcp_call *call, try_result *result)
{
    dl_deadline until = dl_deadline_earlier(call->deadline, DL_TCP_STORE_PATIENCE);
    /* The final error names why the connection was lost, and not only that later
     * connections were refused. */
    dl_error loss = *dl_last_error();
    dl_backoff backoff = {0};
    /* Counts the losses of established connections only: a server that is being
     * restarted may refuse connections for as long as the patience lasts. */
    int losses = result->was_connected;

    dl_connection_pool_drop_idle(pool);
    while (!result->is_unknown && losses <= LOSSES_MAX) {
        /* A connection that had been idle is replaced without a pause. */
        dl_status status = result->was_idle
                               ? DL_OK
                               : dl_backoff_sleep(&backoff, until, &pool->is_closed);
        if (status == DL_TIMEOUT) {
            break;
        }
        DL_TRY(status);
        /* A running server may need this long to answer the handshake; a host without
         * one refuses the connection at once. */
        dl_deadline open_by = {.at = dl_now() + DL_ANSWER_GRACE, .limit = until.limit};
        status = try_once(pool, call, open_by, result);
        if (!result->is_lost) {
            return status;
        }
        if (result->was_connected) {
            until = dl_deadline_earlier(call->deadline, DL_TCP_STORE_PATIENCE);
            loss = *dl_last_error();
            losses++;
        }
    }
    if (result->is_unknown) {
        return DL_NETWORK;
    }
    if (result->was_connected) {
        return dl_rethrow(&loss);
    }
    /* Without a lost connection the last error is reported: it names the time for which
     * connecting was tried. */
    return losses == 0 ? dl_last_error()->status
                       : dl_fail(DL_NETWORK, "%s. Reconnecting failed: %s", loss.text,
                                 dl_last_error()->text);
}

dl_status
dl_tcp_call_run(dl_connection_pool *pool, dl_tcp_call *call)
{
    try_result result;
    dl_status status = try_once(pool, call, answer_deadline(call), &result);

    if (result.is_lost && !atomic_load(&pool->is_closed)) {
        status = try_again(pool, call, &result);
    }
    if (atomic_load(&pool->is_closed) && status != DL_OK && status != DL_INTERRUPTED) {
        status = dl_fail(DL_CLOSED, "this TCPStore was closed during the call");
    }
    if (status == DL_MISMATCH) {
        status = dl_fail(DL_NETWORK, "%s", dl_last_error()->text);
    }
    if (call->may_be_done && (status == DL_NETWORK || status == DL_TIMEOUT)) {
        return dl_fail(status,
                       "%s. The outcome of %s is unknown: the server may or may not "
                       "have done it.",
                       dl_last_error()->text, dl_request_kinds[call->request.op].name);
    }
    return status;
}
