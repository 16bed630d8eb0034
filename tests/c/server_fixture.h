/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A running server, and clients on plain blocking sockets whose calls give up after
 * some seconds.  SERVER_CASE defines one case per event loop. */
#ifndef DISTLITE_TESTS_SERVER_FIXTURE_H
#define DISTLITE_TESTS_SERVER_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/deadline.h"
#include "base/reader.h"
#include "check.h"
#include "net/listen.h"
#include "net/socket.h"
#include "store/tcp/server.h"
#include "store/tcp/wire.h"

#ifdef DL_HAVE_LIBUV
#define LIBUV_CASE(name)          \
    CHECK_CASE(name##_libuv)      \
    {                             \
        name(dl_server_uv_ops()); \
    }
#else
#define LIBUV_CASE(name)
#endif

#define SERVER_CASE(name)                       \
    static void name(const dl_server_ops *ops); \
    CHECK_CASE(name##_poll)                     \
    {                                           \
        name(&dl_server_poll_ops);              \
    }                                           \
    LIBUV_CASE(name)                            \
    static void name(const dl_server_ops *ops)

#define VALIDATE "\x00\xce\xf7\x85\x3c"
#define U64(low) low "\0\0\0\0\0\0\0"
#define KEY(text) .key = DL_LITERAL(text)
#define VALUE(text) .value = DL_LITERAL(text)

typedef struct fixture {
    const dl_server_ops *ops;
    dl_server *server;
    uint16_t port;
} fixture;

DL_CHECK_UNUSED static fixture
start(const dl_server_ops *ops)
{
    fixture f = {.ops = ops};
    int fd;

    CHECK_OK(dl_socket_listen("127.0.0.1", 0, dl_deadline_after(DL_SECOND), &fd));
    f.port = dl_socket_port(fd);
    CHECK_OK(ops->start(fd, &f.server));
    return f;
}

DL_CHECK_UNUSED static void
stop(fixture *f)
{
    f->ops->stop(f->server);
    f->server = NULL;
}

/* Returns a socket that is not connected yet. */
DL_CHECK_UNUSED static int
open_socket(void)
{
    const struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    return fd;
}

DL_CHECK_UNUSED static void
connect_socket(const fixture *f, int fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(f->port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
}

DL_CHECK_UNUSED static void
say(int fd, dl_bytes bytes)
{
    while (bytes.size > 0) {
        ssize_t sent = send(fd, bytes.data, bytes.size, MSG_NOSIGNAL);
        CHECK(sent > 0);
        bytes.data += sent;
        bytes.size -= (size_t)sent;
    }
}

DL_CHECK_UNUSED static void
say_request(int fd, dl_store_request request)
{
    dl_buffer bytes = {0};

    dl_wire_put_request(&bytes, &request, (dl_bytes){0});
    say(fd, dl_buffer_bytes(&bytes));
    dl_buffer_fini(&bytes);
}

/* Reads exactly `size` bytes. */
DL_CHECK_UNUSED static void
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
DL_CHECK_UNUSED static void
check_hears_the_end(int fd)
{
    uint8_t byte;
    ssize_t got = recv(fd, &byte, 1, 0);

    CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
}

DL_CHECK_UNUSED static int
join(const fixture *f)
{
    int fd = open_socket();

    connect_socket(f, fd);
    say(fd, DL_LITERAL(VALIDATE));
    return fd;
}

/* Checks that the server still serves a new client. */
DL_CHECK_UNUSED static void
check_serves(const fixture *f)
{
    int fd = join(f);

    say(fd, DL_LITERAL("\x0d\1\2\3\4"));
    CHECK_HEARS(fd, "\1\2\3\4");
    close(fd);
}

/* Raises the limit of descriptors as far as allowed. */
DL_CHECK_UNUSED static void
raise_descriptor_limit(void)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

#endif
