/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stores whose clients use a relay, in a process of its own that can be killed and
 * stopped, or in this one. */
#include "store/tcp/relay.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "net/connect.h"
#include "net/socket.h"
#include "ranks.h"
#include "store/tcp/carrier.h"
#include "store/tcp/connection.h"
#include "store/tcp/relay_client.h"
#include "store/tcp/relay_frame.h"
#include "tcp_fixture.h"

#define STRANGER 65533

static void
await_fact(dl_store *store, const char *name, int64_t value)
{
    dl_deadline soon = SOON;

    while (fact(store, name) != value) {
        CHECK(!dl_deadline_passed(soon));
        usleep(1000);
    }
}

static void
use_relay(uint16_t port)
{
    char text[128];

    snprintf(text, sizeof text, "%s@127.0.0.1:%u", own_name(), port);
    setenv(DL_RELAY_VARIABLE, text, 1);
}

static dl_relay *
start_relay(uint16_t port, dl_secret *secret, const char *tls)
{
    const dl_relay_options options = {.host = "127.0.0.1",
                                      .port = port,
                                      .name = own_name(),
                                      .secret = secret,
                                      .tls = tls};
    dl_relay *relay;
    dl_deadline soon = SOON;

    CHECK_OK(dl_relay_start(&options, &relay));
    while (!dl_relay_is_connected(relay)) {
        CHECK(!dl_deadline_passed(soon));
        usleep(1000);
    }
    use_relay(port);
    return relay;
}

/* A process of its own for a relay, which ends with this one. */
typedef struct relay_process {
    pid_t pid;
    int begin; /* the relay starts when this is written to */
    int ready;
} relay_process;

/* To be called while no other thread allocates memory: the allocators of sanitizers do
 * not unlock themselves in a child. */
static relay_process
fork_waiting(uint16_t port)
{
    int begin[2], ready[2];
    char byte;

    (void)own_name();
    CHECK(pipe(begin) == 0 && pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(begin[1]);
        if (read(begin[0], &byte, 1) != 1) {
            _exit(0);
        }
        (void)start_relay(port, NULL, NULL);
        (void)!write(ready[1], "r", 1);
        for (;;) {
            pause();
        }
    }
    close(begin[0]);
    close(ready[1]);
    return (relay_process){child, begin[1], ready[0]};
}

static pid_t
begin_relay(const relay_process *self, uint16_t port)
{
    char byte;

    CHECK(write(self->begin, "b", 1) == 1);
    CHECK(read(self->ready, &byte, 1) == 1);
    close(self->begin);
    close(self->ready);
    use_relay(port);
    return self->pid;
}

static pid_t
fork_relay(uint16_t port)
{
    relay_process process = fork_waiting(port);

    return begin_relay(&process, port);
}

static void
kill_relay(pid_t relay)
{
    CHECK(kill(relay, SIGKILL) == 0);
    CHECK(waitpid(relay, NULL, 0) == relay);
}

static void
carry(bool use_libuv)
{
    dl_store_unref(make_master(0, use_libuv));
    int before = check_descriptors();
    dl_store *master = make_master(0, use_libuv);
    uint16_t port = dl_tcp_store_port(master);
    dl_relay *relay = start_relay(port, NULL, NULL);
    dl_store *clients[4];
    dl_address address, relayed;
    int64_t sum;

    for (int i = 0; i < 4; i++) {
        clients[i] = make_client(port);
    }
    CHECK_EQUAL(fact(master, "relays"), 1);
    CHECK_EQUAL(fact(master, "relayed_clients"), 4);
    /* The master, the relay, and four channels. */
    CHECK_EQUAL(fact(master, "clients"), 6);
    for (int i = 0; i < 100; i++) {
        CHECK_OK(dl_store_add(clients[i % 4], DL_LITERAL("sum"), 1, &sum, SOON));
        CHECK_EQUAL(sum, i + 1);
    }
    check_set(clients[0], "a", "1");
    check_get(clients[1], "a", "1");
    check_get(master, "a", "1");
    CHECK(dl_store_local_address(clients[0], &relayed));
    CHECK(dl_store_local_address(master, &address));
    CHECK(dl_address_is_loopback(&relayed));
    for (int i = 0; i < 4; i++) {
        dl_store_unref(clients[i]);
    }
    await_fact(master, "relayed_clients", 0);
    CHECK_EQUAL(fact(master, "replies/slots"), 1);
    dl_relay_stop(relay);
    await_fact(master, "relays", 0);
    dl_store_unref(master);
    CHECK_EQUAL(check_descriptors(), before);
}

