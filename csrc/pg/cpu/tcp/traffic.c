/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/traffic.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/thread.h"

/* Looking without sleep, because being woken takes as long as a fast network's answer.
 * Between looks others may run: packets bring the two ends of a connection onto one core,
 * and whoever spins there keeps the answer away. */
#define LOOK_SPAN (50 * INT64_C(1000))

/* While a caller is awaited, whom another thread of this process may take in. */
#define OPENING_SLICE (5 * DL_MILLISECOND)

/* After the deadline: another rank, whose time is up as well, may know who is to blame. */
#define LATE_GRACE (250 * DL_MILLISECOND)

/* A parting word must not hold up the one who fails. */
#define FAREWELL_PATIENCE (100 * DL_MILLISECOND)

/* "all_reduce #5 in group 0". */
#define OPERATION_SIZE 160

dl_status
dl_traffic_init(dl_traffic *traffic, const dl_traffic_options *options)
{
    size_t count = (size_t)options->size;

    *traffic = (dl_traffic){
        .options = *options,
        .fork_generation = dl_fork_generation(),
        .routes = calloc(count, sizeof *traffic->routes),
        .used = calloc(count, sizeof *traffic->used),
        .polls = calloc(count + 1, sizeof *traffic->polls),
    };
    pthread_mutex_init(&traffic->lock, NULL);
    if (traffic->routes == NULL || traffic->used == NULL || traffic->polls == NULL) {
        dl_traffic_fini(traffic);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

void
dl_traffic_fini(dl_traffic *traffic)
{
    for (int i = 0; i < traffic->used_count; i++) {
        dl_route *route = traffic->routes[traffic->used[i]];
        if (traffic->fork_generation == dl_fork_generation()) {
            dl_link_fini(&route->link);
        }
        free(route);
    }
    free(traffic->routes);
    free(traffic->used);
    free(traffic->polls);
    *traffic = (dl_traffic){0};
}

static dl_status
make_route(dl_traffic *self, int rank)
{
    const dl_traffic_options *options = &self->options;
    dl_route *made = calloc(1, sizeof *made);
    dl_link_options link = {
        .group = options->group_name,
        .there = &options->peers[rank],
        .listener = options->listener,
        .address = options->ways[rank].address,
        .rank = options->rank,
        .peer = rank,
        .use = DL_FOR_COLLECTIVES,
    };

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    memcpy(link.token, options->ways[rank].token, sizeof link.token);
    dl_link_init(&made->link, &link);
    self->routes[rank] = made;
    self->used[self->used_count++] = rank;
    return DL_OK;
}

static dl_status
route_to(dl_traffic *self, int rank, dl_route **route)
{
    if (self->routes[rank] == NULL) {
        DL_TRY(make_route(self, rank));
    }
    *route = self->routes[rank];
    (*route)->op = self->op;
    return DL_OK;
}

static dl_route *
used_route(const dl_traffic *self, int index)
{
    return self->routes[self->used[index]];
}

static void
say_farewells(dl_traffic *self, const dl_error *cause)
{
    dl_deadline deadline = dl_deadline_after(FAREWELL_PATIENCE);

    for (int i = 0; i < self->used_count && !self->is_silent; i++) {
        dl_route_farewell(used_route(self, i), cause, deadline);
    }
    self->is_silent = true;
}

/* Whoever has `is_busy` after the end was set says the farewells: the thread that set
 * it, or the one that was in an operation then. */
static void
say_end(dl_traffic *self)
{
    pthread_mutex_lock(&self->lock);
    dl_error message = self->end_message;
    pthread_mutex_unlock(&self->lock);
    say_farewells(self, &message);
}

void
dl_traffic_begin(dl_traffic *traffic, const dl_op_context *op)
{
    /* Another thread can have it only to say a farewell. */
    while (atomic_exchange(&traffic->is_busy, true)) {
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    traffic->op = op;
    traffic->stage = 0;
}

void
dl_traffic_end(dl_traffic *traffic)
{
    if (atomic_load(&traffic->is_ended)) {
        say_end(traffic);
    }
    atomic_store(&traffic->is_busy, false);
    /* It may have been set between the two. */
    if (atomic_load(&traffic->is_ended) && !atomic_exchange(&traffic->is_busy, true)) {
        say_end(traffic);
        atomic_store(&traffic->is_busy, false);
    }
}

void
dl_traffic_abort(dl_traffic *traffic, const dl_error *cause, const dl_error *message)
{
    pthread_mutex_lock(&traffic->lock);
    if (!atomic_load(&traffic->is_ended)) {
        traffic->end_cause = *cause;
        traffic->end_message = *message;
        atomic_store(&traffic->is_ended, true);
    }
    pthread_mutex_unlock(&traffic->lock);
    if (!atomic_exchange(&traffic->is_busy, true)) {
        say_end(traffic);
        atomic_store(&traffic->is_busy, false);
    }
}

dl_status
dl_traffic_send(dl_traffic *traffic, int rank, const void *data, size_t size)
{
    dl_route *route = NULL;

    DL_TRY(route_to(traffic, rank, &route));
    dl_queue_push(&route->out, (void *)(uintptr_t)data, size, traffic->stage);
    return DL_OK;
}

dl_status
dl_traffic_receive(dl_traffic *traffic, int rank, void *data, size_t size)
{
    dl_route *route = NULL;

    DL_TRY(route_to(traffic, rank, &route));
    dl_queue_push(&route->in, data, size, traffic->stage);
    return DL_OK;
}

uint32_t
dl_traffic_next(dl_traffic *traffic)
{
    return traffic->stage++;
}

static void
describe_operation(const dl_traffic *self, char text[OPERATION_SIZE])
{
    snprintf(text, OPERATION_SIZE, "%s #%" PRIu64 " in group %.100s",
             dl_op_type_name(self->op->fingerprint.op), self->op->sequence,
             self->options.group_name);
}

/* " (last seen in #4)" */
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

/* Says in which operation, unless another rank's words do. */
static dl_status
fail_in_operation(const dl_traffic *self, const dl_route *route)
{
    dl_error error = *dl_last_error();
    char operation[OPERATION_SIZE];
    char seen[64] = "";

    describe_operation(self, operation);
    if (strncmp(error.text, operation, strlen(operation)) == 0) {
        return error.status;
    }
    if (error.status == DL_PEER_LOST) {
        describe_last_seen(self, route, seen);
    }
    return dl_fail(error.status, "%s: %.1700s%s", operation, error.text, seen);
}

static dl_status
fail_late(const dl_traffic *self)
{
    char operation[OPERATION_SIZE];
    char peer[DL_PEER_TEXT_SIZE] = "";
    char seen[64] = "";
    int count = 0;

    for (int i = self->used_count - 1; i >= 0; i--) {
        dl_route *route = used_route(self, i);
        if (!dl_queue_is_empty(&route->in) || !dl_queue_is_empty(&route->out)) {
            dl_peer_describe(route->link.options.there, self->used[i], peer);
            describe_last_seen(self, route, seen);
            count++;
        }
    }
    describe_operation(self, operation);
    char others[32] = "";
    if (count > 1) {
        snprintf(others, sizeof others, "; and for %d more", count - 1);
    }
    return dl_fail(DL_TIMEOUT,
                   "%s timed out after %" PRId64 "ms: waiting for %s, which has not "
                   "finished it, or waits itself for a rank of its host%s%s",
                   operation, self->op->deadline.limit / DL_MILLISECOND, peer, seen,
                   others);
}

static dl_status
check_end(dl_traffic *self)
{
    dl_status status = DL_OK;

    if (atomic_load(&self->is_ended)) {
        pthread_mutex_lock(&self->lock);
        status = dl_fail_again(&self->end_cause);
        pthread_mutex_unlock(&self->lock);
    }
    return status;
}

static dl_status
check(dl_traffic *self)
{
    const dl_traffic_options *options = &self->options;
    dl_deadline deadline = self->op->deadline;

    DL_TRY(check_end(self));
    if (options->check != NULL) {
        DL_TRY(options->check(options->context));
    }
    DL_TRY(dl_interrupt_check());
    bool is_late = dl_deadline_passed(deadline) && dl_now() - deadline.at > LATE_GRACE;
    return is_late ? fail_late(self) : DL_OK;
}

static dl_status
step_all(dl_traffic *self, bool *has_moved)
{
    for (int i = 0; i < self->used_count; i++) {
        dl_route *route = used_route(self, i);
        if (dl_route_step(route, has_moved) != DL_OK) {
            return fail_in_operation(self, route);
        }
    }
    return DL_OK;
}

static bool
is_past(dl_queue *queue, uint32_t stage)
{
    return dl_queue_is_empty(queue) || dl_queue_front(queue)->stage > stage;
}

static bool
is_done(const dl_traffic *self, uint32_t stage)
{
    for (int i = 0; i < self->used_count; i++) {
        dl_route *route = used_route(self, i);
        if (!is_past(&route->out, stage) || !is_past(&route->in, stage)) {
            return false;
        }
    }
    return true;
}

static void
sleep_for_news(dl_traffic *self)
{
    int64_t slice = DL_WAIT_SLICE;
    nfds_t count = 0;
    bool awaits_call = false;

    for (int i = 0; i < self->used_count; i++) {
        const dl_route *route = used_route(self, i);
        self->polls[count++] = dl_route_poll(route);
        awaits_call |= !route->link.is_open && route->link.fd < 0;
    }
    if (awaits_call) {
        self->polls[count++] =
            (struct pollfd){.fd = self->options.listener->fd, .events = POLLIN};
        slice = OPENING_SLICE;
    }
    (void)poll(self->polls, count, dl_deadline_poll(dl_deadline_after(-1), slice));
}

dl_status
dl_traffic_wait(dl_traffic *traffic, uint32_t stage)
{
    int64_t span = traffic->options.may_spin ? LOOK_SPAN : 0;
    int64_t until = 0;

    /* Its own end comes before the word of others, who may have heard of it. */
    DL_TRY(check_end(traffic));
    for (;;) {
        bool has_moved = false;
        DL_TRY(step_all(traffic, &has_moved));
        if (is_done(traffic, stage)) {
            return DL_OK;
        }
        if (has_moved) {
            until = 0;
            continue;
        }
        int64_t now = dl_now();
        until = until == 0 ? now + span : until;
        if (now < until) {
            sched_yield();
            continue;
        }
        DL_TRY(check(traffic));
        sleep_for_news(traffic);
    }
}

/* In words for the other ranks. */
static dl_error
message_of(const dl_traffic *self, const dl_error *error)
{
    dl_error message = *error;
    char operation[OPERATION_SIZE];

    if (error->status == DL_INTERRUPTED) {
        describe_operation(self, operation);
        message.status = DL_CANCELLED;
        snprintf(message.text, sizeof message.text, "%s was interrupted", operation);
    }
    return message;
}

void
dl_traffic_break(dl_traffic *traffic, const int *others, int count)
{
    dl_error cause = *dl_last_error();
    dl_error message = message_of(traffic, &cause);
    dl_route *route;

    for (int i = 0; i < count; i++) {
        (void)route_to(traffic, others[i], &route);
    }
    if (atomic_load(&traffic->is_ended)) {
        say_end(traffic);
    }
    say_farewells(traffic, &message);
    (void)dl_fail_again(&cause);
}
