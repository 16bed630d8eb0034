/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every kind of store must do while threads share it, wait, time out and are
 * interrupted, as one list of cases; tests/store_conformance.py has the list of what each
 * call does.  A test file describes its kind and writes one line; each case becomes a
 * CHECK_CASE named <kind>_<case>:
 *
 *     static const suite_kind hash = {.make = make_hash, .has_queues = true};
 *     STORE_SUITE(hash)
 */
#ifndef DISTLITE_TESTS_STORE_SUITE_H
#define DISTLITE_TESTS_STORE_SUITE_H

#include "store_suite_base.h"

static void
suite_append_grows_past_the_limit(dl_store *store)
{
    size_t size = 5 << 20;
    uint8_t *memory = malloc(size);
    dl_buffer held = {0};

    memset(memory, 'x', size);
    CHECK_OK(dl_store_append(store, A, (dl_bytes){memory, size}, SOON));
    memset(memory, 'y', size);
    CHECK_OK(dl_store_append(store, A, (dl_bytes){memory, size}, SOON));
    CHECK_OK(dl_store_get(store, A, &held, SOON));
    CHECK_EQUAL(held.size, 2 * size);
    CHECK(held.data[size - 1] == 'x' && held.data[size] == 'y'
          && held.data[2 * size - 1] == 'y');
    dl_buffer_fini(&held);
    free(memory);
}

static dl_status
suite_visit(void *context, dl_bytes key)
{
    int *counts = context;

    CHECK_EQUAL(key.size, 1);
    counts[key.data[0]]++;
    return counts[0] > 0 ? dl_fail(DL_CANCELLED, "enough") : DL_OK;
}

static void
suite_list_keys_names_each_once(dl_store *store)
{
    int counts[256] = {0};

    CHECK_OK(dl_store_list_keys(store, suite_visit, counts, SOON));
    SUITE_SET(store, A, "1");
    SUITE_SET(store, DL_LITERAL("\xff"), "1");
    SUITE_SET(store, B, "1");
    SUITE_SET(store, A, "2");
    suite_delete(store, B);
    CHECK_OK(dl_store_list_keys(store, suite_visit, counts, SOON));
    CHECK_EQUAL(counts['a'], 1);
    CHECK_EQUAL(counts[0xff], 1);
    CHECK_EQUAL(counts['b'], 0);
    counts[0] = 1;
    CHECK_STATUS(dl_store_list_keys(store, suite_visit, counts, SOON), DL_CANCELLED);
    CHECK_EQUAL(counts['a'] + counts[0xff], 3);
}

/* Returns by how much a timeout was exceeded: the least of several tries, since the
 * machine may be busy.  Stops at the first try below `good`. */
static int64_t
suite_timeout_excess(dl_store *store, int64_t limit, int64_t good)
{
    int64_t least = INT64_MAX;
    dl_buffer value = {0};

    for (int i = 0; i < 20 && least >= good; i++) {
        int64_t start = dl_now();
        CHECK_STATUS(
            dl_store_get(store, DL_LITERAL("nope"), &value, dl_deadline_after(limit)),
            DL_TIMEOUT);
        int64_t excess = dl_now() - start - limit;
        CHECK(excess >= 0);
        least = excess < least ? excess : least;
    }
    dl_buffer_fini(&value);
    return least;
}

static void
suite_timeouts_are_exact_to_milliseconds(dl_store *store)
{
    /* Scheduling on a busy machine alone takes some milliseconds. */
    const int64_t good = 15 * DL_MILLISECOND;

    CHECK(suite_timeout_excess(store, 7 * DL_MILLISECOND, good) < good);
    CHECK(suite_timeout_excess(store, 130 * DL_MILLISECOND, good) < good);
}