CHECK_CASE(clients_use_one_connection_poll)
{
    carry(false);
}

CHECK_CASE(clients_use_one_connection_libuv)
{
    carry(true);
}

CHECK_CASE(clients_of_relays_take_no_connections)
{
    setenv("DISTLITE_STORE_CONNECTIONS", "4", 1);
    dl_store *master = make_master(0, false);
    uint16_t port = dl_tcp_store_port(master);
    dl_relay *relay = start_relay(port, NULL, NULL);
    dl_store *clients[6];

    for (int i = 0; i < 6; i++) {
        clients[i] = make_client(port);
    }
    CHECK_EQUAL(fact(master, "relayed_clients"), 6);
    unsetenv(DL_RELAY_VARIABLE);
    dl_store *direct = make_client(port);
    check_set(direct, "a", "1");
    check_get(clients[5], "a", "1");
    dl_store_unref(direct);
    for (int i = 0; i < 6; i++) {
        dl_store_unref(clients[i]);
    }
    dl_relay_stop(relay);
    dl_store_unref(master);
}

CHECK_CASE(a_relay_waits_for_the_server)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    const dl_relay_options options = {
        .host = "127.0.0.1", .port = port, .name = own_name()};
    dl_relay *relay;

    dl_store_unref(master);
    CHECK_OK(dl_relay_start(&options, &relay));
    use_relay(port);
    CHECK(!dl_relay_is_connected(relay));
    master = make_master(port, true);
    dl_store *client = make_client(port);
    check_set(client, "a", "1");
    check_get(master, "a", "1");
    await_fact(master, "relays", 1);
    dl_store_unref(client);
    dl_store_unref(master);
    dl_relay_stop(relay);
}

CHECK_CASE(large_values_pass)
{
    dl_store *master = make_master(0, true);
    dl_relay *relay = start_relay(dl_tcp_store_port(master), NULL, NULL);
    dl_store *client = make_client(dl_tcp_store_port(master));
    const size_t size = DL_STORE_VALUE_LIMIT;
    uint8_t *data = malloc(size);
    dl_buffer got[3] = {{0}, {0}, {0}};
    const dl_bytes keys[3] = {DL_LITERAL("a"), DL_LITERAL("b"), DL_LITERAL("a")};

    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    CHECK_OK(dl_store_set(client, keys[0], (dl_bytes){data, size}, SOON));
    CHECK_OK(dl_store_set(client, keys[1], (dl_bytes){data, 70001}, SOON));
    CHECK_OK(dl_store_multi_get(client, keys, 3, got, SOON));
    for (int i = 0; i < 3; i++) {
        size_t wanted = i == 1 ? 70001 : size;
        CHECK(dl_bytes_equal(dl_buffer_bytes(&got[i]), (dl_bytes){data, wanted}));
        dl_buffer_fini(&got[i]);
    }
    free(data);
    dl_store_unref(client);
    dl_relay_stop(relay);
    dl_store_unref(master);
}

