/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/local.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/socket.h"

/* The pause between attempts while a queue is full: the peer empties it as soon as it
 * runs. */
#define RETRY_AFTER DL_MILLISECOND

#define NAME_BYTES 16

/* What the kernel shows in place of a user who is unknown in this user namespace. */
#define OVERFLOW_USER 65534u

typedef union control {
    struct cmsghdr header; /* for its alignment */
    char data[CMSG_SPACE(DL_PARCEL_FDS * sizeof(int))
              + CMSG_SPACE(sizeof(struct ucred))];
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
open_socket(int kind, int *fd)
{
    *fd = socket(AF_UNIX, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) {
        return dl_fail(DL_NETWORK, "making a Unix socket: %s", strerror(errno));
    }
    dl_fork_guard(*fd);
    return DL_OK;
}

static uint32_t
overflow_user(void)
{
    char text[16] = "";
    int fd = open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0) {
        close(fd);
    }
    return size > 0 ? (uint32_t)strtoul(text, NULL, 10) : OVERFLOW_USER;
}

/* In the initial user namespace every user is known, and the overflow id is that of a
 * real user. */
static bool
knows_all_users(void)
{
    char text[64] = "";
    unsigned long first, there, count;
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0) {
        close(fd);
    }
    return size > 0 && sscanf(text, "%lu %lu %lu", &first, &there, &count) == 3
           && first == 0 && there == 0 && count == UINT32_MAX;
}

dl_status
dl_local_check_user(void)
{
    uint32_t user = geteuid();

    if (user == overflow_user() && !knows_all_users()) {
        return dl_fail(DL_NOT_FOUND,
                       "this process runs as user %u, which in its user namespace "
                       "stands for every unknown user; run it as another user",
                       user);
    }
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

static void
attach_descriptors(struct msghdr *message, control *room, const dl_parcel *parcel)
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

/* Lets the kernel drop each datagram that is not the key, before it takes room in the
 * queue.  A kernel without filters (some sandboxes) leaves that to dl_local_accept(). */
static void
attach_filter(int fd, const uint8_t key[DL_LOCAL_KEY_SIZE])
{
    enum { WORDS = DL_LOCAL_KEY_SIZE / 4 };
    struct sock_filter steps[2 * WORDS + 4];
    unsigned short count = 0;
    const unsigned char refuse = 2 * WORDS + 3; /* index of the last step */

    steps[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
    steps[count] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                DL_LOCAL_KEY_SIZE, 0, refuse - 2);
    count++;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t word;
        memcpy(&word, key + 4 * i, sizeof word);
        steps[count++] =
            (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(4 * i));
        steps[count] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(word), 0,
                                         (unsigned char)(refuse - count - 1));
        count++;
    }
    steps[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
    steps[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {count, steps};
    (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

/* Makes the kernel attach the sender's credentials to each message that `fd`
 * receives. */
static dl_status
request_credentials(int fd)
{
    const int on = 1;

    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0) {
        return dl_fail(DL_NETWORK, "setting SO_PASSCRED on a Unix socket: %s",
                       strerror(errno));
    }
    return DL_OK;
}

static dl_status
fail_to_listen(const char *name)
{
    return dl_fail(DL_NETWORK, "listening on the Unix socket @%s: %s", name,
                   strerror(errno));
}

dl_status
dl_local_listen(const uint8_t key[DL_LOCAL_KEY_SIZE], char name[DL_LOCAL_NAME_SIZE],
                int *fd)
{
    struct sockaddr_un address;
    int made;

    DL_TRY(make_name(name));
    DL_TRY(open_socket(SOCK_DGRAM, &made));
    socklen_t size = address_of(name, &address);
    /* Before bind(2) makes the name visible to strangers. */
    attach_filter(made, key);
    dl_status status = request_credentials(made);
    if (status == DL_OK && bind(made, (struct sockaddr *)&address, size) < 0) {
        status = fail_to_listen(name);
    }
    if (status != DL_OK) {
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
}

static dl_status
fail_call(const char *name, int error)
{
    if (error == ECONNREFUSED) {
        return dl_fail(
            DL_NOT_FOUND,
            "no process in this network namespace listens on the Unix socket @%s",
            name);
    }
    if (error == EPERM || error == EACCES) {
        return dl_fail(DL_NOT_FOUND, "this process may not use the Unix socket @%s: %s",
                       name, strerror(error));
    }
    return dl_fail(DL_NETWORK, "sending to the Unix socket @%s: %s", name,
                   strerror(error));
}

/* EAGAIN: the queue is full.  That cannot be polled for without a connection, only
 * retried.  ETOOMANYREFS is explained in dl_local_send(). */
static dl_status
send_to(int fd, const char *name, const struct msghdr *message, dl_deadline deadline)
{
    while (sendmsg(fd, message, MSG_NOSIGNAL) < 0) {
        bool is_full = errno == EAGAIN || errno == ETOOMANYREFS;
        if (is_full && dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "the Unix socket @%s accepted no connection in time", name);
        }
        if (is_full) {
            DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, RETRY_AFTER)));
        } else if (errno == EINTR) {
            DL_TRY(dl_interrupt_check());
        } else {
            return fail_call(name, errno);
        }
    }
    return DL_OK;
}