static void
suite_zero_looks_once(dl_store *store)
{
    const dl_bytes keys[] = {A, B};
    int64_t start = dl_now();
    dl_buffer values[2] = {0};

    CHECK_STATUS(dl_store_get(store, A, values, MS(0)), DL_TIMEOUT);
    CHECK_STATUS(dl_store_wait(store, keys, 2, MS(0)), DL_TIMEOUT);
    CHECK_STATUS(dl_store_multi_get(store, keys, 2, values, MS(0)), DL_TIMEOUT);
    CHECK_STATUS(dl_store_barrier(store, C, 2, MS(0)), DL_TIMEOUT);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(dl_store_set(store, A, A, MS(0)));
        CHECK_OK(dl_store_set(store, B, B, MS(0)));
        CHECK_OK(dl_store_get(store, A, values, MS(0)));
        CHECK_OK(dl_store_wait(store, keys, 2, MS(0)));
        CHECK_OK(dl_store_multi_get(store, keys, 2, values, MS(0)));
        CHECK_BYTES(dl_buffer_bytes(&values[1]), "b");
    }
    CHECK_OK(dl_store_barrier(store, C, 1, MS(0)));
    dl_buffer_fini(&values[0]);
    dl_buffer_fini(&values[1]);
}

static void
suite_negative_waits_for_ever(dl_store *store)
{
    const dl_bytes key = A;
    suite_call call = {.store = store, .keys = &key, .limit = -1};

    suite_start(&call, suite_run_get);
    CHECK_OK(dl_sleep_until(MS(120)));
    CHECK_OK(dl_store_set(store, A, B, dl_deadline_after(-1)));
    SUITE_JOIN(&call, DL_OK);
    CHECK_BYTES(dl_buffer_bytes(&call.value), "b");
    dl_buffer_fini(&call.value);
}

static void
suite_make_key(dl_store *store, int way, dl_bytes key)
{
    dl_buffer held = {0};
    const dl_bytes value = DL_LITERAL("7");

    switch (way) {
    case 0:
        CHECK_OK(dl_store_set(store, key, value, SOON));
        break;
    case 1:
        CHECK_OK(dl_store_append(store, key, value, SOON));
        break;
    case 2:
        CHECK_EQUAL(suite_add(store, key, 7), 7);
        break;
    case 3:
        CHECK_OK(dl_store_compare_set(store, key, DL_LITERAL(""), value, &held, SOON));
        break;
    default:
        CHECK_OK(dl_store_multi_set(store, &key, &value, 1, SOON));
        break;
    }
    dl_buffer_fini(&held);
}

static void
suite_each_way_to_make_a_key_ends_waits(dl_store *store)
{
    for (int way = 0; way < 5; way++) {
        char name[] = "key0";
        name[3] = (char)('0' + way);
        const dl_bytes key = dl_bytes_of(name);
        suite_call get = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};
        suite_call wait = {
            .store = store, .keys = &key, .count = 1, .limit = 15 * DL_SECOND};

        suite_start(&get, suite_run_get);
        suite_start(&wait, suite_run_wait);
        CHECK_OK(dl_sleep_until(MS(20)));
        int64_t start = dl_now();
        suite_make_key(store, way, key);
        SUITE_JOIN(&get, DL_OK);
        SUITE_JOIN(&wait, DL_OK);
        CHECK(get.ended - start < DL_SECOND + CHECK_SLACK);
        CHECK(wait.ended - start < DL_SECOND + CHECK_SLACK);
        CHECK_BYTES(dl_buffer_bytes(&get.value), "7");
        dl_buffer_fini(&get.value);
    }
}

static void
suite_waiting_needs_each_key(dl_store *store)
{
    const dl_bytes keys[] = {A, B, A};
    suite_call call = {
        .store = store, .keys = keys, .count = 3, .limit = 250 * DL_MILLISECOND};

    /* The first key does not come before the others exist. */
    suite_start(&call, suite_run_wait);
    CHECK_OK(dl_sleep_until(MS(30)));
    SUITE_SET(store, B, "1");
    SUITE_JOIN(&call, DL_TIMEOUT);
    CHECK_CONTAINS(call.error.text, "250ms");

    call.limit = 15 * DL_SECOND;
    suite_start(&call, suite_run_wait);
    CHECK_OK(dl_sleep_until(MS(30)));
    CHECK(suite_delete(store, B));
    SUITE_SET(store, A, "1");
    CHECK(suite_delete(store, A));
    /* Whatever was deleted meanwhile, it ends when all exist at once. */
    SUITE_SET(store, B, "1");
    SUITE_SET(store, A, "1");
    SUITE_JOIN(&call, DL_OK);
}

