/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"

#include "base/thread.h"
#include "pg/cpu/shm/wait.h"
#include "ranks.h"

static void
count(void *context)
{
    ++*(int *)context;
}

CHECK_CASE(the_watcher_is_called_once)
{
    int calls = 0;

    dl_blocking_begin();
    dl_blocking_set_hook(count, &calls);
    CHECK_EQUAL(calls, 0);
    dl_blocking_begin();
    dl_blocking_begin();
    CHECK_EQUAL(calls, 1);
    dl_blocking_set_hook(count, &calls);
    dl_blocking_set_hook(NULL, NULL);
    dl_blocking_begin();
    CHECK_EQUAL(calls, 1);
}

CHECK_CASE(a_wait_on_a_condition_begins_with_it)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    int calls = 0;

    dl_condition_init(&never);
    dl_blocking_set_hook(count, &calls);
    pthread_mutex_lock(&lock);
    CHECK_EQUAL(dl_condition_wait(&never, &lock, dl_deadline_after(0)), DL_TIMEOUT);
    pthread_mutex_unlock(&lock);
    CHECK_EQUAL(calls, 1);
}

CHECK_CASE(a_sleep_begins_with_it)
{
    int calls = 0;

    dl_blocking_set_hook(count, &calls);
    CHECK_OK(dl_sleep_until(dl_deadline_after(0)));
    CHECK_EQUAL(calls, 0);
    CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    CHECK_EQUAL(calls, 1);
}

static dl_status
give_up(void *context, const dl_wanted *wanted)
{
    (void)context;
    (void)wanted;
    return dl_fail(DL_TIMEOUT, "late");
}

CHECK_CASE(a_wait_for_peers_begins_with_it_once_they_are_late)
{
    dl_word words[2] = {1, 0};
    dl_bell bell = {0};
    dl_words both = {words, sizeof *words, 2};
    dl_waiter waiter = {.bell = &bell, .spin = 1000, .yield = 1000, .check = give_up};
    int calls = 0;

    dl_blocking_set_hook(count, &calls);
    CHECK_OK(dl_words_wait_one(both, 0, 1, &waiter, dl_deadline_after(0)));
    CHECK_EQUAL(calls, 0);
    CHECK_STATUS(dl_words_wait_one(both, 1, 1, &waiter, dl_deadline_after(0)),
                 DL_TIMEOUT);
    CHECK_EQUAL(calls, 1);
    waiter.yield = 0;
    dl_blocking_set_hook(count, &calls);
    CHECK_STATUS(dl_words_wait_all(both, 1, &waiter, dl_deadline_after(0)), DL_TIMEOUT);
    CHECK_EQUAL(calls, 2);
}
