/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/traffic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/operation_text.h"
#include "pg/record/blocked_threads.h"

/* Time of polling without sleep, because a wake-up takes as long as a fast network's
 * answer.  The thread yields between polls: packets bring the two ends of a connection
 * onto one core, where spinning would delay the answer. */
#define POLL_SPAN (50 * INT64_C(1000))

/* A rank that waits for as long greets those that it waits for, and expects that they
 * read that before they send: otherwise their kernel could drop what they have sent
 * when they exit. */
#define GREET_AFTER (100 * DL_MILLISECOND)
#define QUIET_AFTER (GREET_AFTER / 2)

/* A rank that fails must not be delayed by its notices. */
#define NOTICE_PATIENCE (100 * DL_MILLISECOND)

/* How long dl_traffic_finish() waits for hosts that acknowledge nothing: longer than a
 * packet that is lost twice. */
#define FINISH_PATIENCE DL_SECOND

/* Makes room for as many routes. */
static dl_status
make_room(dl_traffic *self, int routes)
{
    size_t count = (size_t)routes;
    int *used = realloc(self->used, (count + 1) * sizeof *used);

    self->used = used == NULL ? self->used : used;
    struct pollfd *polls =
        realloc(self->polls, (DL_BUNDLE_POLLS * count + 2) * sizeof *polls);
    self->polls = polls == NULL ? self->polls : polls;
    return used == NULL || polls == NULL ? dl_fail_no_memory() : DL_OK;
}

