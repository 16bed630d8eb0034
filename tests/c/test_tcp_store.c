/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A TCP store's calls, beyond what is true of every kind of store (store_suite.h). */
#include "store/tcp/tcp_store.h"

#include <errno.h>

#include "net/address.h"
#include "ports.h"
#include "ranks.h"
#include "store/hash_store.h"
#include "store/prefix_store.h"
#include "tcp_fixture.h"
#include "store_calls.h"

#define EACH_SERVER(libuv) for (int libuv = 0; libuv < 2; libuv++)

static void
use_store(int rank, int size, void *context)
{
    dl_store *store = context;
    char key[32], value[32];
    int64_t sum = 0;

    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "key/%d", rank);
        snprintf(value, sizeof value, "value/%d/%d", rank, i);
        check_set(store, key, value);
        check_get(store, key, value);
        CHECK_OK(dl_store_add(store, DL_LITERAL("sum"), rank + 1, &sum, SOON));
    }
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("all"), size, SOON));
    CHECK_OK(dl_store_add(store, DL_LITERAL("sum"), 0, &sum, SOON));
    CHECK_EQUAL(sum, (int64_t)20 * size * (size + 1) / 2);
}

CHECK_CASE(many_threads_share_a_store)
{
    EACH_SERVER(libuv)
    {
        dl_store *store = make_master(0, libuv);
        dl_run_ranks(64, use_store, store);
        dl_store_unref(store);
    }
}

static dl_status
count_key(void *context, dl_bytes key)
{
    CHECK(!dl_bytes_equal(key, DL_LITERAL("nit/")));
    *(int *)context += 1;
    return DL_OK;
}

CHECK_CASE(the_worker_counter_is_hidden_but_counted)
{
    dl_tcp_store_options options = plain_client;
    int listed = 0;
    int64_t count = 0;

    options.is_master = true;
    options.world_size = 1;
    dl_store *store = make_store(options);
    check_set(store, "a", "1");
    check_set(store, "init/", "mine");
    CHECK_OK(dl_store_num_keys(store, &count, SOON));
    CHECK_EQUAL(count, 3);
    CHECK_OK(dl_store_list_keys(store, count_key, &listed, SOON));
    CHECK_EQUAL(listed, 2);
    check_get(store, "init/", "mine");
    dl_store_unref(store);
}

CHECK_CASE(closing_wakes_blocked_calls)
{
    EACH_SERVER(libuv)
    {
        dl_store *master = make_master(0, libuv);
        dl_store *client = make_client(dl_tcp_store_port(master));
        get_thread get;
        start_get(&get, client, 15 * DL_SECOND);
        int64_t start = dl_now();
        dl_store_close(client);
        CHECK_EQUAL(join_get(&get), DL_CLOSED);
        CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
        start_get(&get, master, 15 * DL_SECOND);
        start = dl_now();
        dl_store_close(master);
        CHECK_EQUAL(join_get(&get), DL_CLOSED);
        CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
        dl_store_unref(client);
        dl_store_unref(master);
    }
}

CHECK_CASE(a_server_that_ends_takes_its_clients_calls_with_it)
{
    EACH_SERVER(libuv)
    {
        uint16_t port = reserve_port();
        dl_store *master = make_master(port, libuv);
        dl_store *client = make_client(port);
        get_thread get;
        start_get(&get, client, DL_SECOND);
        dl_store_close(master);
        CHECK_EQUAL(join_get(&get), DL_NETWORK);
        /* A reset if the server had not read the request yet. */
        CHECK(strstr(get.error.text, "Failed to recv, got 0 bytes") != NULL
              || strstr(get.error.text, "Connection reset by peer") != NULL);
        CHECK_CONTAINS(get.error.text, "Connection refused (errno 111)");
        dl_store_unref(client);
        dl_store_unref(master);
    }
}

