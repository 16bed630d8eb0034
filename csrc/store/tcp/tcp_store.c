/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/tcp_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/connect.h"
#include "net/socket.h"
#include "store/counter.h"
#include "store/tcp/tcp_call.h"
#include "store/tcp/loop.h"
#include "store/tcp/master.h"
#include "store/tcp/relay_client.h"

/* Each client adds one to this counter, and the master waits until all have. */
#define WORKER_COUNTER DL_LITERAL("init/")

/* The pauses between two readings of the counter: clients of one host join within
 * fractions of a millisecond, those of a large job within seconds. */
#define FIRST_PAUSE (200 * DL_MILLISECOND / 1000)
#define LAST_PAUSE (10 * DL_MILLISECOND)

typedef struct dl_tcp_store {
    dl_store base;
    dl_connection_pool pool;
    /* fixed after init */
    bool uses_libuv;
    dl_master *master; /* NULL for a client; released by tcp_close() */
    char *host;        /* as given */
} dl_tcp_store;

static const dl_store_ops tcp_store_ops;

static dl_tcp_store *
tcp_store_of(const dl_store *store)
{
    return (dl_tcp_store *)store;
}

/* A user's key is prefixed with "/" on the wire, which the client's own counter is
 * not. */
static dl_status
tcp_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
            dl_deadline deadline)
{
    dl_tcp_store *self = tcp_store_of(store);
    dl_tcp_call call = {
        .request = *request,
        .reply = *reply,
        .key_prefix = DL_LITERAL("/"),
        .deadline = deadline,
        .is_legacy = !self->uses_libuv,
    };

    dl_status status = dl_tcp_call_run(&self->pool, &call);
    if (status == DL_TIMEOUT && call.lacks_keys) {
        size_t count;
        const dl_bytes *keys = dl_request_keys(request, &count);
        return dl_store_fail_without(store, "/", keys, count, deadline);
    }
    DL_TRY(status);
    reply->number = call.reply.number;
    return request->op == DL_OP_LIST_KEYS ? dl_reply_keep_names(reply, call.key_prefix)
                                          : DL_OK;
}

/* The pool is closed before the server, so that this process's own calls fail because
 * the store was closed, and not because the server was lost. */
static void
tcp_close(dl_store *store)
{
    dl_tcp_store *self = tcp_store_of(store);

    dl_connection_pool_close(&self->pool);
    dl_master_stop(self->master);
}

/* Does not stop the server: tcp_close() has done so, and in a forked child the server
 * is the parent's. */
static void
tcp_free(dl_store *store)
{
    dl_tcp_store *self = tcp_store_of(store);

    dl_connection_pool_fini(&self->pool, dl_store_is_inherited(store));
    free(self->host);
    free(self);
}

static dl_status
make_store(const char *host, bool uses_libuv, int64_t timeout, dl_tcp_store **store)
{
    dl_tcp_store *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_store_init(&made->base, &tcp_store_ops);
    dl_store_set_timeout(&made->base, timeout);
    made->uses_libuv = uses_libuv;
    made->host = strdup(host);
    if (made->host == NULL) {
        dl_store_unref(&made->base);
        return dl_fail_no_memory();
    }
    *store = made;
    return DL_OK;
}

/* A host that is a wildcard address is the server's, which listens on loopback, too. */
static dl_status
init_pool(dl_tcp_store *self, uint16_t port, dl_secret *secret, dl_tls *tls)
{
    dl_connection_pool *pool = &self->pool;
    bool is_wildcard = dl_address_is_wildcard(self->host);

    DL_TRY(dl_connection_pool_init(pool, is_wildcard ? "127.0.0.1" : self->host, port,
                                   secret, tls));
    DL_TRY(dl_environment_flag(DL_SHORTCUT_VARIABLE, true, &pool->takes_shortcut));
    return dl_relay_find(pool->host, port, pool->relay);
}

/* The ADD travels with the handshake, so that joining is one round trip per process. */
static dl_status
join_once(dl_connection_pool *pool, const dl_slot *slot, int64_t *joined,
          dl_deadline deadline)
{
    const dl_store_request count = {
        .op = DL_OP_ADD, .key = WORKER_COUNTER, .number = 1};
    dl_connection *connection = NULL;
    dl_status status = DL_OK;

    DL_TRY(dl_connection_pool_open(pool, slot, joined == NULL ? NULL : &count, deadline,
                                   &connection));
    if (joined != NULL) {
        status = dl_connection_take_i64(connection, deadline, joined);
    }
    if (status == DL_OK) {
        dl_connection_end_reply(connection);
    }
    dl_connection_pool_give(pool, connection);
    return status;
}

/* A server that accepts the connection and does not answer fails like one that cannot
 * be reached: with DL_NETWORK and the text of torch's client. */
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
    return dl_fail(DL_NETWORK,
                   "%s; check that the master (rank 0) is running, and that "
                   "MASTER_ADDR is a name by which this host reaches it and does not "
                   "resolve to loopback on the master itself",
                   dl_last_error()->text);
}

