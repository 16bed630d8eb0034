/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/wait.h"
#include "ranks.h"

typedef struct line {
    _Alignas(DL_LINE) dl_word word;
    char rest[DL_LINE - sizeof(dl_word)];
} line;

typedef struct shared {
    dl_bell bell;
    line lines[DL_RANKS_LIMIT];
    uint64_t plain[DL_RANKS_LIMIT]; /* guarded by the words alone */
    int64_t spin;
    int64_t yield;
    int meetings;
    atomic_int checks;
} shared;

static dl_status
go_on(void *context, const dl_wanted *wanted)
{
    atomic_fetch_add(&((shared *)context)->checks, 1);
    CHECK(wanted->first <= wanted->last && wanted->value > 0);
    return DL_OK;
}

static dl_waiter
waiter_of(shared *all)
{
    return (dl_waiter){.bell = &all->bell,
                       .spin = all->spin,
                       .yield = all->yield,
                       .check = go_on,
                       .context = all};
}

static dl_words
words_of(shared *all, int size)
{
    return (dl_words){&all->lines[0].word, sizeof(line), size};
}

static uint32_t
sleepers_of(shared *all)
{
    uint32_t count = 0;

    for (int i = 0; i < DL_BELL_COUNTS; i++) {
        count += atomic_load(&all->bell.sleepers_for_all[i]);
    }
    return count;
}

/* All meet again and again; what was written before a meeting is seen after it. */
static void
meet_all(int rank, int size, void *context)
{
    shared *all = context;
    dl_words words = words_of(all, size);
    dl_waiter waiter = waiter_of(all);
    dl_deadline never = dl_deadline_after(-1);

    for (uint64_t i = 1; i <= (uint64_t)all->meetings; i += 2) {
        all->plain[rank] = i * 10 + (uint64_t)rank;
        dl_words_publish(words, rank, i, &all->bell);
        CHECK_OK(dl_words_wait_all(words, i, &waiter, never));
        for (int other = 0; other < size; other++) {
            CHECK_EQUAL(all->plain[other], i * 10 + (uint64_t)other);
        }
        dl_words_publish(words, rank, i + 1, &all->bell);
        CHECK_OK(dl_words_wait_all(words, i + 1, &waiter, never));
    }
}

CHECK_CASE(sleepers_meet)
{
    static shared all = {.meetings = 2000};

    dl_run_ranks(4, meet_all, &all);
    CHECK(atomic_load(&all.checks) > 0);
    CHECK_EQUAL(sleepers_of(&all), 0);
}

CHECK_CASE(yielders_meet)
{
    static shared all = {.meetings = 5000, .yield = 100000};

    dl_run_ranks(7, meet_all, &all);
}

CHECK_CASE(spinners_meet)
{
    static shared all = {.meetings = 20000, .spin = 20000, .yield = 20000};

    dl_run_ranks(2, meet_all, &all);
}

/* Rank 0 leads, the others follow one word and report on their own. */
static void
follow_one(int rank, int size, void *context)
{
    shared *all = context;
    dl_words words = words_of(all, size);
    dl_waiter waiter = waiter_of(all);
    dl_deadline never = dl_deadline_after(-1);

    for (uint64_t i = 1; i <= (uint64_t)all->meetings; i++) {
        if (rank == 0) {
            all->plain[0] = i;
            dl_words_publish(words, 0, i, &all->bell);
            CHECK_OK(dl_words_wait_all(words, i, &waiter, never));
        } else {
            CHECK_OK(dl_words_wait_one(words, 0, i, &waiter, never));
            CHECK_EQUAL(all->plain[0], i);
            dl_words_publish(words, rank, i, &all->bell);
        }
    }
}

CHECK_CASE(sleepers_follow_one)
{
    static shared all = {.meetings = 2000};

    dl_run_ranks(4, follow_one, &all);
    CHECK(!dl_bell_has_sleepers_for(&all.bell, 0));
    CHECK_EQUAL(sleepers_of(&all), 0);
}

CHECK_CASE(awake_ranks_follow_one)
{
    static shared all = {.meetings = 5000, .yield = 50000};

    dl_run_ranks(3, follow_one, &all);
}

/* Ranks that sometimes sleep and sometimes do not. */
static void
meet_late(int rank, int size, void *context)
{
    shared *all = context;
    dl_words words = words_of(all, size);
    dl_waiter waiter = waiter_of(all);
    unsigned seed = (unsigned)rank;

    for (uint64_t i = 1; i <= (uint64_t)all->meetings; i++) {
        int64_t until = dl_now() + rand_r(&seed) % 200 * 1000;
        while (dl_now() < until) {
        }
        dl_words_publish(words, rank, i, &all->bell);
        CHECK_OK(dl_words_wait_all(words, i, &waiter, dl_deadline_after(-1)));
    }
}