static void
suite_multi_get_waits_for_the_last(dl_store *store)
{
    const dl_bytes keys[] = {A, B};
    dl_buffer values[2] = {0};
    const dl_bytes key = C;
    suite_call call = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};

    /* The other thread waits for C, which comes after this thread has seen A and B. */
    suite_start(&call, suite_run_get);
    SUITE_SET(store, A, "1");
    CHECK_STATUS(dl_store_multi_get(store, keys, 2, values, MS(40)), DL_TIMEOUT);
    SUITE_SET(store, B, "2");
    CHECK_OK(dl_store_multi_get(store, keys, 2, values, SOON));
    CHECK_BYTES(dl_buffer_bytes(&values[0]), "1");
    CHECK_BYTES(dl_buffer_bytes(&values[1]), "2");
    SUITE_SET(store, C, "3");
    SUITE_JOIN(&call, DL_OK);
    dl_buffer_fini(&values[0]);
    dl_buffer_fini(&values[1]);
    dl_buffer_fini(&call.value);
}

static void
suite_blocked_calls_do_not_delay_others(dl_store *store)
{
    enum { CALLS = 6 };
    suite_call calls[CALLS] = {0};
    const dl_bytes keys[2] = {DL_LITERAL("later"), DL_LITERAL("and later")};

    for (int i = 0; i < CALLS; i++) {
        calls[i] = (suite_call){
            .store = store, .keys = keys, .count = 2, .limit = 18 * DL_SECOND};
        suite_start(&calls[i], i % 2 == 0 ? suite_run_get : suite_run_wait);
    }
    CHECK_OK(dl_sleep_until(MS(30)));
    int64_t start = dl_now();
    for (int i = 0; i < 100; i++) {
        SUITE_SET(store, A, "1");
        SUITE_HOLDS(store, A, "1");
        CHECK_EQUAL(suite_add(store, B, 1), i + 1);
        CHECK(!suite_exists(store, keys[0]));
    }
    CHECK(dl_now() - start < 5 * DL_SECOND);
    SUITE_SET(store, keys[0], "x");
    SUITE_SET(store, keys[1], "x");
    for (int i = 0; i < CALLS; i++) {
        SUITE_JOIN(&calls[i], DL_OK);
        dl_buffer_fini(&calls[i].value);
    }
}

static void
suite_timeouts_leave_the_store_usable(dl_store *store)
{
    const dl_bytes key = DL_LITERAL("at the last moment");
    dl_buffer value = {0};

    /* The key is set at about the moment at which the wait times out. */
    for (int i = 0; i < 30; i++) {
        suite_call call = {.store = store, .keys = &key, .limit = 3 * DL_MILLISECOND};
        suite_start(&call, suite_run_get);
        CHECK_OK(dl_sleep_until(dl_deadline_after(2500000 + i * 50000)));
        CHECK_OK(dl_store_set(store, key, A, SOON));
        suite_join(&call);
        CHECK(call.error.status == DL_OK || call.error.status == DL_TIMEOUT);
        CHECK_OK(dl_store_get(store, key, &value, SOON));
        CHECK_BYTES(dl_buffer_bytes(&value), "a");
        CHECK(suite_delete(store, key));
        CHECK_EQUAL(suite_add(store, B, 1), i + 1);
        dl_buffer_fini(&call.value);
    }
    dl_buffer_fini(&value);
}

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

static void
suite_a_closed_store_says_so(dl_store *store)
{
    const dl_bytes key = A;
    suite_call call = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};
    int64_t start = dl_now();

    if (!suite_now->close_leaves_blocked) {
        suite_start(&call, suite_run_get);
        CHECK_OK(dl_sleep_until(MS(50)));
        start = dl_now();
    }
    dl_store_close(store);
    dl_store_close(store);
    if (!suite_now->close_leaves_blocked) {
        SUITE_JOIN(&call, DL_CLOSED);
        CHECK(call.ended - start < DL_SECOND + CHECK_SLACK);
        dl_buffer_fini(&call.value);
    }
    CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_CLOSED);
    CHECK_CONTAINS(dl_last_error()->text, "closed");
    CHECK_STATUS(dl_store_wait(store, &key, 1, SOON), DL_CLOSED);
}