CHECK_CASE(waits_end_and_are_cancelled_in_time)
{
    dl_store *master = make_master(0, true);
    dl_relay *relay = start_relay(dl_tcp_store_port(master), NULL, NULL);
    dl_store *client = make_client(dl_tcp_store_port(master));
    get_thread gets[8];
    dl_buffer unused = {0};

    for (int i = 0; i < 8; i++) {
        start_get(&gets[i], client, 20 * DL_SECOND);
    }
    /* The first one is sent at once; all others share the next. */
    await_fact(master, "waiters", 1);
    CHECK_EQUAL(fact(master, "relayed_clients"), 8 + 1);
    check_set(master, "k", "value");
    for (int i = 0; i < 8; i++) {
        CHECK_STATUS(join_get(&gets[i]), DL_OK);
    }
    /* What one wait has seen is no reply to a later one. */
    bool existed;
    CHECK_OK(dl_store_delete_key(client, KEY, &existed, SOON));
    start_get(&gets[0], client, 200 * DL_MILLISECOND);
    start_get(&gets[1], client, 20 * DL_SECOND);
    CHECK_STATUS(join_get(&gets[0]), DL_TIMEOUT);
    await_fact(master, "waiters", 1);
    check_set(master, "k", "value");
    CHECK_STATUS(join_get(&gets[1]), DL_OK);
    await_fact(master, "waiters", 0);
    int64_t since = dl_now();
    CHECK_STATUS(dl_store_get(client, DL_LITERAL("none"), &unused,
                              dl_deadline_after(300 * DL_MILLISECOND)),
                 DL_TIMEOUT);
    CHECK(dl_now() - since >= 300 * DL_MILLISECOND);
    CHECK_CONTAINS(dl_last_error()->text, "wait timeout after 300ms, keys: /none");
    dl_store_unref(client);
    dl_relay_stop(relay);
    dl_store_unref(master);
}

#define ADDS 4000

static void
add_often(int rank, int size, void *context)
{
    dl_store *store = make_client(*(uint16_t *)context);
    int64_t sum;

    for (int i = 0; i < ADDS; i++) {
        CHECK_OK(dl_store_add(store, DL_LITERAL("sum"), 1, &sum, SOON));
        CHECK(sum > i && rank < size);
    }
    dl_store_unref(store);
}

/* One more than are killed. */
#define RELAYS 40

typedef struct killer {
    pthread_t thread;
    uint16_t port;
    relay_process relays[RELAYS];
    int begun;
    atomic_bool is_over;
} killer;

/* Kills the relay again and again, in the middle of requests, and starts it anew under
 * its name every second time. */
static void *
kill_often(void *argument)
{
    killer *self = argument;

    for (int i = 0; !atomic_load(&self->is_over) && i + 1 < RELAYS; i++) {
        usleep(3000 + 1777u * (unsigned)(i % 7));
        kill_relay(self->relays[i].pid);
        if (i % 2 == 0) {
            usleep(5000);
        }
        (void)begin_relay(&self->relays[i + 1], self->port);
        self->begun++;
    }
    return NULL;
}

CHECK_CASE(killing_the_relay_loses_and_repeats_nothing)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    killer killer = {.port = port, .begun = 1};
    int64_t sum;

    for (int i = 0; i < RELAYS; i++) {
        killer.relays[i] = fork_waiting(port);
    }
    (void)begin_relay(&killer.relays[0], port);
    CHECK(pthread_create(&killer.thread, NULL, kill_often, &killer) == 0);
    dl_run_ranks(8, add_often, &port);
    atomic_store(&killer.is_over, true);
    CHECK(pthread_join(killer.thread, NULL) == 0);
    CHECK_OK(dl_store_add(master, DL_LITERAL("sum"), 0, &sum, SOON));
    CHECK_EQUAL(sum, 8 * ADDS);
    for (int i = killer.begun - 1; i < RELAYS; i++) {
        kill_relay(killer.relays[i].pid);
    }
    dl_store_unref(master);
}

CHECK_CASE(a_wait_survives_the_relay)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    pid_t relay = fork_relay(port);
    dl_store *client = make_client(port);
    get_thread get;

    start_get(&get, client, 20 * DL_SECOND);
    kill_relay(relay);
    check_set(master, "k", "value");
    CHECK_STATUS(join_get(&get), DL_OK);
    dl_store_unref(client);
    dl_store_unref(master);
}

