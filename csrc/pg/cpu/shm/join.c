/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/join.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/socket.h"
#include "pg/cpu/invite.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/shm/join_message.h"

#define LEADER 0

/* A rank that fails must not be delayed by its last message. */
#define REPORT_PATIENCE (100 * DL_MILLISECOND)

/* Fails with DL_PEER_LOST because the connection to `rank` has ended, or with the cause
 * that a rank has left in the store. */
static dl_status
fail_ended(const dl_join *join, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(join->endpoint, rank, peer);
    (void)dl_fail(DL_PEER_LOST, "%s exited, was killed or gave up", peer);
    DL_TRY(dl_join_fault_check_lost(join->options->store));
    return DL_PEER_LOST;
}

/* Returns this rank's number among the ranks of all hosts. */
static int
own_name(const dl_endpoint *endpoint)
{
    return endpoint->peers.ranks == NULL ? endpoint->rank
                                         : endpoint->peers.ranks[endpoint->rank];
}

static const dl_endpoint *
all_ranks(const dl_join *join)
{
    return join->all == NULL ? join->endpoint : join->all;
}

static dl_status
fail_unknown(int rank)
{
    return dl_fail(DL_PROTOCOL, "rank %d sent an unknown answer", rank);
}

/* The state of the leader during the join. */
typedef struct leader {
    const dl_join *join;
    dl_membership *membership;
    struct pollfd *members; /* by rank; -1: the leader, or a member that has answered */
    const int *connections; /* the endpoint's, by rank; -1: the leader */
    int *shown;             /* by rank, a lifeline and a pidfd; -1: not received yet */
    dl_cores cores;
    int awaited; /* members that have not answered */
} leader;

static dl_status
leader_init(leader *self, const dl_join *join, dl_membership *membership)
{
    size_t count = (size_t)join->endpoint->size;

    *self = (leader){
        .join = join,
        .membership = membership,
        .members = calloc(count, sizeof *self->members),
        .connections = join->endpoint->connections,
        .shown = malloc(2 * count * sizeof *self->shown),
    };
    if (self->members == NULL || self->shown == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t i = 0; i < count; i++) {
        self->members[i] = (struct pollfd){.fd = -1, .events = POLLIN};
        self->shown[2 * i] = -1;
        self->shown[2 * i + 1] = -1;
    }
    dl_cores_own(&self->cores);
    return DL_OK;
}

static void
leader_fini(leader *self)
{
    int size = self->join->endpoint->size;

    for (int rank = 0; rank < size; rank++) {
        if (self->shown != NULL) {
            /* The leader's own descriptors belong to the process table. */
            /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): set with the members */
            dl_socket_close(rank == 0 ? -1 : self->shown[2 * rank]);
            dl_socket_close(rank == 0 ? -1 : self->shown[2 * rank + 1]);
        }
    }
    free(self->members);
    free(self->shown);
}

/* Expects a message of each member.  The members have their invitations already
 * (pg/cpu/reach.h). */
static void
await_all(leader *self)
{
    for (int rank = 1; rank < self->join->endpoint->size; rank++) {
        self->members[rank].fd = self->connections[rank];
        self->awaited++;
    }
}

/* Fails with the reason why a member cannot join. */
static dl_status
fail_reported(const leader *self, int rank, const dl_refusal *report)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(self->join->endpoint, rank, peer);
    return dl_fail(DL_PEER_LOST, "%s could not join: %.*s", peer,
                   (int)report->text.size, (const char *)report->text.data);
}

static dl_status
take_answer(leader *self, int rank)
{
    dl_parcel parcel = {0};
    dl_cores cores;
    dl_records_digest digest;
    dl_refusal report;
    dl_status status =
        dl_local_receive(self->connections[rank], &parcel, dl_deadline_after(0));

    if (status == DL_CLOSED) {
        return fail_ended(self->join, rank);
    }
    if (status != DL_OK) {
        return status;
    }
    if (dl_take_refusal(dl_buffer_bytes(&parcel.bytes), &report)) {
        status = fail_reported(self, rank, &report);
        dl_parcel_drop(&parcel);
        return status;
    }
    if (!dl_take_answer(dl_buffer_bytes(&parcel.bytes), &cores, &digest)
        || parcel.fd_count != 2) {
        dl_parcel_drop(&parcel);
        return fail_unknown(rank);
    }
    dl_cores_join(&self->cores, &cores);
    self->shown[2 * rank] = parcel.fds[0];
    self->shown[2 * rank + 1] = parcel.fds[1];
    dl_parcel_fini(&parcel);
    self->members[rank].fd = -1;
    self->awaited--;
    return dl_endpoint_compare(all_ranks(self->join), &digest);
}

