/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/hash_store.h"
#include "store_suite.h"

static dl_store *
make_hash(void)
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    return store;
}

static const suite_kind hash = {.make = make_hash, .has_queues = true};
STORE_SUITE(hash)

CHECK_CASE(a_clone_is_the_same_store)
{
    dl_store *store = make_hash(), *clone;

    CHECK_OK(dl_store_clone(store, &clone, SOON));
    CHECK(clone == store);
    dl_store_unref(clone);
    SUITE_SET(store, A, "1");
    dl_store_unref(store);
}

CHECK_CASE(keys_are_counted_without_waiting)
{
    dl_store *store = make_hash();

    CHECK_EQUAL(dl_hash_store_try_count(store), 0);
    SUITE_SET(store, A, "1");
    SUITE_SET(store, B, "2");
    CHECK_EQUAL(dl_hash_store_try_count(store), 2);
    dl_store_unref(store);
}

CHECK_CASE(get_is_for_values_and_wait_for_either)
{
    dl_store *store = make_hash();
    const dl_bytes key = A;
    suite_call call = {.store = store, .keys = &key, .limit = 15 * DL_SECOND};
    dl_buffer value = {0};

    CHECK_OK(dl_store_queue_push(store, A, B, SOON));
    CHECK_OK(dl_store_wait(store, &key, 1, MS(0)));
    CHECK_STATUS(dl_store_get(store, A, &value, MS(20)), DL_TIMEOUT);
    CHECK_STATUS(dl_store_multi_get(store, &key, 1, &value, MS(20)), DL_TIMEOUT);
    suite_start(&call, suite_run_get);
    CHECK_OK(dl_store_queue_push(store, A, B, SOON));
    SUITE_SET(store, A, "value");
    SUITE_JOIN(&call, DL_OK);
    CHECK_BYTES(dl_buffer_bytes(&call.value), "value");
    dl_buffer_fini(&call.value);
    dl_store_unref(store);
}

/* Ends the wait of the calling thread and interrupts it, as a handler of a signal may. */
static dl_store *changed_by_interrupt;

static dl_status
change_and_interrupt(void)
{
    CHECK_OK(dl_store_set(changed_by_interrupt, A, B, SOON));
    CHECK_OK(dl_store_queue_push(changed_by_interrupt, C, DL_LITERAL("1"), SOON));
    CHECK_OK(dl_store_queue_push(changed_by_interrupt, C, DL_LITERAL("2"), SOON));
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

#define CHECK_INTERRUPTED(call)                     \
    do {                                            \
        dl_interrupt_install(change_and_interrupt); \
        CHECK_STATUS(call, DL_INTERRUPTED);         \
        dl_interrupt_install(NULL);                 \
    } while (0)

#define CHECK_POPS(store, literal)                                   \
    do {                                                             \
        dl_buffer item_ = {0};                                       \
        CHECK_OK(dl_store_queue_pop(store, C, false, &item_, SOON)); \
        CHECK_BYTES(dl_buffer_bytes(&item_), literal);               \
        dl_buffer_fini(&item_);                                      \
    } while (0)

CHECK_CASE(an_interrupt_counts_although_the_wait_is_over)
{
    dl_store *store = changed_by_interrupt = make_hash();
    const dl_bytes key = A;
    dl_buffer value = {0};

    CHECK_INTERRUPTED(dl_store_get(store, A, &value, SOON));
    CHECK(suite_delete(store, A));
    CHECK_INTERRUPTED(dl_store_wait(store, &key, 1, SOON));
    CHECK(suite_delete(store, A));
    CHECK_INTERRUPTED(dl_store_multi_get(store, &key, 1, &value, SOON));
    dl_buffer_fini(&value);
    dl_store_unref(store);
}

CHECK_CASE(an_interrupted_pop_loses_no_item)
{
    dl_store *store = changed_by_interrupt = make_hash();
    dl_buffer value = {0};

    CHECK_INTERRUPTED(dl_store_queue_pop(store, C, true, &value, SOON));
    CHECK_POPS(store, "1");
    CHECK_POPS(store, "2");
    CHECK_STATUS(dl_store_queue_pop(store, C, false, &value, SOON), DL_QUEUE_EMPTY);
    dl_buffer_fini(&value);
    dl_store_unref(store);
}

static dl_status
delete_visited(void *context, dl_bytes key)
{
    CHECK(suite_delete(context, key));
    return DL_OK;
}

CHECK_CASE(a_visitor_may_use_the_store)
{
    dl_store *store = make_hash();

    SUITE_SET(store, A, "1");
    SUITE_SET(store, B, "1");
    CHECK_OK(dl_store_list_keys(store, delete_visited, store, SOON));
    CHECK_EQUAL(suite_num_keys(store), 0);
    dl_store_unref(store);
}

CHECK_CASE(multi_set_is_seen_whole)
{
    dl_store *store = make_hash();
    const dl_bytes keys[] = {A, B};
    suite_call call = {
        .store = store, .keys = keys, .count = 2, .limit = 15 * DL_SECOND};

    suite_start(&call, suite_run_wait);
    CHECK_OK(dl_store_multi_set(store, keys, keys, 2, SOON));
    SUITE_JOIN(&call, DL_OK);
    dl_store_unref(store);
}

CHECK_CASE(without_memory_calls_fail_and_the_store_lives)
{
    dl_store *store = make_hash(), *other = NULL;
    dl_buffer value = {0};
    const dl_bytes key = B;
    int64_t sum;

    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_hash_store_new(&other), DL_NO_MEMORY);
    CHECK(other == NULL);
    SUITE_SET(store, A, "1");
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_set(store, A, DL_LITERAL("more than fits in place"), SOON),
                 DL_NO_MEMORY);
    SUITE_HOLDS(store, A, "1");
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_add(store, A, 10, &sum, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_get(store, A, &value, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_wait(store, &key, 1, MS(10)), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_list_keys(store, suite_visit, &sum, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(0);
    SUITE_HOLDS(store, A, "1");
    dl_buffer_fini(&value);
    dl_store_unref(store);
}