static void
suite_a_forked_child_is_refused(dl_store *store)
{
    char creator[16];
    int status = -1;

    snprintf(creator, sizeof creator, "%d", (int)getpid());
    SUITE_SET(store, A, "1");
    pid_t child = fork();
    if (child == 0) {
        int64_t sum;
        alarm(10);
        CHECK_STATUS(dl_store_add(store, A, 1, &sum, SOON), DL_CLOSED);
        CHECK_CONTAINS(dl_last_error()->text, creator);
        CHECK_CONTAINS(dl_last_error()->text, "a forked child must create its own");
        dl_store_close(store);
        dl_store_unref(store);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(suite_add(store, A, 1), 2);
}

static _Atomic int64_t suite_interrupt_at;

static dl_status
suite_interrupt(void)
{
    int64_t at = atomic_load(&suite_interrupt_at);

    return at != 0 && dl_now() >= at ? dl_fail(DL_INTERRUPTED, "asked to stop") : DL_OK;
}

static void
suite_check_interrupt(dl_store *store, dl_status (*run)(suite_call *))
{
    const dl_bytes key = DL_LITERAL("nope");
    suite_call call = {
        .store = store, .keys = &key, .count = 1, .limit = 15 * DL_SECOND};
    int64_t at = dl_now() + 60 * DL_MILLISECOND;

    atomic_store(&suite_interrupt_at, at);
    suite_start(&call, run);
    SUITE_JOIN(&call, DL_INTERRUPTED);
    CHECK(call.ended - at < 500 * DL_MILLISECOND + CHECK_SLACK);
    atomic_store(&suite_interrupt_at, 0);
    dl_buffer_fini(&call.value);
}

static dl_status
suite_run_multi_get(suite_call *call)
{
    return dl_store_multi_get(call->store, call->keys, 1, &call->value,
                              dl_deadline_after(call->limit));
}

static dl_status
suite_run_barrier(suite_call *call)
{
    return dl_store_barrier(call->store, call->keys[0], 2,
                            dl_deadline_after(call->limit));
}

static void
suite_blocked_calls_can_be_interrupted(dl_store *store)
{
    dl_interrupt_install(suite_interrupt);
    suite_check_interrupt(store, suite_run_get);
    suite_check_interrupt(store, suite_run_wait);
    suite_check_interrupt(store, suite_run_multi_get);
    suite_check_interrupt(store, suite_run_barrier);
    if (suite_now->has_queues) {
        suite_check_interrupt(store, suite_run_pop);
    }
    dl_interrupt_install(NULL);
    SUITE_SET(store, A, "still usable");
    SUITE_HOLDS(store, A, "still usable");
}

static void
suite_run(const suite_kind *kind, void (*run)(dl_store *))
{
    suite_now = kind;
    dl_store *store = kind->make();
    run(store);
    dl_store_unref(store);
    if (kind->finish != NULL) {
        kind->finish();
    }
}

/* The compiler reports a case that is missing here as an unused function. */
#define STORE_SUITE(kind)                                    \
    SUITE_CASE(kind, append_grows_past_the_limit)            \
    SUITE_CASE(kind, list_keys_names_each_once)              \
    SUITE_CASE(kind, timeouts_are_exact_to_milliseconds)     \
    SUITE_CASE(kind, zero_looks_once)                        \
    SUITE_CASE(kind, negative_waits_for_ever)                \
    SUITE_CASE(kind, each_way_to_make_a_key_ends_waits)      \
    SUITE_CASE(kind, waiting_needs_each_key)                 \
    SUITE_CASE(kind, multi_get_waits_for_the_last)           \
    SUITE_CASE(kind, blocked_calls_do_not_delay_others)      \
    SUITE_CASE(kind, timeouts_leave_the_store_usable)        \
    SUITE_CASE(kind, counts_and_appends_from_threads_add_up) \
    SUITE_CASE(kind, barriers_hold_until_all_have_come)      \
    SUITE_CASE(kind, threads_exchange_what_they_set)         \
    SUITE_CASE(kind, queues_are_first_in_first_out)          \
    SUITE_CASE(kind, a_push_reaches_its_consumer)            \
    SUITE_CASE(kind, every_item_is_popped_once)              \
    SUITE_CASE(kind, a_closed_store_says_so)                 \
    SUITE_CASE(kind, a_forked_child_is_refused)              \
    SUITE_CASE(kind, blocked_calls_can_be_interrupted)

#define SUITE_CASE(kind, name)            \
    CHECK_CASE(kind##_##name)             \
    {                                     \
        suite_run(&(kind), suite_##name); \
    }

#endif