static dl_status
fail_silent(const leader *self)
{
    int rank = 0;
    char peer[DL_PEER_TEXT_SIZE];

    while (self->members[rank].fd < 0) {
        rank++;
    }
    dl_endpoint_describe(self->join->endpoint, rank, peer);
    return dl_fail(DL_TIMEOUT,
                   "timed out after %" PRId64
                   "ms: waiting for %s, which does not answer",
                   self->join->deadline.limit / DL_MILLISECOND, peer);
}

static dl_deadline
next_note(const dl_join *join)
{
    return dl_join_fault_next(join->deadline, join->endpoint->note);
}

/* Leaves the thread's last error, which names whom this rank waits for, before the
 * deadline; after it fails with that, or with whom the other one waited for. */
static dl_status
publish_absent(const dl_join *join)
{
    dl_store *store = join->options->store;

    if (dl_deadline_passed(join->deadline)) {
        dl_join_fault_publish(store, own_name(join->endpoint));
        DL_TRY(dl_join_fault_check_late(store));
        return DL_TIMEOUT;
    }
    dl_join_fault_note(store, own_name(join->endpoint), join->deadline,
                       &join->endpoint->note);
    return DL_OK;
}

/* Takes one message of each member that is awaited. */
static dl_status
take_from_all(leader *self, dl_status (*take)(leader *, int))
{
    int size = self->join->endpoint->size;

    while (self->awaited > 0) {
        dl_status status = dl_socket_wait(self->members, size, next_note(self->join));
        if (status == DL_TIMEOUT) {
            (void)fail_silent(self);
            DL_TRY(publish_absent(self->join));
            continue;
        }
        if (status != DL_OK) {
            return status;
        }
        for (int rank = 0; rank < size; rank++) {
            if (self->members[rank].fd >= 0 && self->members[rank].revents != 0) {
                DL_TRY(take(self, rank));
            }
        }
    }
    return DL_OK;
}

/* Takes a member's report whether it has joined. */
static dl_status
take_report(leader *self, int rank)
{
    dl_parcel parcel = {0};
    dl_refusal report;
    dl_status status =
        dl_local_receive(self->connections[rank], &parcel, dl_deadline_after(0));

    if (status == DL_CLOSED) {
        return fail_ended(self->join, rank);
    }
    if (status != DL_OK) {
        return status;
    }
    if (!dl_take_refusal(dl_buffer_bytes(&parcel.bytes), &report)) {
        status = fail_unknown(rank);
    } else if (report.status != DL_OK) {
        status = fail_reported(self, rank, &report);
    }
    dl_parcel_drop(&parcel);
    self->members[rank].fd = -1;
    self->awaited--;
    return status;
}

/* Reports to all members, which have joined, that they may continue. */
static void
release_all(const leader *self)
{
    const dl_refusal done = {.status = DL_OK};
    int size = self->join->endpoint->size;
    dl_parcel parcel = {0};

    dl_put_refusal(&parcel.bytes, &done);
    /* The process table detects members that have ended meanwhile. */
    for (int rank = 1; rank < size; rank++) {
        (void)dl_local_send(self->connections[rank], &parcel, self->join->deadline);
    }
    dl_parcel_fini(&parcel);
}

/* Sends memory and lifelines to `rank`, in several messages if the descriptors are more
 * than one message takes. */
static dl_status
welcome_member(const leader *self, int rank)
{
    uint32_t size = (uint32_t)self->join->endpoint->size;
    dl_status status = DL_OK;

    for (uint32_t first = 0; first < size && status == DL_OK;) {
        dl_parcel parcel = {0};
        dl_welcome message = {.memory_size = self->membership->arena.home.size,
                              .first = first};
        if (first == 0) {
            parcel.fds[parcel.fd_count++] = self->membership->arena.file;
        }
        for (; parcel.fd_count + 2 <= DL_PARCEL_FDS && first < size; first++) {
            parcel.fds[parcel.fd_count++] = self->shown[2 * first];
            parcel.fds[parcel.fd_count++] = self->shown[2 * first + 1];
            message.count++;
        }
        dl_put_welcome(&parcel.bytes, &message);
        status = dl_local_send(self->connections[rank], &parcel, self->join->deadline);
        dl_parcel_fini(&parcel);
    }
    return status;
}

/* A member that has closed its connection is not a failure here: its report is read
 * next. */
