/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Every call of a client whose connection is cut after every byte of the request, and of
 * the reply, in front of either server: it takes effect once, and its result is right. */
#include "store/tcp/tcp_store.h"

#include <poll.h>

#include "fakes/server.h"
#include "net/connect.h"
#include "store/counter.h"
#include "store/store.h"
#include "store/tcp/connection.h"
#include "tcp_fixture.h"
#include "store_calls.h"

/* Both servers take the same calls, in another order of events. */
#define EACH_SERVER(libuv)                                             \
    for (int libuv = 0; libuv < 1 + dl_tcp_store_has_libuv(); libuv++) \
        for (int once = 1; once; once = 0)

typedef enum direction { REQUEST, REPLY } direction;

/* Stands between a client and its server, and cuts one connection. */
typedef struct proxy {
    fake_server front;
    uint16_t port; /* the server's */
    direction which;
    atomic_long left; /* bytes in that direction before the cut; negative: no cut */
    atomic_bool has_cut;
} proxy;

/* Passes on what has arrived; returns false at the end, which may be the cut. */
static bool
pass(proxy *between, direction which, int from, int to)
{
    static _Thread_local uint8_t bytes[65536];
    ssize_t size = recv(from, bytes, sizeof bytes, 0);
    long left = which == between->which ? atomic_load(&between->left) : -1;
    bool is_cut = left >= 0 && size >= left;

    if (size <= 0) {
        return false;
    }
    if (is_cut) {
        size = left;
        atomic_store(&between->has_cut, true);
        atomic_store(&between->left, -1);
    } else if (left >= 0) {
        atomic_store(&between->left, left - size);
    }
    for (ssize_t sent = 0; sent < size;) {
        ssize_t got = send(to, bytes + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (got < 0) {
            return false;
        }
        sent += got;
    }
    return !is_cut;
}

static void
talk_between(fake_peer *peer)
{
    proxy *between = peer->server->context;
    int fd;
    bool goes_on = true;

    if (dl_socket_connect_once("127.0.0.1", between->port, SOON, NULL, &fd) != DL_OK) {
        return;
    }
    while (goes_on) {
        struct pollfd polls[] = {{.fd = peer->fd, .events = POLLIN},
                                 {.fd = fd, .events = POLLIN}};
        poll(polls, 2, -1);
        goes_on = (polls[0].revents == 0 || pass(between, REQUEST, peer->fd, fd))
                  && (polls[1].revents == 0 || pass(between, REPLY, fd, peer->fd));
    }
    dl_socket_close(fd);
}

/* A client whose connections lead through the proxy. */
static dl_store *
open_proxy(proxy *between, const dl_store *master, direction which)
{
    *between = (proxy){.port = dl_tcp_store_port(master), .which = which};
    atomic_store(&between->left, -1);
    between->front.talk = talk_between;
    between->front.context = between;
    fake_start(&between->front, 0);
    return make_client(between->front.port);
}

static void
close_proxy(proxy *between, dl_store *client)
{
    dl_store_unref(client);
    fake_stop(&between->front);
}

static void
cut_after(proxy *between, long size)
{
    atomic_store(&between->has_cut, false);
    atomic_store(&between->left, size);
}

static bool
was_cut(proxy *between)
{
    bool was = atomic_load(&between->has_cut);

    atomic_store(&between->left, -1);
    return was;
}

/* One call, before and after which `master` is asked directly; the key is a new one each
 * time. */
typedef void (*try_fn)(dl_store *master, dl_store *client, dl_bytes key);

static void
check_value(dl_store *store, dl_bytes key, const char *expected)
{
    dl_buffer value = {0};

    CHECK_OK(dl_store_get(store, key, &value, dl_deadline_after(0)));
    CHECK(dl_bytes_equal(dl_buffer_bytes(&value), dl_bytes_of(expected)));
    dl_buffer_fini(&value);
}

static void
check_item(dl_store *store, dl_bytes key, const char *expected)
{
    dl_buffer value = {0};

    CHECK_OK(dl_store_queue_pop(store, key, true, &value, SOON));
    CHECK(dl_bytes_equal(dl_buffer_bytes(&value), dl_bytes_of(expected)));
    dl_buffer_fini(&value);
}

static void
check_length(dl_store *store, dl_bytes key, int64_t expected)
{
    int64_t length;

    CHECK_OK(dl_store_queue_len(store, key, &length, SOON));
    CHECK_EQUAL(length, expected);
}

static void
try_set(dl_store *master, dl_store *client, dl_bytes key)
{
    CHECK_OK(dl_store_set(client, key, DL_LITERAL("value"), SOON));
    check_value(master, key, "value");
}

static void
try_compare_set(dl_store *master, dl_store *client, dl_bytes key)
{
    dl_buffer value = {0};

    CHECK_OK(dl_store_set(master, key, DL_LITERAL("old"), SOON));
    CHECK_OK(dl_store_compare_set(client, key, DL_LITERAL("old"), DL_LITERAL("new"),
                                  &value, SOON));
    CHECK_BYTES(dl_buffer_bytes(&value), "new");
    dl_buffer_fini(&value);
    check_value(master, key, "new");
}

static void
try_add(dl_store *master, dl_store *client, dl_bytes key)
{
    int64_t sum = 0;

    CHECK_OK(dl_store_add(client, key, 5, &sum, SOON));
    CHECK_EQUAL(sum, 5);
    check_value(master, key, "5");
}

static void
try_delete(dl_store *master, dl_store *client, dl_bytes key)
{
    bool existed = false;

    CHECK_OK(dl_store_set(master, key, DL_LITERAL("old"), SOON));
    CHECK_OK(dl_store_delete_key(client, key, &existed, SOON));
    CHECK(existed);
    CHECK_OK(dl_store_check(master, &key, 1, &existed, SOON));
    CHECK(!existed);
}

static void
try_append(dl_store *master, dl_store *client, dl_bytes key)
{
    CHECK_OK(dl_store_append(client, key, DL_LITERAL("once"), SOON));
    check_value(master, key, "once");
}

static void
try_multi_set(dl_store *master, dl_store *client, dl_bytes key)
{
    const dl_bytes keys[] = {key, DL_LITERAL("other")};

    CHECK_OK(dl_store_multi_set(client, keys, keys, 2, SOON));
    check_value(master, DL_LITERAL("other"), "other");
    CHECK_OK(dl_store_check(master, keys, 1, &(bool){0}, SOON));
}

static void
try_push(dl_store *master, dl_store *client, dl_bytes key)
{
    CHECK_OK(dl_store_queue_push(client, key, DL_LITERAL("item"), SOON));
    check_length(master, key, 1);
    check_item(master, key, "item");
}

static void
try_pop(dl_store *master, dl_store *client, dl_bytes key)
{
    CHECK_OK(dl_store_queue_push(master, key, DL_LITERAL("first"), SOON));
    CHECK_OK(dl_store_queue_push(master, key, DL_LITERAL("second"), SOON));
    check_item(client, key, "first");
    check_length(master, key, 1);
    check_item(master, key, "second");
}

static void
try_barrier(dl_store *master, dl_store *client, dl_bytes key)
{
    CHECK_OK(dl_store_barrier(client, key, 1, SOON));
    check_value(master, key, "1");
}

static void
try_reads(dl_store *master, dl_store *client, dl_bytes key)
{
    dl_buffer value = {0};
    bool exists = false;
    int64_t count = 0;

    CHECK_OK(dl_store_set(master, key, DL_LITERAL("value"), SOON));
    CHECK_OK(dl_store_check(client, &key, 1, &exists, SOON));
    CHECK(exists);
    CHECK_OK(dl_store_wait(client, &key, 1, SOON));
    CHECK_OK(dl_store_multi_get(client, &key, 1, &value, SOON));
    CHECK_BYTES(dl_buffer_bytes(&value), "value");
    check_value(client, key, "value");
    CHECK_OK(dl_store_num_keys(client, &count, SOON));
    CHECK(count >= 1);
    check_length(client, key, 0);
    dl_buffer_fini(&value);
}

static const try_fn tries[] = {try_set,     try_compare_set, try_add,  try_delete,
                               try_append,  try_multi_set,   try_push, try_pop,
                               try_barrier, try_reads};
#define TRIES_COUNT (sizeof tries / sizeof *tries)

/* Cuts after 0, 1, ... bytes, until the call needs no more. */
static int
cut_everywhere(dl_store *master, try_fn call, direction which)
{
    proxy between;
    dl_store *client = open_proxy(&between, master, which);
    char name[32];
    int cuts = 0;

    for (bool is_cut = true; is_cut; cuts += is_cut) {
        snprintf(name, sizeof name, "%d", cuts);
        /* The connection that the call will use is there before. */
        CHECK_OK(dl_store_check(client, &KEY, 1, &(bool){0}, SOON));
        cut_after(&between, cuts);
        call(master, client, dl_bytes_of(name));
        is_cut = was_cut(&between);
    }
    close_proxy(&between, client);
    return cuts;
}

CHECK_CASE(every_call_takes_effect_once)
{
    EACH_SERVER(libuv)
    {
        for (size_t i = 0; i < TRIES_COUNT; i++) {
            for (direction which = REQUEST; which <= REPLY; which++) {
                dl_store *master = make_master(0, libuv);
                int cuts = cut_everywhere(master, tries[i], which);
                CHECK(cuts >= (which == REQUEST ? 10 : 1));
                dl_store_unref(master);
            }
        }
    }
}

#define LARGE_SIZE (300 << 10)

static dl_bytes
large_value(void)
{
    static uint8_t bytes[LARGE_SIZE];

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 13 / 5);
    }
    return (dl_bytes){bytes, sizeof bytes};
}

