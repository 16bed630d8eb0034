/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"

/* How long a patient descriptor sleeps in the kernel.  Short compared to
 * DL_WAIT_SLICE, because interrupts are checked only afterwards; long compared to a
 * server's reply time. */
#define PATIENCE (10 * DL_MILLISECOND)

/* Seconds.  After twenty of silence the peer is probed, and after four unanswered probes
 * in the next twenty the connection is reset: a wait in a store whose host is gone ends
 * then. */
#define KEEPALIVE_IDLE 20
#define KEEPALIVE_INTERVAL 5
#define KEEPALIVE_COUNT 4

/* Reads of 4 KiB before a close: what fits into a socket's buffers. */
#define DRAINS 64

void
dl_socket_set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

void
dl_socket_set_options(int fd)
{
    /* Messages are small and wait for each other: with Nagle's algorithm the second of
     * two small writes would be held back until the peer acknowledges the first, which
     * it delays. */
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    dl_socket_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE);
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL);
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    dl_fork_guard(fd);
}

bool
dl_socket_open(int family, int *fd)
{
    int opened = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (opened < 0) {
        return false;
    }
    dl_socket_set_options(opened);
    *fd = opened;
    return true;
}

void
dl_socket_prepare(int fd)
{
    dl_fork_guard(fd);
}

void
dl_socket_set_kernel_wait(int fd)
{
    const struct timeval patience = {.tv_usec = PATIENCE / 1000};
    int flags = fcntl(fd, F_GETFL);

    /* The limits are set first: a blocking descriptor without them could hang. */
    if (flags >= 0
        && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0
        && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0) {
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
}

size_t
dl_socket_unacknowledged(int fd)
{
    struct pollfd entry = {.fd = fd};
    int size = 0;

    /* After a reset the number stays as it was. */
    if (poll(&entry, 1, 0) > 0 || ioctl(fd, SIOCOUTQ, &size) != 0) {
        return 0;
    }
    return (size_t)size;
}

void
dl_socket_discard_input(int fd)
{
    char ignored[4096];

    for (int i = 0; i < DRAINS; i++) {
        if (recv(fd, ignored, sizeof ignored, MSG_DONTWAIT) <= 0) {
            break;
        }
    }
}

void
dl_socket_close(int fd)
{
    int saved = errno;

    if (fd >= 0) {
        /* Released first: once closed, the number may be reused by another thread,
         * whose guard this would remove. */
        dl_fork_release(fd);
        close(fd);
    }
    errno = saved;
}

/* A Unix socket has no Internet address, and its name may be longer than there is room
 * for. */
static dl_status
find_address(int fd, int (*find)(int, struct sockaddr *, socklen_t *), const char *name,
             dl_address *address)
{
    dl_address found = {.size = sizeof found.socket};

    if (find(fd, &found.socket.any, &found.size) != 0) {
        return dl_fail(DL_NETWORK, "%s failed for fd %d: (errno: %d - %s)", name, fd,
                       errno, strerror(errno));
    }
    if (found.socket.any.sa_family != AF_INET
        && found.socket.any.sa_family != AF_INET6) {
        return dl_fail(DL_NETWORK, "fd %d is no Internet socket", fd);
    }
    *address = found;
    return DL_OK;
}

dl_status
dl_socket_local_address(int fd, dl_address *address)
{
    return find_address(fd, getsockname, "getsockname", address);
}

dl_status
dl_socket_peer_address(int fd, dl_address *address)
{
    return find_address(fd, getpeername, "getpeername", address);
}

uint16_t
dl_socket_port(int fd)
{
    dl_address address;

    return dl_socket_local_address(fd, &address) == DL_OK ? dl_address_port(&address)
                                                          : 0;
}

/* A read or write of a patient descriptor must not sleep beyond a deadline
 * that is near. */
static int
transfer_flags(dl_deadline deadline)
{
    return dl_deadline_left(deadline) > 2 * PATIENCE ? 0 : MSG_DONTWAIT;
}

dl_status
dl_socket_wait(struct pollfd *fds, int count, dl_deadline deadline)
{
    for (;;) {
        int ready =
            poll(fds, (nfds_t)count, dl_deadline_poll(deadline, dl_interrupt_slice()));
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

dl_status
dl_socket_await(int fd, short events, dl_deadline deadline)
{
    struct pollfd entry = {.fd = fd, .events = events};
    dl_status status = dl_socket_wait(&entry, 1, deadline);

    return status == DL_TIMEOUT ? dl_fail(DL_TIMEOUT, "the peer does not answer")
                                : status;
}

/* Handles a failed call; DL_OK means to try it again.  Calling poll(2) only now saves
 * it when the first attempt succeeds, which is the usual case. */
static dl_status
wait_after_failure(int fd, short events, dl_deadline deadline)
{
    switch (errno) {
    case EINTR:
        return dl_interrupt_check();
    case EAGAIN:
        return dl_socket_await(fd, events, deadline);
    default:
        return dl_fail(DL_NETWORK, "%s", strerror(errno));
    }
}

/* Removes `size` sent bytes from the front; returns how many parts are complete. */
static int
consume_parts(struct iovec *parts, int count, size_t size)
{
    int done = 0;

    /* Empty parts are skipped as well, so that the caller's loop always ends. */
    while (done < count && size >= parts[done].iov_len) {
        size -= parts[done].iov_len;
        parts[done].iov_len = 0;
        done++;
    }
    if (done < count) {
        parts[done].iov_base = (char *)parts[done].iov_base + size;
        parts[done].iov_len -= size;
    }
    return done;
}

dl_status
dl_socket_write(int fd, struct iovec *parts, int count, dl_deadline deadline)
{
    /* Not writev(2): only sendmsg(2) can suppress SIGPIPE.  send(2) costs less. */
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        int flags = MSG_NOSIGNAL | transfer_flags(deadline);
        ssize_t sent = count == 1 ? send(fd, parts->iov_base, parts->iov_len, flags)
                                  : sendmsg(fd, &message, flags);
        if (sent < 0) {
            DL_TRY(wait_after_failure(fd, POLLOUT, deadline));
            continue;
        }
        int done = consume_parts(parts, count, (size_t)sent);
        parts += done;
        count -= done;
    }
    return DL_OK;
}

/* Each recv(2) gets all the room: a reply that has arrived whole takes one call, even
 * if `least` covers only its header. */
dl_status
dl_socket_read(int fd, struct iovec room, size_t least, dl_deadline deadline,
               size_t *size)
{
    size_t got = 0;

    while (got < least) {
        ssize_t received = recv(fd, (char *)room.iov_base + got, room.iov_len - got,
                                transfer_flags(deadline));
        if (received == 0) {
            return dl_fail(DL_CLOSED, "the peer closed the connection");
        }
        if (received < 0) {
            DL_TRY(wait_after_failure(fd, POLLIN, deadline));
            continue;
        }
        got += (size_t)received;
    }
    *size = got;
    return DL_OK;
}

bool
dl_socket_is_stale(int fd)
{
    char byte;
    ssize_t size = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    /* A healthy idle connection has nothing to read.  A size of 0 is the end of the
     * stream, and an unrequested byte means that the two sides are out of step. */
    return size >= 0 || errno != EAGAIN;
}
