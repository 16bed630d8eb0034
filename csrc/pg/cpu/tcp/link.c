/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/deadline.h"
#include "net/socket.h"

/* Time before the probe: a rank that is about to call does so well within it. */
#define PROBE_AFTER DL_WAIT_SLICE

void
dl_link_init(dl_link *link, const dl_link_options *options)
{
    *link = (dl_link){.options = *options, .fd = -1, .probe = -1};
}

void
dl_link_fini(dl_link *link)
{
    dl_socket_close(link->fd);
    dl_socket_close(link->probe);
    link->fd = -1;
    link->probe = -1;
    link->is_open = false;
}

static dl_status
fail_lost(const dl_link *link, const char *what)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peer_describe(link->options.there, link->options.peer, peer);
    return dl_fail(DL_PEER_LOST, "%s %s", peer, what);
}

/* Fails with the meaning of an errno. */
static dl_status
fail_errno(const dl_link *link, int error)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char what[256];

    dl_address_text(&link->options.address, address);
    if (error == ECONNRESET || error == EPIPE) {
        return fail_lost(link, "exited or was killed: it closed the connection");
    }
    if (error == ECONNREFUSED) {
        snprintf(what, sizeof what, "exited or was killed: no process listens at %s",
                 address);
    } else {
        snprintf(what, sizeof what, "cannot be reached at %s: %s", address,
                 strerror(error));
    }
    return fail_lost(link, what);
}

/* Starts to connect, and does not wait for the result: has_answered() checks it. */
static dl_status
dial(const dl_link *link, int *fd)
{
    const dl_address *address = &link->options.address;

    if (!dl_socket_open(address->socket.any.sa_family, fd)) {
        return dl_fail(DL_INTERNAL, "opening a socket: %s", strerror(errno));
    }
    if (connect(*fd, &address->socket.any, address->size) != 0 && errno != EINPROGRESS
        && errno != EINTR) {
        return fail_errno(link, errno);
    }
    return DL_OK;
}

/* Sets `*is_there` if the connection of `fd` is established; fails if it never will
 * be. */
static dl_status
has_answered(const dl_link *link, int fd, bool *is_there)
{
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;

    *is_there = poll(&entry, 1, 0) > 0;
    if (*is_there
        && (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)) {
        return fail_errno(link, error == 0 ? errno : error);
    }
    return DL_OK;
}

/* Sends the hello.  The first bytes of a connection always fit into its buffers. */
static dl_status
introduce(const dl_link *link, int fd, bool is_probe)
{
    const dl_link_options *options = &link->options;
    dl_hello contents = {
        .group = options->group,
        .family = options->family,
        .caller = options->rank,
        .callee = options->peer,
        .lane = options->lane,
        .use = options->use,
    };
    dl_buffer hello = {0};
    dl_status status = dl_hello_put(&hello, &contents, options->token, is_probe);

    if (status == DL_OK) {
        ssize_t sent = send(fd, hello.data, hello.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent != (ssize_t)hello.size) {
            status = fail_errno(link, sent < 0 ? errno : ENOBUFS);
        }
    }
    dl_buffer_fini(&hello);
    return status;
}

/* The part of the higher rank: connects, and sends the hello once the connection is
 * established.  Data may follow at once, because the callee's kernel keeps them until
 * they are read. */
dl_status
dl_link_call(dl_link *link)
{
    bool is_there = false;

    if (link->fd < 0) {
        DL_TRY(dial(link, &link->fd));
    }
    DL_TRY(has_answered(link, link->fd, &is_there));
    if (is_there) {
        DL_TRY(introduce(link, link->fd, false));
        link->is_open = true;
    }
    return DL_OK;
}

/* Fails with the notice that the probe has received: the other process is alive, but no
 * longer in this group. */
