/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "fakes/resolver.h"
#include "net/connect.h"
#include "net/socket.h"
#include "ports.h"

static bool
is_reachable(const char *host, uint16_t port)
{
    int fd = -1;
    dl_status status =
        dl_socket_connect_once(host, port, dl_deadline_after(5 * DL_SECOND), NULL, &fd);

    dl_socket_close(fd);
    return status == DL_OK;
}

static void
check_listens_on_all(const char *host)
{
    int fd = -1;

    CHECK_OK(dl_socket_listen(host, reserve_port(), SOON, &fd));
    uint16_t port = dl_socket_port(fd);
    CHECK(port != 0);
    CHECK(is_reachable("127.0.0.1", port));
    CHECK(is_reachable("127.0.0.3", port));
    CHECK(is_reachable("::1", port));
    dl_socket_close(fd);
}

CHECK_CASE(wildcards_listen_on_both_families)
{
    check_listens_on_all("");
    check_listens_on_all("0.0.0.0");
    check_listens_on_all("::");
}

CHECK_CASE(an_address_is_the_only_one_listened_on)
{
    int fd = -1;

    CHECK_OK(dl_socket_listen("127.0.0.2", reserve_port(), SOON, &fd));
    uint16_t port = dl_socket_port(fd);
    CHECK(is_reachable("127.0.0.2", port));
    CHECK(!is_reachable("127.0.0.1", port));
    CHECK(!is_reachable("::1", port));
    dl_socket_close(fd);
    CHECK_OK(dl_socket_listen("::1", reserve_port(), SOON, &fd));
    port = dl_socket_port(fd);
    CHECK(is_reachable("::1", port));
    CHECK(!is_reachable("127.0.0.1", port));
    dl_socket_close(fd);
}

/* Addresses of this host; a test can rely only on loopback. */
CHECK_CASE(localhost_stands_for_its_first_address)
{
    int fd = -1;

    fake_names = (fake_resolver){
        .host = "localhost", .addresses = {"203.0.113.9", "127.0.0.2", "127.0.0.3"}};
    CHECK_OK(dl_socket_listen("localhost", reserve_port(), SOON, &fd));
    uint16_t port = dl_socket_port(fd);
    CHECK(is_reachable("127.0.0.2", port));
    CHECK(!is_reachable("127.0.0.3", port));
    dl_socket_close(fd);
    fake_names = (fake_resolver){.host = "localhost",
                                 .addresses = {"2001:db8::9", "::1", "127.0.0.2"}};
    CHECK_OK(dl_socket_listen("localhost", 0, SOON, &fd));
    CHECK(is_reachable("127.0.0.2", dl_socket_port(fd)));
    CHECK(is_reachable("localhost", dl_socket_port(fd)));
    dl_socket_close(fd);
    fake_names = (fake_resolver){.host = "localhost",
                                 .addresses = {"203.0.113.9", "2001:db8::9", "::1"}};
    CHECK_OK(dl_socket_listen("localhost", reserve_port(), SOON, &fd));
    CHECK(is_reachable("::1", dl_socket_port(fd)));
    CHECK(!is_reachable("127.0.0.1", dl_socket_port(fd)));
    dl_socket_close(fd);
}

/* "127.0.1.1 node.example", as Debian writes it. */
CHECK_CASE(a_name_that_is_loopback_here_is_another_address_elsewhere)
{
    fake_names =
        (fake_resolver){.host = "node.example", .addresses = {"127.0.1.1", "::1"}};
    check_listens_on_all("node.example");
}

CHECK_CASE(a_name_that_is_not_known_yet_is_asked_for_again)
{
    int fd = -1;

    fake_names = (fake_resolver){.host = "late.example",
                                 .addresses = {"127.0.0.1"},
                                 .code = EAI_NONAME,
                                 .failures = 3};
    CHECK_OK(dl_socket_listen("late.example", 0, SOON, &fd));
    CHECK(is_reachable("127.0.0.1", dl_socket_port(fd)));
    CHECK_EQUAL(fake_names.begun, 4);
    dl_socket_close(fd);
}

CHECK_CASE(a_host_that_is_not_here_is_listened_for_everywhere)
{
    check_listens_on_all("203.0.113.9");
}

CHECK_CASE(an_unknown_name_is_an_error)
{
    int fd = -1;

    fake_names =
        (fake_resolver){.host = "nowhere.example", .code = EAI_NONAME, .failures = 999};
    CHECK_STATUS(dl_socket_listen("nowhere.example", 0,
                                  dl_deadline_after(500 * DL_MILLISECOND), &fd),
                 DL_NETWORK);
    CHECK(fake_names.begun > 1);
    CHECK_CONTAINS(dl_last_error()->text, "nowhere.example: ");
    CHECK_EQUAL(fd, -1);
}

