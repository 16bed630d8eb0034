/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cases about clones, closing, forked children and interrupts. */
#ifndef DISTLITE_TESTS_STORE_SUITE_LIFE_H
#define DISTLITE_TESTS_STORE_SUITE_LIFE_H

#include "store_suite_base.h"

static void
suite_the_timeout_can_be_set(dl_store *store)
{
    const dl_bytes key = A;

    CHECK_EQUAL(dl_store_timeout(store), DL_STORE_DEFAULT_TIMEOUT);
    dl_store_set_timeout(store, 70 * DL_MILLISECOND);
    CHECK_EQUAL(dl_store_timeout(store), 70 * DL_MILLISECOND);
    CHECK_STATUS(dl_store_wait(store, &key, 1, dl_store_deadline(store)), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "70ms");
    dl_store_set_timeout(store, -1);
    CHECK_EQUAL(dl_store_deadline(store).at, INT64_MAX);
}

static void
suite_a_clone_sees_the_same_data(dl_store *store)
{
    dl_store *clone = NULL;

    dl_store_set_timeout(store, 5 * DL_SECOND);
    SUITE_SET(store, A, "1");
    CHECK_OK(dl_store_clone(store, &clone, SOON));
    CHECK_EQUAL(dl_store_timeout(clone), 5 * DL_SECOND);
    SUITE_HOLDS(clone, A, "1");
    SUITE_SET(clone, B, "2");
    dl_store_unref(clone);
    SUITE_HOLDS(store, B, "2");
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
    suite_check_interrupt(store, suite_run_barrier);
    if (suite_now->has_queues) {
        suite_check_interrupt(store, suite_run_pop);
    }
    dl_interrupt_install(NULL);
    SUITE_SET(store, A, "still usable");
    SUITE_HOLDS(store, A, "still usable");
}

#endif
