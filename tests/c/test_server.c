/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A running server, and clients on plain blocking sockets whose calls give up after
 * some seconds.  SERVER_CASE defines one case per event loop. */
#include "store/tcp/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/deadline.h"
#include "base/reader.h"
#include "check.h"
#include "net/listen.h"
#include "net/socket.h"
#include "store/tcp/wire.h"

#define MIB (1u << 20)

/* Fewer under tools that keep a shadow of every byte: they are slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MANY 300
#else
#define MANY 2000
#endif

#ifdef DL_HAVE_LIBUV
#define LIBUV_CASE(name)        \
    CHECK_CASE(name##_libuv)    \
    {                           \
        name(dl_loop_uv_ops()); \
    }
#else
#define LIBUV_CASE(name)
#endif

#define SERVER_CASE(name)                     \
    static void name(const dl_loop_ops *ops); \
    CHECK_CASE(name##_poll)                   \
    {                                         \
        name(&dl_loop_epoll_ops);             \
    }                                         \
    LIBUV_CASE(name)                          \
    static void name(const dl_loop_ops *ops)

#define VALIDATE "\x00\xce\xf7\x85\x3c"
#define U64(low) low "\0\0\0\0\0\0\0"
#define KEY(text) .key = DL_LITERAL(text)
#define VALUE(text) .value = DL_LITERAL(text)

typedef struct fixture {
    dl_server *server;
    uint16_t port;
} fixture;

static fixture
start_with(const dl_loop_ops *ops, const dl_limits *limits)
{
    const dl_server_options options = {.limits = limits};
    fixture f;
    int fd;

    CHECK_OK(dl_socket_listen("127.0.0.1", 0, dl_deadline_after(DL_SECOND), &fd));
    f.port = dl_socket_port(fd);
    CHECK_OK(dl_server_start(ops, fd, &options, &f.server));
    return f;
}

static fixture
start(const dl_loop_ops *ops)
{
    return start_with(ops, NULL);
}

static void
stop(fixture *f)
{
    dl_server_stop(f->server);
    f->server = NULL;
}

/* Returns a socket that is not connected yet. */
static int
open_socket(void)
{
    const struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    return fd;
}