/* A stopped relay is not taken for a silent server: calls go on without it. */
CHECK_CASE(a_stopped_relay_is_left)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    pid_t relay = fork_relay(port);
    dl_store *client = make_client(port);
    dl_store *other = make_client(port);
    get_thread get;
    int64_t sum;

    CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 1, &sum, SOON));
    start_get(&get, other, 20 * DL_SECOND);
    CHECK(kill(relay, SIGSTOP) == 0);
    CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 1, &sum, SOON));
    CHECK_EQUAL(sum, 2);
    check_set(master, "k", "value");
    CHECK_STATUS(join_get(&get), DL_OK);
    /* What the relay still holds has no effect when it goes on. */
    CHECK(kill(relay, SIGCONT) == 0);
    CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 1, &sum, SOON));
    CHECK_EQUAL(sum, 3);
    kill_relay(relay);
    CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 1, &sum, SOON));
    CHECK_EQUAL(sum, 4);
    dl_store_unref(other);
    dl_store_unref(client);
    dl_store_unref(master);
}

CHECK_CASE(a_wait_at_a_stopped_relay_ends_in_time)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    pid_t relay = fork_relay(port);
    dl_store *client = make_client(port);
    dl_buffer unused = {0};

    check_set(client, "a", "1");
    CHECK(kill(relay, SIGSTOP) == 0);
    int64_t since = dl_now();
    CHECK_STATUS(dl_store_get(client, KEY, &unused, dl_deadline_after(3 * DL_SECOND)),
                 DL_TIMEOUT);
    CHECK(dl_now() - since < 3 * DL_SECOND + CHECK_SLACK);
    CHECK_CONTAINS(dl_last_error()->text, "wait timeout after 3000ms, keys: /k");
    kill_relay(relay);
    dl_store_unref(client);
    dl_store_unref(master);
}

CHECK_CASE(without_a_relay_clients_connect_directly)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);

    use_relay(port);
    dl_store *client = make_client(port);
    check_set(client, "a", "1");
    CHECK_EQUAL(fact(client, "relayed_clients"), 0);
    dl_store_unref(client);
    dl_store_unref(master);
}

CHECK_CASE(another_server_is_not_relayed)
{
    dl_store *master = make_master(0, true);
    dl_store *other = make_master(0, true);
    dl_relay *relay = start_relay(dl_tcp_store_port(master), NULL, NULL);
    dl_store *client = make_client(dl_tcp_store_port(other));

    check_set(client, "a", "1");
    CHECK_EQUAL(fact(client, "relayed_clients"), 0);
    check_get(other, "a", "1");
    dl_store_unref(client);
    dl_relay_stop(relay);
    dl_store_unref(other);
    dl_store_unref(master);
}

CHECK_CASE(a_malformed_variable_is_an_error)
{
    const char *const malformed[] = {"x", "distlite-@127.0.0.1:1", "@127.0.0.1:1",
                                     "distlite-0123456789abcdef0123456789abcdef:1@x"};
    char name[DL_LOCAL_NAME_SIZE];

    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        setenv(DL_RELAY_VARIABLE, malformed[i], 1);
        CHECK_STATUS(dl_relay_find("127.0.0.1", 1, name), DL_INVALID);
        CHECK_CONTAINS(dl_last_error()->text, "NAME@HOST:PORT");
    }
    const char *const good[] = {"distlite-0123456789abcdef0123456789abcdef@::1:7",
                                "::1", "distlite-0123456789abcdef0123456789abcdef@h:7",
                                "h"};
    for (int i = 0; i < 4; i += 2) {
        setenv(DL_RELAY_VARIABLE, good[i], 1);
        CHECK_OK(dl_relay_find(good[i + 1], 7, name));
        CHECK_EQUAL(strlen(name), DL_LOCAL_NAME_SIZE - 1);
        CHECK_OK(dl_relay_find(good[i + 1], 8, name));
        CHECK_EQUAL(strlen(name), 0);
    }
}

