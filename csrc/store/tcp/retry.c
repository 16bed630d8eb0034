/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/retry.h"

#include "net/connect.h"
#include "store/tcp/tcp_store.h"

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
    return losses == 0 || result->was_connected
               ? dl_fail_again(&loss)
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