static void
connect_socket(const fixture *f, int fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(f->port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
}

static void
say(int fd, dl_bytes bytes)
{
    while (bytes.size > 0) {
        ssize_t sent = send(fd, bytes.data, bytes.size, MSG_NOSIGNAL);
        CHECK(sent > 0);
        bytes.data += sent;
        bytes.size -= (size_t)sent;
    }
}

static void
say_request(int fd, dl_store_request request)
{
    dl_buffer bytes = {0};

    dl_wire_put_request(&bytes, &request, (dl_bytes){0});
    say(fd, dl_buffer_bytes(&bytes));
    dl_buffer_fini(&bytes);
}

/* Reads exactly `size` bytes. */
static void
hear(int fd, void *data, size_t size)
{
    for (size_t heard = 0; heard < size;) {
        ssize_t got = recv(fd, (uint8_t *)data + heard, size - heard, 0);
        CHECK(got > 0);
        heard += (size_t)got;
    }
}

#define CHECK_HEARS(fd, literal)                                         \
    do {                                                                 \
        uint8_t heard_[sizeof(literal)];                                 \
        hear((fd), heard_, sizeof(literal) - 1);                         \
        CHECK_BYTES(((dl_bytes){heard_, sizeof(literal) - 1}), literal); \
    } while (0)

/* Checks that the server has closed the connection, by an end or a reset, and
 * sent nothing before. */
static void
check_hears_the_end(int fd)
{
    uint8_t byte;
    ssize_t got = recv(fd, &byte, 1, 0);

    CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
}

static int
join(const fixture *f)
{
    int fd = open_socket();

    connect_socket(f, fd);
    say(fd, DL_LITERAL(VALIDATE));
    return fd;
}

/* Checks that the server still serves a new client. */
static void
check_serves(const fixture *f)
{
    int fd = join(f);

    say(fd, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(fd, "\1\2\3\4");
    close(fd);
}

/* Raises the limit of descriptors as far as allowed. */
static void
raise_descriptor_limit(void)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

SERVER_CASE(requests_are_answered)
{
    fixture f = start(ops);
    int one = join(&f);
    int other = join(&f);

    say_request(one, (dl_store_request){.op = DL_OP_SET, KEY("k"), VALUE("value")});
    say_request(one, (dl_store_request){.op = DL_OP_GET, KEY("k")});
    CHECK_HEARS(one, U64("\5") "value");
    say_request(other,
                (dl_store_request){.op = DL_OP_GET, .is_checked = true, KEY("k")});
    CHECK_HEARS(other, "\0" U64("\5") "value");
    close(one);
    close(other);
    stop(&f);
}

SERVER_CASE(validation_may_come_in_two_segments)
{
    fixture f = start(ops);
    int fd = open_socket();
    int on = 1;

    connect_socket(&f, fd);
    CHECK(setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on) == 0);
    say(fd, DL_LITERAL("\x00\xce"));
    check_serves(&f);
    say(fd, DL_LITERAL("\xf7\x85\x3c"));
    check_serves(&f);
    say(fd, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(fd, "\1\2\3\4");
    close(fd);
    stop(&f);
}

SERVER_CASE(a_request_of_one_client_ends_the_wait_of_another)
{
    static const dl_bytes key = {(const uint8_t *)"k", 1};
    fixture f = start(ops);
    int waiting = join(&f);
    int setting = join(&f);

    say_request(waiting,
                (dl_store_request){.op = DL_OP_WAIT, .count = 1, .keys = &key});
    say(waiting, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(waiting, "\1\2\3\4");
    say_request(setting, (dl_store_request){.op = DL_OP_SET, KEY("k"), VALUE("v")});
    CHECK_HEARS(waiting, "\0");
    close(waiting);
    close(setting);
    stop(&f);
}

/* Client 0 is as a process that is stopped once it is woken. */
SERVER_CASE(a_push_wakes_all_and_the_first_to_pop_gets_the_item)
{
    static const dl_bytes key = {(const uint8_t *)"k", 1};
    fixture f = start(ops);
    int pushing = join(&f);
    int waiting[2];

    for (int i = 0; i < 2; i++) {
        waiting[i] = join(&f);
        say_request(waiting[i],
                    (dl_store_request){.op = DL_OP_WAIT, .count = 1, .keys = &key});
        say(waiting[i], DL_LITERAL("\x0d\1\2\3\4"));
        CHECK_HEARS(waiting[i], "\1\2\3\4");
    }
    say_request(pushing,
                (dl_store_request){.op = DL_OP_QUEUE_PUSH, KEY("k"), VALUE("v")});
    CHECK_HEARS(waiting[0], "\0");
    CHECK_HEARS(waiting[1], "\0");
    say_request(waiting[1], (dl_store_request){.op = DL_OP_QUEUE_POP, KEY("k")});
    CHECK_HEARS(waiting[1], U64("\1") U64("\1") "v");
    say_request(waiting[0], (dl_store_request){.op = DL_OP_QUEUE_POP, KEY("k")});
    CHECK_HEARS(waiting[0], U64("\0"));
    for (int i = 0; i < 2; i++) {
        close(waiting[i]);
    }
    close(pushing);
    stop(&f);
}

SERVER_CASE(many_clients_are_served_and_meet_at_a_barrier)
{
    static int fds[MANY];

    raise_descriptor_limit();
    fixture f = start(ops);
    for (int i = 0; i < MANY; i++) {
        fds[i] = join(&f);
        say(fds[i], DL_LITERAL("\x0d\1\2\3\4"));
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_HEARS(fds[i], "\1\2\3\4");
        say_request(fds[i], (dl_store_request){
                                .op = DL_OP_BARRIER, KEY("all"), .number = MANY});
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_HEARS(fds[i], "\0");
        close(fds[i]);
    }
    check_serves(&f);
    stop(&f);
}

SERVER_CASE(a_half_sent_request_keeps_nobody_waiting)
{
    static const dl_bytes halves[] = {
        {(const uint8_t *)"\x01", 1},
        {(const uint8_t *)"\x01\4\0\0\0", 5},
        {(const uint8_t *)"\x0b\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k", 18},
        {(const uint8_t *)"\x00\xce", 2},
    };
    enum { COUNT = sizeof halves / sizeof *halves };
    fixture f = start(ops);
    int fds[COUNT];

    for (int i = 0; i < COUNT; i++) {
        fds[i] = i == COUNT - 1 ? open_socket() : join(&f);
        if (i == COUNT - 1) {
            connect_socket(&f, fds[i]);
        }
        say(fds[i], halves[i]);
        check_serves(&f);
    }
    for (int i = 0; i < COUNT; i++) {
        close(fds[i]);
    }
    check_serves(&f);
    stop(&f);
}

static void
check_bad_request_is_refused(const fixture *f, dl_bytes request)
{
    int fd = open_socket();

    connect_socket(f, fd);
    say(fd, request);
    check_hears_the_end(fd);
    close(fd);
}

SERVER_CASE(a_bad_request_costs_that_connection_alone)
{
    fixture f = start(ops);
    int good = join(&f);

    check_bad_request_is_refused(&f, DL_LITERAL("GET / HTTP/1.1\r\n\r\n"));
    check_bad_request_is_refused(&f, DL_LITERAL("\x07"));
    check_bad_request_is_refused(&f, DL_LITERAL("\0\1\2\3\4\x07"));
    check_bad_request_is_refused(&f, DL_LITERAL(VALIDATE VALIDATE));
    check_bad_request_is_refused(&f, DL_LITERAL(VALIDATE "\x13"));
    check_bad_request_is_refused(&f,
                                 DL_LITERAL(VALIDATE "\1\0\0\0\0\0\0\0\x80 and more"));
    say(good, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(good, "\1\2\3\4");
    close(good);
    stop(&f);
}

/* The client goes on sending what it announced before it reads the error. */
SERVER_CASE(a_checked_request_over_the_limit_is_told_so)
{
    fixture f = start(ops);
    int fd = join(&f);
    uint8_t *key = calloc(1, 4 * MIB);

    say_request(fd, (dl_store_request){.op = DL_OP_SET,
                                       .is_checked = true,
                                       .key = {key, 4 * MIB},
                                       VALUE("v")});
    CHECK_HEARS(fd, "\7" U64("\x2c") "SET: key of 4194304 bytes, the limit is 8192");
    check_hears_the_end(fd);
    close(fd);
    free(key);
    check_serves(&f);
    stop(&f);
}

SERVER_CASE(who_sends_on_after_the_error_is_cut_off)
{
    fixture f = start(ops);
    int fd = join(&f);
    uint8_t *data = calloc(1, MIB);
    bool is_cut_off = false;

    say(fd, DL_LITERAL("\xff"));
    for (int i = 0; i < 100 && !is_cut_off; i++) {
        is_cut_off = send(fd, data, MIB, MSG_NOSIGNAL) < 0;
    }
    CHECK(is_cut_off && (errno == EPIPE || errno == ECONNRESET));
    close(fd);
    free(data);
    stop(&f);
}

/* What is logged goes into a pipe from now on; returns its reading end. */
static int
catch_log(void)
{
    int ends[2];

    CHECK(setenv("TORCH_CPP_LOG_LEVEL", "WARNING", 1) == 0);
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    return ends[0];
}

/* The log was `expected` and nothing else; failures show again. */
static void
check_log(int log_fd, int stderr_fd, const char *expected)
{
    char log[4096] = "";

    CHECK(dup2(stderr_fd, STDERR_FILENO) >= 0);
    close(stderr_fd);
    CHECK(read(log_fd, log, sizeof log - 1) > 0);
    CHECK_CONTAINS(log, expected);
    CHECK(strchr(log, '\n') == strrchr(log, '\n'));
    close(log_fd);
}

SERVER_CASE(a_refusal_is_logged_in_one_line_that_names_the_client)
{
    fixture f = start(ops);
    char expected[128];
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int fd = join(&f);
    int stderr_fd = dup(STDERR_FILENO);
    int log_fd = catch_log();

    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    snprintf(expected, sizeof expected,
             "store server: closing the connection of 127.0.0.1:%u: unknown request "
             "0x55\n",
             ntohs(address.sin_port));
    say(fd, DL_LITERAL("\x55\x55\x55"));
    check_hears_the_end(fd);
    stop(&f);
    check_log(log_fd, stderr_fd, expected);
    close(fd);
}

SERVER_CASE(a_logged_key_cannot_pretend_to_be_a_line_of_its_own)
{
    fixture f = start(ops);
    int fd = join(&f);
    int stderr_fd = dup(STDERR_FILENO);
    int log_fd = catch_log();

    say_request(fd,
                (dl_store_request){.op = DL_OP_SET, KEY("a\nb\x1b"), VALUE("text")});
    say_request(fd, (dl_store_request){.op = DL_OP_ADD, KEY("a\nb\x1b"), .number = 1});
    check_hears_the_end(fd);
    stop(&f);
    check_log(log_fd, stderr_fd,
              "the value of key \"a\\x0ab\\x1b\" is not a 64-bit number");
    close(fd);
}

static void
check_large_values(const fixture *f, size_t size, bool is_checked)
{
    int fd = join(f);
    uint8_t *value = malloc(size);
    uint8_t *back = malloc(size);
    dl_reader reader;
    uint8_t head[8];
    uint64_t held = 0;

    for (size_t i = 0; i < size; i++) {
        value[i] = (uint8_t)(i * 31 + i / 253);
    }
    for (int round = 0; round < 3; round++) {
        if (size > 0) {
            value[0]++;
        }
        say_request(fd, (dl_store_request){.op = DL_OP_SET,
                                           .is_checked = is_checked,
                                           KEY("large"),
                                           .value = {value, size}});
        say_request(fd, (dl_store_request){.op = DL_OP_GET, KEY("large")});
        if (is_checked) {
            CHECK_HEARS(fd, "\0");
        }
        hear(fd, head, sizeof head);
        reader = dl_reader_of((dl_bytes){head, sizeof head});
        CHECK(dl_take_u64(&reader, &held) && held == size);
        hear(fd, back, size);
        CHECK(memcmp(back, value, size) == 0);
    }
    close(fd);
    free(value);
    free(back);
}

SERVER_CASE(large_values_come_back_as_they_were)
{
    const size_t sizes[] = {
        0, 1, 16383, 16384, 65519, 65536, 300000, MIB, DL_WIRE_VALUE_LIMIT};
    fixture f = start(ops);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_large_values(&f, sizes[i], i % 2 == 0);
    }
    stop(&f);
}

/* What is allocated now, of both kinds of glibc's memory. */
static size_t
allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

SERVER_CASE(a_client_that_does_not_read_neither_stalls_others_nor_fills_memory)
{
    enum { GETS = 300, SIZE = 200000 };
    fixture f = start(ops);
    int slow = join(&f);
    uint8_t *value = calloc(1, SIZE + 8);

    say_request(slow,
                (dl_store_request){.op = DL_OP_SET, KEY("k"), .value = {value, SIZE}});
    check_serves(&f);
    size_t before = allocated();
    for (int i = 0; i < GETS; i++) {
        say_request(slow, (dl_store_request){.op = DL_OP_GET, KEY("k")});
    }
    /* A value that is replaced while replies refer to it stays in memory. */
    for (int i = 0; i < 10; i++) {
        int other = join(&f);
        value[0] = 1;
        say_request(other, (dl_store_request){.op = DL_OP_SET,
                                              .is_checked = true,
                                              KEY("k"),
                                              .value = {value, SIZE}});
        CHECK_HEARS(other, "\0");
        close(other);
    }
    CHECK(allocated() < before + 3 * MIB);
    for (int i = 0; i < GETS; i++) {
        hear(slow, value, SIZE + 8);
    }
    say(slow, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(slow, "\1\2\3\4");
    close(slow);
    free(value);
    stop(&f);
}

/* More replies than are sent in a row, to a client that takes them all. */
SERVER_CASE(a_long_reply_to_a_fast_reader_comes_whole)
{
    enum { COUNT = 20000, SIZE = 2000 };
    static dl_bytes keys[COUNT];
    fixture f = start(ops);
    int fd = join(&f);
    uint8_t *value = calloc(1, SIZE + 8);

    for (int i = 0; i < COUNT; i++) {
        keys[i] = DL_LITERAL("k");
    }
    memset(value, 'v', SIZE);
    say_request(fd,
                (dl_store_request){.op = DL_OP_SET, KEY("k"), .value = {value, SIZE}});
    say_request(
        fd, (dl_store_request){.op = DL_OP_MULTI_GET, .count = COUNT, .keys = keys});
    for (int i = 0; i < COUNT; i++) {
        hear(fd, value, SIZE + 8);
        CHECK(value[0] == (SIZE & 0xff) && value[8] == 'v' && value[SIZE + 7] == 'v');
    }
    check_serves(&f);
    close(fd);
    free(value);
    stop(&f);
}

SERVER_CASE(a_client_that_goes_while_it_is_sent_to_is_forgotten)
{
    const struct linger reset = {.l_onoff = 1};
    fixture f = start(ops);
    uint8_t *value = calloc(1, 4 * MIB);

    for (int i = 0; i < 5; i++) {
        int fd = join(&f);
        say_request(fd, (dl_store_request){
                            .op = DL_OP_SET, KEY("k"), .value = {value, 4 * MIB}});
        for (int j = 0; j < 5; j++) {
            say_request(fd, (dl_store_request){.op = DL_OP_GET, KEY("k")});
        }
        hear(fd, value, MIB);
        if (i % 2 == 0) {
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        }
        close(fd);
    }
    memset(value, 0, MIB);
    free(value);
    check_serves(&f);
    stop(&f);
}

/* Invalid clients that fill an unread standard error: all others are still served. */
SERVER_CASE(a_full_log_stops_nobody)
{
    fixture f = start(ops);
    int ends[2];
    int stderr_fd = dup(STDERR_FILENO);

    CHECK(pipe(ends) == 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 0);
    CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    /* A reason of its own for every status, and many of each. */
    for (int i = 0; i < 50; i++) {
        int unknown = join(&f);
        int stranger = open_socket();
        int longer = join(&f);
        connect_socket(&f, stranger);
        say(stranger, DL_LITERAL("GET / HTTP/1.1"));
        say(unknown, DL_LITERAL("\x55"));
        say(longer, DL_LITERAL("\1\xff\xff\xff\xff\0\0\0\0"));
        check_hears_the_end(stranger);
        check_hears_the_end(unknown);
        check_hears_the_end(longer);
        close(stranger);
        close(unknown);
        close(longer);
    }
    char byte = 'x';
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(ends[1], &byte, 1) == 1) {
    }
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    int last = join(&f);
    say(last, DL_LITERAL("\x0b\0\0\0\0\0\0\0\1"));
    check_hears_the_end(last);
    close(last);
    check_serves(&f);
    stop(&f);
    CHECK(dup2(stderr_fd, STDERR_FILENO) >= 0);
    close(stderr_fd);
    close(ends[0]);
    close(ends[1]);
}

SERVER_CASE(requests_before_a_half_close_are_answered)
{
    fixture f = start(ops);
    int fd = join(&f);

    say(fd, DL_LITERAL("\x0d\1\2\3\4\x07"));
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK_HEARS(fd, "\1\2\3\4" U64("\0"));
    check_hears_the_end(fd);
    close(fd);
    stop(&f);
}

/* Sockets are made first, because both ends draw on one limit. */
SERVER_CASE(running_out_of_descriptors_makes_clients_wait_and_is_logged_once)
{
    enum { CLIENTS = 20, ACCEPTED = 5 };
    struct rlimit limit;
    struct rlimit low;
    fixture f = start(ops);
    int fds[CLIENTS];
    int stderr_fd = dup(STDERR_FILENO);
    int log_fd = catch_log();

    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = open_socket();
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = (rlim_t)fds[CLIENTS - 1] + 1 + ACCEPTED;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        connect_socket(&f, fds[i]);
        say(fds[i], DL_LITERAL(VALIDATE "\x0d\1\2\3\4"));
    }
    /* Each that leaves makes room for the next (for two: its own end counts too). */
    for (int i = 0; i < CLIENTS; i++) {
        CHECK_HEARS(fds[i], "\1\2\3\4");
        close(fds[i]);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    check_serves(&f);
    stop(&f);
    check_log(log_fd, stderr_fd, "accepting connections: Too many open files");
}

SERVER_CASE(more_connections_than_allowed_wait_and_are_served_later)
{
    enum { CLIENTS = 8 };
    dl_limits limits = dl_limits_default();
    int stderr_fd = dup(STDERR_FILENO);
    int log_fd = catch_log();
    int fds[CLIENTS];

    limits.connections = 3;
    fixture f = start_with(ops, &limits);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = open_socket();
        connect_socket(&f, fds[i]);
        say(fds[i], DL_LITERAL(VALIDATE "\x0d\1\2\3\4"));
    }
    CHECK_HEARS(fds[2], "\1\2\3\4");
    struct pollfd fourth = {.fd = fds[3], .events = POLLIN};
    CHECK(poll(&fourth, 1, 200) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        if (i != 2) {
            CHECK_HEARS(fds[i], "\1\2\3\4");
        }
        close(fds[i]);
    }
    check_serves(&f);
    stop(&f);
    check_log(log_fd, stderr_fd, "DISTLITE_STORE_CONNECTIONS");
}

SERVER_CASE(a_stranger_that_says_nothing_is_dropped)
{
    dl_limits limits = dl_limits_default();
    limits.validate = DL_SECOND;
    fixture f = start_with(ops, &limits);
    int client = join(&f);
    int silent = open_socket();
    int halfway = open_socket();

    connect_socket(&f, silent);
    connect_socket(&f, halfway);
    say(halfway, DL_LITERAL("\x00\xce\xf7"));
    check_hears_the_end(silent);
    check_hears_the_end(halfway);
    /* A client may be silent for as long as it likes. */
    say(client, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(client, "\1\2\3\4");
    close(silent);
    close(halfway);
    close(client);
    stop(&f);
}

SERVER_CASE(a_reader_that_makes_no_progress_is_dropped)
{
    enum { SIZE = 8 << 20, TIMES = 8 };
    dl_limits limits = dl_limits_default();
    limits.stall = DL_SECOND;
    fixture f = start_with(ops, &limits);
    int client = join(&f);
    uint8_t *value = calloc(1, SIZE);
    struct pollfd gone = {.fd = client, .events = POLLRDHUP};
    size_t heard = 0;
    ssize_t got;

    say_request(client,
                (dl_store_request){.op = DL_OP_SET, KEY("k"), .value = {value, SIZE}});
    for (int i = 0; i < TIMES; i++) {
        say_request(client, (dl_store_request){.op = DL_OP_GET, KEY("k")});
    }
    CHECK(poll(&gone, 1, 20000) == 1);
    while ((got = recv(client, value, SIZE, 0)) > 0) {
        heard += (size_t)got;
    }
    CHECK(heard < (size_t)SIZE * TIMES);
    check_serves(&f);
    close(client);
    free(value);
    stop(&f);
}

CHECK_CASE(a_setting_that_is_no_number_stops_the_start)
{
    const dl_loop_ops *const servers[] = {&dl_loop_epoll_ops, dl_loop_uv_ops()};

    setenv("DISTLITE_STORE_KEYS", "many", 1);
    for (int i = 0; i < 2 && servers[i] != NULL; i++) {
        dl_server *server = NULL;
        int fd;
        CHECK_OK(dl_socket_listen("127.0.0.1", 0, dl_deadline_after(DL_SECOND), &fd));
        CHECK_STATUS(dl_server_start(servers[i], fd, &(dl_server_options){0}, &server),
                     DL_INVALID);
        CHECK_CONTAINS(dl_last_error()->text, "DISTLITE_STORE_KEYS=many");
    }
}

SERVER_CASE(stopping_ends_every_conversation_at_once)
{
    static const dl_bytes key = {(const uint8_t *)"never", 5};
    fixture f = start(ops);
    int idle = join(&f);
    int waiting = join(&f);
    int halfway = join(&f);
    int slow = join(&f);
    int silent = open_socket();
    uint8_t *value = calloc(1, 8 * MIB);

    connect_socket(&f, silent);
    say_request(waiting,
                (dl_store_request){.op = DL_OP_WAIT, .count = 1, .keys = &key});
    say(halfway, DL_LITERAL("\1" U64("\1") "k\0\0\x10\0\0\0\0\0"));
    say(halfway, (dl_bytes){value, 300000});
    say_request(
        slow, (dl_store_request){.op = DL_OP_SET, KEY("k"), .value = {value, 8 * MIB}});
    for (int i = 0; i < 4; i++) {
        say_request(slow, (dl_store_request){.op = DL_OP_GET, KEY("k")});
    }
    check_serves(&f);
    int64_t start_time = dl_now();
    stop(&f);
    CHECK(dl_now() - start_time < 2 * DL_SECOND + CHECK_SLACK);
    check_hears_the_end(idle);
    check_hears_the_end(waiting);
    check_hears_the_end(halfway);
    check_hears_the_end(silent);
    free(value);
    close(slow);
}

SERVER_CASE(a_server_may_be_stopped_at_once_and_from_another_thread)
{
    for (int i = 0; i < 20; i++) {
        fixture f = start(ops);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))stop, &f)
              == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(f.server == NULL);
    }
}