static dl_status
welcome_all(leader *self)
{
    const dl_join *join = self->join;
    int size = join->endpoint->size;
    int cores_per_rank = dl_cores_count(&self->cores) / size;
    dl_status status = dl_arena_create(&self->membership->arena, size, cores_per_rank);

    for (int rank = 1; rank < size && status == DL_OK; rank++) {
        status = welcome_member(self, rank);
        status = status == DL_CLOSED ? DL_OK : status;
    }
    for (int rank = 1; rank < size && status == DL_OK; rank++) {
        int *shown = &self->shown[2 * rank];
        status = dl_process_watch(join->endpoint->processes[rank], shown[0], shown[1]);
        shown[0] = shown[1] = -1;
    }
    return status;
}

/* Returns whether the error is about the leader's own process, which it does not name. */
static bool
is_own(dl_status status)
{
    return status == DL_NETWORK || status == DL_NO_MEMORY || status == DL_INTERNAL
           || status == DL_INTERRUPTED;
}

/* Sends the thread's last error to all members, and leaves it in the store for one that
 * takes no messages, or has not answered yet: when it sees that the leader has ended, it
 * looks there. */
static void
refuse_all(const leader *self)
{
    const dl_endpoint *endpoint = self->join->endpoint;
    dl_error cause = *dl_last_error();
    dl_refusal message = {.status = cause.status, .text = dl_bytes_of(cause.text)};
    dl_parcel parcel = {0};
    char peer[DL_PEER_TEXT_SIZE];
    char text[DL_ERROR_TEXT_SIZE];
    bool is_late = false;

    if (is_own(cause.status)) {
        bool is_interrupted = cause.status == DL_INTERRUPTED;
        dl_endpoint_describe(endpoint, LEADER, peer);
        snprintf(text, sizeof text, "%s could not join: %.1800s", peer,
                 is_interrupted ? "it was interrupted" : cause.text);
        message = (dl_refusal){is_interrupted ? DL_CANCELLED : DL_PEER_LOST,
                               dl_bytes_of(text)};
    }
    dl_put_refusal(&parcel.bytes, &message);
    for (int rank = 1; rank < endpoint->size; rank++) {
        dl_status sent = self->connections[rank] < 0
                             ? DL_OK
                             : dl_local_send(self->connections[rank], &parcel,
                                             dl_deadline_after(REPORT_PATIENCE));
        is_late |= sent == DL_TIMEOUT || self->members[rank].fd >= 0;
    }
    dl_parcel_fini(&parcel);
    (void)dl_rethrow(&cause);
    if (is_late) {
        dl_join_fault_pass_on(self->join->options->store, own_name(endpoint));
    }
}

static dl_status
meet_hosts(const dl_join *join, bool is_first)
{
    return join->meet_hosts == NULL ? DL_OK : join->meet_hosts(join->context, is_first);
}

static void
delete_record(const dl_join *join)
{
    dl_endpoint_clear(all_ranks(join), join->options->store, join->deadline);
}

static dl_status
join_as_leader(leader *self)
{
    const dl_join *join = self->join;

    await_all(self);
    DL_TRY(take_from_all(self, take_answer));
    /* All who have answered have read all records. */
    DL_TRY(meet_hosts(join, true));
    dl_process_own own;
    DL_TRY(dl_process_own_get(&own));
    self->shown[0] = own.lifeline;
    self->shown[1] = own.pidfd;
    DL_TRY(welcome_all(self));
    delete_record(join);
    await_all(self);
    DL_TRY(take_from_all(self, take_report));
    DL_TRY(meet_hosts(join, false));
    release_all(self);
    return DL_OK;
}

static dl_status
run_leader(const dl_join *join, dl_membership *membership)
{
    leader self;
    dl_status status = leader_init(&self, join, membership);

    if (status == DL_OK) {
        status = join_as_leader(&self);
        if (status != DL_OK) {
            refuse_all(&self);
        }
    }
    leader_fini(&self);
    return status;
}

/* Waits for a message of the leader. */
static dl_status
await_leader(const dl_join *join, int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    char leader[DL_PEER_TEXT_SIZE];
    dl_status status;

    dl_endpoint_describe(join->endpoint, LEADER, leader);
    while ((status = dl_socket_wait(&end, 1, next_note(join))) == DL_TIMEOUT) {
        (void)dl_fail(DL_TIMEOUT,
                      "timed out after %" PRId64
                      "ms: waiting for %s, which does not answer",
                      join->deadline.limit / DL_MILLISECOND, leader);
        DL_TRY(publish_absent(join));
    }
    return status;
}

