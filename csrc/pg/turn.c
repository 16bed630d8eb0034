/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/turn.h"

#include "base/thread.h"

/* CONTENDED: taken, and whoever passes it on must look at the list. */
enum turn_state {
    FREE = 0,
    TAKEN = 1,
    CONTENDED = 2,
};

typedef struct waiter {
    dl_list node;
    pthread_cond_t is_next;
    bool has_turn;
} waiter;

void
dl_turn_init(dl_turn *turn)
{
    atomic_init(&turn->state, FREE);
    pthread_mutex_init(&turn->lock, NULL);
    dl_list_init(&turn->waiters);
}

void
dl_turn_fini(dl_turn *turn)
{
    pthread_mutex_destroy(&turn->lock);
}

bool
dl_turn_try(dl_turn *turn)
{
    int expected = FREE;

    return atomic_compare_exchange_strong_explicit(
        &turn->state, &expected, TAKEN, memory_order_acquire, memory_order_relaxed);
}

static void
pass_locked(dl_turn *turn)
{
    if (dl_list_is_empty(&turn->waiters)) {
        atomic_store_explicit(&turn->state, FREE, memory_order_release);
        return;
    }
    waiter *next = DL_LIST_ENTRY(turn->waiters.next, waiter, node);
    dl_list_remove(&next->node);
    next->has_turn = true;
    pthread_cond_signal(&next->is_next);
}

static dl_status
wait_for_turn(dl_turn *turn, dl_deadline deadline)
{
    waiter self = {.is_next = PTHREAD_COND_INITIALIZER};
    dl_status status = DL_OK;

    dl_list_append(&turn->waiters, &self.node);
    while (!self.has_turn && status == DL_OK) {
        status = dl_condition_wait(&self.is_next, &turn->lock, deadline);
    }
    if (self.has_turn && status == DL_INTERRUPTED) {
        pass_locked(turn);
    } else if (self.has_turn) {
        status = DL_OK; /* it came together with the deadline */
    }
    dl_list_remove(&self.node);
    pthread_cond_destroy(&self.is_next);
    return status;
}

dl_status
dl_turn_take(dl_turn *turn, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (dl_turn_try(turn)) {
        return DL_OK;
    }
    pthread_mutex_lock(&turn->lock);
    /* From here on the holder cannot pass without this lock. */
    if (atomic_exchange_explicit(&turn->state, CONTENDED, memory_order_acquire)
        != FREE) {
        status = wait_for_turn(turn, deadline);
    }
    pthread_mutex_unlock(&turn->lock);
    return status;
}

void
dl_turn_pass(dl_turn *turn)
{
    int expected = TAKEN;

    if (!atomic_compare_exchange_strong_explicit(&turn->state, &expected, FREE,
                                                 memory_order_release,
                                                 memory_order_relaxed)) {
        pthread_mutex_lock(&turn->lock);
        pass_locked(turn);
        pthread_mutex_unlock(&turn->lock);
    }
}