SERVER_CASE(a_start_that_fails_leaves_nothing)
{
    bool has_failed = true;

    for (long failing = 1; has_failed; failing++) {
        dl_server *server = NULL;
        int fd;
        CHECK_OK(dl_socket_listen("127.0.0.1", 0, dl_deadline_after(DL_SECOND), &fd));
        dl_check_fail_allocation_at(failing);
        dl_status status = dl_server_start(ops, fd, &(dl_server_options){0}, &server);
        has_failed = dl_check_allocation_failed();
        if (status == DL_OK) {
            dl_server_stop(server);
        } else {
            CHECK_STATUS(status, DL_NO_MEMORY);
        }
        CHECK(fcntl(fd, F_GETFD) == -1);
    }
}

SERVER_CASE(garbage_harms_nobody_else)
{
    fixture f = start(ops);
    int good = join(&f);
    unsigned seed = 4711;

    for (int i = 0; i < 300; i++) {
        uint8_t bytes[200];
        size_t size = 1 + (size_t)rand_r(&seed) % sizeof bytes;
        for (size_t j = 0; j < size; j++) {
            /* Mostly small numbers: those get further. */
            int byte = rand_r(&seed);
            bytes[j] = (uint8_t)(byte % 3 == 0 ? byte >> 8 : (byte >> 8) % 20);
        }
        int fd = i % 4 == 0 ? open_socket() : join(&f);
        if (i % 4 == 0) {
            connect_socket(&f, fd);
        }
        (void)!send(fd, bytes, size, MSG_NOSIGNAL);
        close(fd);
    }
    say(good, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(good, "\1\2\3\4");
    close(good);
    stop(&f);
}

SERVER_CASE(an_idle_client_costs_little_memory)
{
    static int fds[MANY];

    raise_descriptor_limit();
    fixture f = start(ops);
    check_serves(&f);
    size_t before = allocated();
    for (int i = 0; i < MANY; i++) {
        fds[i] = join(&f);
        say(fds[i], DL_LITERAL("\x0d\1\2\3\4"));
        CHECK_HEARS(fds[i], "\1\2\3\4");
    }
    /* 16,000 of them in 10 MiB. */
    CHECK(allocated() - before < MANY * 640 + 65536);
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    stop(&f);
}

static volatile sig_atomic_t signals_seen;

static void
see_signal(int number)
{
    (void)number;
    signals_seen = signals_seen + 1;
}

/* A signal that only the server's thread could take stays pending. */
SERVER_CASE(signals_are_left_to_other_threads)
{
    fixture f = start(ops);
    sigset_t usr1;
    sigset_t pending;

    signal(SIGUSR1, see_signal);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    check_serves(&f);
    CHECK_EQUAL(signals_seen, 0);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    CHECK(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL) == 0);
    CHECK_EQUAL(signals_seen, 1);
    stop(&f);
}

SERVER_CASE(a_forked_child_does_not_disturb_the_parents_server)
{
    fixture f = start(ops);
    int fd = join(&f);
    int status;
    pid_t child;

    say(fd, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(fd, "\1\2\3\4");
    child = fork();
    if (child == 0) {
        stop(&f);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say(fd, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(fd, "\1\2\3\4");
    check_serves(&f);
    close(fd);
    stop(&f);
}

/* Closing in the parent ends the connection though a child is still there. */
SERVER_CASE(a_forked_child_does_not_keep_connections_open)
{
    fixture f = start(ops);
    int fd = join(&f);
    pid_t child;

    say(fd, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(fd, "\1\2\3\4");
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    stop(&f);
    check_hears_the_end(fd);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    close(fd);
}