CHECK_CASE(tokens_and_tls_hold)
{
    const char *const modes[] = {"off", "psk"};
    dl_secret *secret, *wrong;

    CHECK_OK(dl_secret_new(DL_LITERAL("the token of the job"), &secret));
    CHECK_OK(dl_secret_new(DL_LITERAL("the token of another"), &wrong));
    for (int i = 0; i < 2; i++) {
        dl_tcp_store_options options = plain_client;
        options.secret = secret;
        options.is_master = true;
        options.tls = modes[i];
        unsetenv(DL_RELAY_VARIABLE);
        dl_store *master = make_store(options);
        dl_relay *relay = start_relay(dl_tcp_store_port(master), secret, modes[i]);
        options.is_master = false;
        options.port = dl_tcp_store_port(master);
        dl_store *client = make_store(options);
        check_set(client, "a", "1");
        CHECK_EQUAL(fact(client, "relayed_clients"), 1);
        dl_store_unref(client);
        dl_relay_stop(relay);
        /* A relay without the token is not let in, and serves nobody. */
        const dl_relay_options stranger = {.host = "127.0.0.1",
                                           .port = options.port,
                                           .name = own_name(),
                                           .secret = wrong,
                                           .tls = modes[i]};
        CHECK_OK(dl_relay_start(&stranger, &relay));
        client = make_store(options);
        CHECK(!dl_relay_is_connected(relay));
        CHECK_EQUAL(fact(client, "relays"), 0);
        dl_store_unref(client);
        dl_relay_stop(relay);
        dl_store_unref(master);
    }
    dl_secret_unref(wrong);
    dl_secret_unref(secret);
}

/* Connects to the relay without its client, and takes what it tells first. */
static int
connect_raw(void)
{
    dl_address addresses[2];
    struct iovec room = {addresses, 2 * sizeof addresses->socket};
    size_t size;
    int fd;

    CHECK_OK(dl_relay_connect(own_name(), &fd));
    CHECK_OK(dl_socket_read(fd, room, room.iov_len, SOON, &size));
    return fd;
}

/* Writes until the relay takes nothing for a while; returns how many bytes. */
static size_t
flood(int fd, dl_bytes bytes)
{
    size_t total = 0;

    for (size_t at = 0;;) {
        struct pollfd writable = {.fd = fd, .events = POLLOUT};
        if (poll(&writable, 1, 300) == 0) {
            return total;
        }
        ssize_t sent = send(fd, bytes.data + at, bytes.size - at, MSG_NOSIGNAL);
        CHECK(sent > 0);
        total += (size_t)sent;
        at = (at + (size_t)sent) % bytes.size;
    }
}

CHECK_CASE(a_client_that_does_not_read_is_held_back)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    dl_relay *relay = start_relay(port, NULL, NULL);
    const dl_store_request validate = {.op = DL_OP_VALIDATE, .number = DL_WIRE_MAGIC};
    const dl_store_request get = {.op = DL_OP_GET, .key = DL_LITERAL("/big")};
    uint8_t *big = calloc(1, 1 << 20);
    dl_buffer gets = {0}, hello = {0};

    CHECK_OK(dl_store_set(master, DL_LITERAL("big"), (dl_bytes){big, 1 << 20}, SOON));
    dl_wire_put_request(&hello, &validate, DL_LITERAL(""));
    for (int i = 0; i < 4096; i++) {
        dl_wire_put_request(&gets, &get, DL_LITERAL(""));
    }
    int fd = connect_raw();
    CHECK(send(fd, hello.data, hello.size, MSG_NOSIGNAL) == (ssize_t)hello.size);
    size_t taken = flood(fd, dl_buffer_bytes(&gets));
    /* One batch at the server, one here, and what the socket holds. */
    CHECK(taken < 3 * DL_RELAY_DATA_LIMIT + (1 << 20));
    /* The others are served meanwhile, and the server holds little for that one. */
    dl_store *client = make_client(port);
    check_set(client, "a", "1");
    check_get(client, "a", "1");
    CHECK(fact(master, "output_bytes") < (4 << 20));
    /* It gets all of it once it reads. */
    size_t left = 20 * ((1 << 20) + 8);
    while (left > 0) {
        struct iovec room = {big, left < (1 << 20) ? left : (1 << 20)};
        size_t got;
        CHECK_OK(dl_socket_read(fd, room, 1, SOON, &got));
        left -= got;
    }
    close(fd);
    await_fact(master, "relayed_clients", 1);
    dl_store_unref(client);
    free(big);
    dl_buffer_fini(&gets);
    dl_buffer_fini(&hello);
    dl_relay_stop(relay);
    dl_store_unref(master);
}

