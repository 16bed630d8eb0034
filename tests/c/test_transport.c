/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/transport.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "net/connect.h"
#include "net/listen.h"
#include "net/socket.h"
#include "tls_fixture.h"

static dl_status
read_one(dl_transport *transport, int *error)
{
    uint8_t byte;
    struct iovec part = {&byte, 1};
    size_t size;

    *error = -1;
    return dl_transport_read(transport, &part, 1, &size, error);
}

/* The error of a socket that was never connected is ENOTCONN, which is not one of those
 * that end a connection. */
static void
check_error_of_a_socket(dl_tls *tls)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    dl_transport transport;
    int error;

    CHECK(fd >= 0);
    CHECK_OK(dl_transport_open(&transport, fd, tls, true));
    CHECK(read_one(&transport, &error) == DL_NETWORK);
    CHECK_EQUAL(error, ENOTCONN);
    dl_transport_close(&transport);
    dl_tls_unref(tls);
}

CHECK_CASE(any_error_of_a_plain_socket_is_reported)
{
    check_error_of_a_socket(NULL);
}

CHECK_CASE(any_error_of_a_socket_below_tls_is_reported)
{
    check_error_of_a_socket(tls_of("a token", "mesh"));
}

CHECK_CASE(a_failure_of_tls_is_no_error_of_its_socket)
{
    static const char garbage[] = "GET / HTTP/1.1\r\n\r\n";
    const dl_deadline soon = dl_deadline_after(10 * DL_SECOND);
    dl_tls *tls = tls_of("a token", "mesh");
    dl_transport transport;
    int listening, ours, error;

    CHECK_OK(dl_socket_listen("127.0.0.1", 0, soon, &listening));
    CHECK_OK(dl_socket_connect_once("127.0.0.1", dl_socket_port(listening), soon, NULL,
                                    &ours));
    int theirs = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(theirs >= 0);
    CHECK_OK(dl_transport_open(&transport, theirs, tls, true));
    CHECK(send(ours, garbage, sizeof garbage - 1, 0) == sizeof garbage - 1);
    struct pollfd entry = {.fd = theirs, .events = POLLIN};
    CHECK(poll(&entry, 1, 15000) == 1);
    CHECK(read_one(&transport, &error) == DL_PROTOCOL);
    CHECK_EQUAL(error, 0);
    dl_transport_close(&transport);
    dl_socket_close(ours);
    dl_socket_close(listening);
    dl_tls_unref(tls);
}