/* How many connections with another protocol end the search for the server of a job
 * that has a token or TLS.  Not the first: it may have been one that was about to
 * exit. */
#define STRANGE_SERVERS 3

/* Tries until the deadline to connect and to complete the handshake, and leaves the
 * connection in the pool.  If `joined` is not NULL, also counts this client, once, and
 * stores the new count there.  When the connection is lost before the count is known,
 * the next one repeats it in the same slot; it may reach another server, unless the
 * pool is to join a certain one. */
static dl_status
join_server(dl_connection_pool *pool, int64_t *joined, dl_deadline deadline)
{
    dl_backoff backoff = {0};
    dl_error refusal = {.status = DL_OK};
    dl_server_identity wanted = dl_connection_pool_joined(pool);
    dl_slot slot;
    int refusals = 0;

    DL_TRY(dl_slot_draw(&slot));
    for (;;) {
        dl_status status = join_once(pool, &slot, joined, deadline);
        if (status == DL_OK) {
            dl_log(DL_LOG_INFO, "connected to the store's server at (%s, %u), of %s",
                   pool->host, pool->port,
                   dl_connection_pool_joined(pool).is_distlite ? "distlite" : "torch");
        }
        if (status == DL_MISMATCH) {
            return dl_fail(DL_NETWORK, "%s", dl_last_error()->text);
        }
        if (status != DL_OK) {
            dl_connection_pool_set_joined(pool, &wanted);
        }
        if (status == DL_TIMEOUT) {
            /* The deadline ended the last try: an earlier refusal says more about the
             * cause. */
            return refusal.status == DL_OK ? fail_silent(pool, deadline)
                                           : dl_rethrow(&refusal);
        }
        if (status == DL_PROTOCOL) {
            refusal = *dl_last_error();
            refusals++;
        }
        /* A server that does not know what a proof or TLS is will not learn it. */
        if ((pool->secret != NULL || pool->tls != NULL)
            && refusals >= STRANGE_SERVERS) {
            return status;
        }
        /* A peer that speaks another protocol may be an earlier user of the port that
         * is about to exit, so this is retried until the deadline, too. */
        if (status != DL_NETWORK && status != DL_PROTOCOL) {
            return status;
        }
        dl_log(DL_LOG_INFO, "the store's server is tried again: %s",
               dl_last_error()->text);
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
                        .deadline = dl_deadline_after(0)};

    dl_status status = dl_tcp_call_run(pool, &call);
    if (status == DL_OK && !dl_counter_parse(dl_buffer_bytes(&value), joined)) {
        status =
            dl_fail(DL_PROTOCOL, "the client counter in the store is not a number");
    }
    dl_buffer_fini(&value);
    return status;
}

/* Waits until `world_size` clients have joined; `joined` is the count so far.
 * DL_TIMEOUT names both numbers. */
static dl_status
await_workers(dl_connection_pool *pool, int64_t joined, int64_t world_size,
              dl_deadline deadline)
{
    int64_t pause = FIRST_PAUSE;

    while (joined < world_size) {
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "Timed out after %g seconds waiting for clients. %lld/%lld "
                           "clients joined.",
                           (double)deadline.limit / (double)DL_SECOND,
                           (long long)joined, (long long)world_size);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        pause = pause * 3 / 2 < LAST_PAUSE ? pause * 3 / 2 : LAST_PAUSE;
        DL_TRY(count_workers(pool, &joined));
    }
    return DL_OK;
}

static dl_status
tcp_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    dl_tcp_store *self = tcp_store_of(store);
    dl_tcp_store *made = NULL;

    DL_TRY(make_store(self->host, self->uses_libuv, dl_store_timeout(store), &made));
    dl_status status =
        init_pool(made, self->pool.port, self->pool.secret, self->pool.tls);
    if (status == DL_OK) {
        const dl_server_identity joined = dl_connection_pool_joined(&self->pool);
        dl_connection_pool_set_joined(&made->pool, &joined);
        status = join_server(&made->pool, NULL, deadline);
    }
    if (status != DL_OK) {
        dl_store_unref(&made->base);
        return status;
    }
    *clone = &made->base;
    return DL_OK;
}

/* Adds a hint when the server listens on loopback only: clients on other hosts cannot
 * reach it. */
static dl_status
fail_incomplete(const dl_tcp_store *self)
{
    char address[DL_ADDRESS_TEXT_SIZE];

    if (!dl_master_is_private(self->master, address)) {
        return DL_TIMEOUT;
    }
    return dl_fail(
        DL_TIMEOUT,
        "%s This store listens at %s only, which clients on other hosts cannot reach: "
        "set its host (MASTER_ADDR) to a name or address that they can reach.",
        dl_last_error()->text, address);
}

