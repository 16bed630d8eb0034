/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/listen.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "net/address.h"
#include "net/connect.h"
#include "net/socket.h"

/* Returns the name of an errno that bind(2) and listen(2) can give: "EADDRINUSE". */
static const char *
error_name(int error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {
        {EADDRINUSE, "EADDRINUSE"}, {EADDRNOTAVAIL, "EADDRNOTAVAIL"},
        {EACCES, "EACCES"},         {EBADF, "EBADF"},
        {ENOTSOCK, "ENOTSOCK"},     {EINVAL, "EINVAL"},
        {EOPNOTSUPP, "EOPNOTSUPP"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].error == error) {
            return names[i].name;
        }
    }
    return "UNKNOWN";
}

/* Fails with the text of torch's libuv server: "<start>, code: -98, name:
 * EADDRINUSE, message: address already in use"; a remedy follows. */
static dl_status
fail_listen(const char *start, int error)
{
    char message[64];

    strncpy(message, strerror(error), sizeof message - 1);
    message[sizeof message - 1] = '\0';
    message[0] = (char)tolower((unsigned char)message[0]);
    return dl_fail(DL_NETWORK, "%s, code: %d, name: %s, message: %s%s", start, -error,
                   error_name(error), message,
                   error == EADDRINUSE
                       ? "; choose another port, or end the program that "
                         "has this one (ss -ltnp shows it)"
                       : "");
}

/* Returns 0 or the errno of what failed.  The backlog is INT_MAX, which the kernel
 * reduces to its own limit. */
static int
listen_on(const dl_address *address, int *fd)
{
    int opened = -1;
    int error = 0;

    if (!dl_socket_open(address->socket.any.sa_family, &opened)) {
        return errno;
    }
    /* Otherwise the connections of a server that has just ended block its port for a
     * minute. */
    dl_socket_set_option(opened, SOL_SOCKET, SO_REUSEADDR, 1);
    /* Set explicitly, because the default is a system setting. */
    if (address->socket.any.sa_family == AF_INET6) {
        bool is_any = IN6_IS_ADDR_UNSPECIFIED(&address->socket.ip6.sin6_addr);
        dl_socket_set_option(opened, IPPROTO_IPV6, IPV6_V6ONLY, !is_any);
    }
    if (bind(opened, &address->socket.any, address->size) != 0
        || listen(opened, INT_MAX) != 0) {
        error = errno;
        dl_socket_close(opened);
        return error;
    }
    *fd = opened;
    return 0;
}

/* Returns 0 or an errno.  Uses IPv4 only if IPv6 is not available: if the port is taken
 * for IPv6, it is not tried for IPv4. */
static int
listen_on_all(uint16_t port, int *fd)
{
    dl_address ip6 = {.socket.ip6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
                      .size = sizeof ip6.socket.ip6};
    dl_address ip4 = {.socket.ip4 = {.sin_family = AF_INET, .sin_port = htons(port)},
                      .size = sizeof ip4.socket.ip4};
    int error = listen_on(&ip6, fd);

    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL ? listen_on(&ip4, fd)
                                                           : error;
}

/* Tries the family's addresses until one binds or fails otherwise than EADDRNOTAVAIL.
 * Returns 0 or the errno of the last attempt. */
static int
listen_on_family(sa_family_t family, const dl_address *addresses, size_t count, int *fd)
{
    int error = EADDRNOTAVAIL;

    for (size_t i = 0; i < count && error == EADDRNOTAVAIL; i++) {
        if (addresses[i].socket.any.sa_family == family) {
            error = listen_on(&addresses[i], fd);
        }
    }
    return error == EAFNOSUPPORT ? EADDRNOTAVAIL : error;
}

/* Tries IPv4 first: clients that use the host's name try all its addresses, and most
 * that use a number write "127.0.0.1", even where the resolver puts "::1" first. */
