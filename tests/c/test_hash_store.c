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
    CHECK_STATUS(dl_store_set(store, A, B, SOON), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_store_add(store, A, 1, &sum, SOON), DL_NO_MEMORY);
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