static dl_status
start_store(dl_tcp_store *self, const dl_tcp_store_options *options, dl_tls *tls,
            dl_deadline deadline)
{
    /* Every client counts itself, although only the master waits for the total. */
    bool is_counted = options->wait_for_workers && options->world_size >= 0;
    int64_t joined = 0;

    if (options->is_master) {
        DL_TRY(dl_master_start(options, tls, deadline, &self->master));
    }
    /* The master uses its own server over the network as well, so that there is one
     * kind of call, and one order in which the server executes them. */
    DL_TRY(init_pool(
        self, self->master == NULL ? options->port : dl_master_port(self->master),
        options->secret, tls));
    if (options->server != NULL) {
        dl_connection_pool_set_joined(&self->pool, options->server);
    }
    DL_TRY(join_server(&self->pool, is_counted ? &joined : NULL, deadline));
    if (is_counted && self->master != NULL) {
        dl_status status =
            await_workers(&self->pool, joined, options->world_size, deadline);
        return status == DL_TIMEOUT ? fail_incomplete(self) : status;
    }
    return DL_OK;
}

dl_status
dl_tcp_store_new(const dl_tcp_store_options *options, dl_deadline deadline,
                 dl_store **store)
{
    dl_tcp_store *made = NULL;
    dl_tls *tls = NULL;

    dl_status status = dl_connection_tls(options->tls, options->secret, &tls);
    if (status == DL_OK) {
        status = make_store(options->host, options->use_libuv, options->timeout, &made);
    }
    /* In the other case dl_master_start() takes the descriptor. */
    if ((status != DL_OK || !options->is_master)
        && !dl_master_serves(options->listen_fd)) {
        dl_socket_close(options->listen_fd);
    }
    if (status == DL_OK) {
        status = start_store(made, options, tls, deadline);
    }
    dl_tls_unref(tls);
    if (status != DL_OK) {
        dl_store_unref(made == NULL ? NULL : &made->base);
        return status;
    }
    *store = &made->base;
    return DL_OK;
}

const char *
dl_tcp_store_host(const dl_store *store)
{
    return tcp_store_of(store)->host;
}

uint16_t
dl_tcp_store_port(const dl_store *store)
{
    return tcp_store_of(store)->pool.port;
}

bool
dl_tcp_store_uses_libuv(const dl_store *store)
{
    return tcp_store_of(store)->uses_libuv;
}

dl_server_identity
dl_tcp_store_server(const dl_store *store)
{
    return dl_connection_pool_joined(&tcp_store_of(store)->pool);
}

bool
dl_tcp_store_tls_is_named(void)
{
    const char *text = getenv(DL_TLS_VARIABLE);

    return text != NULL && *text != '\0';
}

const char *
dl_tcp_store_tls(const dl_store *store)
{
    return dl_tls_mode_name(dl_tls_mode_of(tcp_store_of(store)->pool.tls));
}

void
dl_tcp_store_describe(const dl_store *store, dl_buffer *text)
{
    dl_tcp_store *self = tcp_store_of(store);
    char local[DL_ADDRESS_TEXT_SIZE];
    char peer[DL_ADDRESS_TEXT_SIZE];
    char client[2 * DL_ADDRESS_TEXT_SIZE + 64] = "not connected";
    char server[32] = "<nullptr>";
    char line[sizeof client + sizeof server + 64];
    dl_address ends[2];
    int fd = dl_store_is_inherited(store)
                 ? -1
                 : dl_connection_pool_addresses(&self->pool, &ends[0], &ends[1]);

    if (fd >= 0) {
        dl_address_text(&ends[0], local);
        dl_address_text(&ends[1], peer);
        snprintf(client, sizeof client, "SocketImpl(fd=%d, addr=%s, remote=%s)", fd,
                 local, peer);
    }
    if (self->master != NULL) {
        snprintf(server, sizeof server, "TCPServer(port=%" PRIu16 ")", self->pool.port);
    }
    snprintf(line, sizeof line, "TCPStore(client=TCPClient(%s), server=%s)", client,
             server);
    dl_buffer_put(text, dl_bytes_of(line));
}

static bool
tcp_local_address(dl_store *store, struct dl_address *address)
{
    dl_address peer;

    return dl_connection_pool_addresses(&tcp_store_of(store)->pool, address, &peer)
           >= 0;
}

static dl_secret *
tcp_secret(dl_store *store)
{
    return tcp_store_of(store)->pool.secret;
}

static const dl_store_ops tcp_store_ops = {
    .kind = "TCPStore",
    .requests = UINT32_MAX,
    .has_extended_api = true,
    .execute = tcp_execute,
    .clone = tcp_clone,
    .close = tcp_close,
    .free = tcp_free,
    .local_address = tcp_local_address,
    .secret = tcp_secret,
};

bool
dl_tcp_store_has_libuv(void)
{
    return dl_loop_uv_ops() != NULL;
}
