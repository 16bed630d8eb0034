/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_lock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "base/interrupt.h"

/* Of a latch's word; the rest is the holder's rank, plus one. */
#define HAS_SLEEPERS ((uint32_t)1 << 31)

/* Polls before the first system call, if every rank has a core: about two microseconds,
 * longer than a small update takes. */
#define LOOKS 100

/* Calls of sched_yield(2) before the first sleep. */
#define YIELDS 100

/* Time in which a rank on another host may come back after its connection has ended, as
 * it does after Ctrl-C. */
#define LOST_PATIENCE DL_SECOND

dl_status
dl_window_ends_check(const dl_window_ends *ends)
{
    return atomic_load(&ends->is_over) ? dl_rethrow(&ends->cause) : DL_OK;
}

dl_status
dl_window_ranks_check(const dl_window_ranks *ranks, int owner)
{
    char peer[DL_PEER_TEXT_SIZE];

    if (!dl_process_has_ended(ranks->processes[owner])) {
        return DL_OK;
    }
    dl_peers_describe(&ranks->peers, owner, peer);
    return dl_fail(DL_PEER_LOST, "window in group %s: %s exited or was killed",
                   ranks->group_name, peer);
}

dl_status
dl_window_ranks_fail_closed(const dl_window_ranks *ranks, int owner)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peers_describe(&ranks->peers, owner, peer);
    return dl_fail(DL_CLOSED, "window in group %s: %s has closed it", ranks->group_name,
                   peer);
}

/* One step of the part of a wait that does not sleep: spins, then yields.  Returns
 * false once that part is over. */
static bool
wait_awake(const dl_window_ranks *ranks, int *turns)
{
    int turn = (*turns)++;

    if (!ranks->may_spin) {
        turn += LOOKS;
    }
    if (turn < LOOKS) {
        dl_relax();
        return true;
    }
    dl_blocking_begin();
    if (turn < LOOKS + YIELDS) {
        sched_yield();
        return true;
    }
    return false;
}

/* The checks between two slices of sleep, with no lock held. */
static dl_status
check_wait(const dl_window_ranks *ranks)
{
    dl_process_table_poll();
    DL_TRY(dl_window_ends_check(ranks->ends));
    return dl_interrupt_check();
}

static dl_status
fail_lost(const dl_window_ranks *ranks, int holder, int owner, const char *what)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peers_describe(&ranks->peers, holder, peer);
    return dl_fail(DL_PEER_LOST,
                   "window in group %s: %s exited or was killed while it %s the memory "
                   "of rank %d, which may be half written",
                   ranks->group_name, peer, what, owner);
}

/* The limit is rounded up, as the request of a rank on another host was on its way for a
 * part of it. */
static dl_status
fail_late_holder(const dl_window_ranks *ranks, int holder, int owner, const char *what,
                 dl_deadline deadline)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peers_describe(&ranks->peers, holder, peer);
    return dl_fail(DL_TIMEOUT,
                   "window in group %s: waiting for the memory of rank %d timed out "
                   "after %" PRId64 "ms: %s %s it",
                   ranks->group_name, owner,
                   (deadline.limit + DL_MILLISECOND - 1) / DL_MILLISECOND, peer, what);
}

/* Sleeps until the latch is released, or for a slice.  The mark for sleepers stays in
 * the word until the release, which wakes all of them. */
static dl_status
sleep_at(dl_latch *latch, uint32_t seen, const dl_window_ranks *ranks, int owner,
         dl_deadline deadline)
{
    int holder = (int)(seen & ~HAS_SLEEPERS) - 1;

    DL_TRY(check_wait(ranks));
    if (holder >= ranks->size || dl_process_has_ended(ranks->processes[holder])) {
        return fail_lost(ranks, holder < ranks->size ? holder : owner, owner,
                         "was updating");
    }
    if (dl_deadline_passed(deadline)) {
        return fail_late_holder(ranks, holder, owner, "is updating", deadline);
    }
    if (!(seen & HAS_SLEEPERS)
        && !atomic_compare_exchange_strong(&latch->word, &seen, seen | HAS_SLEEPERS)) {
        return DL_OK;
    }
    dl_futex_sleep(&latch->word, seen | HAS_SLEEPERS, dl_deadline_slice(deadline));
    return DL_OK;
}

