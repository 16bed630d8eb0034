/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stores whose clients move from TCP to the Unix socket of a server on their host: real
 * servers, and false ones that name a socket which is not what it should be. */
#include "store/tcp/connection_pool.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "fakes/server.h"
#include "net/local.h"
#include "ranks.h"
#include "tcp_fixture.h"
#include "store_calls.h"

#define STRANGER 65533

static void
add_often(dl_store *store, int count, int64_t *sum)
{
    int64_t got;

    for (int i = 0; i < count; i++) {
        CHECK_OK(dl_store_add(store, DL_LITERAL("sum"), 1, &got, SOON));
        CHECK_EQUAL(got, ++*sum);
    }
}

static void
move(bool use_libuv)
{
    /* libuv keeps a pipe when its first loop has ended. */
    dl_store_unref(make_master(0, use_libuv));
    int before = check_descriptors();
    dl_store *master = make_master(0, use_libuv);
    dl_store *client = make_client(dl_tcp_store_port(master));
    int64_t sum = 0;

    /* Joining and asking for the fact count as well. */
    add_often(client, DL_SHORTCUT_WORTH - 3, &sum);
    CHECK_EQUAL(fact(client, "unix_clients"), 0);
    add_often(client, 5, &sum);
    CHECK_EQUAL(fact(client, "unix_clients"), 1);
    CHECK_EQUAL(fact(client, "clients"), 2);
    dl_store_unref(client);
    dl_deadline soon = SOON;
    while (fact(master, "unix_clients") > 0) {
        CHECK(!dl_deadline_passed(soon));
        usleep(1000);
    }
    CHECK_EQUAL(fact(master, "replies/slots"), 1);
    dl_store_close(master);
    dl_store_unref(master);
    CHECK_EQUAL(check_descriptors(), before);
}

CHECK_CASE(a_client_of_the_host_moves_poll)
{
    move(false);
}

CHECK_CASE(a_client_of_the_host_moves_libuv)
{
    move(true);
}

static void
add_in_a_thread(int rank, int size, void *context)
{
    int64_t sum;

    for (int i = 0; i < 4 * DL_SHORTCUT_WORTH; i++) {
        CHECK_OK(dl_store_add(context, DL_LITERAL("sum"), 1, &sum, SOON));
        CHECK(sum > i && rank < size);
    }
}

CHECK_CASE(threads_move_each_connection)
{
    dl_store *master = make_master(0, true);
    dl_store *client = make_client(dl_tcp_store_port(master));
    int64_t sum = 0;

    dl_run_ranks(4, add_in_a_thread, client);
    CHECK_OK(dl_store_add(client, DL_LITERAL("sum"), 0, &sum, SOON));
    CHECK_EQUAL(sum, 16 * DL_SHORTCUT_WORTH);
    CHECK(fact(client, "unix_clients") >= 1);
    dl_store_unref(client);
    dl_store_unref(master);
}

static void
stay(const char *server_setting, const char *client_setting)
{
    int64_t sum = 0;

    setenv("DISTLITE_STORE_UNIX", server_setting, 1);
    dl_store *master = make_master(0, true);
    setenv("DISTLITE_STORE_UNIX", client_setting, 1);
    dl_store *client = make_client(dl_tcp_store_port(master));
    add_often(client, 3 * DL_SHORTCUT_WORTH, &sum);
    CHECK_EQUAL(fact(client, "unix_clients"), 0);
    dl_store_unref(client);
    dl_store_unref(master);
}

CHECK_CASE(a_client_without_shortcuts_stays)
{
    stay("1", "0");
}

CHECK_CASE(a_server_without_shortcuts_has_none)
{
    stay("0", "1");
}

