/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The stores' conformance cases over TCP, with each of the two servers, over TLS, and over
 * a server's Unix socket. */
#include "store/tcp/connection_pool.h"
#include "store/tcp/tcp_store.h"
#include "store_suite.h"

static dl_store *
make_master(bool use_libuv, bool has_tls)
{
    dl_tcp_store_options options = {.host = "127.0.0.1",
                                    .world_size = -1,
                                    .is_master = true,
                                    .listen_fd = -1,
                                    .use_libuv = use_libuv,
                                    .tls = has_tls ? "psk" : NULL,
                                    .timeout = DL_STORE_DEFAULT_TIMEOUT};
    dl_store *store = NULL;

    if (has_tls) {
        CHECK_OK(dl_secret_new(DL_LITERAL("token"), &options.secret));
    }
    CHECK_OK(dl_tcp_store_new(&options, SOON, &store));
    dl_secret_unref(options.secret);
    return store;
}

static dl_store *
make_poll(void)
{
    return make_master(false, false);
}

static const suite_kind tcp_poll = {.make = make_poll, .has_queues = true};
STORE_SUITE(tcp_poll)

/* In a build without libuv the other server stands in. */
static dl_store *
make_libuv(void)
{
    return make_master(true, false);
}

static const suite_kind tcp_libuv = {.make = make_libuv, .has_queues = true};
STORE_SUITE(tcp_libuv)

static dl_store *
make_tls(void)
{
    return make_master(false, true);
}

static const suite_kind tcp_tls = {.make = make_tls, .has_queues = true};
STORE_SUITE(tcp_tls)

static dl_store *
make_unix(void)
{
    dl_store *store = make_master(false, false);
    int64_t count;

    for (int i = 0; i < DL_SHORTCUT_WORTH; i++) {
        CHECK_OK(dl_store_num_keys(store, &count, SOON));
    }
    return store;
}

static const suite_kind tcp_unix = {.make = make_unix, .has_queues = true};
STORE_SUITE(tcp_unix)