/* Sends the key, and with it `end`, if it is not -1. */
static dl_status
send_key(const char *name, dl_bytes key, int end, dl_deadline deadline)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    uint8_t bytes[DL_LOCAL_KEY_SIZE];
    dl_parcel parcel = {.fds = {end}, .fd_count = end >= 0 ? 1 : 0};
    control room;
    int fd;

    assert(key.size <= sizeof bytes);
    memcpy(bytes, key.data, key.size);
    struct iovec part = {bytes, key.size};
    struct msghdr message = {
        .msg_name = &address, .msg_namelen = size, .msg_iov = &part, .msg_iovlen = 1};
    attach_descriptors(&message, &room, &parcel);
    DL_TRY(open_socket(SOCK_DGRAM, &fd));
    dl_status status = send_to(fd, name, &message, deadline);
    dl_socket_close(fd);
    return status;
}

/* SOCK_SEQPACKET keeps message boundaries and the descriptors of each message, as
 * datagrams do, but has connections, whose end shows that the peer has died. */
static dl_status
open_pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)
        < 0) {
        return dl_fail(DL_NETWORK, "making a pair of Unix sockets: %s",
                       strerror(errno));
    }
    dl_fork_guard(ends[0]);
    dl_fork_guard(ends[1]);
    return DL_OK;
}

dl_status
dl_local_call(const char *name, const uint8_t key[DL_LOCAL_KEY_SIZE],
              const dl_parcel *first, dl_deadline deadline, int *fd)
{
    int ends[2];

    DL_TRY(open_pair(ends));
    /* Sending on a socket with SO_PASSCRED would bind it to a name, so this end sends
     * first and sets the option afterwards; receive_parcel() clears it again. */
    dl_status status = dl_local_send(ends[0], first, deadline);
    if (status == DL_OK) {
        status = request_credentials(ends[0]);
    }
    if (status == DL_OK) {
        status = send_key(name, (dl_bytes){key, DL_LOCAL_KEY_SIZE}, ends[1], deadline);
    }
    dl_socket_close(ends[1]);
    if (status != DL_OK) {
        dl_socket_close(ends[0]);
        return status;
    }
    *fd = ends[0];
    return DL_OK;
}

/* The filter drops the byte, because it is not the key: nothing stays in the queue. */
dl_status
dl_local_check(const char *name)
{
    dl_status status =
        send_key(name, (dl_bytes){(const uint8_t *)"", 1}, -1, dl_deadline_after(0));

    return status == DL_TIMEOUT ? DL_OK : status;
}

dl_status
dl_local_service_listen_at(const char *name, int *fd)
{
    struct sockaddr_un address;
    int made;

    DL_TRY(dl_local_check_user());
    DL_TRY(open_socket(SOCK_STREAM, &made));
    socklen_t size = address_of(name, &address);
    if (bind(made, (struct sockaddr *)&address, size) < 0
        || listen(made, INT_MAX) < 0) {
        dl_status status = fail_to_listen(name);
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
}

dl_status
dl_local_service_listen(char name[DL_LOCAL_NAME_SIZE], int *fd)
{
    DL_TRY(make_name(name));
    return dl_local_service_listen_at(name, fd);
}

bool
dl_local_service_is_name(dl_bytes name)
{
    const dl_bytes prefix = DL_LITERAL("distlite-");

    if (name.size != DL_LOCAL_NAME_SIZE - 1 || !dl_bytes_start_with(name, prefix)) {
        return false;
    }
    for (size_t i = prefix.size; i < name.size; i++) {
        if (!isxdigit(name.data[i])) {
            return false;
        }
    }
    return true;
}

/* Returns the credentials of the process that called connect(2), or listen(2), at the
 * other end, which the kernel keeps. */
static struct ucred
other_end(int fd)
{
    struct ucred other = {.uid = UINT32_MAX};
    socklen_t size = sizeof other;

    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size);
    return other;
}

int
dl_local_service_peer(int fd)
{
    return (int)other_end(fd).pid;
}

dl_status
dl_local_service_check(int fd)
{
    const struct ucred other = other_end(fd);

    return other.uid == geteuid()
               ? DL_OK
               : dl_fail(DL_DENIED, "a process of another user (pid %d of user %u)",
                         (int)other.pid, other.uid);
}