CHECK_CASE(a_setting_that_is_neither_is_refused)
{
    dl_tcp_store_options options = plain_client;
    dl_store *store;

    setenv("DISTLITE_STORE_UNIX", "maybe", 1);
    options.is_master = true;
    CHECK_STATUS(dl_tcp_store_new(&options, SOON, &store), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_STORE_UNIX");
}

/* Counts the requests that it has answered. */
static void
talk_as_guide(fake_peer *peer)
{
    atomic_int *number = peer->server->context;
    dl_store_request request;

    if (!fake_greet(peer)) {
        return;
    }
    while (fake_next(peer, &request)) {
        CHECK_EQUAL(request.op, DL_OP_NUM_KEYS);
        if (request.is_checked) {
            FAKE_SEND(peer, "\0");
        }
        fake_send_number(peer, atomic_fetch_add(number, 1));
    }
}

/* Calls a false server often, which tells of a shortcut; every call must succeed, in
 * order, over one TCP connection. */
static void
follow(fake_server *server, int calls)
{
    atomic_int answered = 0;

    server->talk = talk_as_guide;
    server->context = &answered;
    fake_start(server, 0);
    dl_store *client = make_client(server->port);
    for (int i = 0; i < calls; i++) {
        int64_t number;
        CHECK_OK(dl_store_num_keys(client, &number, SOON));
        CHECK_EQUAL(number, i);
    }
    CHECK_EQUAL(atomic_load(&answered), calls);
    CHECK_EQUAL(atomic_load(&server->accepted), 1);
    dl_store_unref(client);
    fake_stop(server);
}

CHECK_CASE(a_name_without_a_listener_is_no_shortcut)
{
    fake_server server = {.is_distlite = true, .shortcut = own_name()};

    follow(&server, 4 * DL_SHORTCUT_WORTH);
}

CHECK_CASE(a_server_may_have_none)
{
    fake_server server = {.is_distlite = true};

    follow(&server, 4 * DL_SHORTCUT_WORTH);
}

CHECK_CASE(torchs_server_has_none)
{
    fake_server server = {.shortcut = own_name()};

    follow(&server, 4 * DL_SHORTCUT_WORTH);
}

/* A listening Unix socket of the test, at any abstract name. */
static int
listen_at(const char *name, int backlog)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&address, size) == 0);
    CHECK(listen(fd, backlog) == 0);
    return fd;
}

static bool
has_caller(int listener)
{
    struct pollfd wanted = {.fd = listener, .events = POLLIN};

    return poll(&wanted, 1, 0) == 1;
}

CHECK_CASE(behind_a_relay_a_client_stays)
{
    fake_server server = {
        .is_distlite = true, .shortcut = own_name(), .port_difference = 1};
    int listener = listen_at(own_name(), 8);

    follow(&server, 2 * DL_SHORTCUT_WORTH);
    CHECK(!has_caller(listener));
    close(listener);
}

/* The socket of another program of this user. */
CHECK_CASE(a_server_leads_to_no_other_service)
{
    const char *names[] = {"/tmp/.X11-unix/X7", "distlite-",
                           "distlite-0123456789abcdef0123456789abcdef0",
                           "distlite-0123456789abcdef0123456789abcdeg"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fake_server server = {.is_distlite = true, .shortcut = names[i]};
        int listener = listen_at(names[i], 8);
        follow(&server, 2 * DL_SHORTCUT_WORTH);
        CHECK(!has_caller(listener));
        close(listener);
    }
}

CHECK_CASE(a_socket_that_does_not_answer_costs_a_second_once)
{
    fake_server server = {.is_distlite = true, .shortcut = own_name()};
    int listener = listen_at(own_name(), 8);
    int64_t begun = dl_now();

    follow(&server, 4 * DL_SHORTCUT_WORTH);
    CHECK(dl_now() - begun < 2 * DL_SECOND + CHECK_SLACK);
    CHECK(has_caller(listener));
    close(listener);
}

typedef struct liar {
    pthread_t thread;
    int listener;
    dl_bytes says;
    size_t heard;
} liar;

/* Says its piece to one caller, and reads until that leaves. */
static void *
lie(void *argument)
{
    liar *self = argument;
    uint8_t bytes[4096];
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
    ssize_t size;

    CHECK(fd >= 0);
    if (self->says.size > 0) {
        CHECK(send(fd, self->says.data, self->says.size, MSG_NOSIGNAL)
              == (ssize_t)self->says.size);
        while ((size = recv(fd, bytes, sizeof bytes, 0)) > 0) {
            self->heard += (size_t)size;
        }
    }
    close(fd);
    return NULL;
}

static void
meet_liar(dl_bytes says)
{
    fake_server server = {.is_distlite = true, .shortcut = own_name()};
    liar liar = {.listener = listen_at(own_name(), 8), .says = says};

    CHECK(pthread_create(&liar.thread, NULL, lie, &liar) == 0);
    follow(&server, 4 * DL_SHORTCUT_WORTH);
    pthread_join(liar.thread, NULL);
    close(liar.listener);
}

CHECK_CASE(garbage_at_the_socket_is_not_believed)
{
    meet_liar(DL_LITERAL("HTTP/1.1 400 Bad Request\r\n\r\n, and so on for long"));
}

CHECK_CASE(a_socket_that_hangs_up_is_left)
{
    meet_liar((dl_bytes){0});
}

/* A process of this user that speaks the protocol, and is not the server. */
static void *
pretend(void *argument)
{
    liar *self = argument;
    fake_server other = {.is_distlite = true, .identity = "another server"};
    fake_peer peer = {.server = &other};
    dl_store_request request;

    peer.fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(peer.fd >= 0);
    CHECK(fake_greet(&peer));
    CHECK(!fake_next(&peer, &request));
    close(peer.fd);
    dl_buffer_fini(&peer.in);
    return NULL;
}

