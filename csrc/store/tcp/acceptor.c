/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/acceptor.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/socket.h"

/* Errors of a connection that did not live until it was accepted are accept(2)'s too:
 * all of these are over with the next try. */
static bool
is_passing(int error)
{
    switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
        return true;
    default:
        return false;
    }
}

/* One line for all the time that some client has to wait. */
static void
starve(dl_acceptor *acceptor, int error)
{
    acceptor->is_starved = true;
    if (!acceptor->is_logged) {
        acceptor->is_logged = true;
        dl_log(DL_LOG_WARNING, "store server: accepting connections: %s; new ones wait",
               strerror(error));
    }
}

int
dl_acceptor_next(dl_acceptor *acceptor)
{
    acceptor->is_starved = false;
    for (;;) {
        int fd = accept4(acceptor->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            dl_socket_prepare(fd);
            return fd;
        }
        if (errno == EAGAIN) {
            acceptor->is_logged = false;
            return -1;
        }
        if (!is_passing(errno)) {
            starve(acceptor, errno);
            return -1;
        }
    }
}
