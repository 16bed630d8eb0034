/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "net/socket.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/shm/join.h"
#include "pg/cpu/shm/join_message.h"

#define LEADER 0

/* A rank that fails must not be held up by its report. */
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

/* Returns this rank's number among the ranks of all hosts. */
static int
own_name(const dl_endpoint *endpoint)
{
    return endpoint->names == NULL ? endpoint->rank : endpoint->names[endpoint->rank];
}

/* Returns true if `bytes` is the leader's invitation: its sender has read this rank's
 * record in the store. */
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

/* Accepts one caller.  A stranger is disconnected, and `*fd` stays -1; so is a caller
 * that has sent nothing yet, because the invitation is already there.  If this rank
 * itself fails, `*fd` stays open, so that the reason can be reported before the leader
 * sees the connection end. */
static dl_status
receive_caller(const dl_join *join, int *fd)
{
    dl_parcel parcel = {0};
    int caller;
    dl_status status = dl_local_accept(join->endpoint->listener, &caller);

    if (status != DL_OK) {
        return status == DL_NOT_FOUND ? DL_OK : status;
    }
    status = dl_local_receive(caller, &parcel, dl_deadline_after(0));
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

/* Waits for the invitation.  The leader had left it here when this rank read in the
 * store that it was reached. */
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

/* If the leader has closed its end meanwhile, its refusal can still be read. */
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

/* Takes the mapping and the lifelines out of the parcel; `*next` is the first rank
 * whose lifeline has not arrived yet. */
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

/* Reports this rank's result to the leader, which passes it on.  If the report is not
 * sent, the leader sees the connection end instead. */
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
    /* A leader that has closed its end has left a message to be read. */
    return sent == DL_CLOSED ? DL_OK : sent;
}

/* Receives the leader's report that all ranks have joined.  `parcel` already has the
 * memory for it. */
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
    /* Once this rank has reported success the others continue, so nothing may fail
     * after that: the memory for the last message is allocated first. */
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
        /* The leader reads the store when it sees the connection end, so this comes
         * first. */
        dl_join_fault_tell(join->options->store, own_name(join->endpoint));
    }
    dl_socket_close(fd);
    return status;
}