/* A thread that has slept takes the latch with the mark, because there may be other
 * sleepers that it does not know of. */
static dl_status
take_slowly(dl_latch *latch, const dl_window_ranks *ranks, int owner,
            dl_deadline deadline)
{
    uint32_t mine = (uint32_t)ranks->rank + 1;
    int turns = 0;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&latch->word, memory_order_relaxed);
        if (seen == 0) {
            if (atomic_compare_exchange_strong(&latch->word, &seen, mine)) {
                return DL_OK;
            }
        } else if (!wait_awake(ranks, &turns)) {
            DL_TRY(sleep_at(latch, seen, ranks, owner, deadline));
            mine |= HAS_SLEEPERS;
        }
    }
}

dl_status
dl_latch_take(dl_latch *latch, const dl_window_ranks *ranks, int owner,
              dl_deadline deadline)
{
    uint32_t seen = 0;

    if (atomic_compare_exchange_strong_explicit(
            &latch->word, &seen, (uint32_t)ranks->rank + 1, memory_order_acquire,
            memory_order_relaxed)) {
        return DL_OK;
    }
    return take_slowly(latch, ranks, owner, deadline);
}

void
dl_latch_release(dl_latch *latch)
{
    uint32_t seen = atomic_exchange(&latch->word, 0);

    if (seen & HAS_SLEEPERS) {
        dl_futex_wake(&latch->word);
    }
}

/* Two entries conflict unless both are for the shared mode. */
static bool
modes_conflict(const dl_lock_queue_entry *left, const dl_lock_queue_entry *right)
{
    return left->mode == DL_QUEUE_EXCLUSIVE || right->mode == DL_QUEUE_EXCLUSIVE;
}

static bool
is_gone(const dl_lock_queue_entry *entry, const dl_window_ranks *ranks, int rank)
{
    bool is_lost =
        entry->lost_since != 0 && dl_now() - entry->lost_since > LOST_PATIENCE;

    return is_lost || dl_process_has_ended(ranks->processes[rank]);
}

/* A rank that keeps another one from getting the lock. */
typedef struct blocker {
    int rank; /* -1: none */
    bool holds;
} blocker;

/* Stores a rank that keeps `asker` from getting the lock, preferably one that holds it.
 * Fails if such a rank ended while it held the lock.  Requires the latch. */
static dl_status
find_blocker(const dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
             int asker, blocker *found)
{
    const dl_lock_queue_entry *mine = &queue->entries[asker];

    *found = (blocker){.rank = -1};
    if (queue->used == 1) {
        return DL_OK;
    }
    for (int rank = 0; rank < ranks->size; rank++) {
        const dl_lock_queue_entry *other = &queue->entries[rank];
        if (rank == asker || other->mode == 0 || !modes_conflict(mine, other)) {
            continue;
        }
        if (other->holds) {
            if (is_gone(other, ranks, rank)) {
                return fail_lost(ranks, rank, owner, "held the lock of");
            }
            *found = (blocker){.rank = rank, .holds = true};
        } else if (found->rank < 0 && other->ticket < mine->ticket
                   && !is_gone(other, ranks, rank)) {
            found->rank = rank;
        }
    }
    return DL_OK;
}

/* Adds the asker to the queue. */
static dl_status
enter_queue(dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
            const dl_lock_request *request)
{
    dl_lock_queue_entry *entry = &queue->entries[request->asker];

    DL_TRY(dl_latch_take(&queue->latch, ranks, owner, request->deadline));
    bool is_new = entry->mode == 0;
    if (is_new) {
        *entry = (dl_lock_queue_entry){
            .ticket = ++queue->tickets,
            .mode = request->is_shared ? DL_QUEUE_SHARED : DL_QUEUE_EXCLUSIVE,
        };
        queue->used++;
    }
    dl_latch_release(&queue->latch);
    return is_new ? DL_OK
                  : dl_fail(DL_INVALID,
                            "window in group %s: rank %d holds the lock of rank %d, or "
                            "waits for it, already; locks do not nest",
                            ranks->group_name, request->asker, owner);
}