dl_status
dl_local_service_connect(const char *name, int *fd)
{
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int made;

    DL_TRY(dl_local_check_user());
    DL_TRY(open_socket(SOCK_STREAM, &made));
    dl_status status =
        connect(made, (struct sockaddr *)&address, size) == 0 ? DL_OK
        : errno == EAGAIN
            ? dl_fail(DL_TIMEOUT,
                      "too many connections wait to be accepted at the Unix socket @%s",
                      name)
            : fail_call(name, errno);
    if (status == DL_OK && dl_local_service_check(made) != DL_OK) {
        status = dl_fail(DL_NOT_FOUND, "the Unix socket @%s belongs to %s", name,
                         dl_last_error()->text);
    }
    if (status != DL_OK) {
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
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

dl_status
dl_local_send(int fd, const dl_parcel *parcel, dl_deadline deadline)
{
    struct iovec part = {parcel->bytes.data, parcel->bytes.size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    control room;

    DL_TRY(dl_buffer_check(&parcel->bytes));
    /* The receiver would take it for the end of the connection. */
    assert(parcel->bytes.size > 0);
    attach_descriptors(&message, &room, parcel);
    while (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) {
        /* ETOOMANYREFS: too many descriptors of this user are in flight.  Their number
         * falls as the peers receive them. */
        bool is_crowded = errno == ETOOMANYREFS && !dl_deadline_passed(deadline);
        if (errno == EAGAIN) {
            DL_TRY(dl_socket_await(fd, POLLOUT, deadline));
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

/* The ancillary data of a message. */
typedef struct attached {
    bool has_sender;
    struct ucred sender;
} attached;

/* Moves the descriptors to the parcel. */
static attached
detach_descriptors(struct msghdr *message, dl_parcel *parcel)
{
    attached got = {.has_sender = false};

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        size_t size = header->cmsg_len - CMSG_LEN(0);
        if (header->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (header->cmsg_type == SCM_CREDENTIALS && size == sizeof got.sender) {
            memcpy(&got.sender, CMSG_DATA(header), size);
            got.has_sender = true;
        } else if (header->cmsg_type == SCM_RIGHTS) {
            memcpy(parcel->fds, CMSG_DATA(header), size);
            parcel->fd_count = (int)(size / sizeof(int));
        }
    }
    for (int i = 0; i < parcel->fd_count; i++) {
        dl_fork_guard(parcel->fds[i]);
    }
    return got;
}

static dl_status
fail_descriptors(void)
{
    return dl_fail(
        DL_NETWORK,
        "a message arrived without all of its file descriptors: this process has "
        "reached its limit of open files; raise it (ulimit -n)");
}

/* Checks the sender of the first message of a connection, if it was asked for.  The end
 * of the connection was passed to one process, so the others are from the same one. */
static dl_status
check_sender(int fd, const attached *got)
{
    const int off = 0;

    if (!got->has_sender) {
        return DL_OK;
    }
    if (got->sender.uid != geteuid()) {
        return dl_fail(DL_CLOSED,
                       "reading from a Unix socket: the peer is a process of another "
                       "user (pid %d of user %u)",
                       (int)got->sender.pid, got->sender.uid);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &off, sizeof off) < 0) {
        return dl_fail(DL_INTERNAL, "setsockopt: %s", strerror(errno));
    }
    return DL_OK;
}

static dl_status
receive_parcel(int fd, dl_parcel *parcel, dl_deadline deadline)
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
            DL_TRY(dl_socket_await(fd, POLLIN, deadline));
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
    attached got = detach_descriptors(&message, parcel);
    if (size == 0) {
        return fail_lost("reading from", 0);
    }
    DL_TRY(check_sender(fd, &got));
    if (message.msg_flags & MSG_CTRUNC) {
        return fail_descriptors();
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
    dl_status status = receive_parcel(fd, parcel, deadline);

    if (status != DL_OK) {
        dl_parcel_drop(parcel);
    }
    return status;
}

/* A process of another user that presents the key has read it in the store: either the
 * store is open to everybody, or the job's ranks run as several users.  Both deserve a
 * line in the log. */
static void
log_stranger(const struct ucred *sender)
{
    static _Thread_local dl_log_limit limit;

    dl_log_limited(&limit, DL_LOG_WARNING,
                   "ignored a process of another user (pid %d of user %u) that wanted "
                   "to join this host's ranks",
                   (int)sender->pid, sender->uid);
}

dl_status
dl_local_accept(int listener, const uint8_t key[DL_LOCAL_KEY_SIZE], int *fd)
{
    uint8_t shown[DL_LOCAL_KEY_SIZE + 1];
    struct iovec part = {shown, sizeof shown};
    control room;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.data,
                             .msg_controllen = sizeof room.data};
    dl_parcel parcel = {0};
    ssize_t size = recvmsg(listener, &message, MSG_CMSG_CLOEXEC);

    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return DL_NOT_FOUND;
    }
    if (size < 0) {
        return dl_fail(DL_NETWORK, "accepting on a Unix socket: %s", strerror(errno));
    }
    attached got = detach_descriptors(&message, &parcel);
    bool has_key =
        size == DL_LOCAL_KEY_SIZE && memcmp(shown, key, DL_LOCAL_KEY_SIZE) == 0;
    bool is_own = got.has_sender && got.sender.uid == geteuid();
    if (has_key && is_own && parcel.fd_count == 1) {
        *fd = parcel.fds[0];
        return DL_OK;
    }
    dl_parcel_drop(&parcel);
    if (has_key && got.has_sender && !is_own) {
        log_stranger(&got.sender);
    }
    return has_key && is_own && (message.msg_flags & MSG_CTRUNC) ? fail_descriptors()
                                                                 : DL_NOT_FOUND;
}