/* Starts a server in a process of its own, which ends with this one. */
static pid_t
fork_master(uint16_t *port)
{
    int ready[2];

    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        *port = dl_tcp_store_port(make_master(0, true));
        (void)!write(ready[1], port, sizeof *port);
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    CHECK(read(ready[0], port, sizeof *port) == sizeof *port);
    close(ready[0]);
    return child;
}

/* Sends bytes, and returns when the relay has read all of them. */
static void
send_read(int fd, dl_bytes bytes)
{
    dl_deadline soon = SOON;
    struct iovec part = {(void *)bytes.data, bytes.size};
    int unread = 1;

    CHECK_OK(dl_socket_write(fd, &part, 1, soon));
    while (unread > 0) {
        CHECK(!dl_deadline_passed(soon));
        CHECK(ioctl(fd, TIOCOUTQ, &unread) == 0);
        sched_yield();
    }
}

static void
check_cancelled(int fd)
{
    uint8_t reply[2];
    size_t got;

    CHECK_OK(dl_socket_read(fd, (struct iovec){reply, 2}, 2, SOON, &got));
    CHECK(reply[0] == DL_OK && reply[1] == DL_WIRE_CANCELLED);
}

/* Waits for many keys, which are others in each round, and cancels that.  Returns whether
 * a reply came within `patience` milliseconds. */
static bool
wait_and_cancel(int fd, int round, int patience)
{
    enum { COUNT = 300, SIZE = 100 }; /* what one send(2) passes on as a whole */
    static char text[COUNT][SIZE];
    static dl_bytes keys[COUNT];
    const dl_store_request wait = {
        .op = DL_OP_WAIT, .is_checked = true, .keys = keys, .count = COUNT};
    const uint8_t cancel = DL_OP_CANCEL_WAIT | DL_WIRE_CHECKED;
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    dl_buffer bytes = {0};

    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], SIZE, "/%d/%090d", round, i);
        keys[i] = dl_bytes_of(text[i]);
    }
    dl_wire_put_request(&bytes, &wait, DL_LITERAL(""));
    send_read(fd, dl_buffer_bytes(&bytes));
    dl_buffer_fini(&bytes);
    CHECK(send(fd, &cancel, 1, MSG_NOSIGNAL) == 1);
    if (poll(&readable, 1, patience) == 0) {
        return false;
    }
    check_cancelled(fd);
    return true;
}

CHECK_CASE(a_client_that_waits_and_cancels_is_held_back)
{
    const dl_store_request validate = {.op = DL_OP_VALIDATE, .number = DL_WIRE_MAGIC};
    uint16_t port;
    pid_t server = fork_master(&port);
    dl_relay *relay = start_relay(port, NULL, NULL);
    dl_buffer hello = {0};
    int fd = connect_raw();
    int round = 0;

    dl_wire_put_request(&hello, &validate, DL_LITERAL(""));
    send_read(fd, dl_buffer_bytes(&hello));
    while (round < 8) {
        CHECK(wait_and_cancel(fd, round++, 10000));
    }
    CHECK(kill(server, SIGSTOP) == 0);
    /* What the connection to the server holds is some more. */
    while (wait_and_cancel(fd, round, 300)) {
        CHECK(++round < 1000);
    }
    CHECK(kill(server, SIGCONT) == 0);
    check_cancelled(fd);
    CHECK(wait_and_cancel(fd, round + 1, 10000));
    close(fd);
    dl_store *client = make_client(port);
    await_fact(client, "relayed_clients", 1);
    check_set(client, "a", "1");
    dl_store_unref(client);
    dl_buffer_fini(&hello);
    dl_relay_stop(relay);
    CHECK(kill(server, SIGKILL) == 0);
    CHECK(waitpid(server, NULL, 0) == server);
}

