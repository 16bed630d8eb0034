/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every kind of store must do, as one list of cases.  A test file describes its kind
 * and writes one line; each case becomes a CHECK_CASE named <kind>_<case>:
 *
 *     static const suite_kind hash = {.make = make_hash, .has_queues = true};
 *     STORE_SUITE(hash)
 */
#ifndef DISTLITE_TESTS_STORE_SUITE_H
#define DISTLITE_TESTS_STORE_SUITE_H

#include "store_suite_life.h"
#include "store_suite_queues.h"
#include "store_suite_threads.h"
#include "store_suite_values.h"
#include "store_suite_waits.h"

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
    SUITE_CASE(kind, values_are_bytes)                       \
    SUITE_CASE(kind, large_values_arrive_whole)              \
    SUITE_CASE(kind, limits_are_named)                       \
    SUITE_CASE(kind, append_grows_past_the_limit)            \
    SUITE_CASE(kind, append_creates_and_extends)             \
    SUITE_CASE(kind, add_counts)                             \
    SUITE_CASE(kind, add_on_text_is_an_error_of_that_call)   \
    SUITE_CASE(kind, compare_set_follows_its_table)          \
    SUITE_CASE(kind, delete_tells_the_truth)                 \
    SUITE_CASE(kind, num_keys_counts_names)                  \
    SUITE_CASE(kind, check_needs_all)                        \
    SUITE_CASE(kind, list_keys_names_each_once)              \
    SUITE_CASE(kind, multi_calls_keep_order)                 \
    SUITE_CASE(kind, timeouts_are_exact_to_milliseconds)     \
    SUITE_CASE(kind, timeouts_name_span_and_keys)            \
    SUITE_CASE(kind, zero_looks_once)                        \
    SUITE_CASE(kind, negative_waits_for_ever)                \
    SUITE_CASE(kind, each_way_to_make_a_key_ends_waits)      \
    SUITE_CASE(kind, waiting_needs_all_at_once)              \
    SUITE_CASE(kind, multi_get_waits_for_the_last)           \
    SUITE_CASE(kind, blocked_calls_do_not_delay_others)      \
    SUITE_CASE(kind, timeouts_leave_the_store_usable)        \
    SUITE_CASE(kind, counts_and_appends_from_threads_add_up) \
    SUITE_CASE(kind, barriers_hold_until_all_have_come)      \
    SUITE_CASE(kind, threads_exchange_what_they_set)         \
    SUITE_CASE(kind, queues_are_first_in_first_out)          \
    SUITE_CASE(kind, queues_and_values_are_apart)            \
    SUITE_CASE(kind, a_push_reaches_its_consumer)            \
    SUITE_CASE(kind, every_item_is_popped_once)              \
    SUITE_CASE(kind, the_timeout_can_be_set)                 \
    SUITE_CASE(kind, a_clone_sees_the_same_data)             \
    SUITE_CASE(kind, a_closed_store_says_so)                 \
    SUITE_CASE(kind, a_forked_child_is_refused)              \
    SUITE_CASE(kind, blocked_calls_can_be_interrupted)

#define SUITE_CASE(kind, name)            \
    CHECK_CASE(kind##_##name)             \
    {                                     \
        suite_run(&(kind), suite_##name); \
    }

#endif