static void
try_large(dl_store *master, dl_store *client, dl_bytes key)
{
    dl_buffer value = {0};

    CHECK_OK(dl_store_queue_push(client, key, large_value(), SOON));
    check_length(master, key, 1);
    CHECK_OK(dl_store_queue_pop(client, key, true, &value, SOON));
    CHECK(dl_bytes_equal(dl_buffer_bytes(&value), large_value()));
    check_length(master, key, 0);
    CHECK_OK(
        dl_store_compare_set(client, key, (dl_bytes){0}, large_value(), &value, SOON));
    CHECK(dl_bytes_equal(dl_buffer_bytes(&value), large_value()));
    dl_buffer_fini(&value);
    CHECK_OK(dl_store_delete_key(client, key, &(bool){0}, SOON));
}

#define MANY 3000

/* A change of many keys. */
static void
try_long(dl_store *master, dl_store *client, dl_bytes key)
{
    static char names[MANY][16];
    static dl_bytes keys[MANY], values[MANY];
    bool exist = false;

    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%.6s/%d", (const char *)key.data, i);
        keys[i] = dl_bytes_of(names[i]);
        values[i] = key;
    }
    CHECK_OK(dl_store_multi_set(client, keys, values, MANY, SOON));
    CHECK_OK(dl_store_check(master, keys, MANY, &exist, SOON));
    CHECK(exist);
}