dl_status
dl_traffic_init(dl_traffic *traffic, const dl_traffic_options *options)
{
    size_t count = (size_t)options->size;

    *traffic = (dl_traffic){
        .options = *options,
        .fork_generation = dl_fork_generation(),
        .routes = calloc(count, sizeof *traffic->routes),
    };
    atomic_init(&traffic->wake, -1);
    pthread_mutex_init(&traffic->lock, NULL);
    if (traffic->routes == NULL || make_room(traffic, 0) != DL_OK) {
        dl_traffic_fini(traffic);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

void
dl_traffic_fini(dl_traffic *traffic)
{
    for (int i = 0; i < traffic->used_count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): made before any is
         * used */
        dl_route *route = traffic->routes[traffic->used[i]];
        if (traffic->fork_generation == dl_fork_generation()) {
            dl_bundle_fini(&route->link);
        } else {
            dl_bundle_forget(&route->link);
        }
        free(route);
    }
    if (traffic->polls != NULL && traffic->fork_generation == dl_fork_generation()) {
        dl_socket_close(atomic_load(&traffic->wake));
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
    dl_route *made = NULL;
    dl_tcp_contact tcp;
    dl_link_options link = {
        .group = options->group_name,
        .peers = options->peers,
        .listener = options->listener,
        .rank = options->rank,
        .peer = rank,
        .use = DL_FOR_COLLECTIVES,
    };

    DL_TRY(make_room(self, self->used_count + 1));
    made = calloc(1, sizeof *made);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_tcp_contacts_find(&options->tcp_contacts, rank, &tcp);
    if (dl_bundle_init(&made->link, &link, &tcp) != DL_OK) {
        free(made);
        return DL_NO_MEMORY;
    }
    made->called = self->called;
    made->note = &self->note;
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
    int64_t now = dl_now();
    (*route)->is_quiet |= now - (*route)->used_at > QUIET_AFTER;
    (*route)->used_at = now;
    return DL_OK;
}

static dl_route *
used_route(const dl_traffic *self, int index)
{
    return self->routes[self->used[index]];
}

/* Sends `cause` to the ranks of other hosts, first through options->notify and then on
 * the links.  This order matters: on a link that is full, only its end can be
 * signalled, and a rank that sees that looks for the reason among the notices. */
static void
send_notices(dl_traffic *self, const dl_error *cause, uint64_t sequence)
{
    const dl_traffic_options *options = &self->options;

    if (self->is_silent) {
        return;
    }
    self->is_silent = true;
    if (options->notify != NULL) {
        options->notify(options->context, cause, sequence,
                        dl_deadline_after(NOTICE_PATIENCE));
    }
    dl_deadline deadline = dl_deadline_after(NOTICE_PATIENCE);
    for (int i = 0; i < self->used_count; i++) {
        dl_route_notify(used_route(self, i), cause, deadline);
    }
}

/* Sends the notices after the end was set.  The thread that has `is_busy` does so:
 * the one that set the end, or the one that was in an operation at that time. */
static void
send_end(dl_traffic *self)
{
    pthread_mutex_lock(&self->lock);
    dl_error message = self->end_message;
    pthread_mutex_unlock(&self->lock);
    send_notices(self, &message, self->sequence + 1);
}

/* Ends what began with `is_busy`. */
static void
release_routes(dl_traffic *self)
{
    if (atomic_load(&self->is_ended)) {
        send_end(self);
    }
    atomic_store(&self->is_busy, false);
    /* The end may have been set between the two. */
    if (atomic_load(&self->is_ended) && !atomic_exchange(&self->is_busy, true)) {
        send_end(self);
        atomic_store(&self->is_busy, false);
    }
}

void
dl_traffic_begin(dl_traffic *traffic, const dl_op_context *op)
{
    /* Another thread has it only while it sends notices, or leaves the group. */
    while (atomic_exchange(&traffic->is_busy, true)) {
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    traffic->op = op;
    traffic->sequence = op->sequence - 1;
    traffic->stage = 0;
    traffic->is_one_way = false;
    traffic->note = 0;
    traffic->called[op->sequence % DL_ROUTE_HISTORY] = op->fingerprint;
}

void
dl_traffic_end(dl_traffic *traffic)
{
    traffic->sequence = traffic->op->sequence;
    release_routes(traffic);
}

/* Returns the number of bytes that other ranks may lack: one that was seen in a later
 * operation, or has data for this one in the same, has received them. */
static size_t
bytes_owed(const dl_traffic *self)
{
    size_t size = 0;

    for (int i = 0; i < self->used_count; i++) {
        const dl_route *route = used_route(self, i);
        if (route->heard < route->told) {
            size += dl_bundle_unacknowledged(&route->link);
        }
    }
    return size;
}

dl_status
dl_traffic_finish(dl_traffic *traffic, dl_deadline deadline)
{
    dl_deadline stall = dl_deadline_earlier(deadline, FINISH_PATIENCE);
    dl_status status = DL_OK;
    size_t last = 0;

    if (atomic_exchange(&traffic->is_busy, true)) {
        return DL_OK;
    }
    while (status == DL_OK && !atomic_load(&traffic->is_ended)) {
        size_t size = bytes_owed(traffic);
        if (size != last) {
            stall = dl_deadline_earlier(deadline, FINISH_PATIENCE);
            last = size;
        }
        if (size == 0 || dl_deadline_passed(stall)) {
            break;
        }
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
        status = dl_interrupt_check();
    }
    release_routes(traffic);
    return status;
}

void
dl_traffic_wake(dl_traffic *traffic)
{
    const uint64_t one = 1;
    int fd = atomic_load(&traffic->wake);

    if (fd >= 0) {
        /* The write fails only when the counter is full, and then the event is set
         * anyway. */
        ssize_t size = write(fd, &one, sizeof one);
        (void)size;
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
    dl_traffic_wake(traffic);
    if (!atomic_exchange(&traffic->is_busy, true)) {
        send_end(traffic);
        atomic_store(&traffic->is_busy, false);
    }
}

uint64_t
dl_traffic_last_seen(const dl_traffic *traffic, int rank)
{
    return traffic->routes[rank] == NULL ? 0 : traffic->routes[rank]->heard;
}

bool
dl_traffic_is_notified(const dl_traffic *traffic)
{
    for (int i = 0; i < traffic->used_count; i++) {
        if (used_route(traffic, i)->is_told) {
            return true;
        }
    }
    return false;
}

dl_status
dl_traffic_send(dl_traffic *traffic, int rank, const void *data, size_t size)
{
    dl_route *route = NULL;

    DL_TRY(route_to(traffic, rank, &route));
    dl_queue_push(&route->out, (void *)(uintptr_t)data, size, traffic->stage);
    route->told = traffic->op->sequence;
    return DL_OK;
}

dl_status
dl_traffic_expect(dl_traffic *traffic, int rank, void *data, size_t size,
                  uint32_t ahead)
{
    dl_route *route = NULL;

    DL_TRY(route_to(traffic, rank, &route));
    dl_queue_push(&route->in, data, size, traffic->stage + ahead);
    return DL_OK;
}

dl_status
dl_traffic_receive(dl_traffic *traffic, int rank, void *data, size_t size)
{
    return dl_traffic_expect(traffic, rank, data, size, 0);
}

uint32_t
dl_traffic_next(dl_traffic *traffic)
{
    return traffic->stage++;
}

/* When a wait cannot end, and which rank is the cause: the checks between slices of
 * sleep, and the error text for each way to fail, as in shm/failure_check.h. */

static dl_operation_text
describe_operation(const dl_traffic *self)
{
    return dl_operation_describe(self->op->fingerprint.op, self->op->sequence,
                                 self->options.group_name);
}

/* Returns " (last seen in #4)", or nothing if the rank is in this operation. */
static dl_last_seen
describe_last_seen(const dl_traffic *self, const dl_route *route)
{
    return route->heard >= self->op->sequence
               ? (dl_last_seen){""}
               : dl_operation_last_seen(route->heard,
                                        " (nothing has been received from it yet)");
}

/* Returns the thread's last error, with the current operation in its text unless the
 * text names one already, which may be another one on the other rank.  `route` is where
 * the error occurred, or NULL. */
static dl_status
fail_in_operation(const dl_traffic *traffic, const dl_route *route)
{
    dl_error error = *dl_last_error();
    dl_last_seen seen = {""};

    /* A rank that has left in order is lost to this rank's operation. */
    error.status = error.status == DL_CLOSED ? DL_PEER_LOST : error.status;
    (void)dl_rethrow(&error);
    if (error.status == DL_PEER_LOST && route != NULL && !route->is_told) {
        seen = describe_last_seen(traffic, route);
    }
    return dl_operation_fail(describe_operation(traffic).text, seen.text);
}

static bool
is_past(const dl_queue *queue, uint32_t stage)
{
    return dl_queue_is_empty(queue) || dl_queue_front(queue)->stage > stage;
}

/* Returns whether the stage that this rank waits for has yet to send to, or receive
 * from, the other rank. */
static bool
is_awaited(const dl_traffic *self, const dl_route *route)
{
    return !is_past(&route->in, self->awaited) || !is_past(&route->out, self->awaited);
}

/* Writes "rank 2 (pid 7 on host b) (last seen in #4), rank 5 ...". */
static void
describe_late(const dl_traffic *self, char *text, size_t size)
{
    char peer[DL_PEER_TEXT_SIZE];
    size_t used = 0;
    int count = 0;

    for (int rank = 0; rank < self->options.size; rank++) {
        const dl_route *route = self->routes[rank];
        if (route != NULL && is_awaited(self, route) && ++count <= DL_NAMED_RANKS) {
            dl_peers_describe(&self->options.peers, rank, peer);
            used += (size_t)snprintf(text + used, size - used, "%s%s%s",
                                     count == 1 ? "" : ", ", peer,
                                     describe_last_seen(self, route).text);
        }
    }
    if (count > DL_NAMED_RANKS) {
        snprintf(text + used, size - used, " and %d more", count - DL_NAMED_RANKS);
    }
}

dl_status
dl_traffic_fail_late(const dl_traffic *traffic)
{
    char late[DL_NAMED_RANKS * (DL_PEER_TEXT_SIZE + DL_LAST_SEEN_SIZE + 2) + 32] = "";

    describe_late(traffic, late, sizeof late);
    return dl_fail(DL_TIMEOUT,
                   "%s timed out after %" PRId64
                   "ms: waiting for %s, or for other ranks of the same host",
                   describe_operation(traffic).text,
                   traffic->op->deadline.limit / DL_MILLISECOND, late);
}

/* Returns DL_OK, or fails with the cause that was given to dl_traffic_abort(). */
static dl_status
check_end(dl_traffic *traffic)
{
    dl_status status = DL_OK;

    if (atomic_load(&traffic->is_ended)) {
        pthread_mutex_lock(&traffic->lock);
        status = dl_rethrow(&traffic->end_cause);
        pthread_mutex_unlock(&traffic->lock);
    }
    return status;
}

/* Reports the wait to the deadlock detector, with the ranks that it is for. */
static void
note_wait(const dl_traffic *self)
{
    dl_awaited awaited = {.count = 0};

    for (int i = 0; i < self->used_count; i++) {
        if (is_awaited(self, used_route(self, i))) {
            dl_awaited_add(&awaited, self->used[i]);
        }
    }
    if (self->options.add_awaited != NULL) {
        self->options.add_awaited(self->options.context, &awaited);
    }
    dl_blocked_check(self->op->record, &awaited);
}

/* Returns the time until which the rank waits. */
static dl_deadline
end_of_wait(const dl_traffic *self)
{
    const dl_traffic_options *options = &self->options;
    bool others_know =
        options->others_know != NULL && options->others_know(options->context);

    return others_know ? dl_deadline_with_grace(self->op->deadline)
                       : self->op->deadline;
}

static dl_status
check_hosts(dl_traffic *self)
{
    for (int i = 0; i < self->used_count; i++) {
        dl_route *route = used_route(self, i);
        if (is_awaited(self, route) && dl_bundle_check_host(&route->link) != DL_OK) {
            return fail_in_operation(self, route);
        }
    }
    return DL_OK;
}

/* Checks, in this order: an end of this rank, the option `check`, an interrupt, the
 * other hosts, the deadline. */
static dl_status
check_wait(dl_traffic *traffic)
{
    const dl_traffic_options *options = &traffic->options;
    dl_deadline deadline = traffic->op->deadline;

    DL_TRY(check_end(traffic));
    if (options->check != NULL && options->check(options->context) != DL_OK) {
        return fail_in_operation(traffic, NULL);
    }
    if (dl_op_check_arrays(traffic->op) != DL_OK) {
        return fail_in_operation(traffic, NULL);
    }
    DL_TRY(dl_interrupt_check());
    DL_TRY(check_hosts(traffic));
    note_wait(traffic);
    if (!dl_deadline_is_near(deadline)) {
        return DL_OK;
    }
    bool is_late = dl_deadline_passed(end_of_wait(traffic));
    dl_status status = options->late == NULL ? DL_OK : options->late(options->context);
    status = status == DL_OK ? dl_traffic_fail_late(traffic) : status;
    if (is_late) {
        return status;
    }
    if (options->announce_timeout != NULL) {
        dl_error error = *dl_last_error();
        options->announce_timeout(options->context, &error);
    }
    return DL_OK;
}

/* Fails the operation after a route has failed.  The end of a connection has no reason;
 * one that arrives by another way within a short time takes precedence. */
static dl_status
fail_route(dl_traffic *self, const dl_route *route)
{
    const dl_traffic_options *options = &self->options;
    dl_error error = *dl_last_error();
    dl_deadline deadline = dl_deadline_after(DL_REASON_PATIENCE);
    bool is_silent = error.status == DL_PEER_LOST && !route->is_told;

    while (is_silent && options->check != NULL && !dl_deadline_passed(deadline)) {
        if (options->check(options->context) != DL_OK) {
            return fail_in_operation(self, NULL);
        }
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    (void)dl_rethrow(&error);
    return fail_in_operation(self, route);
}

static dl_status
step_all(dl_traffic *self, bool *has_moved)
{
    for (int i = 0; i < self->used_count; i++) {
        dl_route *route = used_route(self, i);
        if (dl_route_step(route, has_moved) != DL_OK) {
            return fail_route(self, route);
        }
    }
    return DL_OK;
}

static bool
is_done(const dl_traffic *self)
{
    for (int i = 0; i < self->used_count; i++) {
        if (is_awaited(self, used_route(self, i))) {
            return false;
        }
    }
    return true;
}

/* Makes the event for the first sleep, because most groups never sleep here.  If no
 * descriptor is available, only the slice ends a sleep. */
static bool
make_wake(dl_traffic *self)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    dl_fork_guard(fd);
    atomic_store(&self->wake, fd);
    return fd >= 0;
}

static void
sleep_for_notices(dl_traffic *self)
{
    int64_t slice = self->options.has_listener ? dl_interrupt_slice() : DL_WAIT_SLICE;
    int wake = atomic_load(&self->wake);
    nfds_t count = 0;
    bool awaits_call = false;

    /* A wake-up before the event existed is lost: the caller checks again before it
     * sleeps. */
    if (wake < 0 && make_wake(self)) {
        return;
    }

    for (int i = 0; i < self->used_count; i++) {
        const dl_route *route = used_route(self, i);
        count += (nfds_t)dl_route_poll(route, self->polls + count);
        awaits_call |= dl_bundle_awaits_call(&route->link);
    }
    if (awaits_call) {
        const dl_listener *listener = self->options.listener;
        bool is_full = atomic_load(&listener->is_full);
        self->polls[count++] =
            (struct pollfd){.fd = is_full ? -1 : listener->fd, .events = POLLIN};
        slice = self->options.has_listener && !is_full ? slice : DL_OPENING_SLICE;
    }
    self->polls[count++] = (struct pollfd){.fd = wake, .events = POLLIN};
    (void)poll(self->polls, count, dl_deadline_poll(end_of_wait(self), slice));
    if (self->polls[count - 1].revents != 0) {
        uint64_t events;
        ssize_t size = read(wake, &events, sizeof events);
        (void)size;
    }
}

/* The ranks that this one waits for may wait for others, and so on, in a circle. */
static dl_status
greet_awaited(dl_traffic *self)
{
    for (int i = 0; i < self->used_count; i++) {
        dl_route *route = used_route(self, i);
        route->op = self->op; /* also of one that is not used in this operation */
        if (!is_past(&route->in, self->awaited)) {
            dl_route_greet(route, self->awaited);
        } else if (dl_route_read_call(route) != DL_OK) {
            return fail_route(self, route);
        }
    }
    return DL_OK;
}

static dl_status
wait_for_stage(dl_traffic *traffic, uint32_t stage)
{
    int64_t until = 0;

    traffic->awaited = stage;
    /* This rank's own end comes before reports of others, which may have learned
     * of it. */
    DL_TRY(check_end(traffic));
    /* A rank that only sends would not read of a failure. */
    if (traffic->is_one_way && traffic->options.check != NULL
        && traffic->options.check(traffic->options.context) != DL_OK) {
        return fail_in_operation(traffic, NULL);
    }
    for (;;) {
        bool has_moved = false;
        DL_TRY(step_all(traffic, &has_moved));
        if (is_done(traffic)) {
            return DL_OK;
        }
        if (has_moved) {
            DL_TRY(check_end(traffic));
            /* A slow operation is not stuck. */
            dl_blocked_end();
            until = 0;
            continue;
        }
        until = until == 0 ? dl_now() + POLL_SPAN : until;
        if (traffic->options.may_spin && dl_thread_yield(until)) {
            continue;
        }
        DL_TRY(check_wait(traffic));
        if (traffic->is_one_way && dl_now() > until + GREET_AFTER) {
            DL_TRY(greet_awaited(traffic));
        }
        sleep_for_notices(traffic);
    }
}

dl_status
dl_traffic_wait(dl_traffic *traffic, uint32_t stage)
{
    dl_status status = wait_for_stage(traffic, stage);

    dl_blocked_end();
    return status;
}

void
dl_traffic_break(dl_traffic *traffic, const int *others, int count)
{
    dl_error cause = *dl_last_error();
    dl_error message =
        dl_operation_error_for_others(&cause, describe_operation(traffic).text);
    dl_route *route;

    for (int i = 0; i < count; i++) {
        (void)route_to(traffic, others[i], &route);
    }
    if (atomic_load(&traffic->is_ended)) {
        send_end(traffic);
    }
    send_notices(traffic, &message, traffic->sequence + 1);
    (void)dl_rethrow(&cause);
}
