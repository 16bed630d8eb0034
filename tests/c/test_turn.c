/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/turn.h"
#include "ranks.h"

typedef struct shared {
    dl_turn turn;
    long count; /* guarded by the turn */
    int order[DL_RANKS_LIMIT];
} shared;

static void
add_many(int rank, int size, void *context)
{
    shared *all = context;

    (void)rank;
    (void)size;
    for (int i = 0; i < 5000; i++) {
        CHECK_OK(dl_turn_take(&all->turn, dl_deadline_after(10 * DL_SECOND)));
        all->count++;
        dl_turn_pass(&all->turn);
    }
}

CHECK_CASE(one_at_a_time)
{
    static shared all;

    dl_turn_init(&all.turn);
    dl_run_ranks(4, add_many, &all);
    CHECK_EQUAL(all.count, 20000);
    CHECK(dl_turn_try(&all.turn));
    CHECK(!dl_turn_try(&all.turn));
    dl_turn_pass(&all.turn);
    CHECK(dl_turn_try(&all.turn));
    dl_turn_fini(&all.turn);
}

static bool
is_queue_of(shared *all, int length)
{
    int count = 0;

    pthread_mutex_lock(&all->turn.lock);
    for (dl_list *node = all->turn.waiters.next; node != &all->turn.waiters;
         node = node->next) {
        count++;
    }
    pthread_mutex_unlock(&all->turn.lock);
    return count == length;
}

/* Each asks once the one before stands in the queue. */
static void
ask_in_order(int rank, int size, void *context)
{
    shared *all = context;

    while (!is_queue_of(all, rank)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    if (rank == size - 1) {
        dl_turn_pass(&all->turn);
        return;
    }
    CHECK_OK(dl_turn_take(&all->turn, dl_deadline_after(10 * DL_SECOND)));
    all->order[all->count++] = rank;
    dl_turn_pass(&all->turn);
}

CHECK_CASE(in_the_order_of_asking)
{
    static shared all;

    dl_turn_init(&all.turn);
    CHECK(dl_turn_try(&all.turn));
    dl_run_ranks(6, ask_in_order, &all);
    CHECK_EQUAL(all.count, 5);
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(all.order[i], i);
    }
    dl_turn_fini(&all.turn);
}

CHECK_CASE(a_late_turn_is_a_timeout_and_leaves_the_queue)
{
    static shared all;
    int64_t start = dl_now();

    dl_turn_init(&all.turn);
    CHECK(dl_turn_try(&all.turn));
    CHECK_EQUAL(dl_turn_take(&all.turn, dl_deadline_after(70 * DL_MILLISECOND)),
                DL_TIMEOUT);
    CHECK(dl_now() - start >= 70 * DL_MILLISECOND);
    CHECK_EQUAL(dl_turn_take(&all.turn, dl_deadline_after(0)), DL_TIMEOUT);
    CHECK(is_queue_of(&all, 0));
    dl_turn_pass(&all.turn);
    CHECK_OK(dl_turn_take(&all.turn, dl_deadline_after(0)));
    dl_turn_fini(&all.turn);
}

static void
give_up_often(int rank, int size, void *context)
{
    shared *all = context;

    (void)size;
    for (int i = 0; i < 300; i++) {
        dl_deadline deadline = dl_deadline_after((rank + i) % 3 * 20000);
        dl_status status = dl_turn_take(&all->turn, deadline);
        if (status == DL_OK) {
            all->count++;
            dl_turn_pass(&all->turn);
        }
        CHECK(status == DL_OK || status == DL_TIMEOUT);
    }
}

CHECK_CASE(giving_up_never_loses_the_turn)
{
    static shared all;

    dl_turn_init(&all.turn);
    dl_run_ranks(4, give_up_often, &all);
    CHECK(all.count > 0);
    CHECK_OK(dl_turn_take(&all.turn, dl_deadline_after(0)));
    dl_turn_fini(&all.turn);
}

static dl_status
interrupt(void)
{
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

CHECK_CASE(an_interrupt_ends_the_wait)
{
    static shared all;

    dl_turn_init(&all.turn);
    CHECK(dl_turn_try(&all.turn));
    dl_interrupt_install(interrupt);
    CHECK_STATUS(dl_turn_take(&all.turn, dl_deadline_after(-1)), DL_INTERRUPTED);
    CHECK(is_queue_of(&all, 0));
    dl_turn_fini(&all.turn);
}
