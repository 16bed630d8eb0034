/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TCP stores for tests: masters and clients on the loopback address, and
 * calls on threads. */
#ifndef DISTLITE_TESTS_TCP_FIXTURE_H
#define DISTLITE_TESTS_TCP_FIXTURE_H

#include <pthread.h>

#include "check.h"
#include "store/tcp/tcp_store.h"

#define KEY DL_LITERAL("k")

static const dl_tcp_store_options plain_client = {.host = "127.0.0.1",
                                                  .world_size = -1,
                                                  .wait_for_workers = true,
                                                  .listen_fd = -1,
                                                  .use_libuv = true,
                                                  .timeout = 15 * DL_SECOND};

DL_CHECK_UNUSED static dl_store *
make_store(dl_tcp_store_options options)
{
    dl_store *store = NULL;

    CHECK_OK(dl_tcp_store_new(&options, dl_deadline_after(options.timeout), &store));
    return store;
}

DL_CHECK_UNUSED static dl_store *
make_client(uint16_t port)
{
    dl_tcp_store_options options = plain_client;

    options.port = port;
    return make_store(options);
}

/* `port` 0 stands for any free port. */
DL_CHECK_UNUSED static dl_store *
make_master(uint16_t port, bool use_libuv)
{
    dl_tcp_store_options options = plain_client;

    options.port = port;
    options.is_master = true;
    options.use_libuv = use_libuv;
    return make_store(options);
}

DL_CHECK_UNUSED static void
check_set(dl_store *store, const char *key, const char *value)
{
    CHECK_OK(dl_store_set(store, dl_bytes_of(key), dl_bytes_of(value), SOON));
}

DL_CHECK_UNUSED static void
check_get(dl_store *store, const char *key, const char *value)
{
    dl_buffer got = {0};

    CHECK_OK(dl_store_get(store, dl_bytes_of(key), &got, SOON));
    CHECK(dl_bytes_equal(dl_buffer_bytes(&got), dl_bytes_of(value)));
    dl_buffer_fini(&got);
}

/* A get on a thread of its own. */
typedef struct get_thread {
    pthread_t thread;
    dl_store *store;
    int64_t limit;
    dl_buffer value;
    dl_error error;
} get_thread;

static void *
get_main(void *argument)
{
    get_thread *get = argument;
    dl_status status =
        dl_store_get(get->store, KEY, &get->value, dl_deadline_after(get->limit));

    get->error = *dl_last_error();
    get->error.status = status;
    return NULL;
}

/* Returns when the call is most likely in progress.  A call that is not makes the case
 * weaker, but does not fail it. */
DL_CHECK_UNUSED static void
start_get(get_thread *get, dl_store *store, int64_t limit)
{
    *get = (get_thread){.store = store, .limit = limit};
    CHECK(pthread_create(&get->thread, NULL, get_main, get) == 0);
    usleep(50000);
}

DL_CHECK_UNUSED static dl_status
join_get(get_thread *get)
{
    CHECK(pthread_join(get->thread, NULL) == 0);
    if (get->error.status == DL_OK) {
        CHECK_BYTES(dl_buffer_bytes(&get->value), "value");
    }
    dl_buffer_fini(&get->value);
    return get->error.status;
}

#endif
