/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The calls on sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "local.h"

#define FIRST_HOST 0x0a000001u /* 10.0.0.1 */

int __wrap_socket(int family, int type, int protocol);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_listen(int fd, int backlog);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_fcntl(int fd, int command, ...);
int __real_fcntl(int fd, int command, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_shutdown(int fd, int how);
int __wrap_close(int fd);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);

static uint16_t next_port = 40000;

static int
fail(int error)
{
    errno = error;
    return -1;
}

int
__wrap_socket(int family, int type, int protocol)
{
    sim_descriptor *opened;

    (void)protocol;
    sim_call("socket");
    if (family == AF_UNIX && (type & SOCK_DGRAM) == SOCK_DGRAM && !sim.is_apart) {
        return sim_local_socket();
    }
    if (family != AF_INET) {
        return fail(EAFNOSUPPORT);
    }
    int fd = sim_descriptor_open(SIM_SOCKET, &opened);
    if (fd >= 0) {
        opened->is_nonblocking = (type & SOCK_NONBLOCK) != 0;
        opened->port = 0;
    }
    return fd;
}

static void
read_address(const struct sockaddr *address, int *host, uint16_t *port)
{
    const struct sockaddr_in *ip4 = (const void *)address;

    *host = (int)(ntohl(ip4->sin_addr.s_addr) - FIRST_HOST);
    *port = ntohs(ip4->sin_port);
}

static int
write_address(int host, uint16_t port, struct sockaddr *address, socklen_t *size)
{
    struct sockaddr_in ip4 = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(FIRST_HOST + (uint32_t)host),
    };

    memcpy(address, &ip4, *size < sizeof ip4 ? *size : sizeof ip4);
    *size = sizeof ip4;
    return 0;
}

int
__wrap_bind(int fd, const struct sockaddr *address, socklen_t size)
{
    sim_descriptor *socket = sim_descriptor_of(fd);
    int host;
    uint16_t port;

    sim_call("bind");
    if (socket == NULL) {
        return -1;
    }
    if (socket->kind == SIM_LOCAL) {
        return sim_local_bind(socket->object, address, size);
    }
    read_address(address, &host, &port);
    if (host != socket->process->host) {
        return fail(EADDRNOTAVAIL);
    }
    if (sim_listener_at(host, port) != NULL) {
        return fail(EADDRINUSE);
    }
    socket->port = port == 0 ? next_port++ : port;
    return 0;
}

int
__wrap_listen(int fd, int backlog)
{
    sim_descriptor *socket = sim_descriptor_of(fd);

    (void)backlog;
    sim_call("listen");
    if (socket == NULL) {
        return -1;
    }
    if (sim_listener_at(socket->process->host, socket->port) != NULL) {
        return fail(EADDRINUSE);
    }
    socket->kind = SIM_LISTENER;
    return 0;
}

int
__wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    sim_descriptor *socket = sim_descriptor_of(fd);
    int host;
    uint16_t port;

    (void)size;
    sim_call("connect");
    if (socket == NULL) {
        return -1;
    }
    read_address(address, &host, &port);
    socket->port = next_port++;
    sim_socket_connect(socket, host, port);
    return fail(EINPROGRESS);
}

int
__wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    sim_descriptor *listener = sim_descriptor_of(fd);
    sim_descriptor *opened;

    (void)address;
    (void)size;
    sim_call("accept4");
    if (listener == NULL) {
        return -1;
    }
    if (listener->backlog_count == 0) {
        return fail(EAGAIN);
    }
    int accepted = sim_descriptor_open(SIM_SOCKET, &opened);
    if (accepted < 0) {
        return -1;
    }
    opened->link = listener->backlog[0];
    memmove(listener->backlog, listener->backlog + 1,
            (size_t)--listener->backlog_count * sizeof *listener->backlog);
    opened->side = 1;
    opened->port = opened->link->ports[1];
    opened->peer_host = opened->link->hosts[0];
    opened->peer_port = opened->link->ports[0];
    opened->is_nonblocking = (flags & SOCK_NONBLOCK) != 0;
    return accepted;
}

int
__wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
    const sim_descriptor *socket = sim_descriptor_of(fd);

    return socket == NULL
               ? -1
               : write_address(socket->process->host, socket->port, address, size);
}