/* Grants the lock if no other rank blocks the asker.  Otherwise it fails, and names that
 * rank, once the deadline has passed. */
static dl_status
try_lock(dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
         const dl_lock_request *request, bool *is_granted)
{
    dl_deadline deadline = request->deadline;
    blocker found;

    DL_TRY(dl_latch_take(&queue->latch, ranks, owner, deadline));
    dl_status status = find_blocker(queue, ranks, owner, request->asker, &found);
    *is_granted = status == DL_OK && found.rank < 0;
    if (*is_granted) {
        queue->entries[request->asker].holds = 1;
    }
    dl_latch_release(&queue->latch);
    if (status == DL_OK && !*is_granted && dl_deadline_passed(deadline)) {
        return fail_late_holder(
            ranks, found.rank, owner,
            found.holds ? "has locked" : "is before this rank to lock", deadline);
    }
    return status;
}

/* No wake-up is lost: a sleeper increments the count and then reads the queue; a rank
 * that leaves changes the queue and then reads the count; and the kernel compares the
 * futex with the value that the sleeper read before the queue. */
static dl_status
wait_for_grant(dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
               const dl_lock_request *request)
{
    bool is_granted;
    int turns = 0;

    for (;;) {
        uint32_t seen = atomic_load(&queue->changes);
        DL_TRY(try_lock(queue, ranks, owner, request, &is_granted));
        if (is_granted) {
            return DL_OK;
        }
        while (atomic_load(&queue->changes) == seen && wait_awake(ranks, &turns)) {
        }
        if (atomic_load(&queue->changes) == seen) {
            DL_TRY(check_wait(ranks));
            DL_TRY(request->check == NULL ? DL_OK : request->check(request->context));
            dl_futex_sleep(&queue->changes, seen, dl_deadline_slice(request->deadline));
        }
    }
}

dl_status
dl_lock_queue_take(dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
                   const dl_lock_request *request)
{
    bool is_granted;

    DL_TRY(enter_queue(queue, ranks, owner, request));
    dl_status status = try_lock(queue, ranks, owner, request, &is_granted);
    if (status == DL_OK && !is_granted) {
        atomic_fetch_add(&queue->sleepers, 1);
        status = wait_for_grant(queue, ranks, owner, request);
        atomic_fetch_sub(&queue->sleepers, 1);
    }
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        (void)dl_lock_queue_leave(queue, ranks, owner, request->asker,
                                  dl_deadline_after(LOST_PATIENCE));
        return dl_rethrow(&error);
    }
    return DL_OK;
}

dl_status
dl_lock_queue_leave(dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
                    int asker, dl_deadline deadline)
{
    dl_lock_queue_entry *entry = &queue->entries[asker];

    DL_TRY(dl_latch_take(&queue->latch, ranks, owner, deadline));
    if (entry->mode != 0) {
        *entry = (dl_lock_queue_entry){0};
        queue->used--;
        atomic_fetch_add(&queue->changes, 1);
    }
    dl_latch_release(&queue->latch);
    if (atomic_load(&queue->sleepers) != 0) {
        dl_futex_wake(&queue->changes);
    }
    return DL_OK;
}

void
dl_lock_queue_set_lost(dl_lock_queue *queue, const dl_window_ranks *ranks, int owner,
                       int asker, bool is_lost)
{
    dl_deadline deadline = dl_deadline_after(LOST_PATIENCE);

    if (dl_latch_take(&queue->latch, ranks, owner, deadline) == DL_OK) {
        queue->entries[asker].lost_since = is_lost ? dl_now() : 0;
        dl_latch_release(&queue->latch);
    }
}