static int
listen_on_host(const char *host, const dl_address *addresses, size_t count, int *fd)
{
    int error = listen_on_family(AF_INET, addresses, count, fd);

    if (error == EADDRNOTAVAIL) {
        error = listen_on_family(AF_INET6, addresses, count, fd);
    }
    if (error != EADDRNOTAVAIL) {
        return error;
    }
    dl_log(DL_LOG_WARNING,
           "no address of %s belongs to this machine: listening on all addresses",
           host);
    return listen_on_all(dl_address_port(&addresses[0]), fd);
}

/* Entries of the hosts file such as Debian's "127.0.1.1 nodea" map a host's own name to
 * loopback, but only on that host: others resolve the name to another address. */
static bool
means_all_addresses(const char *host, const dl_address *addresses, size_t count)
{
    struct in6_addr number;
    bool is_number = inet_pton(AF_INET, host, &number) == 1
                     || inet_pton(AF_INET6, host, &number) == 1;

    for (size_t i = 0; i < count && !is_number && strcasecmp(host, "localhost") != 0;
         i++) {
        if (dl_address_is_loopback(&addresses[i])) {
            return true;
        }
    }
    return false;
}

/* Adds the remedy, of whoever serves the store, to the resolver's answer. */
static dl_status
fail_unresolved(const dl_error *answer)
{
    return dl_fail(answer->status,
                   "%s; check that MASTER_ADDR is a name or an address of the host of "
                   "rank 0, which serves the store: `getent hosts` with the name, on "
                   "that host, has to print its address",
                   answer->text);
}

/* Retries until the deadline: a name may become known while its host starts, as in a
 * cluster whose name service follows what is running.  If the last look-up is out of
 * time, the error is that of an earlier answer, which says more. */
static dl_status
resolve_in_time(const char *host, uint16_t port, dl_deadline deadline,
                dl_address **addresses, size_t *count)
{
    dl_backoff backoff = {0};
    dl_error answer = {0};

    for (;;) {
        dl_status status = dl_address_resolve(host, port, deadline, addresses, count);
        if (status == DL_TIMEOUT && answer.status != DL_OK) {
            return fail_unresolved(&answer);
        }
        if (status != DL_NETWORK) {
            return status;
        }
        if (answer.status == DL_OK && !dl_deadline_passed(deadline)) {
            dl_log(DL_LOG_WARNING, "%s: retrying until the timeout",
                   dl_last_error()->text);
        }
        answer = *dl_last_error();
        dl_status pause = dl_backoff_sleep(&backoff, deadline, NULL);
        if (pause != DL_OK) {
            return pause == DL_TIMEOUT ? fail_unresolved(&answer) : pause;
        }
    }
}

dl_status
dl_socket_listen(const char *host, uint16_t port, dl_deadline deadline, int *fd)
{
    char start[128];
    dl_address *addresses = NULL;
    size_t count = 0;
    int error = 0;

    if (dl_address_is_wildcard(host)) {
        error = listen_on_all(port, fd);
    } else {
        DL_TRY(resolve_in_time(host, port, deadline, &addresses, &count));
        error = means_all_addresses(host, addresses, count)
                    ? listen_on_all(port, fd)
                    : listen_on_host(host, addresses, count, fd);
        free(addresses);
    }
    if (error == 0) {
        return DL_OK;
    }
    snprintf(start, sizeof start,
             "The server socket has failed to listen on any local network address. "
             "port: %u, useIpv6: false",
             port);
    return fail_listen(start, error);
}

dl_status
dl_socket_adopt(int fd, uint16_t port)
{
    char start[64];
    int flags = fcntl(fd, F_GETFL);
    uint16_t bound = dl_socket_port(fd);

    if (flags >= 0 && port != 0 && bound != 0 && bound != port) {
        return dl_fail(DL_NETWORK,
                       "listen fd %d is bound to port %u, expected to be bound to port "
                       "%u",
                       fd, bound, port);
    }
    if (flags < 0 || listen(fd, INT_MAX) != 0
        || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0
        || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        int error = errno;
        snprintf(start, sizeof start, "Failed to open existing socket. socket: %d", fd);
        return fail_listen(start, error);
    }
    /* Last, so that a descriptor that the caller keeps after a failure is not
     * guarded. */
    dl_socket_set_options(fd);
    return DL_OK;
}
