/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cases about blocking calls: what ends them, and when. */
#ifndef DISTLITE_TESTS_STORE_SUITE_WAITS_H
#define DISTLITE_TESTS_STORE_SUITE_WAITS_H

#include "store_suite_base.h"

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
suite_timeouts_name_span_and_keys(dl_store *store)
{
    const dl_bytes keys[] = {A, DL_LITERAL("nope"), DL_LITERAL("nor this")};
    dl_buffer values[3] = {0};

    SUITE_SET(store, A, "1");
    CHECK_STATUS(dl_store_get(store, keys[1], values, MS(30)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "wait timeout after 30ms, keys: ");
    CHECK_CONTAINS(dl_last_error()->text, "nope");
    CHECK_STATUS(dl_store_wait(store, keys + 1, 2, MS(20)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "wait timeout after 20ms, keys: ");
    CHECK_CONTAINS(dl_last_error()->text, "nope, ");
    CHECK_CONTAINS(dl_last_error()->text, "nor this");
    CHECK_STATUS(dl_store_multi_get(store, keys, 2, values, MS(10)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "nope");
    CHECK_STATUS(dl_store_barrier(store, DL_LITERAL("bb"), 2, MS(40)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "barrier timeout after 40ms, key: ");
    CHECK_CONTAINS(dl_last_error()->text, "bb");
    dl_buffer_fini(&values[0]);
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
suite_waiting_needs_all_at_once(dl_store *store)
{
    const dl_bytes keys[] = {A, B, A};
    suite_call call = {
        .store = store, .keys = keys, .count = 3, .limit = 250 * DL_MILLISECOND};

    /* The first key is deleted in between, so that both never exist together. */
    suite_start(&call, suite_run_wait);
    CHECK_OK(dl_sleep_until(MS(30)));
    SUITE_SET(store, A, "1");
    CHECK(suite_delete(store, A));
    SUITE_SET(store, B, "1");
    SUITE_JOIN(&call, DL_TIMEOUT);
    CHECK_CONTAINS(call.error.text, "250ms");

    call.limit = 15 * DL_SECOND;
    suite_start(&call, suite_run_wait);
    CHECK_OK(dl_sleep_until(MS(30)));
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

#endif