CHECK_CASE(the_last_resolver_error_outlasts_an_unfinished_lookup)
{
    int fd = -1;

    fake_names = (fake_resolver){.host = "nowhere.example",
                                 .code = EAI_NONAME,
                                 .failures = 999,
                                 .delay_ms = 60000,
                                 .quick = 1};
    CHECK_STATUS(dl_socket_listen("nowhere.example", 0,
                                  dl_deadline_after(500 * DL_MILLISECOND), &fd),
                 DL_NETWORK);
    CHECK_EQUAL(fake_names.begun, 2);
    CHECK_CONTAINS(dl_last_error()->text, gai_strerror(EAI_NONAME));
    CHECK_EQUAL(fd, -1);
}

CHECK_CASE(a_taken_port_is_worded_as_torch_does)
{
    char expected[300];
    int first = -1, second = -1;

    CHECK_OK(dl_socket_listen("", 0, SOON, &first));
    uint16_t port = dl_socket_port(first);
    snprintf(
        expected, sizeof expected,
        "The server socket has failed to listen on any local network address. "
        "port: %u, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
        "already in use; choose another port, or end the program that has this one",
        port);
    CHECK_STATUS(dl_socket_listen("", port, SOON, &second), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, expected);
    CHECK_STATUS(dl_socket_listen("127.0.0.1", port, SOON, &second), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, expected);
    CHECK_EQUAL(second, -1);
    dl_socket_close(first);
}

/* A server that ended a moment ago leaves connections behind that would block its
 * port. */
CHECK_CASE(a_port_is_free_again_at_once)
{
    int listening = -1, client = -1;

    CHECK_OK(dl_socket_listen("127.0.0.1", reserve_port(), SOON, &listening));
    uint16_t port = dl_socket_port(listening);
    CHECK_OK(dl_socket_connect_once("127.0.0.1", port, SOON, NULL, &client));
    int accepted = accept(listening, NULL, NULL);
    CHECK(accepted >= 0);
    close(accepted);
    dl_socket_close(listening);
    CHECK_OK(dl_socket_listen("127.0.0.1", port, SOON, &listening));
    dl_socket_close(client);
    dl_socket_close(listening);
}

static int
bind_somewhere(int type)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type, 0);

    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

CHECK_CASE(a_bound_socket_is_adopted)
{
    int fd = bind_somewhere(SOCK_STREAM);
    int one = 0;
    socklen_t size = sizeof one;

    CHECK_OK(dl_socket_adopt(fd, dl_socket_port(fd)));
    CHECK(is_reachable("127.0.0.1", dl_socket_port(fd)));
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, &size) == 0 && one == 1);
    /* It may have been listening already. */
    CHECK_OK(dl_socket_adopt(fd, 0));
    dl_socket_close(fd);
}

CHECK_CASE(another_port_than_expected_is_an_error)
{
    char expected[128];
    int fd = bind_somewhere(SOCK_STREAM);
    uint16_t port = dl_socket_port(fd);
    uint16_t other = port == 1 ? 2 : 1;

    snprintf(expected, sizeof expected,
             "listen fd %d is bound to port %u, expected to be bound to port %u", fd,
             port, other);
    CHECK_STATUS(dl_socket_adopt(fd, other), DL_NETWORK);
    CHECK_TEXT(dl_last_error()->text, expected);
    CHECK(fcntl(fd, F_GETFD) >= 0);
    close(fd);
}

CHECK_CASE(a_socket_that_cannot_listen_is_refused)
{
    int pipes[2];
    int fd;

    CHECK_STATUS(dl_socket_adopt(999, 0), DL_NETWORK);
    CHECK_TEXT(dl_last_error()->text,
               "Failed to open existing socket. socket: 999, code: -9, name: EBADF, "
               "message: bad file descriptor");
    CHECK(pipe(pipes) == 0);
    CHECK_STATUS(dl_socket_adopt(pipes[0], 0), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "name: ENOTSOCK");
    fd = bind_somewhere(SOCK_DGRAM);
    CHECK_STATUS(dl_socket_adopt(fd, 0), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "name: EOPNOTSUPP");
    close(fd);
}

CHECK_CASE(allocations_may_fail)
{
    bool has_failed = true;

    for (long number = 1; has_failed; number++) {
        int fd = -1;
        dl_check_fail_allocation_at(number);
        dl_status status = dl_socket_listen("127.0.0.1", 0, SOON, &fd);
        has_failed = dl_check_allocation_failed();
        CHECK_EQUAL(status, has_failed ? DL_NO_MEMORY : DL_OK);
        dl_socket_close(fd);
    }
}

/* The kernel cuts a queue to its own limit, which may be above the C library's number. */
CHECK_CASE(the_queue_is_as_long_as_the_kernel_allows)
{
    FILE *file = fopen("/proc/sys/net/core/somaxconn", "r");
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    unsigned allowed;
    int fd;

    CHECK(file != NULL && fscanf(file, "%u", &allowed) == 1);
    fclose(file);
    CHECK_OK(dl_socket_listen("127.0.0.1", 0, SOON, &fd));
    /* Of a listening socket: the length of its queue. */
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    CHECK_EQUAL(info.tcpi_sacked, allowed);
    dl_socket_close(fd);
}