CHECK_CASE(another_server_on_the_port_is_refused)
{
    EACH_SERVER(libuv)
    {
        uint16_t port = reserve_port();
        dl_store *master = make_master(port, libuv);
        dl_store *client = make_client(port);
        get_thread get;
        start_get(&get, client, 15 * DL_SECOND);
        dl_store_unref(master);
        master = make_master(port, !libuv);
        check_set(master, "k", "value");
        CHECK_EQUAL(join_get(&get), DL_NETWORK);
        CHECK_CONTAINS(get.error.text, "is another server than the one this client");
        CHECK_STATUS(dl_store_set(client, KEY, DL_LITERAL("mine"), SOON), DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "no request was sent to the new server");
        CHECK(strstr(dl_last_error()->text, "unknown") == NULL);
        /* A clone is a client of the same server. */
        dl_store *clone = NULL;
        CHECK_STATUS(dl_store_clone(client, &clone, SOON), DL_NETWORK);
        CHECK_CONTAINS(dl_last_error()->text, "is another server than the one this");
        check_get(master, "k", "value");
        dl_store_unref(client);
        dl_store_unref(master);
    }
}

CHECK_CASE(a_forked_child_gets_an_error_and_disturbs_no_rank)
{
    EACH_SERVER(libuv)
    {
        dl_store *master = make_master(0, libuv);
        dl_store *client = make_client(dl_tcp_store_port(master));
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            dl_buffer text = {0};
            CHECK_STATUS(dl_store_set(client, KEY, KEY, SOON), DL_CLOSED);
            CHECK_CONTAINS(dl_last_error()->text, "a forked child must create its own");
            CHECK_STATUS(dl_store_set(master, KEY, KEY, SOON), DL_CLOSED);
            dl_tcp_store_describe(master, &text);
            CHECK_OK(dl_buffer_check(&text));
            dl_buffer_fini(&text);
            dl_store_close(client);
            dl_store_unref(client);
            dl_store_unref(master);
#ifndef __SANITIZE_THREAD__ /* which lets no child start threads */
            /* One of its own works. */
            dl_store *own = make_master(0, libuv);
            check_set(own, "k", "value");
            check_get(own, "k", "value");
            dl_store_unref(own);
#endif
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
        check_set(client, "k", "value");
        check_get(master, "k", "value");
        dl_store_unref(client);
        dl_store_unref(master);
    }
}

/* Runs a master in another process, whose allocations are not this one's. */
static pid_t
fork_master(uint16_t *port)
{
    int pipes[2];
    pid_t parent = getpid();

    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dl_store *master = make_master(0, true);
        uint16_t picked = dl_tcp_store_port(master);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(write(pipes[1], &picked, sizeof picked) == sizeof picked);
        while (getppid() == parent) {
            usleep(10000);
        }
        _exit(0);
    }
    CHECK(read(pipes[0], port, sizeof *port) == sizeof *port);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static dl_status
call_all(uint16_t port)
{
    dl_tcp_store_options options = plain_client;
    dl_store *store = NULL, *clone = NULL;
    dl_buffer values[2] = {{0}, {0}};
    const dl_bytes keys[] = {DL_LITERAL("a"), DL_LITERAL("b")};
    int visited = 0;

    options.port = port;
    dl_status status = dl_tcp_store_new(&options, SOON, &store);
    if (status == DL_OK) {
        status = dl_store_multi_set(store, keys, keys, 2, SOON);
    }
    if (status == DL_OK) {
        status = dl_store_multi_get(store, keys, 2, values, SOON);
    }
    if (status == DL_OK) {
        status = dl_store_list_keys(store, count_key, &visited, SOON);
    }
    if (status == DL_OK) {
        status = dl_store_clone(store, &clone, SOON);
    }
    dl_buffer_fini(&values[0]);
    dl_buffer_fini(&values[1]);
    dl_store_unref(clone);
    dl_store_unref(store);
    return status;
}

CHECK_CASE(allocations_may_fail)
{
    uint16_t port;
    pid_t child = fork_master(&port);
    bool has_failed = true;

    for (long number = 1; has_failed; number++) {
        dl_check_fail_allocation_at(number);
        dl_status status = call_all(port);
        has_failed = dl_check_allocation_failed();
        CHECK_EQUAL(status, has_failed ? DL_NO_MEMORY : DL_OK);
    }
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
}

CHECK_CASE(the_local_end_is_where_the_server_sees_the_client)
{
    dl_store *none;
    dl_address address;
    dl_store *store = make_master(0, false);
    dl_store *prefixed;

    CHECK_OK(dl_prefix_store_new(DL_LITERAL("p"), store, &prefixed));
    CHECK(dl_store_local_address(prefixed, &address));
    CHECK_EQUAL(address.socket.any.sa_family, AF_INET);
    CHECK_EQUAL(ntohl(address.socket.ip4.sin_addr.s_addr), INADDR_LOOPBACK);
    dl_store_close(store);
    CHECK(!dl_store_local_address(prefixed, &address));
    dl_store_unref(prefixed);
    dl_store_unref(store);
    CHECK_OK(dl_hash_store_new(&none));
    CHECK(!dl_store_local_address(none, &address));
    dl_store_unref(none);
}