CHECK_CASE(another_server_at_the_socket_is_asked_for_nothing)
{
    fake_server server = {.is_distlite = true, .shortcut = own_name()};
    liar liar = {.listener = listen_at(own_name(), 8)};

    CHECK(pthread_create(&liar.thread, NULL, pretend, &liar) == 0);
    follow(&server, 4 * DL_SHORTCUT_WORTH);
    pthread_join(liar.thread, NULL);
    close(liar.listener);
}

/* Runs as another user, and fails if its caller says anything. */
static void
usurp(int ready)
{
    uint8_t byte;

    if (setresuid(STRANGER, STRANGER, STRANGER) != 0) {
        _exit(1);
    }
    int listener = listen_at(own_name(), 8);
    (void)!write(ready, "r", 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    _exit(fd < 0 || recv(fd, &byte, 1, 0) != 0);
}

CHECK_CASE(another_users_socket_is_sent_nothing)
{
    fake_server server = {.is_distlite = true, .shortcut = own_name()};
    int ready[2], status;
    char byte;

    if (geteuid() != 0) {
        return;
    }
    CHECK(pipe(ready) == 0);
    (void)own_name();
    pid_t usurper = fork();
    CHECK(usurper >= 0);
    if (usurper == 0) {
        usurp(ready[1]);
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    follow(&server, 4 * DL_SHORTCUT_WORTH);
    CHECK(waitpid(usurper, &status, 0) == usurper);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ready[0]);
}

CHECK_CASE(a_full_queue_is_tried_again)
{
    fake_server server = {.is_distlite = true, .shortcut = own_name()};
    int listener = listen_at(own_name(), 0), fd = -1, waiting[8], count = 0;

    while (count < 8 && dl_local_service_connect(own_name(), &fd) == DL_OK) {
        waiting[count++] = fd;
    }
    CHECK(count < 8);
    follow(&server, 4 * DL_SHORTCUT_WORTH);
    while (count > 0) {
        dl_socket_close(waiting[--count]);
    }
    close(listener);
}

/* Runs as another user: the server must close the connection without a byte. */
static int
knock(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint8_t byte;

    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    if (setresuid(STRANGER, STRANGER, STRANGER) != 0
        || connect(fd, (const struct sockaddr *)&address, size) != 0) {
        return 1;
    }
    (void)send(fd, "\x00\xce\xf7\x85\x3c\x0d\1\1\1\1", 10, MSG_NOSIGNAL);
    ssize_t got = recv(fd, &byte, 1, 0);
    return got > 0 || (got < 0 && errno != ECONNRESET);
}

static void
refuse_others(bool use_libuv)
{
    dl_store *master = make_master(0, use_libuv);
    dl_connection_pool pool;
    dl_connection *connection;
    int status;

    if (geteuid() == 0) {
        CHECK_OK(dl_connection_pool_init(&pool, "127.0.0.1", dl_tcp_store_port(master),
                                         NULL, NULL));
        CHECK_OK(dl_connection_pool_open(&pool, NULL, NULL, SOON, &connection));
        for (int i = 0; i < 3; i++) {
            pid_t stranger = fork();
            if (stranger == 0) {
                _exit(knock(connection->server.shortcut.name));
            }
            CHECK(waitpid(stranger, &status, 0) == stranger);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        CHECK_EQUAL(fact(master, "closed/denied"), 3);
        CHECK_EQUAL(fact(master, "unix_clients"), 0);
        dl_connection_pool_give(&pool, connection);
        dl_connection_pool_close(&pool);
        dl_connection_pool_fini(&pool, false);
    }
    dl_store_unref(master);
}

CHECK_CASE(other_users_are_not_served_poll)
{
    refuse_others(false);
}

CHECK_CASE(other_users_are_not_served_libuv)
{
    refuse_others(true);
}

/* The server is started again in between, at the same port and with the same contents, and
 * its socket has another name. */
CHECK_CASE(a_server_that_is_started_again_is_found_over_tcp)
{
    char path[] = "/tmp/shortcut-XXXXXX";
    int fd = mkstemp(path);
    dl_tcp_store_options options = plain_client;
    int64_t sum = 0;

    CHECK(fd >= 0);
    close(fd);
    unlink(path);
    options.is_master = true;
    options.journal = path;
    dl_store *master = make_store(options);
    options.port = dl_tcp_store_port(master);
    dl_store *client = make_client(options.port);
    for (int i = 0; i < 3; i++) {
        add_often(client, 2 * DL_SHORTCUT_WORTH, &sum);
        CHECK(fact(client, "unix_clients") >= 1);
        dl_store_close(master);
        dl_store_unref(master);
        master = make_store(options);
        add_often(client, 1, &sum);
        CHECK_EQUAL(fact(client, "unix_clients"), 0);
    }
    dl_store_unref(client);
    dl_store_close(master);
    dl_store_unref(master);
    unlink(path);
}