CHECK_CASE(no_wake_up_is_lost)
{
    static shared all = {.meetings = 1000, .spin = 20000, .yield = 20000};
    int64_t start = dl_now();

    dl_run_ranks(3, meet_late, &all);
    /* A lost one would cost a slice. */
    CHECK(dl_now() - start < 15 * DL_SECOND);
}

#define AHEAD ((uint64_t)DL_BELL_COUNTS)

/* Rank 1 sleeps until rank 0 has caught up with it. */
static void
catch_up(int rank, int size, void *context)
{
    shared *all = context;
    dl_words words = words_of(all, size);
    dl_waiter waiter = waiter_of(all);

    if (rank == 1) {
        for (uint64_t i = 1; i <= AHEAD; i++) {
            dl_words_publish(words, 1, i, &all->bell);
        }
        CHECK_OK(dl_words_wait_all(words, AHEAD, &waiter, dl_deadline_after(-1)));
        return;
    }
    while (sleepers_of(all) == 0) {
        dl_relax();
    }
    for (uint64_t i = 1; i < AHEAD; i++) {
        dl_words_publish(words, 0, i, &all->bell);
    }
    CHECK_EQUAL(atomic_load(&all->bell.rings), 0);
    dl_words_publish(words, 0, AHEAD, &all->bell);
    CHECK_EQUAL(atomic_load(&all->bell.rings), 1);
}

CHECK_CASE(who_is_ahead_is_woken_once)
{
    static shared all;

    dl_run_ranks(2, catch_up, &all);
}

static dl_status
give_up(void *context, const dl_wanted *wanted)
{
    (void)wanted;
    (*(int *)context)++;
    return *(int *)context < 3 ? DL_OK : dl_fail(DL_CANCELLED, "enough");
}

CHECK_CASE(a_failing_check_ends_the_wait)
{
    static shared all;
    dl_words words = words_of(&all, 2);
    int calls = 0;
    dl_waiter waiter = {.bell = &all.bell,
                        .spin = 1000,
                        .yield = 1000,
                        .check = give_up,
                        .context = &calls};
    int64_t start = dl_now();

    CHECK_STATUS(dl_words_wait_all(words, 1, &waiter, dl_deadline_after(-1)),
                 DL_CANCELLED);
    CHECK_EQUAL(calls, 3);
    CHECK(dl_now() - start >= DL_WAIT_SLICE);
    calls = 0;
    CHECK_STATUS(dl_words_wait_one(words, 1, 1, &waiter, dl_deadline_after(-1)),
                 DL_CANCELLED);
    CHECK_EQUAL(sleepers_of(&all), 0);
    CHECK(!dl_bell_has_sleepers_for(&all.bell, 0));
}

static dl_status
count_slices(void *context, const dl_wanted *wanted)
{
    (void)wanted;
    dl_deadline *deadline = context;
    return dl_deadline_passed(*deadline) ? DL_TIMEOUT : DL_OK;
}

CHECK_CASE(sleep_ends_at_the_deadline)
{
    static shared all;
    dl_words words = words_of(&all, 1);
    int64_t start = dl_now();
    dl_deadline deadline = dl_deadline_after(20 * DL_MILLISECOND);
    dl_waiter waiter = {.bell = &all.bell,
                        .spin = 0,
                        .yield = 0,
                        .check = count_slices,
                        .context = &deadline};

    CHECK_EQUAL(dl_words_wait_all(words, 1, &waiter, deadline), DL_TIMEOUT);
    CHECK(dl_now() - start >= 20 * DL_MILLISECOND);
    CHECK(dl_now() - start < 20 * DL_MILLISECOND + DL_SECOND + CHECK_SLACK);
}

CHECK_CASE(a_value_already_reached_needs_no_check)
{
    static shared all;
    dl_words words = words_of(&all, 1);
    int calls = 5;
    dl_waiter waiter = {
        .bell = &all.bell, .spin = 0, .yield = 0, .check = give_up, .context = &calls};

    dl_words_publish(words, 0, 7, &all.bell);
    CHECK_OK(dl_words_wait_all(words, 7, &waiter, dl_deadline_after(0)));
    CHECK_OK(dl_words_wait_one(words, 0, 3, &waiter, dl_deadline_after(0)));
    CHECK_EQUAL(calls, 5);
}
