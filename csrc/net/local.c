/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/local.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "net/socket.h"

/* The pause between attempts while a queue is full: the peer empties it as soon as it
 * runs. */
#define RETRY_AFTER DL_MILLISECOND

#define NAME_BYTES 16

typedef union control {
    struct cmsghdr header; /* for its alignment */
    char data[CMSG_SPACE(DL_PARCEL_FDS * sizeof(int))];
} control;

void
dl_parcel_fini(dl_parcel *parcel)
{
    dl_buffer_fini(&parcel->bytes);
    parcel->fd_count = 0;
}

void
dl_parcel_drop(dl_parcel *parcel)
{
    for (int i = 0; i < parcel->fd_count; i++) {
        dl_socket_close(parcel->fds[i]);
    }
    dl_parcel_fini(parcel);
}

/* The leading zero byte makes the name abstract. */
static socklen_t
address_of(const char *name, struct sockaddr_un *address)
{
    size_t size = strlen(name);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (size >= sizeof address->sun_path) {
        size = sizeof address->sun_path - 1;
    }
    memcpy(address->sun_path + 1, name, size);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + size);
}

static dl_status
open_socket(int *fd)
{
    /* SOCK_SEQPACKET keeps message boundaries and the descriptors of each message, as
     * datagrams do, but has connections, whose end shows that the peer has died. */
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) {
        return dl_fail(DL_NETWORK, "making a Unix socket: %s", strerror(errno));
    }
    dl_fork_guard(*fd);
    return DL_OK;
}

static dl_status
make_name(char name[DL_LOCAL_NAME_SIZE])
{
    uint8_t random[NAME_BYTES];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return dl_fail(DL_INTERNAL, "getrandom: %s", strerror(errno));
    }
    char *next = name + sprintf(name, "distlite-");
    for (int i = 0; i < NAME_BYTES; i++) {
        next += sprintf(next, "%02x", random[i]);
    }
    return DL_OK;
}

dl_status
dl_local_listen(int backlog, char name[DL_LOCAL_NAME_SIZE], int *fd)
{
    struct sockaddr_un address;
    int made;

    DL_TRY(make_name(name));
    DL_TRY(open_socket(&made));
    socklen_t size = address_of(name, &address);
    if (bind(made, (struct sockaddr *)&address, size) < 0
        || listen(made, backlog) < 0) {
        dl_status status = dl_fail(DL_NETWORK, "listening on the Unix socket @%s: %s",
                                   name, strerror(errno));
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
}

/* EAGAIN: the listener's backlog is full.  That cannot be polled for, only retried. */
dl_status
dl_local_connect(const char *name, dl_deadline deadline, int *fd)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    dl_status status;
    int made;

    DL_TRY(open_socket(&made));
    while (connect(made, (struct sockaddr *)&address, size) < 0) {
        if (errno == EAGAIN && dl_deadline_passed(deadline)) {
            status = dl_fail(
                DL_TIMEOUT, "the Unix socket @%s accepted no connection in time", name);
        } else if (errno == EAGAIN) {
            status = dl_sleep_until(dl_deadline_earlier(deadline, RETRY_AFTER));
        } else if (errno == EINTR) {
            status = dl_interrupt_check();
        } else if (errno == ECONNREFUSED) {
            status = dl_fail(
                DL_NOT_FOUND,
                "no process in this network namespace listens on the Unix socket @%s",
                name);
        } else if (errno == EPERM || errno == EACCES) {
            status = dl_fail(DL_NOT_FOUND,
                             "this process may not connect to the Unix socket @%s: %s",
                             name, strerror(errno));
        } else {
            status = dl_fail(DL_NETWORK, "connecting to the Unix socket @%s: %s", name,
                             strerror(errno));
        }
        if (status != DL_OK) {
            dl_socket_close(made);
            return status;
        }
    }
    *fd = made;
    return DL_OK;
}

dl_status
dl_local_accept(int listener, int *fd)
{
    int accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (accepted >= 0) {
        dl_fork_guard(accepted);
        *fd = accepted;
        return DL_OK;
    }
    /* ECONNABORTED: the peer has left while its connection was pending. */
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
        return DL_NOT_FOUND;
    }
    return dl_fail(DL_NETWORK, "accepting on a Unix socket: %s", strerror(errno));
}

dl_status
dl_local_wait(struct pollfd *fds, int count, dl_deadline deadline)
{
    for (;;) {
        int ready = poll(fds, (nfds_t)count, dl_deadline_poll(deadline, DL_WAIT_SLICE));
        if (ready > 0) {
            return DL_OK;
        }
        if (ready < 0 && errno != EINTR) {
            return dl_fail(DL_INTERNAL, "poll: %s", strerror(errno));
        }
        DL_TRY(dl_interrupt_check());
        if (dl_deadline_passed(deadline)) {
            return DL_TIMEOUT;
        }
    }
}