typedef struct joiner {
    pthread_t thread;
    dl_tcp_store_options options;
} joiner;

static void *
join_often(void *argument)
{
    joiner *self = argument;

    for (int i = 0; i < 20; i++) {
        dl_store *store = make_store(self->options);
        check_get(store, "key", "value");
        dl_store_unref(store);
    }
    return NULL;
}

/* Proofs are computed by the server's thread and all clients' threads at once. */
CHECK_CASE(clients_prove_the_token_at_once)
{
    for (int libuv = 0; libuv <= 1; libuv++) {
        dl_tcp_store_options options = plain_client;
        joiner joiners[4];
        CHECK_OK(dl_secret_new(DL_LITERAL("token"), &options.secret));
        options.is_master = true;
        options.use_libuv = libuv;
        dl_store *master = make_store(options);
        check_set(master, "key", "value");
        options.is_master = false;
        options.port = dl_tcp_store_port(master);
        for (int i = 0; i < 4; i++) {
            joiners[i].options = options;
            CHECK(pthread_create(&joiners[i].thread, NULL, join_often, &joiners[i])
                  == 0);
        }
        /* The store and its clients have references of their own. */
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_join(joiners[i].thread, NULL) == 0);
        }
        dl_secret_unref(options.secret);
        dl_store *clone = NULL;
        CHECK_OK(dl_store_clone(master, &clone, SOON));
        check_get(clone, "key", "value");
        dl_store_unref(clone);
        options.secret = NULL;
        dl_store *stranger = NULL;
        CHECK_STATUS(dl_tcp_store_new(&options, SOON, &stranger), DL_DENIED);
        dl_store_unref(master);
    }
}

static const dl_tcp_store_options *
with_tls(dl_tcp_store_options *options)
{
    *options = plain_client;
    options->tls = "psk";
    CHECK_OK(dl_secret_new(DL_LITERAL("token"), &options->secret));
    return options;
}

/* Handshakes, and requests of all clients, at once; waits that the server ends. */
CHECK_CASE(clients_speak_tls_at_once)
{
    EACH_SERVER(libuv)
    {
        dl_tcp_store_options options;
        joiner joiners[4];
        get_thread get;
        with_tls(&options);
        options.is_master = true;
        options.use_libuv = libuv;
        dl_store *master = make_store(options);
        CHECK_TEXT(dl_tcp_store_tls(master), "psk");
        start_get(&get, master, 15 * DL_SECOND);
        check_set(master, "key", "value");
        options.is_master = false;
        options.port = dl_tcp_store_port(master);
        for (int i = 0; i < 4; i++) {
            joiners[i].options = options;
            CHECK(pthread_create(&joiners[i].thread, NULL, join_often, &joiners[i])
                  == 0);
        }
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_join(joiners[i].thread, NULL) == 0);
        }
        dl_store *clone = NULL;
        CHECK_OK(dl_store_clone(master, &clone, SOON));
        check_set(clone, "k", "value");
        CHECK_EQUAL(join_get(&get), DL_OK);
        dl_store_unref(clone);
        dl_store *stranger = NULL;
        options.tls = "off";
        CHECK_STATUS(dl_tcp_store_new(&options, SOON, &stranger), DL_DENIED);
        CHECK_CONTAINS(dl_last_error()->text, "speaks TLS only");
        dl_secret_unref(options.secret);
        options.secret = NULL;
        CHECK_STATUS(dl_tcp_store_new(&options, SOON, &stranger), DL_DENIED);
        options.tls = "psk";
        CHECK_STATUS(dl_tcp_store_new(&options, SOON, &stranger), DL_INVALID);
        CHECK_OK(dl_secret_new(DL_LITERAL("other"), &options.secret));
        CHECK_STATUS(dl_tcp_store_new(&options, SOON, &stranger), DL_DENIED);
        dl_secret_unref(options.secret);
        dl_store_unref(master);
    }
}