static dl_status
fail_notice(const dl_link *link, const uint8_t *frame, size_t size)
{
    const dl_link_options *options = &link->options;
    dl_head head;

    if (size < DL_HEAD_SIZE || !dl_head_take(frame, &head)
        || head.kind != DL_HEAD_FAREWELL || size < DL_HEAD_SIZE + head.size) {
        return fail_lost(link, "exited, was killed, or left");
    }
    if (head.root == DL_CLOSED) {
        (void)fail_lost(link, "left the group");
        return dl_fail(DL_CLOSED, "%s", dl_last_error()->text);
    }
    return dl_failure_notice_fail(options->there, options->peer, &head,
                                  frame + DL_HEAD_SIZE);
}

/* The probe is a connection of its own, which ends when the other process or its group
 * does. */
dl_status
dl_link_look(dl_link *link)
{
    uint8_t frame[DL_FAILURE_NOTICE_SIZE];
    bool is_there = false;

    if (link->probe < 0) {
        DL_TRY(dial(link, &link->probe));
    }
    DL_TRY(has_answered(link, link->probe, &is_there));
    if (is_there && !link->is_looking) {
        DL_TRY(introduce(link, link->probe, true));
        link->is_looking = true;
    }
    if (!link->is_looking) {
        return DL_OK;
    }
    ssize_t got = recv(link->probe, frame, sizeof frame, MSG_DONTWAIT);
    if (got > 0) {
        return fail_notice(link, frame, (size_t)got);
    }
    bool is_fine = got < 0 && (errno == EAGAIN || errno == EINTR);
    return is_fine ? DL_OK : fail_lost(link, "exited, was killed, or left");
}

/* The part of the lower rank.  Before the probe it cannot tell whether the other rank
 * is alive, late, or never going to call. */
static dl_status
be_called(dl_link *link)
{
    const dl_link_options *options = &link->options;
    dl_hello contents = {
        .group = options->group,
        .caller = options->peer,
        .callee = options->rank,
        .lane = options->lane,
        .use = options->use,
    };
    int64_t now = dl_now();

    link->fd = dl_listener_take(options->listener, &contents);
    if (link->fd >= 0) {
        link->is_open = true;
        dl_socket_close(link->probe);
        link->probe = -1;
        return DL_OK;
    }
    link->wanted_since = link->wanted_since == 0 ? now : link->wanted_since;
    return now > link->wanted_since + PROBE_AFTER ? dl_link_look(link) : DL_OK;
}

dl_status
dl_link_open(dl_link *link)
{
    if (link->is_open) {
        return DL_OK;
    }
    return link->options.rank > link->options.peer ? dl_link_call(link)
                                                   : be_called(link);
}

/* EAGAIN and EINTR are not failures: the caller tries again, and checks for signals
 * itself. */
dl_status
dl_link_write(dl_link *link, struct iovec *parts, int count, size_t *size)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};

    *size = 0;
    if (!link->is_open) {
        return DL_OK;
    }
    ssize_t sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        return fail_errno(link, errno);
    }
    *size = sent < 0 ? 0 : (size_t)sent;
    return DL_OK;
}

dl_status
dl_link_read(dl_link *link, struct iovec *parts, int count, size_t *size)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};

    *size = 0;
    if (!link->is_open) {
        return DL_OK;
    }
    ssize_t got = recvmsg(link->fd, &message, MSG_DONTWAIT);
    if (got == 0) {
        return fail_lost(link, "exited or was killed: it closed the connection");
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
        return fail_errno(link, errno);
    }
    *size = got < 0 ? 0 : (size_t)got;
    return DL_OK;
}

dl_status
dl_link_fail_protocol(const dl_link_options *options)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peer_describe(options->there, options->peer, peer);
    return dl_fail(DL_PROTOCOL,
                   "%s sent a frame that is not valid here: the ranks run different "
                   "versions of distlite",
                   peer);
}

struct pollfd
dl_link_poll(const dl_link *link, short events)
{
    if (link->is_open) {
        return (struct pollfd){.fd = link->fd, .events = events};
    }
    if (link->fd >= 0) {
        return (struct pollfd){.fd = link->fd, .events = POLLOUT};
    }
    return (struct pollfd){.fd = link->probe,
                           .events = link->is_looking ? POLLIN : POLLOUT};
}
