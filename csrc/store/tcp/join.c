/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/join.h"

#include "base/thread.h"
#include "net/connect.h"
#include "store/counter.h"
#include "store/tcp/exchange.h"

#define WORKER_COUNTER DL_LITERAL("init/")

/* Interval between two looks at the counter: clients of one host join within fractions
 * of a millisecond, those of a large job within seconds. */
#define FIRST_LOOK (200 * DL_MILLISECOND / 1000)
#define LAST_LOOK (10 * DL_MILLISECOND)

/* The ADD travels with the handshake, so that joining is one round trip per process. */
static dl_status
join_once(dl_connection_pool *pool, int64_t *joined, dl_deadline deadline)
{
    const dl_store_request count = {
        .op = DL_OP_ADD, .key = WORKER_COUNTER, .number = 1};
    dl_connection *connection = NULL;
    dl_status status = DL_OK;

    DL_TRY(dl_connection_pool_open(pool, joined == NULL ? NULL : &count, deadline,
                                   &connection));
    if (joined != NULL) {
        status = dl_connection_take_i64(connection, deadline, joined);
    }
    if (status == DL_OK) {
        dl_connection_finish(connection);
    }
    dl_connection_pool_give(pool, connection);
    return status;
}

/* A server that accepts the connection and does not answer fails as one that cannot be
 * reached: with DL_NETWORK, in the words of torch's client. */
static dl_status
fail_silent(const dl_connection_pool *pool, dl_deadline deadline)
{
    return dl_fail(DL_NETWORK,
                   "The client socket has timed out after %lldms while trying to "
                   "connect to (%s, %u): %s",
                   (long long)(deadline.limit / DL_MILLISECOND), pool->host, pool->port,
                   dl_last_error()->text);
}

/* Adds the usual causes, which are on the master's host, to the addresses tried. */
static dl_status
fail_unreachable(void)
{
    return dl_fail(
        DL_NETWORK,
        "%s; is the master (rank 0) running, and is its host's name "
        "(MASTER_ADDR) one by which this host reaches it, and not loopback on "
        "the master itself?",
        dl_last_error()->text);
}

dl_status
dl_join(dl_connection_pool *pool, int64_t *joined, dl_deadline deadline)
{
    dl_backoff backoff = {0};
    dl_error refusal = {.status = DL_OK};

    for (;;) {
        dl_status status = join_once(pool, joined, deadline);
        if (status == DL_TIMEOUT) {
            /* The last try was cut off by the deadline: an earlier refusal tells
             * more. */
            return refusal.status == DL_OK ? fail_silent(pool, deadline)
                                           : dl_fail_again(&refusal);
        }
        if (status == DL_PROTOCOL) {
            refusal = *dl_last_error();
        }
        /* A peer that speaks another protocol may be an earlier user of the port that
         * is about to exit, so this is retried until the deadline, too. */
        if (status != DL_NETWORK && status != DL_PROTOCOL) {
            return status;
        }
        dl_status pause = dl_backoff_sleep(&backoff, deadline, &pool->is_closed);
        if (pause != DL_OK) {
            return pause != DL_TIMEOUT    ? pause
                   : status == DL_NETWORK ? fail_unreachable()
                                          : status;
        }
    }
}

/* Reads the counter with a GET without key prefix.  It does not wait: the counter
 * exists, since this client has added to it. */
static dl_status
count_workers(dl_connection_pool *pool, int64_t *joined)
{
    dl_buffer value = {0};
    dl_tcp_call call = {.request = {.op = DL_OP_GET, .key = WORKER_COUNTER},
                        .reply = {.values = &value},
                        .deadline = dl_deadline_after(0),
                        .is_repeatable = true};

    dl_status status = dl_retry(pool, &call);
    if (status == DL_OK && !dl_counter_parse(dl_buffer_bytes(&value), joined)) {
        status = dl_fail(DL_PROTOCOL, "the counter of the clients is no number");
    }
    dl_buffer_fini(&value);
    return status;
}

dl_status
dl_await_workers(dl_connection_pool *pool, int64_t joined, int64_t world_size,
                 dl_deadline deadline)
{
    int64_t pause = FIRST_LOOK;

    while (joined < world_size) {
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "Timed out after %g seconds waiting for clients. %lld/%lld "
                           "clients joined.",
                           (double)deadline.limit / (double)DL_SECOND,
                           (long long)joined, (long long)world_size);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        pause = pause * 3 / 2 < LAST_LOOK ? pause * 3 / 2 : LAST_LOOK;
        DL_TRY(count_workers(pool, &joined));
    }
    return DL_OK;
}
