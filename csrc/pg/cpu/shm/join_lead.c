/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "net/socket.h"
#include "pg/cpu/shm/join.h"
#include "pg/cpu/shm/join_message.h"

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

/* A rank that fails must not be held up by its last message. */
#define REFUSAL_PATIENCE (100 * DL_MILLISECOND)

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
    dl_refusal report;
    dl_status status =
        dl_local_receive(self->connections[rank], &parcel, dl_deadline_after(0));

    if (status == DL_CLOSED) {
        return dl_join_fail_ended(self->join, rank);
    }
    if (status != DL_OK) {
        return status;
    }
    if (dl_take_refusal(dl_buffer_bytes(&parcel.bytes), &report)) {
        status = fail_reported(self, rank, &report);
        dl_parcel_drop(&parcel);
        return status;
    }
    if (!dl_take_answer(dl_buffer_bytes(&parcel.bytes), &cores)
        || parcel.fd_count != 2) {
        dl_parcel_drop(&parcel);
        return dl_fail(DL_PROTOCOL, "rank %d answered in an unknown way", rank);
    }
    dl_cores_join(&self->cores, &cores);
    self->shown[2 * rank] = parcel.fds[0];
    self->shown[2 * rank + 1] = parcel.fds[1];
    dl_parcel_fini(&parcel);
    self->members[rank].fd = -1;
    self->awaited--;
    return DL_OK;
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
    return dl_fail(DL_TIMEOUT, "timed out after %" PRId64 "ms: %s does not answer",
                   self->join->deadline.limit / DL_MILLISECOND, peer);
}

/* Takes one message of each member that is awaited. */
static dl_status
take_all(leader *self, dl_status (*take)(leader *, int))
{
    int size = self->join->endpoint->size;

    while (self->awaited > 0) {
        dl_status status = dl_local_wait(self->members, size, self->join->deadline);
        if (status == DL_TIMEOUT) {
            return fail_silent(self);
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
        return dl_join_fail_ended(self->join, rank);
    }
    if (status != DL_OK) {
        return status;
    }
    if (!dl_take_refusal(dl_buffer_bytes(&parcel.bytes), &report)) {
        status = dl_fail(DL_PROTOCOL, "rank %d answered in an unknown way", rank);
    } else if (report.status != DL_OK) {
        status = fail_reported(self, rank, &report);
    }
    dl_parcel_drop(&parcel);
    self->members[rank].fd = -1;
    self->awaited--;
    return status;
}

/* Waits until all members have joined, then tells them that they may continue. */
static dl_status
take_reports(leader *self)
{
    const dl_refusal done = {.status = DL_OK};
    int size = self->join->endpoint->size;
    dl_parcel parcel = {0};

    await_all(self);
    DL_TRY(take_all(self, take_report));
    dl_put_refusal(&parcel.bytes, &done);
    /* The process table detects members that have ended meanwhile. */
    for (int rank = 1; rank < size; rank++) {
        (void)dl_local_send(self->connections[rank], &parcel, self->join->deadline);
    }
    dl_parcel_fini(&parcel);
    return DL_OK;
}

/* Sends memory and lifelines to `rank`, in several messages if the descriptors are more
 * than one message takes. */
static dl_status
welcome(const leader *self, int rank)
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
    bool may_spin = size <= dl_cores_count(&self->cores);
    dl_status status = dl_arena_create(&self->membership->arena, size, may_spin);

    for (int rank = 1; rank < size && status == DL_OK; rank++) {
        status = welcome(self, rank);
        status = status == DL_CLOSED ? DL_OK : status;
    }
    for (int rank = 1; rank < size && status == DL_OK; rank++) {
        int *shown = &self->shown[2 * rank];
        status = dl_process_watch(join->endpoint->processes[rank], shown[0], shown[1]);
        shown[0] = shown[1] = -1;
    }
    return status;
}

/* Sends the thread's last error to all members. */
static void
refuse_all(const leader *self)
{
    dl_error cause = *dl_last_error();
    dl_refusal message = {.status = cause.status, .text = dl_bytes_of(cause.text)};
    dl_parcel parcel = {0};

    if (cause.status == DL_INTERRUPTED) {
        message =
            (dl_refusal){DL_CANCELLED, DL_LITERAL("the leading rank was interrupted")};
    }
    dl_put_refusal(&parcel.bytes, &message);
    for (int rank = 1; rank < self->join->endpoint->size; rank++) {
        if (self->connections[rank] >= 0) {
            (void)dl_local_send(self->connections[rank], &parcel,
                                dl_deadline_after(REFUSAL_PATIENCE));
        }
    }
    dl_parcel_fini(&parcel);
    (void)dl_fail_again(&cause);
}

static dl_status
lead(leader *self)
{
    const dl_join *join = self->join;

    await_all(self);
    DL_TRY(take_all(self, take_answer));
    /* All who have answered have read all records. */
    if (join->settle != NULL) {
        DL_TRY(join->settle(join->context));
    } else {
        dl_endpoint_clear(join->endpoint, join->options->store, join->deadline);
    }
    dl_process_own own;
    DL_TRY(dl_process_own_get(&own));
    self->shown[0] = own.lifeline;
    self->shown[1] = own.pidfd;
    DL_TRY(welcome_all(self));
    return take_reports(self);
}

dl_status
dl_join_lead(const dl_join *join, dl_membership *membership)
{
    leader self;
    dl_status status = leader_init(&self, join, membership);

    if (status == DL_OK) {
        status = lead(&self);
        if (status != DL_OK) {
            refuse_all(&self);
        }
    }
    leader_fini(&self);
    return status;
}
