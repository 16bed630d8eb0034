/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cases with many threads on one store. */
#ifndef DISTLITE_TESTS_STORE_SUITE_THREADS_H
#define DISTLITE_TESTS_STORE_SUITE_THREADS_H

#include "store_suite_base.h"

enum { SUITE_RANKS = 6, SUITE_ROUNDS = 40 };

static void
suite_add_rank(int rank, int size, void *context)
{
    dl_store *store = context;

    for (int i = 0; i < SUITE_ROUNDS; i++) {
        int64_t sum = suite_add(store, A, rank + 1);
        CHECK(sum > 0 && sum <= SUITE_ROUNDS * size * (size + 1) / 2);
        CHECK_OK(dl_store_append(store, B, DL_LITERAL("x"), SOON));
    }
}

static void
suite_counts_and_appends_from_threads_add_up(dl_store *store)
{
    dl_buffer held = {0};

    dl_run_ranks(SUITE_RANKS, suite_add_rank, store);
    CHECK_EQUAL(suite_add(store, A, 0),
                SUITE_ROUNDS * SUITE_RANKS * (SUITE_RANKS + 1) / 2);
    CHECK_OK(dl_store_get(store, B, &held, SOON));
    CHECK_EQUAL(held.size, SUITE_RANKS * SUITE_ROUNDS);
    dl_buffer_fini(&held);
}

static void
suite_barrier_rank(int rank, int size, void *context)
{
    dl_store *store = context;
    char name[24];

    for (int round = 1; round <= 10; round++) {
        snprintf(name, sizeof name, "round%d", round);
        suite_add(store, A, 1);
        CHECK_OK(dl_store_barrier(store, dl_bytes_of(name), size, SOON));
        /* No rank leaves the barrier before all have entered it. */
        CHECK(suite_add(store, A, 0) >= round * size);
        snprintf(name, sizeof name, "end%d", round);
        CHECK_OK(dl_store_barrier(store, dl_bytes_of(name), size, SOON));
    }
    (void)rank;
}

static void
suite_barriers_hold_until_all_have_come(dl_store *store)
{
    dl_run_ranks(SUITE_RANKS, suite_barrier_rank, store);
    /* A barrier that has ended lets later callers through. */
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("round1"), SUITE_RANKS, SOON));
    CHECK_OK(dl_store_barrier(store, B, 1, SOON));
    CHECK_OK(dl_store_barrier(store, C, 0, SOON));
    CHECK_OK(dl_store_barrier(store, C, -1, SOON));
}

static void
suite_exchange_rank(int rank, int size, void *context)
{
    dl_store *store = context;
    dl_bytes keys[DL_RANKS_LIMIT];
    dl_buffer values[DL_RANKS_LIMIT] = {0};
    char names[DL_RANKS_LIMIT][40], text[24];

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < size; i++) {
            snprintf(names[i], sizeof names[i], "round %d rank %d", round, i);
            keys[i] = dl_bytes_of(names[i]);
        }
        snprintf(text, sizeof text, "%d", rank * 31 + round);
        CHECK_OK(dl_store_set(store, keys[rank], dl_bytes_of(text), SOON));
        CHECK_OK(dl_store_multi_get(store, keys, (size_t)size, values, SOON));
        for (int i = 0; i < size; i++) {
            snprintf(text, sizeof text, "%d", i * 31 + round);
            CHECK(dl_bytes_equal(dl_buffer_bytes(&values[i]), dl_bytes_of(text)));
        }
    }
    for (int i = 0; i < size; i++) {
        dl_buffer_fini(&values[i]);
    }
}

static void
suite_threads_exchange_what_they_set(dl_store *store)
{
    dl_run_ranks(SUITE_RANKS, suite_exchange_rank, store);
}

#endif