/* Takes the leader's next message. */
static dl_status
receive_from_leader(const dl_join *join, int fd, dl_parcel *parcel)
{
    DL_TRY(await_leader(join, fd));
    dl_status status = dl_local_receive(fd, parcel, join->deadline);

    return status == DL_CLOSED ? fail_ended(join, LEADER) : status;
}

/* The leader had left the invitation here when this rank read in the store that it was
 * reached; in larger groups it was taken before that, for the table that came with it. */
static dl_status
take_invite(const dl_join *join, int *fd)
{
    const dl_endpoint *endpoint = join->endpoint;
    int table = -1;

    *fd = endpoint->invited;
    /* Others may call, too. */
    while (*fd < 0) {
        DL_TRY(await_leader(join, endpoint->listener));
        dl_status status =
            dl_invite_await(endpoint, join->options->group_name, own_name(endpoint),
                            dl_deadline_after(0), fd, &table);
        dl_socket_close(table);
        if (status != DL_OK && status != DL_TIMEOUT) {
            return status;
        }
    }
    return DL_OK;
}

/* If the leader has closed its end meanwhile, its refusal can still be read. */
static dl_status
send_answer(const dl_join *join, int fd)
{
    dl_process_own own;
    dl_cores cores;

    DL_TRY(dl_process_own_get(&own));
    dl_parcel parcel = {.fds = {own.lifeline, own.pidfd}, .fd_count = 2};
    dl_cores_own(&cores);
    dl_records_digest digest = dl_contacts_digest(&all_ranks(join)->contacts);
    dl_put_answer(&parcel.bytes, &cores, &digest);
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
        return fail_unknown(LEADER);
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
        dl_status status = receive_from_leader(join, fd, &parcel);
        if (status == DL_OK) {
            status = accept_welcome(join, membership, &parcel, &next);
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
send_report(int fd, dl_status status)
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
        return dl_rethrow(&error);
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
    dl_status status = receive_from_leader(join, fd, parcel);

    if (status == DL_OK
        && !dl_take_refusal(dl_buffer_bytes(&parcel->bytes), &message)) {
        status = fail_unknown(LEADER);
    } else if (status == DL_OK && message.status != DL_OK) {
        status = dl_fail((dl_status)message.status, "%.*s", (int)message.text.size,
                         (const char *)message.text.data);
    }
    return status;
}

static dl_status
join_as_member(const dl_join *join, dl_membership *membership, int *fd)
{
    DL_TRY(take_invite(join, fd));
    dl_status status = send_answer(join, *fd);
    if (status == DL_OK) {
        status = receive_welcome(join, membership, *fd);
    }
    if (status == DL_OK) {
        delete_record(join);
    }
    /* Once this rank has reported success the others continue, so nothing may fail
     * after that: the memory for the last message is allocated first. */
    dl_parcel parcel = {0};
    if (status == DL_OK) {
        status = dl_buffer_reserve(&parcel.bytes, DL_PARCEL_SIZE);
    }
    status = send_report(*fd, status);
    if (status == DL_OK) {
        status = receive_report(join, *fd, &parcel);
    }
    dl_parcel_drop(&parcel);
    return status;
}

static dl_status
run_member(const dl_join *join, dl_membership *membership)
{
    int fd = -1;
    dl_status status = join_as_member(join, membership, &fd);

    if (status != DL_OK) {
        /* The leader reads the store when it sees the connection end, so this comes
         * first. */
        dl_join_fault_publish(join->options->store, own_name(join->endpoint));
    }
    if (fd != join->endpoint->invited) {
        dl_socket_close(fd);
    }
    return status;
}

dl_status
dl_join_run(const dl_join *join, dl_membership *membership)
{
    *membership = (dl_membership){0};
    dl_status status = join->endpoint->rank == 0 ? run_leader(join, membership)
                                                 : run_member(join, membership);
    bool has_note = join->endpoint->note != 0 || all_ranks(join)->note != 0;
    if (has_note && status == DL_OK) {
        dl_join_fault_clear(join->options->store, own_name(join->endpoint));
    }
    if (status != DL_OK) {
        dl_membership_fini(membership);
    }
    return status;
}

void
dl_membership_fini(dl_membership *membership)
{
    dl_arena_fini(&membership->arena);
    *membership = (dl_membership){0};
}

void
dl_membership_forget(dl_membership *membership)
{
    dl_arena_forget(&membership->arena);
    *membership = (dl_membership){0};
}
