/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TCP stores for tests: masters and clients on the loopback address, and
 * calls on threads. */
#ifndef DISTLITE_TESTS_TCP_FIXTURE_H
#define DISTLITE_TESTS_TCP_FIXTURE_H

#include <pthread.h>

#include "check.h"
#include "net/local.h"
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

/* The name of a socket of the test; one of each process, since cases run beside each
 * other.  A child of the case keeps the one that its parent has made. */
DL_CHECK_UNUSED static const char *
own_name(void)
{
    static char name[DL_LOCAL_NAME_SIZE];

    if (name[0] == '\0') {
        snprintf(name, sizeof name, "distlite-0123456789abcdef%016lx", (long)getpid());
    }
    return name;
}

/* Returns one of the numbers that the store's stats() tells. */
DL_CHECK_UNUSED static int64_t
fact(dl_store *store, const char *name)
{
    const dl_store_request stats = {.op = DL_OP_STATS};
    dl_buffer text = {0};
    char line[64];

    CHECK_OK(dl_store_execute(store, &stats, &(dl_store_reply){.values = &text}, SOON));
    dl_put_u8(&text, 0);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr((const char *)text.data, line);
    CHECK(found != NULL);
    int64_t value = strtoll(found + strlen(line), NULL, 10);
    dl_buffer_fini(&text);
    return value;
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