int
__wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size)
{
    const sim_descriptor *socket = sim_descriptor_of(fd);

    if (socket == NULL) {
        return -1;
    }
    if (socket->link == NULL) {
        return fail(ENOTCONN);
    }
    return write_address(socket->peer_host, socket->peer_port, address, size);
}

int
__wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    sim_descriptor *socket = sim_descriptor_of(fd);

    (void)size;
    sim_call("getsockopt");
    if (socket == NULL) {
        return -1;
    }
    *(int *)value = level == SOL_SOCKET && name == SO_ERROR ? socket->error : 0;
    socket->error = 0;
    return 0;
}

int
__wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    sim_descriptor *socket = sim_descriptor_of(fd);

    (void)size;
    if (socket == NULL) {
        return -1;
    }
    if (socket->kind == SIM_LOCAL) {
        return sim_local_set(socket->object, name, value);
    }
    if (level == SOL_SOCKET && name == SO_RCVTIMEO) {
        const struct timeval *limit = value;
        socket->receive_limit = limit->tv_sec * DL_SECOND + limit->tv_usec * 1000;
    }
    return 0;
}

int
__wrap_fcntl(int fd, int command, ...)
{
    sim_descriptor *socket = sim_descriptor_of(fd);
    va_list arguments;

    va_start(arguments, command);
    int flags =
        command == F_SETFL || command == F_ADD_SEALS ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if (socket == NULL) {
        return -1;
    }
    if (command == F_ADD_SEALS || command == F_GET_SEALS) {
        return socket->kind == SIM_MEMORY
                   ? __real_fcntl(socket->object->memory, command, flags)
                   : fail(EINVAL);
    }
    if (command == F_DUPFD_CLOEXEC) {
        socket->object->references++;
        return sim_object_open(socket->object);
    }
    if (command == F_SETFL) {
        socket->is_nonblocking = (flags & O_NONBLOCK) != 0;
    }
    return command == F_GETFL && socket->is_nonblocking ? O_NONBLOCK : 0;
}

/* SIOCOUTQ, as if the peer's answer took no time. */
int
__wrap_ioctl(int fd, unsigned long request, ...)
{
    sim_descriptor *socket = sim_descriptor_of(fd);
    va_list arguments;

    sim_call("ioctl");
    if (request != SIOCOUTQ) {
        sim_fail("ioctl() %lx is not simulated", request);
    }
    if (socket == NULL || socket->link == NULL) {
        return fail(socket == NULL ? EBADF : ENOTCONN);
    }
    const sim_stream *peer = &socket->link->to[!socket->side];
    va_start(arguments, request);
    *va_arg(arguments, int *) =
        (int)(peer->last - peer->first - sim_stream_arrived(peer));
    va_end(arguments);
    return 0;
}

int
__wrap_shutdown(int fd, int how)
{
    sim_descriptor *socket = sim_descriptor_of(fd);

    sim_call("shutdown");
    if (socket == NULL) {
        return -1;
    }
    if (socket->link == NULL) {
        return fail(ENOTCONN);
    }
    sim_stream *peer = &socket->link->to[!socket->side];
    if (peer->end_at == SIM_FOREVER) {
        int64_t at = sim_arrival(socket->process->host, socket->peer_host);
        peer->end_at = at > peer->last_at ? at : peer->last_at;
    }
    socket->has_shut_down = true;
    if (how == SHUT_RDWR) {
        socket->link->to[socket->side].end_at = sim.now;
    }
    return 0;
}

int
__wrap_close(int fd)
{
    sim_call("close");
    sim_descriptor *descriptor = sim_descriptor_of(fd);
    if (descriptor == NULL) {
        sim_fail("close(%d): this process has no such descriptor", fd);
    }
    sim_descriptor_close(descriptor);
    return 0;
}

/* Moving bytes. */

static bool
is_readable(void *context)
{
    return (sim_events(context) & (0x001 | 0x008 | 0x010)) != 0; /* IN, ERR, HUP */
}

static bool
is_writable(void *context)
{
    return (sim_events(context) & (0x004 | 0x008 | 0x010)) != 0; /* OUT, ERR, HUP */
}

/* Sleeps in the kernel where the descriptor blocks; returns false where the call would
 * block. */