static dl_status
fail_lost(const char *what, int error)
{
    if (error == EPIPE || error == ECONNRESET || error == 0) {
        return dl_fail(DL_CLOSED, "%s a Unix socket: the peer closed the connection",
                       what);
    }
    return dl_fail(DL_NETWORK, "%s a Unix socket: %s", what, strerror(error));
}

/* Waits for `events` after EAGAIN. */
static dl_status
wait_ready(int fd, short events, dl_deadline deadline)
{
    struct pollfd wanted = {.fd = fd, .events = events};
    dl_status status = dl_local_wait(&wanted, 1, deadline);

    return status == DL_TIMEOUT
               ? dl_fail(DL_TIMEOUT, "the peer of a Unix socket did not answer in time")
               : status;
}

static void
attach(struct msghdr *message, control *room, const dl_parcel *parcel)
{
    size_t size = (size_t)parcel->fd_count * sizeof(int);

    if (size == 0) {
        return;
    }
    /* Zeroed, because the kernel reads the padding as well. */
    memset(room, 0, sizeof *room);
    message->msg_control = room->data;
    message->msg_controllen = CMSG_SPACE(size);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(header), parcel->fds, size);
}

dl_status
dl_local_send(int fd, const dl_parcel *parcel, dl_deadline deadline)
{
    struct iovec part = {parcel->bytes.data, parcel->bytes.size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    control room;

    DL_TRY(dl_buffer_check(&parcel->bytes));
    /* The receiver would take it for the end of the connection. */
    assert(parcel->bytes.size > 0);
    attach(&message, &room, parcel);
    while (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) {
        /* ETOOMANYREFS: too many descriptors of this user are in flight.  Their number
         * falls as the peers receive them. */
        bool is_crowded = errno == ETOOMANYREFS && !dl_deadline_passed(deadline);
        if (errno == EAGAIN) {
            DL_TRY(wait_ready(fd, POLLOUT, deadline));
        } else if (errno == EINTR) {
            DL_TRY(dl_interrupt_check());
        } else if (is_crowded) {
            DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, RETRY_AFTER)));
        } else {
            return fail_lost("writing to", errno);
        }
    }
    return DL_OK;
}

static void
detach(struct msghdr *message, dl_parcel *parcel)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t size = header->cmsg_len - CMSG_LEN(0);
        memcpy(parcel->fds, CMSG_DATA(header), size);
        parcel->fd_count = (int)(size / sizeof(int));
    }
    for (int i = 0; i < parcel->fd_count; i++) {
        dl_fork_guard(parcel->fds[i]);
    }
}

static dl_status
receive(int fd, dl_parcel *parcel, dl_deadline deadline)
{
    control room;
    ssize_t size;

    DL_TRY(dl_buffer_reserve(&parcel->bytes, DL_PARCEL_SIZE));
    struct iovec part = {parcel->bytes.data, DL_PARCEL_SIZE};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.data,
                             .msg_controllen = sizeof room.data};
    while ((size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0) {
        if (errno == EAGAIN) {
            DL_TRY(wait_ready(fd, POLLIN, deadline));
        } else if (errno == EINTR) {
            DL_TRY(dl_interrupt_check());
        } else if (errno != ECONNRESET) {
            return fail_lost("reading from", errno);
        }
        /* ECONNRESET is reported once if the peer closed with unread data.  Messages
         * that it sent before are still queued and are read next. */
    }
    /* Before the checks: a message that fails them has descriptors as well, which the
     * caller drops with the parcel. */
    detach(&message, parcel);
    if (size == 0) {
        return fail_lost("reading from", 0);
    }
    if (message.msg_flags & MSG_CTRUNC) {
        return dl_fail(
            DL_NETWORK,
            "a message arrived without all of its file descriptors: this process has "
            "reached its limit of open files; raise it (ulimit -n)");
    }
    if (message.msg_flags & MSG_TRUNC) {
        return dl_fail(DL_NETWORK,
                       "a message was truncated: it is longer than expected");
    }
    parcel->bytes.size = (size_t)size;
    return DL_OK;
}

dl_status
dl_local_receive(int fd, dl_parcel *parcel, dl_deadline deadline)
{
    dl_status status = receive(fd, parcel, deadline);

    if (status != DL_OK) {
        dl_parcel_drop(parcel);
    }
    return status;
}