CHECK_CASE(hostile_bytes_cost_their_sender_only)
{
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    dl_relay *relay = start_relay(port, NULL, NULL);
    dl_store *client = make_client(port);
    uint8_t bytes[4096];
    uint32_t seed = 7;

    for (int round = 0; round < 64; round++) {
        int fd = connect_raw();
        for (size_t i = 0; i < sizeof bytes; i++) {
            seed = seed * 1664525 + 1013904223;
            bytes[i] = (uint8_t)(seed >> 24);
        }
        if (round % 2 == 0) {
            memcpy(bytes, "\0\xce\xf7\x85\x3c", 5);
        }
        (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        if (round % 4 < 2) {
            /* The end comes unless the bytes announce more than there are. */
            struct pollfd readable = {.fd = fd, .events = POLLIN};
            (void)poll(&readable, 1, 20);
        }
        close(fd);
        check_set(client, "a", "1");
    }
    await_fact(master, "relayed_clients", 1);
    CHECK_EQUAL(fact(master, "relays"), 1);
    dl_store_unref(client);
    dl_relay_stop(relay);
    dl_store_unref(master);
}

static dl_connection *
connect_as_relay(uint16_t port)
{
    dl_connection *connection;
    int fd;

    CHECK_OK(dl_socket_connect_once("127.0.0.1", port, SOON, NULL, &fd));
    CHECK_OK(dl_connection_new(fd, &connection));
    connection->slot = (dl_slot){.sequence = 0};
    CHECK_OK(dl_connection_greet(connection, NULL, NULL, SOON));
    CHECK(connection->is_distlite);
    return connection;
}

/* The server ends it. */
static void
check_ended(dl_connection *connection)
{
    struct pollfd readable = {.fd = connection->fd, .events = POLLIN};
    uint8_t byte;

    CHECK(poll(&readable, 1, 10000) == 1);
    CHECK(recv(connection->fd, &byte, 1, 0) <= 0);
    dl_connection_free(connection, false);
}

static void
open_channels(const dl_connection *connection, uint32_t first, uint32_t count)
{
    dl_buffer frames = {0};

    for (uint32_t i = 0; i < count; i++) {
        dl_relay_put_head(&frames, DL_RELAY_OPEN, first + i, 0);
    }
    CHECK_OK(dl_buffer_check(&frames));
    struct iovec part = {frames.data, frames.size};
    CHECK_OK(dl_socket_write(connection->fd, &part, 1, SOON));
    dl_buffer_fini(&frames);
}

CHECK_CASE(channels_of_a_relay_are_limited)
{
    dl_store *master = make_master(0, true);
    dl_connection *relay = connect_as_relay(dl_tcp_store_port(master));

    open_channels(relay, 0, DL_CARRIER_CHANNELS);
    await_fact(master, "relayed_clients", DL_CARRIER_CHANNELS);
    open_channels(relay, DL_CARRIER_CHANNELS, 1);
    check_ended(relay);
    await_fact(master, "relayed_clients", 0);
    dl_store_unref(master);
}

/* ThreadSanitizer takes too long for a quarter of a million sessions. */
#ifndef __SANITIZE_THREAD__
CHECK_CASE(channels_of_all_relays_are_limited)
{
    dl_connection *relays[DL_CARRIER_CHANNELS_OF_ALL / DL_CARRIER_CHANNELS];
    dl_store *master = make_master(0, true);
    uint16_t port = dl_tcp_store_port(master);
    size_t count = sizeof relays / sizeof *relays;

    for (size_t i = 0; i < count; i++) {
        relays[i] = connect_as_relay(port);
        open_channels(relays[i], 0, DL_CARRIER_CHANNELS);
    }
    await_fact(master, "relayed_clients", DL_CARRIER_CHANNELS_OF_ALL);
    dl_connection *late = connect_as_relay(port);
    open_channels(late, 0, 1);
    check_ended(late);
    for (size_t i = 0; i < count; i++) {
        dl_connection_free(relays[i], false);
    }
    await_fact(master, "relayed_clients", 0);
    dl_store_unref(master);
}
#endif

CHECK_CASE(hostile_frames_end_the_connection)
{
    static const uint8_t frames[][DL_RELAY_HEAD_SIZE] = {
        {1, 0, 0, 0, 0, 0, 0, 0, 0},              /* no kind */
        {1, 0, 0, 0, DL_RELAY_CLOSE + 1, 0},      /* no kind */
        {1, 0, 0, 0, DL_RELAY_ACK, 0, 0, 0, 0},   /* a server's */
        {1, 0, 0, 0, DL_RELAY_DATA, 0, 0, 0, 0},  /* of no bytes */
        {1, 0, 0, 0, DL_RELAY_DATA, 0, 0, 0, 9},  /* too large */
        {1, 0, 0, 0, DL_RELAY_OPEN, 1, 0, 0, 0},  /* with a size */
        {7, 0, 0, 0, DL_RELAY_OPEN, 0, 0, 0, 0},  /* twice */
        {7, 0, 0, 0, DL_RELAY_GRANT, 1, 0, 0, 0}, /* beyond the limit */
    };
    const uint8_t open[DL_RELAY_HEAD_SIZE] = {7, 0, 0, 0, DL_RELAY_OPEN};
    dl_store *master = make_master(0, true);

    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        dl_connection *connection = connect_as_relay(dl_tcp_store_port(master));
        int fd = connection->fd;
        CHECK(send(fd, open, sizeof open, MSG_NOSIGNAL) == sizeof open);
        CHECK(send(fd, frames[i], sizeof frames[i], MSG_NOSIGNAL) == sizeof frames[i]);
        check_ended(connection);
    }
    await_fact(master, "relays", 0);
    CHECK_EQUAL(fact(master, "relayed_clients"), 0);
    dl_store_unref(master);
}