/* Cuts the connection at several places, others for each `first`. */
static void
cut_here_and_there(dl_store *master, try_fn call, direction which, long size,
                   long first)
{
    proxy between;
    dl_store *client = open_proxy(&between, master, which);
    char name[32];

    for (long at = first; at <= size; at += size / 20 + 1) {
        snprintf(name, sizeof name, "%ld", at);
        cut_after(&between, at);
        call(master, client, dl_bytes_of(name));
        CHECK(was_cut(&between));
    }
    close_proxy(&between, client);
}

CHECK_CASE(large_calls_take_effect_once)
{
    EACH_SERVER(libuv)
    {
        dl_store *master = make_master(0, libuv);
        for (long first = 0; first < 3; first++) {
            cut_here_and_there(master, try_large, REQUEST, 2 * LARGE_SIZE, first);
            cut_here_and_there(master, try_large, REPLY, 2 * LARGE_SIZE, first);
            cut_here_and_there(master, try_long, REQUEST, 30 * MANY, first * 7);
            cut_here_and_there(master, try_long, REPLY, 0, 0);
        }
        dl_store_unref(master);
    }
}

/* A call that waits for what `master` does, on a thread of its own. */
typedef struct waiting {
    pthread_t thread;
    dl_store *client;
    dl_bytes key;
} waiting;

