/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Words in shared memory that only grow, each written by one rank, and waiting until
 * they have reached a value: spin, then yield, then sleep on a futex.  Publishing makes
 * no system call while no rank sleeps.  The meaning of the words is not known here; the
 * waiter's own check decides between slices of sleep whether to give up. */
#ifndef DISTLITE_PG_CPU_SHM_WAIT_H
#define DISTLITE_PG_CPU_SHM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* Two cache lines of 64 bytes, because processors prefetch them in pairs. */
#define DL_LINE 128

/* Returns `size`, rounded up to a multiple of `unit`, such as DL_LINE. */
static inline size_t
dl_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static inline size_t
dl_min_size(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* Called between two polls of memory that another core is going to write to. */
static inline void
dl_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* "yield" does nothing on most cores */
#endif
}

typedef _Atomic uint64_t dl_word;

/* One word per rank, `stride` bytes apart. */
typedef struct dl_words {
    dl_word *first;
    size_t stride;
    int count;
} dl_words;

static inline dl_word *
dl_words_at(dl_words words, int index)
{
    return (dl_word *)(void *)((char *)words.first + (size_t)index * words.stride);
}

#define DL_BELL_COUNTS 32

/* What the waiters of one board sleep on.  Zeroed memory is valid. */
typedef struct dl_bell {
    _Alignas(DL_LINE) _Atomic uint32_t rings; /* grows when all words reached a value */
    /* How many sleep on `rings`, by the value that they wait for, and on words
     * themselves, by their index: a rank that publishes makes no system call for ranks
     * that sleep until another value, such as one that is ahead of it, or on another
     * rank's word.  Values and indices that are DL_BELL_COUNTS apart share a number. */
    _Alignas(DL_LINE) _Atomic uint32_t sleepers_for_all[DL_BELL_COUNTS];
    _Alignas(DL_LINE) _Atomic uint32_t sleepers_for_one[DL_BELL_COUNTS];
} dl_bell;

/* Returns true if a rank may sleep on a word of this index. */
bool dl_bell_has_sleepers_for(dl_bell *bell, int index);

/* Sleeps on shared memory while `*futex` equals `seen`, for `limit` nanoseconds at
 * most; the other function wakes all sleepers. */
void dl_futex_sleep(const void *futex, uint32_t seen, int64_t limit);
void dl_futex_wake(const void *futex);

/* What a sleeping wait waits for: words `first` to `last` have reached `value`. */
typedef struct dl_wanted {
    dl_words words;
    int first;
    int last;
    uint64_t value;
} dl_wanted;

typedef struct dl_waiter {
    dl_bell *bell;
    int64_t spin;  /* nanoseconds of polling without system calls */
    int64_t yield; /* nanoseconds of polling with sched_yield(2), after that */
    /* Called before the first sleep and after each slice.  A failure ends the wait. */
    dl_status (*check)(void *context, const dl_wanted *wanted);
    void *context;
    /* If not NULL: where a wait for a range notes the word that it sleeps on. */
    _Atomic(dl_word *) *sleeps_on;
    /* If not NULL: called before and after the yielding wait for word `index`. */
    void (*yielding)(void *context, int index, bool begins);
} dl_waiter;

/* Sets word `index`, which belongs to the caller, to `value`, and wakes the sleepers
 * that it concerns.  Everything written before is visible to a rank that sees the
 * value. Sleepers for all words are woken by the rank that completes the value; so
 * every rank has to publish every value that is waited for, and may not skip one. */
void dl_words_publish(dl_words words, int index, uint64_t value, dl_bell *bell);

/* Wakes the ranks that wait for all words, and those that wait for `word` unless it is
 * NULL, so that they run their checks. */
void dl_words_wake(dl_bell *bell, const dl_word *word);

/* Returns true if every word is at least `value`. */
bool dl_words_have_reached(dl_words words, uint64_t value);

/* Waits until every word is at least `value`. */
dl_status dl_words_wait_all(dl_words words, uint64_t value, const dl_waiter *waiter,
                            dl_deadline deadline);

/* Waits until words `first` to `last` are at least `value`. */
dl_status dl_words_wait_range(dl_words words, int first, int last, uint64_t value,
                              const dl_waiter *waiter, dl_deadline deadline);

/* Waits until word `index` is at least `value`. */
static inline dl_status
dl_words_wait_one(dl_words words, int index, uint64_t value, const dl_waiter *waiter,
                  dl_deadline deadline)
{
    return dl_words_wait_range(words, index, index, value, waiter, deadline);
}

#endif
