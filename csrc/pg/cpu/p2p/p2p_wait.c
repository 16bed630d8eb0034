/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/record/blocked_threads.h"
#include "pg/cpu/p2p/p2p_state.h"

/* Polls between two readings of the clock, as in shm/wait.c. */
#define LOOKS_PER_GLANCE 32

/* A thread in poll(2) is not woken when a frame is published in a ring, so it checks
 * the rings after at most this time: one or two scheduler ticks. */
#define RINGS_SLICE DL_MILLISECOND

/* How long dl_p2p_flush() waits for peers that accept nothing. */
#define PARTING DL_SECOND

/* How long the progress thread leaves an unawaited operation to the caller, which usually
 * soon waits for it, and drives the engine itself.  Waking the thread for each operation
 * instead would cost two context switches. */
#define PATIENCE (200 * INT64_C(1000))

/* The engine's own thread. */
typedef struct dl_p2p_thread {
    dl_p2p *engine;
    pthread_t thread;
    pthread_cond_t wanted;
    bool was_wanted; /* since its last inspection; guarded by the engine's lock */
    bool is_asleep;  /* guarded likewise, as is the next one */
    bool is_stopping;
} progress_thread;

static dl_message *
message_of_work(dl_work *work)
{
    return (dl_message *)(void *)work;
}

/* Returns true if a pass over the channels may find something, so that the lock is
 * worth taking.  Reads the shared positions of the rings, because the handles belong to
 * the lock's owner. */
static bool
has_frames(const dl_p2p *engine)
{
    if (atomic_load_explicit(&engine->is_blocked, memory_order_relaxed)
        || atomic_load_explicit(&engine->wants_links, memory_order_relaxed)) {
        return true;
    }
    for (int rank = 0; rank < engine->size; rank++) {
        const dl_ring *in = &engine->peers[rank].rings.in;
        if (in->words != NULL && dl_ring_seems_to_have_frame(in)) {
            return true;
        }
    }
    return false;
}

void
dl_p2p_wake(dl_p2p *engine)
{
    const uint64_t one = 1;
    int fd = atomic_load(&engine->wake);

    dl_doorbell_ring(&engine->bells[engine->local_rank]);
    if (fd >= 0) {
        /* The write fails only when the counter is full, and then the event is set
         * anyway. */
        ssize_t size = write(fd, &one, sizeof one);
        (void)size;
    }
}

/* Sleeps in poll(2) on the links and the event.  Where this host has other ranks, the
 * slice is short, because frames in rings do not end it. */