static bool
await(sim_descriptor *socket, bool (*is_ready)(void *), int flags)
{
    if (is_ready(socket)) {
        return true;
    }
    if (socket->is_nonblocking || (flags & MSG_DONTWAIT) != 0) {
        return false;
    }
    int64_t limit = socket->receive_limit;
    return sim_wait("a socket", is_ready, socket,
                    limit == SIM_FOREVER ? limit : sim.now + limit);
}

/* Often all, and sometimes any part. */
static size_t
part_of(size_t size)
{
    return size <= 1 || !sim_random_once_in(&sim.wire, 4)
               ? size
               : 1 + (size_t)sim_random_below(&sim.wire, size);
}

static ssize_t
put(sim_descriptor *socket, const uint8_t *bytes, size_t size, int flags)
{
    if (socket->link == NULL || socket->has_shut_down) {
        return fail(socket->is_connecting ? EAGAIN : EPIPE);
    }
    sim_link *link = socket->link;
    sim_stream *own = &link->to[socket->side];
    sim_stream *peer = &link->to[!socket->side];
    if (sim_stream_is_reset(own)) {
        return fail(ECONNRESET);
    }
    if (size > 0 && !await(socket, is_writable, flags)) {
        return fail(EAGAIN);
    }
    size_t room = sim_stream_room(peer);
    size = size < room ? size : room;
    if (size == 0) {
        return fail(EAGAIN);
    }
    size = sim.has_buffers && !own->has_sent ? size : part_of(size);
    own->has_sent = true;
    int64_t at = sim_arrival(link->hosts[socket->side], link->hosts[!socket->side]);
    sim_stream_put(peer, bytes, size, at);
    if (!peer->is_read) {
        int64_t up_at = sim.host_up_at[link->hosts[!socket->side]];
        int64_t answered =
            (at > up_at ? at : up_at)
            + sim_arrival(link->hosts[!socket->side], link->hosts[socket->side])
            - sim.now;
        own->reset_at = answered < own->reset_at ? answered : own->reset_at;
    }
    return (ssize_t)size;
}

static ssize_t
take(sim_descriptor *socket, uint8_t *bytes, size_t size, int flags)
{
    if (socket->link == NULL) {
        return fail(ENOTCONN);
    }
    sim_stream *own = &socket->link->to[socket->side];
    if (!await(socket, is_readable, flags)) {
        return fail(EAGAIN);
    }
    bool is_kept = (flags & MSG_PEEK) != 0;
    size_t got = sim_stream_take(own, bytes, is_kept ? size : part_of(size), is_kept);
    if (got > 0) {
        return (ssize_t)got;
    }
    return sim_stream_is_reset(own) ? fail(ECONNRESET) : 0;
}

ssize_t
__wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    sim_call("send");
    sim_descriptor *socket = sim_descriptor_of(fd);
    ssize_t sent = socket == NULL ? -1 : put(socket, bytes, size, flags);
    sim_result("send", sent);
    return sent;
}

ssize_t
__wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    const sim_descriptor *local = sim_descriptor_of(fd);
    uint8_t bytes[4096];
    size_t size = 0;

    if (local != NULL && local->kind == SIM_LOCAL) {
        sim_call("sendmsg");
        ssize_t sent = sim_local_send(local->object, message);
        sim_result("sendmsg", sent);
        return sent;
    }
    for (size_t i = 0; i < message->msg_iovlen && size < sizeof bytes; i++) {
        const struct iovec *part = &message->msg_iov[i];
        size_t left = sizeof bytes - size;
        size_t taken = part->iov_len < left ? part->iov_len : left;
        memcpy(bytes + size, part->iov_base, taken);
        size += taken;
    }
    return __wrap_send(fd, bytes, size, flags);
}

ssize_t
__wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    sim_call("recv");
    sim_descriptor *socket = sim_descriptor_of(fd);
    ssize_t got = socket == NULL ? -1 : take(socket, bytes, size, flags);
    sim_result("recv", got);
    return got;
}

/* One part is enough: a caller has to accept fewer bytes than it has room for. */
ssize_t
__wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    const sim_descriptor *local = sim_descriptor_of(fd);

    if (local != NULL && local->kind == SIM_LOCAL) {
        sim_call("recvmsg");
        ssize_t got = sim_local_receive(local->object, message);
        sim_result("recvmsg", got);
        return got;
    }
    return __wrap_recv(fd, message->msg_iov->iov_base, message->msg_iov->iov_len,
                       flags);
}
