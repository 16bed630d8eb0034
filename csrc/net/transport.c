/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/transport.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "net/socket.h"

dl_status
dl_transport_open(dl_transport *transport, int fd, dl_tls *tls, bool is_server)
{
    *transport = (dl_transport){.is_open = true, .fd = fd};
    if (tls != NULL
        && dl_tls_socket_new(tls, is_server, fd, &transport->tls) != DL_OK) {
        dl_error error = *dl_last_error();
        dl_transport_close(transport);
        return dl_rethrow(&error);
    }
    return DL_OK;
}

void
dl_transport_close(dl_transport *transport)
{
    if (transport->is_open) {
        dl_tls_socket_free(transport->tls);
        dl_socket_close(transport->fd);
    }
    *transport = (dl_transport){0};
}

/* Fails with an errno. */
static dl_status
fail_errno(int cause, int *error)
{
    *error = cause;
    return dl_fail(DL_NETWORK, "%s", strerror(cause));
}

static dl_status
fail_tls(const dl_transport *transport, dl_status status, int *error)
{
    *error = status == DL_CLOSED ? ECONNRESET : transport->tls->error;
    return status;
}

static dl_status
read_plain(dl_transport *transport, struct iovec *parts, int count, size_t *size,
           int *error)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t got = recvmsg(transport->fd, &message, MSG_DONTWAIT);

    if (got == 0) {
        *error = ECONNRESET;
        return dl_fail(DL_CLOSED, "the peer closed the connection");
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
        return fail_errno(errno, error);
    }
    *size = got < 0 ? 0 : (size_t)got;
    return DL_OK;
}

static dl_status
read_tls(dl_transport *transport, struct iovec *parts, int count, size_t *size,
         int *error)
{
    for (int i = 0; i < count; i++) {
        size_t got = 0;
        while (got < parts[i].iov_len) {
            size_t more = 0;
            dl_status status =
                dl_tls_socket_receive(transport->tls, (char *)parts[i].iov_base + got,
                                      parts[i].iov_len - got, &more);
            /* Bytes received before the failure are returned first; the next call
             * reports it. */
            if (status != DL_OK && *size + got == 0) {
                return fail_tls(transport, status, error);
            }
            if (status != DL_OK || more == 0) {
                *size += got;
                return DL_OK;
            }
            got += more;
        }
        *size += got;
    }
    return DL_OK;
}

dl_status
dl_transport_read(dl_transport *transport, struct iovec *parts, int count, size_t *size,
                  int *error)
{
    *size = 0;
    return transport->tls == NULL ? read_plain(transport, parts, count, size, error)
                                  : read_tls(transport, parts, count, size, error);
}

static dl_status
write_plain(dl_transport *transport, struct iovec *parts, int count, size_t *size,
            int *error)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t sent = sendmsg(transport->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        return fail_errno(errno, error);
    }
    *size = sent < 0 ? 0 : (size_t)sent;
    return DL_OK;
}

/* Bytes are reported when the socket has all of their ciphertext: a caller that has
 * nothing more to write does not come back. */
static dl_status
write_tls(dl_transport *transport, struct iovec *parts, int count, size_t *size,
          int *error)
{
    dl_status status;

    if (transport->unreported == 0) {
        status =
            dl_tls_socket_send(transport->tls, parts, count, &transport->unreported);
    } else {
        status = dl_tls_socket_flush(transport->tls);
    }
    if (status != DL_OK) {
        return fail_tls(transport, status, error);
    }
    if (!dl_tls_socket_wants_room(transport->tls)) {
        *size = transport->unreported;
        transport->unreported = 0;
    }
    return DL_OK;
}

dl_status
dl_transport_write(dl_transport *transport, struct iovec *parts, int count,
                   size_t *size, int *error)
{
    *size = 0;
    return transport->tls == NULL ? write_plain(transport, parts, count, size, error)
                                  : write_tls(transport, parts, count, size, error);
}

/* A server sends nothing before the client has: data after the handshake is an
 * error. */
dl_status
dl_transport_greet(dl_transport *transport, bool *is_up, int *error)
{
    uint8_t byte;
    size_t size = 0;

    *is_up = true;
    if (transport->tls == NULL) {
        return DL_OK;
    }
    dl_status status = dl_tls_socket_receive(transport->tls, &byte, 1, &size);
    if (status != DL_OK) {
        return fail_tls(transport, status, error);
    }
    if (size > 0) {
        *error = 0;
        return dl_fail(DL_PROTOCOL, "the server sends data before it is asked");
    }
    *is_up = dl_tls_is_up(transport->tls->stream);
    return DL_OK;
}

bool
dl_transport_is_between(const dl_transport *transport)
{
    return transport->unreported > 0;
}

short
dl_transport_events(const dl_transport *transport, short events)
{
    if (transport->tls == NULL) {
        return events;
    }
    bool holds_input =
        (events & POLLIN) != 0 && dl_tls_socket_holds_input(transport->tls);
    bool wants_room = dl_tls_socket_wants_room(transport->tls);
    /* A socket nearly always has room: poll(2) then returns at once. */
    return (short)(holds_input || wants_room ? events | POLLOUT : events);
}