static int
try_as_stranger(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte;

    memcpy(address.sun_path + 1, own_name(), DL_LOCAL_NAME_SIZE - 1);
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + DL_LOCAL_NAME_SIZE);
    if (setresuid(STRANGER, STRANGER, STRANGER) != 0
        || connect(fd, (const struct sockaddr *)&address, size) != 0) {
        return 1;
    }
    ssize_t got = recv(fd, &byte, 1, 0);
    return got > 0 || (got < 0 && errno != ECONNRESET);
}

CHECK_CASE(another_user_is_not_served)
{
    dl_store *master = make_master(0, true);
    dl_relay *relay = start_relay(dl_tcp_store_port(master), NULL, NULL);
    int status;

    if (geteuid() == 0) {
        pid_t stranger = fork();
        if (stranger == 0) {
            _exit(try_as_stranger());
        }
        CHECK(waitpid(stranger, &status, 0) == stranger);
        CHECK_EQUAL(status, 0);
    }
    dl_relay_stop(relay);
    dl_store_unref(master);
}

CHECK_CASE(the_server_is_restarted_behind_the_relay)
{
    dl_tcp_store_options options = plain_client;
    char path[64];
    int64_t sum;

    snprintf(path, sizeof path, "/tmp/distlite_relay_%ld", (long)getpid());
    options.is_master = true;
    options.journal = path;
    dl_store *master = make_store(options);
    uint16_t port = dl_tcp_store_port(master);
    pid_t relay = fork_relay(port);
    dl_store *client = make_client(port);
    CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 1, &sum, SOON));
    for (int i = 2; i < 5; i++) {
        dl_store_unref(master);
        options.port = port;
        unsetenv(DL_RELAY_VARIABLE);
        master = make_store(options);
        CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 1, &sum, SOON));
        CHECK_EQUAL(sum, i);
        CHECK_EQUAL(fact(client, "relayed_clients"), 1);
    }
    kill_relay(relay);
    dl_store_unref(client);
    dl_store_unref(master);
    CHECK(unlink(path) == 0);
}