static void *
meet_main(void *argument)
{
    waiting *call = argument;

    CHECK_OK(dl_store_barrier(call->client, call->key, 2, SOON));
    return NULL;
}

static void *
pop_main(void *argument)
{
    waiting *call = argument;

    check_item(call->client, call->key, "item");
    return NULL;
}

static void
run_waiting(dl_store *client, dl_bytes key, void *(*call)(void *), waiting *running)
{
    *running = (waiting){.client = client, .key = key};
    CHECK(pthread_create(&running->thread, NULL, call, running) == 0);
}

static void
try_waiting_barrier(dl_store *master, dl_store *client, dl_bytes key)
{
    waiting running;

    run_waiting(client, key, meet_main, &running);
    CHECK_OK(dl_store_barrier(master, key, 2, SOON));
    CHECK(pthread_join(running.thread, NULL) == 0);
    check_value(master, key, "2");
}

static void
try_waiting_pop(dl_store *master, dl_store *client, dl_bytes key)
{
    waiting running;

    run_waiting(client, key, pop_main, &running);
    CHECK_OK(dl_store_queue_push(master, key, DL_LITERAL("item"), SOON));
    CHECK(pthread_join(running.thread, NULL) == 0);
    check_length(master, key, 0);
}

CHECK_CASE(calls_that_wait_take_effect_once)
{
    EACH_SERVER(libuv)
    {
        for (direction which = REQUEST; which <= REPLY; which++) {
            dl_store *master = make_master(0, libuv);
            cut_everywhere(master, try_waiting_barrier, which);
            cut_everywhere(master, try_waiting_pop, which);
            dl_store_unref(master);
        }
    }
}

/* Returns the number of clients that have counted themselves. */
static int64_t
count_joined(uint16_t port)
{
    dl_connection *connection = NULL;
    dl_store_request get = {.op = DL_OP_GET, .key = DL_LITERAL("init/")};
    dl_buffer value = {0};
    int64_t count = 0;
    int fd;

    CHECK_OK(dl_socket_connect_once("127.0.0.1", port, SOON, NULL, &fd));
    CHECK_OK(dl_connection_new(fd, &connection));
    CHECK_OK(dl_connection_greet(connection, NULL, NULL, SOON));
    CHECK_OK(dl_connection_ask(connection, &get, DL_LITERAL(""), SOON));
    if (dl_connection_take_status(connection, SOON) == DL_OK) {
        CHECK_OK(dl_connection_take_blob(connection, SOON, &value));
        CHECK(dl_counter_parse(dl_buffer_bytes(&value), &count));
    }
    dl_buffer_fini(&value);
    dl_connection_free(connection, false);
    return count;
}

CHECK_CASE(a_client_that_joins_is_counted_once)
{
    EACH_SERVER(libuv)
    {
        for (direction which = REQUEST; which <= REPLY; which++) {
            dl_store *master = make_master(0, libuv);
            uint16_t port = dl_tcp_store_port(master);
            int64_t joined = 0;
            /* Every byte of the handshake is the first lost one in some round. */
            for (long at = libuv; at < 110; at += 2) {
                proxy between;
                dl_tcp_store_options options = plain_client;
                dl_store_unref(open_proxy(&between, master, which));
                cut_after(&between, at);
                options.port = between.front.port;
                options.world_size = 1000;
                close_proxy(&between, make_store(options));
                CHECK_EQUAL(count_joined(port), ++joined);
            }
            dl_store_unref(master);
        }
    }
}
