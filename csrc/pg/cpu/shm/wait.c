/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/record/blocked_threads.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a futex is the first half of a word");

/* Polls between two readings of the clock: long compared with reading it, short
 * compared with the shortest span. */
#define POLLS_PER_CLOCK 32

/* A wake-up cannot be lost: a sleeper increments its count and then reads the words
 * once more; a publisher writes its word and then reads the count.  All four accesses
 * are sequentially consistent, so at least one side sees the other: either the sleeper
 * does not sleep, or the publisher wakes it.  The kernel closes the gap between that
 * reading and the sleep, because it compares the futex with the value that was seen
 * before it. */

void
dl_futex_sleep(const void *futex, uint32_t seen, int64_t limit)
{
    struct timespec span = {.tv_sec = limit / DL_SECOND, .tv_nsec = limit % DL_SECOND};

    syscall(SYS_futex, futex, FUTEX_WAIT, seen, &span, NULL, 0);
}

void
dl_futex_wake(const void *futex)
{
    syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool
dl_words_have_reached(dl_words words, uint64_t value)
{
    for (int i = 0; i < words.count; i++) {
        if (atomic_load(dl_words_at(words, i)) < value) {
            return false;
        }
    }
    return true;
}

static _Atomic uint32_t *
sleepers_for(dl_bell *bell, int index)
{
    return &bell->sleepers_for_one[(unsigned)index % DL_BELL_COUNTS];
}

static _Atomic uint32_t *
sleepers_until(dl_bell *bell, uint64_t value)
{
    return &bell->sleepers_for_all[value % DL_BELL_COUNTS];
}

bool
dl_bell_has_sleepers_for(dl_bell *bell, int index)
{
    return atomic_load(sleepers_for(bell, index)) != 0;
}

void
dl_words_publish(dl_words words, int index, uint64_t value, dl_bell *bell)
{
    dl_word *word = dl_words_at(words, index);

    atomic_store(word, value);
    if (atomic_load(sleepers_for(bell, index)) != 0) {
        dl_futex_wake(word);
    }
    if (atomic_load(sleepers_until(bell, value)) != 0
        && dl_words_have_reached(words, value)) {
        atomic_fetch_add(&bell->rings, 1);
        dl_futex_wake(&bell->rings);
    }
}

void
dl_words_wake(dl_bell *bell, const dl_word *word)
{
    atomic_fetch_add(&bell->rings, 1);
    dl_futex_wake(&bell->rings);
    if (word != NULL) {
        dl_futex_wake(word);
    }
}

/* Polls one word without sleeping until the clock reaches `*until`, which starts at 0
 * and is set at the first reading of the clock: most waits end before it. */
static bool
spin_for(dl_word *word, uint64_t value, int64_t span, int64_t *until)
{
    if (span <= 0) {
        return false;
    }
    for (;;) {
        for (int i = 0; i < POLLS_PER_CLOCK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) >= value) {
                return true;
            }
            /* Not before the first reading: a pause takes as long as fetching a peer's
             * line. */
            if (*until != 0) {
                dl_relax();
            }
        }
        int64_t now = dl_now();
        *until = *until == 0 ? now + span : *until;
        if (now >= *until) {
            return false;
        }
    }
}

static bool
yield_for(dl_word *word, uint64_t value, int64_t span, int64_t *until)
{
    if (span <= 0) {
        return false;
    }
    *until = *until == 0 ? dl_now() + span : *until;
    while (dl_thread_yield(*until)) {
        if (atomic_load_explicit(word, memory_order_acquire) >= value) {
            return true;
        }
    }
    return false;
}

static void
note_yielding(const dl_waiter *waiter, int index, bool begins)
{
    if (waiter->yielding != NULL) {
        waiter->yielding(waiter->context, index, begins);
    }
}

/* Waits for one word after the other: a word that has reached a value never falls below
 * it.  The spans are those of the whole wait, not of each word. */
static bool
wait_awake(const dl_wanted *wanted, const dl_waiter *waiter)
{
    int64_t spin_until = 0;
    int64_t yield_until = 0;

    for (int i = wanted->first; i <= wanted->last; i++) {
        dl_word *word = dl_words_at(wanted->words, i);
        uint64_t value = wanted->value;
        if (atomic_load_explicit(word, memory_order_acquire) >= value
            || spin_for(word, value, waiter->spin, &spin_until)) {
            continue;
        }
        dl_blocking_begin();
        note_yielding(waiter, i, true);
        bool has_come = yield_for(word, value, waiter->yield, &yield_until);
        note_yielding(waiter, i, false);
        if (!has_come) {
            return false;
        }
    }
    return true;
}

dl_status
dl_words_wait_all(dl_words words, uint64_t value, const dl_waiter *waiter,
                  dl_deadline deadline)
{
    dl_wanted wanted = {words, 0, words.count - 1, value};
    dl_bell *bell = waiter->bell;
    dl_status status = DL_OK;

    if (wait_awake(&wanted, waiter)) {
        return DL_OK;
    }
    atomic_fetch_add(sleepers_until(bell, value), 1);
    for (;;) {
        uint32_t rings = atomic_load(&bell->rings);
        if (dl_words_have_reached(words, value)) {
            break;
        }
        status = waiter->check(waiter->context, &wanted);
        if (status != DL_OK) {
            break;
        }
        dl_futex_sleep(&bell->rings, rings, dl_deadline_slice(deadline));
    }
    atomic_fetch_sub(sleepers_until(bell, value), 1);
    dl_blocked_end();
    return status;
}

/* Sleeps until the first word of `wanted` has reached the value. */
static dl_status
sleep_on_first(const dl_wanted *wanted, const dl_waiter *waiter, dl_deadline deadline)
{
    int index = wanted->first;
    dl_word *word = dl_words_at(wanted->words, index);
    dl_bell *bell = waiter->bell;
    dl_status status = DL_OK;

    atomic_fetch_add(sleepers_for(bell, index), 1);
    if (waiter->sleeps_on != NULL) {
        atomic_store(waiter->sleeps_on, word);
    }
    for (;;) {
        uint64_t seen = atomic_load(word);
        if (seen >= wanted->value) {
            break;
        }
        status = waiter->check(waiter->context, wanted);
        if (status != DL_OK) {
            break;
        }
        dl_futex_sleep(word, (uint32_t)seen, dl_deadline_slice(deadline));
    }
    if (waiter->sleeps_on != NULL) {
        atomic_store(waiter->sleeps_on, NULL);
    }
    atomic_fetch_sub(sleepers_for(bell, index), 1);
    return status;
}

dl_status
dl_words_wait_range(dl_words words, int first, int last, uint64_t value,
                    const dl_waiter *waiter, dl_deadline deadline)
{
    dl_wanted wanted = {words, first, last, value};
    dl_status status = DL_OK;

    if (wait_awake(&wanted, waiter)) {
        return DL_OK;
    }
    for (; status == DL_OK && wanted.first <= last; wanted.first++) {
        status = sleep_on_first(&wanted, waiter, deadline);
    }
    dl_blocked_end();
    return status;
}