static void
sleep_at_links(dl_p2p *engine, struct pollfd *polls, int64_t limit)
{
    bool has_rings =
        dl_layout_count(engine->options.layout, engine->options.layout->host) > 1;
    int64_t slice = has_rings ? RINGS_SLICE : DL_WAIT_SLICE;
    nfds_t count = 0;
    uint64_t events;

    pthread_mutex_lock(&engine->lock);
    for (int rank = 0; rank < engine->size; rank++) {
        const dl_link_channel *link = engine->peers[rank].link;
        if (link != NULL && link->is_wanted && !link->is_lost) {
            count += (nfds_t)dl_link_channel_poll(link, polls + count);
            slice = link->link.is_open || slice < DL_OPENING_SLICE ? slice
                                                                   : DL_OPENING_SLICE;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    int wake = atomic_load(&engine->wake);
    polls[count++] = (struct pollfd){.fd = wake, .events = POLLIN};
    (void)poll(polls, count, dl_deadline_poll(dl_deadline_after(limit), slice));
    ssize_t size = read(wake, &events, sizeof events);
    (void)size;
}

/* Sleeps until the doorbell rings, at most for `limit` nanoseconds or one slice. `seen`
 * is the value of the bell's counter before the last pass, so that no ring is
 * missed. */
static void
sleep_at_bell(dl_p2p *engine, uint32_t seen, int64_t limit)
{
    const dl_doorbell *bell = &engine->bells[engine->local_rank];
    int64_t slice = limit < DL_WAIT_SLICE ? limit : DL_WAIT_SLICE;
    struct pollfd *polls = NULL;

    if (atomic_load(&engine->wants_links) && atomic_load(&bell->rings) == seen) {
        polls = calloc((size_t)engine->size * DL_BUNDLE_POLLS + 1, sizeof *polls);
    }
    if (polls != NULL) {
        sleep_at_links(engine, polls, slice);
        free(polls);
        return;
    }
    dl_futex_sleep(&bell->rings, seen, slice);
}

/* Called with the engine's lock held, by a thread that stops driving the engine: hands
 * unsent frames over to the progress thread.  If that cannot be started, the engine is
 * aborted, because its peers would otherwise wait forever. */
static void
hand_over(dl_p2p *engine)
{
    const progress_thread *self = engine->thread;

    if (engine->pending > 0 || engine->drivers > 0 || !dl_p2p_has_work(engine)) {
        return; /* the poster has woken the thread, or drives the engine itself */
    }
    if ((self == NULL || self->is_asleep) && dl_p2p_thread_want(engine) != DL_OK) {
        dl_p2p_break(engine);
    }
}

/* Another thread may wait for a work that has ended here, and only the doorbell wakes
 * it. */
void
dl_p2p_unlock_and_finish(dl_p2p *engine)
{
    dl_list ended;

    dl_list_init(&ended);
    while (!dl_list_is_empty(&engine->ended)) {
        dl_list *node = engine->ended.next;
        dl_list_remove(node);
        dl_list_append(&ended, node);
    }
    bool has_any = !dl_list_is_empty(&ended);
    bool is_open = !engine->is_closed;
    hand_over(engine);
    pthread_mutex_unlock(&engine->lock);
    int64_t now = has_any ? dl_now() : 0;
    while (!dl_list_is_empty(&ended)) {
        dl_message *self = DL_LIST_ENTRY(ended.next, dl_message, node);
        dl_list_remove(&self->node);
        if (self->status != DL_OK) {
            (void)(self->error == NULL ? dl_fail_no_memory() : dl_rethrow(self->error));
        }
        dl_work_finish_at(&self->work, self->status, now);
        dl_work_unref(&self->work);
    }
    if (has_any && is_open
        && atomic_load(&engine->bells[engine->local_rank].sleepers) != 0) {
        dl_p2p_wake(engine);
    }
}

/* Drivers are counted so that the shared memory outlives them.  Returns false when the
 * engine is closed: all works have ended, or are about to be finished by another
 * thread. */
static bool
add_driver(dl_p2p *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool is_open = !engine->is_closed;
    engine->drivers += is_open ? 1 : 0;
    pthread_mutex_unlock(&engine->lock);
    return is_open;
}

static void
remove_driver(dl_p2p *engine)
{
    pthread_mutex_lock(&engine->lock);
    if (--engine->drivers == 0) {
        pthread_cond_broadcast(&engine->left);
        hand_over(engine);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Makes one pass over all channels.  Returns false if nothing moved. */
static bool
make_pass(dl_p2p *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool has_moved = !engine->is_closed && dl_p2p_progress(engine);
    dl_p2p_unlock_and_finish(engine);
    return has_moved;
}

/* Drives the engine until `work` is done, which returns true, or nothing has moved for
 * `span` nanoseconds. */
static bool
drive_awake(dl_p2p *engine, const dl_work *work, int64_t span, bool yields)
{
    int64_t until = 0;

    if (span <= 0) {
        return false;
    }
    for (;;) {
        for (int i = 0; i < (yields ? 1 : LOOKS_PER_GLANCE); i++) {
            bool has_moved = has_frames(engine) && make_pass(engine);
            until = has_moved ? 0 : until;
            if (dl_work_is_done(work)) {
                return true;
            }
        }
        int64_t now = dl_now();
        until = until == 0 ? now + span : until;
        if (yields ? !dl_thread_yield(until) : now >= until) {
            return false;
        }
    }
}

/* Returns true if nothing has moved of the message but what the ring takes at once. */
static bool
is_idle(const dl_message *self)
{
    return self->state == DL_MESSAGE_QUEUED || self->state == DL_MESSAGE_OFFERED
           || self->state == DL_MESSAGE_POSTED
           || (self->state == DL_MESSAGE_STREAMING && !self->is_accepted);
}

/* Reports the wait to the deadlock detector.  A message of which parts have moved is
 * not stuck. */
static void
note_message_wait(const dl_message *self, bool may_be_stuck)
{
    if (may_be_stuck) {
        dl_blocked_check(atomic_load(&self->work.record), NULL);
    } else {
        dl_blocked_end();
    }
}

/* Ends what has failed, then sleeps for one slice.  Returns true if frames moved, or if
 * the doorbell rang meanwhile: others are active, so it is worth staying awake. */
static bool
drive_asleep(dl_p2p *engine, const dl_work *work, dl_deadline deadline)
{
    dl_doorbell *bell = &engine->bells[engine->local_rank];
    int64_t limit = dl_deadline_left(deadline);

    atomic_fetch_add(&bell->sleepers, 1);
    uint32_t seen = atomic_load(&bell->rings);
    bool has_moved = false;
    pthread_mutex_lock(&engine->lock);
    if (!engine->is_closed) {
        has_moved = dl_p2p_end_failed(engine);
    }
    const dl_message *self = (const dl_message *)(const void *)work;
    bool may_be_stuck = is_idle(self);
    dl_p2p_unlock_and_finish(engine);
    if (!dl_work_is_done(work) && !has_moved) {
        note_message_wait(self, may_be_stuck);
        sleep_at_bell(engine, seen, limit);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    return has_moved || atomic_load(&bell->rings) != seen;
}

/* Called before the yielding wait for a message: its peer may share this thread's core
 * (shm/core_sharing.h). */
static void
begin_sharing(dl_p2p *engine, const dl_message *self, dl_core_mark *own)
{
    const dl_board *board = engine->options.board;

    pthread_mutex_lock(&engine->lock);
    int peer = self->peer;
    if (!engine->is_closed && peer >= 0 && dl_p2p_is_here(&engine->peers[peer])) {
        int local_rank = engine->options.layout->local_rank_of[peer];
        dl_core_sharing_begin(&engine->sharing, own,
                              &board->members[local_rank].core_mark,
                              engine->local_rank > local_rank);
    }
    pthread_mutex_unlock(&engine->lock);
}

static bool
drive_yielding(dl_p2p *engine, const dl_work *work)
{
    const dl_board *board = engine->options.board;
    dl_core_mark *own = &board->members[engine->local_rank].core_mark;
    bool has_core = board->waiter.spin > 0;

    if (has_core) {
        begin_sharing(engine, (const dl_message *)(const void *)work, own);
    }
    bool is_done = drive_awake(engine, work, board->waiter.yield, true);
    if (has_core) {
        dl_core_sharing_end(own);
    }
    return is_done;
}

/* Returns true if the next wait should begin awake. */
static bool
drive_once(dl_p2p *engine, const dl_work *work, dl_deadline deadline, bool is_awake)
{
    const dl_waiter *spans = &engine->options.board->waiter;

    if (is_awake && drive_awake(engine, work, spans->spin, false)) {
        return true;
    }
    dl_blocking_begin();
    if (is_awake && drive_yielding(engine, work)) {
        return true;
    }
    return drive_asleep(engine, work, deadline);
}

/* The engine is closed: another thread has taken the work off its lists and is about to
 * finish it. */
static dl_status
await_finish(dl_work *work, dl_deadline deadline)
{
    while (!dl_work_is_done(work) && !dl_deadline_passed(deadline)) {
        sched_yield();
    }
    return dl_work_is_done(work) ? DL_OK : DL_TIMEOUT;
}

/* Called without the engine's lock. */
static dl_status
rest_while_flushing(dl_p2p *engine, uint32_t seen, bool has_moved, dl_deadline stall,
                    bool may_check)
{
    if (!has_moved) {
        sleep_at_bell(engine, seen, dl_deadline_left(stall));
    }
    return may_check ? dl_interrupt_check() : DL_OK;
}

dl_status
dl_p2p_flush(dl_p2p *engine, dl_deadline deadline, bool may_check)
{
    dl_doorbell *bell = &engine->bells[engine->local_rank];
    dl_deadline stall = dl_deadline_earlier(deadline, PARTING);
    dl_status status = DL_OK;
    size_t last = 0;

    atomic_fetch_add(&bell->sleepers, 1);
    while (status == DL_OK) {
        uint32_t seen = atomic_load(&bell->rings);
        bool has_moved = dl_p2p_progress(engine);
        size_t owed = dl_p2p_owed(engine);
        if (owed != last) {
            stall = dl_deadline_earlier(deadline, PARTING);
            last = owed;
        }
        if (owed == 0 || dl_deadline_passed(stall)) {
            break;
        }
        pthread_mutex_unlock(&engine->lock);
        status = rest_while_flushing(engine, seen, has_moved, stall, may_check);
        pthread_mutex_lock(&engine->lock);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    return status;
}

static dl_status
wait_for_message(dl_work *work, dl_deadline deadline)
{
    dl_message *self = message_of_work(work);
    dl_p2p *engine = self->engine;
    dl_deadline nearer = deadline.at < self->deadline.at ? deadline : self->deadline;

    bool is_awake = true;

    while (!dl_work_is_done(work)) {
        if (!add_driver(engine)) {
            return await_finish(work, deadline);
        }
        is_awake = drive_once(engine, work, nearer, is_awake);
        remove_driver(engine);
        if (dl_work_is_done(work)) {
            break;
        }
        if (dl_deadline_passed(deadline)) {
            return DL_TIMEOUT;
        }
        /* The check may take the GIL, whose owner may be in dl_p2p_close(), which waits
         * for drivers; so it is made outside of add_driver() and remove_driver(). */
        DL_TRY(dl_interrupt_check());
    }
    return DL_OK;
}

dl_status
dl_p2p_wait(dl_work *work, dl_deadline deadline)
{
    dl_status status = wait_for_message(work, deadline);

    dl_blocked_end();
    return status;
}

/* Sleeps on while another thread has the lock, and so drives the engine.  If this one
 * waited for the lock, the other would have to wake it at the end of each pass, and
 * would mostly have taken the lock again before it runs. */
static void
sleep_unlocked(dl_p2p *engine)
{
    const struct timespec span = {.tv_nsec = PATIENCE};

    pthread_mutex_unlock(&engine->lock);
    do {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
    } while (pthread_mutex_trylock(&engine->lock) != 0);
}

static void
sleep_until_wanted(progress_thread *self)
{
    self->is_asleep = true;
    while (self->is_asleep && !self->is_stopping) {
        pthread_cond_wait(&self->wanted, &self->engine->lock);
    }
    self->is_asleep = false;
}

/* Called with the lock held, which is released while it sleeps. */
static void
drive_unawaited(dl_p2p *engine)
{
    dl_doorbell *bell = &engine->bells[engine->local_rank];

    atomic_fetch_add(&bell->sleepers, 1);
    uint32_t seen = atomic_load(&bell->rings);
    bool has_moved = dl_p2p_end_failed(engine);
    bool is_over = !dl_p2p_has_work(engine);
    dl_p2p_unlock_and_finish(engine);
    if (!is_over && !has_moved) {
        sleep_at_bell(engine, seen, DL_WAIT_SLICE);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    pthread_mutex_lock(&engine->lock);
}

static void
run_step(progress_thread *self)
{
    dl_p2p *engine = self->engine;

    if (self->was_wanted) {
        self->was_wanted = false;
        sleep_unlocked(engine);
    }
    bool has_work = dl_p2p_has_work(engine);
    if (has_work && engine->drivers == 0) {
        drive_unawaited(engine);
    } else if (self->was_wanted) {
        /* Callers are posting, and wait for what they post. */
    } else if (has_work) {
        /* The waiting threads do the work; a second driver would only cost their peers
         * extra wake-ups. */
        (void)dl_condition_wait(&engine->left, &engine->lock, dl_deadline_after(-1));
    } else {
        sleep_until_wanted(self);
    }
}

static void *
run_progress_thread(void *argument)
{
    progress_thread *self = argument;

    dl_blocked_mark_internal();
    pthread_mutex_lock(&self->engine->lock);
    while (!self->is_stopping) {
        run_step(self);
    }
    pthread_mutex_unlock(&self->engine->lock);
    return NULL;
}

static dl_status
start_thread(dl_p2p *engine)
{
    progress_thread *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->engine = engine;
    self->was_wanted = true;
    dl_condition_init(&self->wanted);
    dl_status status = dl_thread_start(&self->thread, run_progress_thread, self);
    if (status != DL_OK) {
        pthread_cond_destroy(&self->wanted);
        free(self);
        return status;
    }
    engine->thread = self;
    return DL_OK;
}

dl_status
dl_p2p_thread_want(dl_p2p *engine)
{
    if (engine->thread == NULL) {
        return start_thread(engine);
    }
    engine->thread->was_wanted = true;
    dl_p2p_thread_nudge(engine);
    return DL_OK;
}

void
dl_p2p_thread_nudge(dl_p2p *engine)
{
    progress_thread *self = engine->thread;

    if (self != NULL && self->is_asleep) {
        self->is_asleep = false;
        pthread_cond_signal(&self->wanted);
    }
}

void
dl_p2p_thread_stop(dl_p2p *engine)
{
    pthread_mutex_lock(&engine->lock);
    progress_thread *self = engine->thread;
    engine->thread = NULL;
    if (self != NULL) {
        self->is_stopping = true;
        pthread_cond_signal(&self->wanted);
        pthread_cond_broadcast(&engine->left);
        dl_p2p_wake(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    if (self != NULL) {
        pthread_join(self->thread, NULL);
        pthread_cond_destroy(&self->wanted);
        free(self);
    }
}
