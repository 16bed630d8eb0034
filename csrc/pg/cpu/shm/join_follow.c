/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "net/socket.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/shm/join.h"
#include "pg/cpu/shm/join_message.h"

#define LEADER 0

/* For a stranger that connects and says nothing; a leader speaks at once. */
#define INVITE_PATIENCE (2 * DL_SECOND)

/* Who fails must not be held up by telling so. */
#define REPORT_PATIENCE (100 * DL_MILLISECOND)

static dl_status
fail_leader(const dl_join *join, dl_status status)
{
    char leader[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(join->endpoint, LEADER, leader);
    if (status == DL_TIMEOUT) {
        return dl_fail(DL_TIMEOUT, "timed out after %" PRId64 "ms: %s does not answer",
                       join->deadline.limit / DL_MILLISECOND, leader);
    }
    return dl_join_fail_ended(join, LEADER);
}

/* This rank among those of all hosts. */
static int
own_name(const dl_endpoint *endpoint)
{
    return endpoint->names == NULL ? endpoint->rank : endpoint->names[endpoint->rank];
}

/* Whether the one at the other end has read this rank's record in the store. */
static bool
is_invite(const dl_join *join, dl_bytes bytes)
{
    const dl_endpoint *endpoint = join->endpoint;
    int own = own_name(endpoint);
    dl_invite invite;

    return dl_take_invite(bytes, &invite)
           && dl_bytes_equal(invite.group_name, dl_bytes_of(join->options->group_name))
           && invite.rank == (uint32_t)own
           && memcmp(invite.token, endpoint->contacts[endpoint->rank].way.token,
                     DL_TOKEN_SIZE)
                  == 0;
}

/* Takes one caller in; a stranger is sent away, and `*fd` stays -1.  After a failure of
 * its own this rank has yet to tell why when the caller sees the end of the connection. */
static dl_status
receive_caller(const dl_join *join, int *fd)
{
    dl_parcel parcel = {0};
    int caller;
    dl_status status = dl_local_accept(join->endpoint->listener, &caller);

    if (status != DL_OK) {
        return status == DL_NOT_FOUND ? DL_OK : status;
    }
    status = dl_local_receive(caller, &parcel,
                              dl_deadline_sooner(join->deadline, INVITE_PATIENCE));
    bool is_own = status == DL_INTERRUPTED || status == DL_NO_MEMORY;
    if (is_own
        || (status == DL_OK && is_invite(join, dl_buffer_bytes(&parcel.bytes)))) {
        *fd = caller;
    } else {
        dl_socket_close(caller);
    }
    dl_parcel_drop(&parcel);
    return is_own ? status : DL_OK;
}

/* The leader has said in the store that it left one here. */
static dl_status
wait_for_invite(const dl_join *join, int *fd)
{
    *fd = -1;
    while (*fd < 0) {
        struct pollfd end = {.fd = join->endpoint->listener, .events = POLLIN};
        dl_status status = dl_local_wait(&end, 1, join->deadline);
        if (status != DL_OK) {
            return status == DL_TIMEOUT ? fail_leader(join, status) : status;
        }
        DL_TRY(receive_caller(join, fd));
    }
    return DL_OK;
}

/* A leader that has closed its end meanwhile has left a refusal to be read. */
static dl_status
answer(const dl_join *join, int fd)
{
    dl_process_own own;
    dl_cores cores;

    DL_TRY(dl_process_own_get(&own));
    dl_parcel parcel = {.fds = {own.lifeline, own.pidfd}, .fd_count = 2};
    dl_cores_own(&cores);
    dl_put_answer(&parcel.bytes, &cores);
    dl_status status = dl_local_send(fd, &parcel, join->deadline);
    dl_parcel_fini(&parcel);
    return status == DL_CLOSED ? DL_OK : status;
}

static dl_status
check_arena(const dl_membership *membership, uint64_t size)
{
    if (membership->arena.home.size != size) {
        return dl_fail(DL_PROTOCOL,
                       "the ranks share memory of another layout: they run "
                       "different versions of distlite");
    }
    return DL_OK;
}

/* Takes what is in the parcel out of it. */
static dl_status
accept_welcome(const dl_join *join, dl_membership *membership, dl_parcel *parcel,
               uint32_t *next)
{
    uint32_t size = (uint32_t)join->endpoint->size;
    dl_welcome welcome;
    dl_refusal refusal;
    int at = 0;

    if (dl_take_refusal(dl_buffer_bytes(&parcel->bytes), &refusal)) {
        return dl_fail((dl_status)refusal.status, "%.*s", (int)refusal.text.size,
                       (const char *)refusal.text.data);
    }
    int expected = *next == 0 ? 1 : 0;
    if (!dl_take_welcome(dl_buffer_bytes(&parcel->bytes), &welcome)
        || welcome.first != *next || welcome.count > size - *next
        || parcel->fd_count != 2 * (int)welcome.count + expected
        || welcome.count == 0) {
        return dl_fail(DL_PROTOCOL, "rank %d answered in an unknown way", LEADER);
    }
    if (welcome.first == 0) {
        int file = parcel->fds[at];
        parcel->fds[at++] = -1;
        DL_TRY(dl_arena_open(&membership->arena, (int)size, file));
        DL_TRY(check_arena(membership, welcome.memory_size));
    }
    for (uint32_t i = 0; i < welcome.count; i++, at += 2) {
        int lifeline = parcel->fds[at];
        int pidfd = parcel->fds[at + 1];
        parcel->fds[at] = parcel->fds[at + 1] = -1;
        DL_TRY(dl_process_watch(join->endpoint->processes[(*next)++], lifeline, pidfd));
    }
    return DL_OK;
}

static dl_status
receive_welcome(const dl_join *join, dl_membership *membership, int fd)
{
    uint32_t next = 0;

    while (next < (uint32_t)join->endpoint->size) {
        dl_parcel parcel = {0};
        dl_status status = dl_local_receive(fd, &parcel, join->deadline);
        if (status == DL_OK) {
            status = accept_welcome(join, membership, &parcel, &next);
        } else if (status == DL_CLOSED || status == DL_TIMEOUT) {
            status = fail_leader(join, status);
        }
        dl_parcel_drop(&parcel);
        if (status != DL_OK) {
            return status;
        }
    }
    return DL_OK;
}

/* To the leader, which tells the others.  Without it, it sees the end of the connection. */
static dl_status
report(int fd, dl_status status)
{
    dl_error error = *dl_last_error();
    dl_refusal message = {.status = DL_OK};
    dl_parcel parcel = {0};

    if (status != DL_OK) {
        message = (dl_refusal){status, dl_bytes_of(error.text)};
    }
    dl_put_refusal(&parcel.bytes, &message);
    dl_status sent = dl_local_send(fd, &parcel, dl_deadline_after(REPORT_PATIENCE));
    dl_parcel_fini(&parcel);
    if (status != DL_OK) {
        return dl_fail_again(&error);
    }
    /* A leader that is gone has left its word to be read. */
    return sent == DL_CLOSED ? DL_OK : sent;
}

/* That all have joined; into a parcel that has room. */
static dl_status
receive_report(const dl_join *join, int fd, dl_parcel *parcel)
{
    dl_refusal message;
    dl_status status = dl_local_receive(fd, parcel, join->deadline);

    if (status == DL_CLOSED || status == DL_TIMEOUT) {
        return fail_leader(join, status);
    }
    if (status == DL_OK
        && !dl_take_refusal(dl_buffer_bytes(&parcel->bytes), &message)) {
        status = dl_fail(DL_PROTOCOL, "rank %d answered in an unknown way", LEADER);
    } else if (status == DL_OK && message.status != DL_OK) {
        status = dl_fail((dl_status)message.status, "%.*s", (int)message.text.size,
                         (const char *)message.text.data);
    }
    return status;
}

static dl_status
follow(const dl_join *join, dl_membership *membership, int *fd)
{
    DL_TRY(wait_for_invite(join, fd));
    dl_status status = answer(join, *fd);
    if (status == DL_OK) {
        status = receive_welcome(join, membership, *fd);
    }
    /* Once it has said that it is done, the others go on, and nothing may fail. */
    dl_parcel parcel = {0};
    if (status == DL_OK) {
        status = dl_buffer_reserve(&parcel.bytes, DL_PARCEL_SIZE);
    }
    status = report(*fd, status);
    if (status == DL_OK) {
        status = receive_report(join, *fd, &parcel);
    }
    dl_parcel_drop(&parcel);
    return status;
}

dl_status
dl_join_follow(const dl_join *join, dl_membership *membership)
{
    int fd = -1;
    dl_status status = follow(join, membership, &fd);

    if (status != DL_OK) {
        /* Before the leader, which sees the end of the connection, looks for it. */
        dl_join_fault_tell(join->options->store, own_name(join->endpoint));
    }
    dl_socket_close(fd);
    return status;
}
