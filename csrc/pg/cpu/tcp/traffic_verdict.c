/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/traffic_verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/blocked_threads.h"
#include "pg/cpu/health/failure_notice.h"

/* Error texts name at most so many late ranks, and count the others. */
#define NAMED_RANKS 6

/* Bytes of a text such as "all_reduce #5 in group 0". */
#define OPERATION_SIZE 160

static void
describe_operation(const dl_traffic *self, char text[OPERATION_SIZE])
{
    snprintf(text, OPERATION_SIZE, "%s #%" PRIu64 " in group %.100s",
             dl_op_type_name(self->op->fingerprint.op), self->op->sequence,
             self->options.group_name);
}

/* Writes " (last seen in #4)", or nothing if the rank is in this operation. */
static void
describe_last_seen(const dl_traffic *self, const dl_route *route, char text[64])
{
    text[0] = '\0';
    if (route->heard == 0) {
        snprintf(text, 64, " (nothing was heard from it yet)");
    } else if (route->heard < self->op->sequence) {
        snprintf(text, 64, " (last seen in #%" PRIu64 ")", route->heard);
    }
}

dl_status
dl_traffic_fail(const dl_traffic *traffic, const dl_route *route)
{
    dl_error error = *dl_last_error();
    char operation[OPERATION_SIZE];
    char seen[64] = "";

    /* A rank that has left in order is lost to this rank's operation. */
    error.status = error.status == DL_CLOSED ? DL_PEER_LOST : error.status;
    describe_operation(traffic, operation);
    if (strstr(error.text, strstr(operation, " in group ")) != NULL) {
        return dl_fail_again(&error);
    }
    if (error.status == DL_PEER_LOST && route != NULL && !route->is_told) {
        describe_last_seen(traffic, route, seen);
    }
    return dl_fail(error.status, "%s: %.1700s%s", operation, error.text, seen);
}

/* Returns whether the operation has yet to send to, or receive from, the other rank. */
static bool
is_awaited(const dl_route *route)
{
    return route->in.first != route->in.end || route->out.first != route->out.end;
}

/* Writes "rank 2 (pid 7 on host b) (last seen in #4), rank 5 ...". */
static void
describe_late(const dl_traffic *self, char *text, size_t size)
{
    char peer[DL_PEER_TEXT_SIZE];
    char seen[64];
    size_t used = 0;
    int count = 0;

    for (int rank = 0; rank < self->options.size; rank++) {
        const dl_route *route = self->routes[rank];
        if (route != NULL && is_awaited(route) && ++count <= NAMED_RANKS) {
            dl_peer_describe(dl_bundle_options(&route->link)->there, rank, peer);
            describe_last_seen(self, route, seen);
            used += (size_t)snprintf(text + used, size - used, "%s%s%s",
                                     count == 1 ? "" : ", ", peer, seen);
        }
    }
    if (count > NAMED_RANKS) {
        snprintf(text + used, size - used, " and %d more", count - NAMED_RANKS);
    }
}

static dl_status
fail_late(const dl_traffic *self)
{
    char operation[OPERATION_SIZE];
    char late[NAMED_RANKS * (DL_PEER_TEXT_SIZE + 66) + 32] = "";

    describe_late(self, late, sizeof late);
    describe_operation(self, operation);
    return dl_fail(DL_TIMEOUT,
                   "%s timed out after %" PRId64
                   "ms: waiting for %s, or for other ranks of the same host",
                   operation, self->op->deadline.limit / DL_MILLISECOND, late);
}

dl_status
dl_traffic_check_end(dl_traffic *traffic)
{
    dl_status status = DL_OK;

    if (atomic_load(&traffic->is_ended)) {
        pthread_mutex_lock(&traffic->lock);
        status = dl_fail_again(&traffic->end_cause);
        pthread_mutex_unlock(&traffic->lock);
    }
    return status;
}

/* Notes for the deadlock detector which ranks this wait is for. */
static void
note_wait(const dl_traffic *self)
{
    dl_awaited awaited = {.count = 0};

    for (int rank = 0; rank < self->options.size; rank++) {
        const dl_route *route = self->routes[rank];
        if (route != NULL && is_awaited(route)) {
            dl_awaited_add(&awaited, rank);
        }
    }
    if (self->options.add_awaited != NULL) {
        self->options.add_awaited(self->options.context, &awaited);
    }
    dl_blocked_look(self->op->record, &awaited, self->op->deadline);
}

dl_status
dl_traffic_check(dl_traffic *traffic)
{
    const dl_traffic_options *options = &traffic->options;
    dl_deadline deadline = traffic->op->deadline;

    DL_TRY(dl_traffic_check_end(traffic));
    if (options->check != NULL && options->check(options->context) != DL_OK) {
        return dl_traffic_fail(traffic, NULL);
    }
    if (dl_op_check_arrays(traffic->op) != DL_OK) {
        return dl_traffic_fail(traffic, NULL);
    }
    DL_TRY(dl_interrupt_check());
    note_wait(traffic);
    if (!dl_deadline_is_near(deadline)) {
        return DL_OK;
    }
    bool is_late = dl_deadline_passed(deadline);
    dl_status status = options->late == NULL ? DL_OK : options->late(options->context);
    status = status == DL_OK ? fail_late(traffic) : status;
    if (is_late) {
        return status;
    }
    if (options->announce_timeout != NULL) {
        dl_error error = *dl_last_error();
        options->announce_timeout(options->context, &error);
    }
    return DL_OK;
}

dl_error
dl_traffic_message(const dl_traffic *traffic, const dl_error *error)
{
    dl_error message = *error;
    char operation[OPERATION_SIZE];

    if (error->status == DL_INTERRUPTED) {
        describe_operation(traffic, operation);
        message.status = DL_CANCELLED;
        snprintf(message.text, sizeof message.text, "%s was interrupted", operation);
    }
    return message;
}
