/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cases about queues. */
#ifndef DISTLITE_TESTS_STORE_SUITE_QUEUES_H
#define DISTLITE_TESTS_STORE_SUITE_QUEUES_H

#include "store_suite_base.h"
#include "store_suite_threads.h"

/* Returns true if the kind has queues; otherwise checks that it refuses them. */
static bool
suite_has_queues(dl_store *store)
{
    dl_buffer item = {0};
    int64_t count;

    if (suite_now->has_queues) {
        return true;
    }
    CHECK_STATUS(dl_store_queue_push(store, A, B, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_queue_pop(store, A, false, &item, SOON), DL_UNSUPPORTED);
    CHECK_STATUS(dl_store_queue_len(store, A, &count, SOON), DL_UNSUPPORTED);
    CHECK_CONTAINS(dl_last_error()->text, store->ops->kind);
    return false;
}

#define SUITE_LENGTH(store, key, expected)                        \
    do {                                                          \
        int64_t length_ = -1;                                     \
        CHECK_OK(dl_store_queue_len(store, key, &length_, SOON)); \
        CHECK_EQUAL(length_, expected);                           \
    } while (0)

#define SUITE_POPS(store, key, literal)                                \
    do {                                                               \
        dl_buffer item_ = {0};                                         \
        CHECK_OK(dl_store_queue_pop(store, key, false, &item_, SOON)); \
        CHECK_BYTES(dl_buffer_bytes(&item_), literal);                 \
        dl_buffer_fini(&item_);                                        \
    } while (0)

static void
suite_queues_are_first_in_first_out(dl_store *store)
{
    dl_buffer item = {0};

    if (!suite_has_queues(store)) {
        return;
    }
    SUITE_LENGTH(store, A, 0);
    CHECK_STATUS(dl_store_queue_pop(store, A, false, &item, SOON), DL_QUEUE_EMPTY);
    CHECK_TEXT(dl_last_error()->text, "queue is empty");
    CHECK_OK(dl_store_queue_push(store, A, DL_LITERAL("1"), SOON));
    CHECK_OK(dl_store_queue_push(store, A, DL_LITERAL(""), SOON));
    CHECK_OK(dl_store_queue_push(store, A, DL_LITERAL("\0003"), SOON));
    CHECK_OK(dl_store_queue_push(store, B, DL_LITERAL("other"), SOON));
    SUITE_LENGTH(store, A, 3);
    CHECK_EQUAL(suite_num_keys(store), 0);
    CHECK(suite_exists(store, A));
    CHECK(!suite_delete(store, A));
    SUITE_POPS(store, A, "1");
    SUITE_POPS(store, A, "");
    CHECK_OK(dl_store_queue_pop(store, A, true, &item, MS(0)));
    CHECK_BYTES(dl_buffer_bytes(&item), "\0003");
    SUITE_LENGTH(store, A, 0);
    CHECK(!suite_exists(store, A));
    CHECK_STATUS(dl_store_queue_pop(store, A, true, &item, MS(30)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "wait timeout after 30ms, keys: ");
    SUITE_POPS(store, B, "other");
    dl_buffer_fini(&item);
}

static void
suite_queues_and_values_are_apart(dl_store *store)
{
    dl_buffer item = {0};

    if (!suite_has_queues(store)) {
        return;
    }
    CHECK_OK(dl_store_queue_push(store, A, DL_LITERAL("item"), SOON));
    SUITE_SET(store, A, "value");
    SUITE_HOLDS(store, A, "value");
    CHECK(suite_delete(store, A));
    SUITE_POPS(store, A, "item");
    SUITE_SET(store, A, "value");
    CHECK_STATUS(dl_store_queue_pop(store, A, true, &item, MS(30)), DL_TIMEOUT);
    dl_buffer_fini(&item);
}

static void
suite_a_push_reaches_its_consumer(dl_store *store)
{
    const dl_bytes keys[] = {A, B, C};
    suite_call calls[3] = {0};

    if (!suite_has_queues(store)) {
        return;
    }
    /* Consumers of other queues, and a thread that only waits for a key, come first. */
    for (int i = 0; i < 3; i++) {
        calls[i] = (suite_call){
            .store = store, .keys = keys + i, .count = 1, .limit = 15 * DL_SECOND};
        suite_start(&calls[i], i == 2 ? suite_run_wait : suite_run_pop);
        CHECK_OK(dl_sleep_until(MS(20)));
    }
    CHECK_OK(dl_store_queue_push(store, B, DL_LITERAL("for b"), SOON));
    SUITE_JOIN(&calls[1], DL_OK);
    CHECK_BYTES(dl_buffer_bytes(&calls[1].value), "for b");
    CHECK_OK(dl_store_queue_push(store, C, DL_LITERAL("for c"), SOON));
    SUITE_JOIN(&calls[2], DL_OK);
    SUITE_POPS(store, C, "for c");
    CHECK_OK(dl_store_queue_push(store, A, DL_LITERAL("for a"), SOON));
    SUITE_JOIN(&calls[0], DL_OK);
    CHECK_BYTES(dl_buffer_bytes(&calls[0].value), "for a");
    dl_buffer_fini(&calls[0].value);
    dl_buffer_fini(&calls[1].value);
}

static void
suite_queue_rank(int rank, int size, void *context)
{
    dl_store *store = context;
    dl_buffer item = {0};

    /* Half of the ranks push; the others pop, and add up what they got. */
    for (int i = 0; i < SUITE_ROUNDS; i++) {
        if (rank < size / 2) {
            char text[16];
            snprintf(text, sizeof text, "%d", rank * SUITE_ROUNDS + i);
            CHECK_OK(dl_store_queue_push(store, A, dl_bytes_of(text), SOON));
        } else {
            CHECK_OK(dl_store_queue_pop(store, A, true, &item, SOON));
            dl_buffer_put(&item, DL_LITERAL("\0"));
            suite_add(store, B, atoi((const char *)item.data));
        }
    }
    dl_buffer_fini(&item);
}

static void
suite_every_item_is_popped_once(dl_store *store)
{
    int64_t count = SUITE_RANKS / 2 * SUITE_ROUNDS;

    if (!suite_has_queues(store)) {
        return;
    }
    dl_run_ranks(SUITE_RANKS, suite_queue_rank, store);
    CHECK_EQUAL(suite_add(store, B, 0), count * (count - 1) / 2);
    SUITE_LENGTH(store, A, 0);
}

#endif
