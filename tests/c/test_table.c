/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "store/table.h"

#define A DL_LITERAL("a")
#define B DL_LITERAL("b")
#define C DL_LITERAL("c")

#define CHECK_HOLDS(table, key, literal)            \
    do {                                            \
        dl_blob *held_ = dl_table_get(table, key);  \
        CHECK(held_ != NULL);                       \
        CHECK_BYTES(dl_blob_bytes(held_), literal); \
    } while (0)

static dl_table
make(void)
{
    dl_table table;

    dl_table_init(&table);
    return table;
}

/* The list heads point at themselves: a table does not move once it is in use. */
#define TABLE(name)                 \
    dl_table name##_table = make(); \
    dl_table *name = &name##_table; \
    dl_table_init(name)

/* Waits for names of one character, which stay as long as the case. */
static void
wait_for(dl_table *table, dl_waiter *waiter, dl_wait_kind kind, const char *names)
{
    static uint8_t characters[128];
    static dl_bytes all[1 << 8];
    static size_t used;
    size_t count = strlen(names);

    used = used + count > 1 << 8 ? 0 : used;
    dl_bytes *keys = &all[used];
    used += count;
    for (size_t i = 0; i < count; i++) {
        uint8_t *character = &characters[names[i] & 127];
        *character = (uint8_t)names[i];
        keys[i] = (dl_bytes){character, 1};
    }
    CHECK_OK(dl_table_wait(table, waiter, kind, keys, count));
}

#define CHECK_NOBODY(table) CHECK(dl_table_take_ready(table) == NULL)

#define CHECK_ONLY(table, waiter)                      \
    do {                                               \
        CHECK(dl_table_take_ready(table) == (waiter)); \
        CHECK(!(waiter)->is_parked);                   \
        CHECK_NOBODY(table);                           \
    } while (0)

/* All keys were deleted and there is no waiter: no entry may be left. */
static void
check_empty(dl_table *table)
{
    CHECK_EQUAL(dl_table_num_keys(table), 0);
    CHECK_EQUAL(table->entries.count, 0);
    dl_table_fini(table);
}

CHECK_CASE(values_are_set_replaced_and_deleted)
{
    TABLE(table);

    CHECK(dl_table_get(table, A) == NULL);
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("1")));
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("a\0b")));
    CHECK_OK(dl_table_set(table, DL_LITERAL(""), DL_LITERAL("")));
    CHECK_HOLDS(table, A, "a\0b");
    CHECK_HOLDS(table, DL_LITERAL(""), "");
    CHECK_EQUAL(dl_table_num_keys(table), 2);
    CHECK(dl_table_delete(table, A));
    CHECK(!dl_table_delete(table, A));
    CHECK(dl_table_get(table, A) == NULL);
    CHECK(dl_table_delete(table, DL_LITERAL("")));
    check_empty(table);
}

CHECK_CASE(a_held_value_outlives_its_key)
{
    TABLE(table);

    CHECK_OK(dl_table_set(table, A, DL_LITERAL("old")));
    dl_blob *held = dl_blob_ref(dl_table_get(table, A));
    CHECK_OK(dl_table_append(table, A, DL_LITERAL("er")));
    CHECK_HOLDS(table, A, "older");
    CHECK(dl_table_delete(table, A));
    CHECK_BYTES(dl_blob_bytes(held), "old");
    dl_blob_unref(held);
    check_empty(table);
}

CHECK_CASE(append_creates_and_extends)
{
    TABLE(table);

    CHECK_OK(dl_table_append(table, A, DL_LITERAL("")));
    CHECK_HOLDS(table, A, "");
    CHECK_OK(dl_table_append(table, A, DL_LITERAL("x")));
    CHECK_OK(dl_table_append(table, A, DL_LITERAL("yz")));
    CHECK_HOLDS(table, A, "xyz");
    CHECK_EQUAL(dl_table_num_keys(table), 1);
    dl_table_fini(table);
}

CHECK_CASE(add_keeps_decimal_text)
{
    TABLE(table);
    int64_t sum = 0;

    CHECK_OK(dl_table_add(table, A, 0, &sum));
    CHECK_EQUAL(sum, 0);
    CHECK_HOLDS(table, A, "0");
    CHECK_OK(dl_table_add(table, A, -7, &sum));
    CHECK_EQUAL(sum, -7);
    CHECK_HOLDS(table, A, "-7");
    CHECK_OK(dl_table_set(table, A, DL_LITERAL(" 12abc")));
    CHECK_OK(dl_table_add(table, A, 3, &sum));
    CHECK_HOLDS(table, A, "15");
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("9223372036854775807")));
    CHECK_OK(dl_table_add(table, A, 1, &sum));
    CHECK_HOLDS(table, A, "-9223372036854775808");
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("text")));
    CHECK_STATUS(dl_table_add(table, A, 1, &sum), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text,
                   "the value of key \"a\" is not a 64-bit number");
    CHECK_HOLDS(table, A, "text");
    CHECK_EQUAL(sum, INT64_MIN);
    dl_table_fini(table);
}

CHECK_CASE(compare_set_follows_its_table)
{
    TABLE(table);
    dl_blob *held;

    CHECK_OK(dl_table_compare_set(table, A, B, C, &held));
    CHECK(held == NULL && dl_table_get(table, A) == NULL);
    CHECK_EQUAL(table->entries.count, 0);
    CHECK_OK(dl_table_compare_set(table, A, DL_LITERAL(""), B, &held));
    CHECK_BYTES(dl_blob_bytes(held), "b");
    CHECK_OK(dl_table_compare_set(table, A, DL_LITERAL(""), C, &held));
    CHECK_BYTES(dl_blob_bytes(held), "b");
    CHECK_OK(dl_table_compare_set(table, A, B, C, &held));
    CHECK_BYTES(dl_blob_bytes(held), "c");
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("")));
    CHECK_OK(dl_table_compare_set(table, A, DL_LITERAL(""), B, &held));
    CHECK_BYTES(dl_blob_bytes(held), "b");
    dl_table_fini(table);
}

static dl_status
count_names(void *context, dl_bytes key)
{
    int *counts = context;

    CHECK_EQUAL(key.size, 1);
    counts[key.data[0]]++;
    return counts[0] > 0 ? dl_fail(DL_CANCELLED, "enough") : DL_OK;
}

CHECK_CASE(listing_names_values_only)
{
    TABLE(table);
    dl_waiter waiter;
    int counts[256] = {0};

    CHECK_OK(dl_table_set(table, A, C));
    CHECK_OK(dl_table_set(table, C, C));
    CHECK_OK(dl_table_queue_push(table, DL_LITERAL("q"), C));
    CHECK_OK(dl_table_queue_push(table, C, C));
    wait_for(table, &waiter, DL_WAIT_KEYS, "ab");
    CHECK_OK(dl_table_list(table, count_names, counts));
    CHECK_EQUAL(counts['a'], 1);
    CHECK_EQUAL(counts['c'], 1);
    CHECK_EQUAL(counts['b'] + counts['q'], 0);
    CHECK_EQUAL(dl_table_num_keys(table), 2);
    counts[0] = 1;
    CHECK_STATUS(dl_table_list(table, count_names, counts), DL_CANCELLED);
    CHECK_EQUAL(counts['a'] + counts['c'], 3);
    dl_table_cancel(table, &waiter);
    dl_table_fini(table);
}

CHECK_CASE(queues_are_first_in_first_out_and_apart_from_values)
{
    TABLE(table);
    dl_blob *item = NULL;

    CHECK_EQUAL(dl_table_queue_size(table, A), 0);
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 0);
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("value")));
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 0);
    CHECK_OK(dl_table_queue_push(table, A, DL_LITERAL("1")));
    CHECK_OK(dl_table_queue_push(table, A, DL_LITERAL("")));
    CHECK_EQUAL(dl_table_queue_size(table, A), 2);
    CHECK(dl_table_delete(table, A));
    CHECK_EQUAL(dl_table_num_keys(table), 0);
    CHECK(dl_table_has(table, A));
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 2);
    CHECK_BYTES(dl_blob_bytes(item), "1");
    dl_blob_unref(item);
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 1);
    CHECK_BYTES(dl_blob_bytes(item), "");
    dl_blob_unref(item);
    CHECK(!dl_table_has(table, A));
    check_empty(table);
}

CHECK_CASE(a_queue_counts_as_its_key)
{
    TABLE(table);

    CHECK(!dl_table_has(table, B));
    CHECK_OK(dl_table_queue_push(table, B, C));
    CHECK(dl_table_has(table, B));
    dl_table_fini(table);
}

CHECK_CASE(a_wait_for_what_is_there_is_over)
{
    TABLE(table);
    dl_waiter waiter;

    wait_for(table, &waiter, DL_WAIT_KEYS, "");
    CHECK(!waiter.is_parked);
    CHECK_OK(dl_table_set(table, A, C));
    CHECK_OK(dl_table_queue_push(table, B, C));
    wait_for(table, &waiter, DL_WAIT_KEYS, "aba");
    CHECK(!waiter.is_parked);
    wait_for(table, &waiter, DL_WAIT_KEYS, "b");
    CHECK(!waiter.is_parked);
    wait_for(table, &waiter, DL_WAIT_VALUES, "a");
    CHECK(!waiter.is_parked);
    wait_for(table, &waiter, DL_WAIT_VALUES, "ab");
    CHECK(waiter.is_parked);
    dl_table_cancel(table, &waiter);
    CHECK_NOBODY(table);
    dl_table_fini(table);
}

CHECK_CASE(each_way_to_make_a_key_ends_waits)
{
    TABLE(table);
    dl_waiter waiter;
    dl_blob *held;
    int64_t sum;

    for (int way = 0; way < 5; way++) {
        wait_for(table, &waiter, DL_WAIT_KEYS, "a");
        CHECK(waiter.is_parked);
        switch (way) {
        case 0:
            CHECK_OK(dl_table_set(table, A, C));
            break;
        case 1:
            CHECK_OK(dl_table_add(table, A, 1, &sum));
            break;
        case 2:
            CHECK_OK(dl_table_append(table, A, C));
            break;
        case 3:
            /* The one that fails ends nothing. */
            CHECK_OK(dl_table_compare_set(table, A, B, C, &held));
            CHECK_NOBODY(table);
            CHECK_OK(dl_table_compare_set(table, A, DL_LITERAL(""), C, &held));
            break;
        default:
            CHECK_OK(dl_table_queue_push(table, A, C));
            break;
        }
        CHECK_ONLY(table, &waiter);
        dl_table_delete(table, A);
    }
    dl_table_fini(table);
}

CHECK_CASE(a_wait_for_several_ends_with_the_last)
{
    TABLE(table);
    dl_waiter waiter, doubled;

    wait_for(table, &waiter, DL_WAIT_KEYS, "abc");
    wait_for(table, &doubled, DL_WAIT_KEYS, "aabba");
    CHECK_OK(dl_table_set(table, B, C));
    CHECK_OK(dl_table_set(table, B, C));
    CHECK_OK(dl_table_set(table, C, C));
    CHECK_NOBODY(table);
    CHECK_OK(dl_table_set(table, A, C));
    CHECK(dl_table_take_ready(table) == &waiter);
    CHECK(dl_table_take_ready(table) == &doubled);
    CHECK_NOBODY(table);
    dl_table_fini(table);
}

/* The wait goes on at the next key, for which there is no memory. */
CHECK_CASE(a_wait_that_cannot_go_on_says_so)
{
    TABLE(table);
    dl_waiter waiter;

    wait_for(table, &waiter, DL_WAIT_KEYS, "ab");
    CHECK_OK(dl_table_set(table, A, C));
    dl_check_fail_allocation_at(1);
    CHECK_ONLY(table, &waiter);
    CHECK(dl_check_allocation_failed());
    CHECK_EQUAL(waiter.status, DL_NO_MEMORY);
    CHECK(dl_table_delete(table, A));
    check_empty(table);
}

CHECK_CASE(a_key_that_was_seen_counts_after_it_is_deleted)
{
    TABLE(table);
    dl_waiter waiter;
    dl_blob *item;

    CHECK_OK(dl_table_set(table, C, C));
    wait_for(table, &waiter, DL_WAIT_KEYS, "abc");
    CHECK_OK(dl_table_set(table, A, C));
    CHECK(dl_table_delete(table, A));
    CHECK_NOBODY(table);
    /* The waiter has not come to this one yet. */
    CHECK(dl_table_delete(table, C));
    CHECK_OK(dl_table_queue_push(table, B, C));
    CHECK_EQUAL(dl_table_queue_pop(table, B, &item), 1);
    dl_blob_unref(item);
    CHECK_NOBODY(table);
    CHECK_OK(dl_table_set(table, C, C));
    CHECK_ONLY(table, &waiter);
    CHECK(dl_table_delete(table, C));
    check_empty(table);
}

CHECK_CASE(a_name_with_value_and_queue_exists_until_both_are_gone)
{
    TABLE(table);
    dl_waiter waiter;
    dl_blob *item;

    CHECK_OK(dl_table_set(table, A, C));
    CHECK_OK(dl_table_queue_push(table, A, C));
    wait_for(table, &waiter, DL_WAIT_KEYS, "ab");
    CHECK(dl_table_delete(table, A));
    CHECK_OK(dl_table_set(table, B, C));
    CHECK_ONLY(table, &waiter);
    CHECK(dl_table_delete(table, B));
    wait_for(table, &waiter, DL_WAIT_KEYS, "ba");
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 1);
    dl_blob_unref(item);
    CHECK_OK(dl_table_set(table, B, C));
    CHECK_NOBODY(table);
    dl_table_cancel(table, &waiter);
    CHECK(dl_table_delete(table, B));
    check_empty(table);
}

CHECK_CASE(waits_for_values_ignore_queues)
{
    TABLE(table);
    dl_waiter waiter;

    wait_for(table, &waiter, DL_WAIT_VALUES, "a");
    CHECK_OK(dl_table_queue_push(table, A, C));
    CHECK_NOBODY(table);
    CHECK_OK(dl_table_set(table, A, C));
    CHECK_ONLY(table, &waiter);
    dl_table_fini(table);
}

CHECK_CASE(a_push_ends_every_wait_of_its_key)
{
    TABLE(table);
    dl_waiter first, second, other, several;

    wait_for(table, &other, DL_WAIT_KEYS, "b");
    wait_for(table, &first, DL_WAIT_KEYS, "a");
    wait_for(table, &second, DL_WAIT_KEYS, "a");
    wait_for(table, &several, DL_WAIT_KEYS, "ac");
    CHECK_OK(dl_table_queue_push(table, A, C));
    CHECK(dl_table_take_ready(table) == &first);
    CHECK_ONLY(table, &second);
    CHECK_OK(dl_table_set(table, C, C));
    CHECK_ONLY(table, &several);
    CHECK_OK(dl_table_queue_push(table, B, C));
    CHECK_ONLY(table, &other);
    dl_table_fini(table);
}

CHECK_CASE(a_push_ends_all_waits_for_items)
{
    TABLE(table);
    dl_waiter takers[3];
    dl_blob *item;

    for (int i = 0; i < 3; i++) {
        wait_for(table, &takers[i], DL_WAIT_ITEMS, "a");
        CHECK(takers[i].is_parked);
    }
    CHECK_OK(dl_table_set(table, A, C));
    CHECK_OK(dl_table_queue_push(table, B, C));
    CHECK_NOBODY(table);
    dl_table_cancel(table, &takers[1]);
    CHECK_OK(dl_table_queue_push(table, A, DL_LITERAL("1")));
    CHECK(dl_table_take_ready(table) == &takers[0]);
    CHECK_ONLY(table, &takers[2]);
    wait_for(table, &takers[1], DL_WAIT_ITEMS, "a");
    CHECK(!takers[1].is_parked);
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 1);
    dl_blob_unref(item);
    wait_for(table, &takers[1], DL_WAIT_ITEMS, "a");
    CHECK(takers[1].is_parked);
    dl_table_cancel(table, &takers[1]);
    dl_table_fini(table);
}

CHECK_CASE(an_item_that_is_put_back_is_the_oldest_again)
{
    TABLE(table);
    dl_blob *item, *other;

    CHECK_OK(dl_table_queue_push(table, A, DL_LITERAL("1")));
    CHECK_OK(dl_table_queue_push(table, A, DL_LITERAL("2")));
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 2);
    CHECK_OK(dl_table_queue_put_back(table, A, item));
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 2);
    CHECK_BYTES(dl_blob_bytes(item), "1");
    CHECK_EQUAL(dl_table_queue_pop(table, A, &other), 1);
    CHECK_BYTES(dl_blob_bytes(other), "2");
    dl_blob_unref(other);
    /* Into a queue that is gone. */
    CHECK_OK(dl_table_queue_put_back(table, A, item));
    CHECK_OK(dl_table_queue_push(table, A, DL_LITERAL("3")));
    CHECK_EQUAL(dl_table_queue_pop(table, A, &item), 2);
    CHECK_EQUAL(dl_table_queue_pop(table, A, &other), 1);
    CHECK_BYTES(dl_blob_bytes(other), "3");
    dl_blob_unref(other);
    dl_blob_unref(item);
    check_empty(table);
}

CHECK_CASE(a_cancelled_wait_leaves_nothing)
{
    TABLE(table);
    dl_waiter waiter = {0}, other;

    dl_table_cancel(table, &waiter);
    wait_for(table, &waiter, DL_WAIT_KEYS, "abcab");
    dl_table_cancel(table, &waiter);
    dl_table_cancel(table, &waiter);
    CHECK(!waiter.is_parked);
    CHECK_EQUAL(table->entries.count, 0);
    wait_for(table, &waiter, DL_WAIT_KEYS, "a");
    wait_for(table, &other, DL_WAIT_KEYS, "a");
    CHECK_OK(dl_table_set(table, A, C));
    dl_table_cancel(table, &waiter);
    CHECK_ONLY(table, &other);
    CHECK(dl_table_delete(table, A));
    check_empty(table);
}

CHECK_CASE(a_barrier_counts_in_a_value_and_ends_with_the_last)
{
    TABLE(table);
    dl_waiter waiters[3], plain;

    wait_for(table, &plain, DL_WAIT_KEYS, "a");
    CHECK_OK(dl_table_barrier(table, &waiters[0], A, 3, false));
    CHECK_ONLY(table, &plain);
    CHECK_HOLDS(table, A, "1");
    CHECK_OK(dl_table_barrier(table, &waiters[1], A, 3, false));
    CHECK(waiters[0].is_parked && waiters[1].is_parked);
    CHECK_NOBODY(table);
    CHECK_OK(dl_table_barrier(table, &waiters[2], A, 3, false));
    CHECK(!waiters[2].is_parked);
    CHECK(dl_table_take_ready(table) == &waiters[0]);
    CHECK_ONLY(table, &waiters[1]);
    CHECK_EQUAL(dl_table_num_keys(table), 1);
    /* A barrier that is over lets later callers through. */
    CHECK_OK(dl_table_barrier(table, &waiters[0], A, 3, false));
    CHECK(!waiters[0].is_parked);
    CHECK_NOBODY(table);
    CHECK_HOLDS(table, A, "4");
    CHECK(dl_table_delete(table, A));
    check_empty(table);
}

CHECK_CASE(a_barrier_ends_when_the_counter_says_so_and_only_then)
{
    TABLE(table);
    dl_waiter two, four, three;
    int64_t sum;

    CHECK_OK(dl_table_barrier(table, &four, A, 4, false));
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("0")));
    CHECK_OK(dl_table_barrier(table, &two, A, 2, false));
    CHECK_OK(dl_table_barrier(table, &three, A, 3, false));
    CHECK_ONLY(table, &two);
    CHECK(three.is_parked && four.is_parked);
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("text")));
    CHECK(dl_table_delete(table, A));
    CHECK_NOBODY(table);
    CHECK_OK(dl_table_add(table, A, 3, &sum));
    CHECK_ONLY(table, &three);
    CHECK_OK(dl_table_append(table, A, DL_LITERAL("0")));
    CHECK_ONLY(table, &four);
    CHECK(dl_table_delete(table, A));
    check_empty(table);
}

CHECK_CASE(a_barrier_of_no_callers_or_on_text_is_refused)
{
    TABLE(table);
    dl_waiter waiter;

    CHECK_OK(dl_table_barrier(table, &waiter, A, 0, false));
    CHECK(!waiter.is_parked);
    CHECK_OK(dl_table_barrier(table, &waiter, A, -1, false));
    CHECK(!waiter.is_parked);
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("text")));
    CHECK_STATUS(dl_table_barrier(table, &waiter, A, 2, false), DL_INVALID);
    CHECK(!waiter.is_parked);
    CHECK_HOLDS(table, A, "text");
    CHECK_NOBODY(table);
    CHECK(dl_table_delete(table, A));
    CHECK_OK(dl_table_barrier(table, &waiter, A, 2, false));
    dl_table_cancel(table, &waiter);
    CHECK_HOLDS(table, A, "1");
    CHECK(dl_table_delete(table, A));
    check_empty(table);
}

CHECK_CASE(many_waiters_of_one_key_cost_a_step_each)
{
    enum { COUNT = 1 << 20 };
    TABLE(table);
    dl_waiter *waiters = calloc(COUNT, sizeof *waiters);

    /* Walking the list of a million waiters for each of them would outlast the alarm. */
    for (int i = 0; i < COUNT; i++) {
        wait_for(table, &waiters[i], i % 2 == 0 ? DL_WAIT_KEYS : DL_WAIT_VALUES, "a");
    }
    CHECK_OK(dl_table_set(table, A, C));
    for (int i = 0; i < COUNT; i++) {
        CHECK(dl_table_take_ready(table) != NULL);
    }
    CHECK_NOBODY(table);
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(dl_table_barrier(table, &waiters[i], B, COUNT, false));
    }
    for (int i = 1; i < COUNT; i++) {
        CHECK(dl_table_take_ready(table) != NULL);
    }
    free(waiters);
    dl_table_fini(table);
}

CHECK_CASE(one_waiter_of_many_keys_costs_a_step_per_key)
{
    enum { COUNT = 131072 };
    TABLE(table);
    uint32_t *names = calloc(COUNT, sizeof *names);
    dl_bytes *keys = calloc(COUNT, sizeof *keys);
    dl_waiter waiter;

    for (uint32_t i = 0; i < COUNT; i++) {
        names[i] = i;
        keys[i] = (dl_bytes){(const uint8_t *)&names[i], sizeof names[i]};
    }
    CHECK_OK(dl_table_wait(table, &waiter, DL_WAIT_KEYS, keys, COUNT));
    /* Rescanning 131072 keys at each of as many steps would outlast the alarm. */
    for (uint32_t i = COUNT; i-- > 0;) {
        CHECK_NOBODY(table);
        CHECK_OK(dl_table_set(table, keys[i], C));
    }
    CHECK_ONLY(table, &waiter);
    dl_table_fini(table);
    free(keys);
    free(names);
}

/* Every look-up of a key moves the waiter by one. */
CHECK_CASE(changes_of_one_key_do_not_make_its_waiter_look_up_all_others)
{
    enum { COUNT = 1000, CYCLES = 100 };
    TABLE(table);
    uint32_t names[COUNT];
    dl_bytes keys[COUNT];
    size_t looked_up = 0;
    dl_waiter waiter;

    for (uint32_t i = 0; i < COUNT; i++) {
        names[i] = i;
        keys[i] = (dl_bytes){(const uint8_t *)&names[i], sizeof names[i]};
        CHECK_OK(dl_table_set(table, keys[i], C));
    }
    CHECK(dl_table_delete(table, keys[0]));
    CHECK(dl_table_delete(table, keys[COUNT / 2]));
    CHECK_OK(dl_table_wait(table, &waiter, DL_WAIT_KEYS, keys, COUNT));
    for (int i = 0; i < CYCLES; i++) {
        dl_bytes key = keys[i % 2 == 0 ? 0 : COUNT / 2];
        size_t before = waiter.next;
        CHECK_OK(dl_table_set(table, key, C));
        (void)dl_table_take_ready(table);
        CHECK(dl_table_delete(table, key));
        looked_up += (waiter.next + COUNT - before) % COUNT;
    }
    CHECK(looked_up <= COUNT);
    CHECK(!waiter.is_parked);
    dl_table_fini(table);
}

/* Tries `call` with its first, second, ... allocation failing until none fails. */
#define EACH_FAILURE(call)                    \
    for (long number_ = 1;; number_++) {      \
        dl_check_fail_allocation_at(number_); \
        dl_status status_ = (call);           \
        if (!dl_check_allocation_failed()) {  \
            CHECK_OK(status_);                \
            break;                            \
        }                                     \
        CHECK_STATUS(status_, DL_NO_MEMORY);  \
        CHECK_EQUAL(table->entries.count, 0); \
        CHECK_NOBODY(table);                  \
        failures++;                           \
    }

CHECK_CASE(without_memory_nothing_changes)
{
    TABLE(table);
    dl_waiter waiter;
    dl_blob *held;
    int64_t sum;
    int failures = 0;
    const dl_bytes keys[] = {A, B, C};

    /* The map grows first: that may fail without a call failing. */
    CHECK_OK(dl_table_set(table, A, C));
    CHECK_OK(dl_table_set(table, B, C));
    CHECK(dl_table_delete(table, A) && dl_table_delete(table, B));
    EACH_FAILURE(dl_table_set(table, A, B));
    CHECK(dl_table_delete(table, A));
    EACH_FAILURE(dl_table_append(table, A, B));
    CHECK(dl_table_delete(table, A));
    EACH_FAILURE(dl_table_add(table, A, 1, &sum));
    CHECK(dl_table_delete(table, A));
    EACH_FAILURE(dl_table_compare_set(table, A, DL_LITERAL(""), B, &held));
    CHECK(dl_table_delete(table, A));
    EACH_FAILURE(dl_table_queue_push(table, A, B));
    CHECK_EQUAL(dl_table_queue_pop(table, A, &held), 1);
    dl_blob_unref(held);
    CHECK_EQUAL(failures, 4 * 2 + 4);
    EACH_FAILURE(dl_table_wait(table, &waiter, DL_WAIT_KEYS, keys, 3));
    CHECK_EQUAL(failures, 12 + 2);
    dl_table_cancel(table, &waiter);
    EACH_FAILURE(dl_table_barrier(table, &waiter, A, 2, false));
    CHECK(waiter.is_parked);
    CHECK_EQUAL(failures, 14 + 3);
    dl_table_cancel(table, &waiter);
    CHECK_HOLDS(table, A, "1");
    CHECK(dl_table_delete(table, A));
    check_empty(table);
}

CHECK_CASE(a_change_that_ran_out_of_memory_keeps_the_old_value)
{
    TABLE(table);
    int64_t sum;

    CHECK_OK(dl_table_set(table, A, DL_LITERAL("7")));
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_table_set(table, A, DL_LITERAL("88")), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_table_append(table, A, DL_LITERAL("8")), DL_NO_MEMORY);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_table_add(table, A, 10, &sum), DL_NO_MEMORY);
    CHECK_HOLDS(table, A, "7");
    dl_table_fini(table);
}

CHECK_CASE(a_value_is_replaced_in_its_memory_unless_somebody_reads_it)
{
    TABLE(table);
    int64_t sum;

    CHECK_OK(dl_table_set(table, A, DL_LITERAL("12345678")));
    dl_blob *first = dl_table_get(table, A);
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("1234")));
    CHECK(dl_table_get(table, A) == first);
    CHECK_OK(dl_table_add(table, A, 1, &sum));
    CHECK(dl_table_get(table, A) == first);
    CHECK_HOLDS(table, A, "1235");
    size_t size = table->size;
    /* A reply that is being sent does not change. */
    dl_blob *held = dl_blob_ref(first);
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("other")));
    CHECK_BYTES(dl_blob_bytes(held), "1235");
    CHECK_HOLDS(table, A, "other");
    dl_blob_unref(held);
    /* Not much memory is left unused. */
    CHECK_OK(dl_table_set(table, A, DL_LITERAL("")));
    CHECK(table->size < size);
    CHECK(dl_table_delete(table, A));
    CHECK_EQUAL(table->size, 0);
    check_empty(table);
}

/* Limits */

CHECK_CASE(a_full_table_takes_no_more_keys)
{
    dl_table table;
    dl_waiter waiter = {0};
    dl_bytes absent = DL_LITERAL("absent");
    int64_t sum;

    dl_table_init(&table);
    table.key_limit = 2;
    CHECK_OK(dl_table_set(&table, DL_LITERAL("a"), DL_LITERAL("1")));
    CHECK_OK(dl_table_queue_push(&table, DL_LITERAL("q"), DL_LITERAL("item")));
    CHECK_STATUS(dl_table_set(&table, DL_LITERAL("b"), DL_LITERAL("1")), DL_NO_MEMORY);
    CHECK_TEXT(dl_last_error()->text,
               "the store is full: it holds 2 keys, its limit (DISTLITE_STORE_KEYS); "
               "delete keys that are not needed");
    CHECK_EQUAL(table.key_refusals, 1);
    CHECK_STATUS(dl_table_queue_push(&table, DL_LITERAL("p"), DL_LITERAL("")),
                 DL_NO_MEMORY);
    CHECK_STATUS(dl_table_wait(&table, &waiter, DL_WAIT_KEYS, &absent, 1),
                 DL_NO_MEMORY);
    CHECK(!waiter.is_parked);
    /* What is there can be changed, and makes room when it goes. */
    CHECK_OK(dl_table_add(&table, DL_LITERAL("a"), 1, &sum));
    CHECK(dl_table_delete(&table, DL_LITERAL("a")));
    CHECK_OK(dl_table_set(&table, DL_LITERAL("b"), DL_LITERAL("1")));
    dl_table_fini(&table);
}

CHECK_CASE(a_full_table_takes_no_more_bytes)
{
    static uint8_t value[4096];
    dl_bytes large = {value, sizeof value};
    dl_table table;
    dl_blob *item = NULL;

    dl_table_init(&table);
    table.size_limit = 10000;
    CHECK_OK(dl_table_set(&table, DL_LITERAL("a"), large));
    CHECK_OK(dl_table_queue_push(&table, DL_LITERAL("q"), large));
    CHECK_STATUS(dl_table_set(&table, DL_LITERAL("b"), large), DL_NO_MEMORY);
    CHECK_CONTAINS(dl_last_error()->text, "the store is full: it holds ");
    CHECK_CONTAINS(dl_last_error()->text, " of 10000 bytes (DISTLITE_STORE_BYTES)");
    CHECK_EQUAL(table.size_refusals, 1);
    CHECK_STATUS(dl_table_append(&table, DL_LITERAL("a"), large), DL_NO_MEMORY);
    CHECK_STATUS(dl_table_queue_push(&table, DL_LITERAL("q"), large), DL_NO_MEMORY);
    CHECK(dl_table_get(&table, DL_LITERAL("b")) == NULL);
    CHECK_EQUAL(dl_table_get(&table, DL_LITERAL("a"))->size, sizeof value);
    CHECK_OK(dl_table_set(&table, DL_LITERAL("a"), large));
    CHECK_EQUAL(dl_table_queue_pop(&table, DL_LITERAL("q"), &item), 1);
    dl_blob_unref(item);
    CHECK_OK(dl_table_set(&table, DL_LITERAL("b"), large));
    dl_table_fini(&table);
}

CHECK_CASE(an_empty_table_has_no_size)
{
    dl_table table;
    dl_waiter waiter = {0};
    dl_bytes keys[] = {DL_LITERAL("x"), DL_LITERAL("y")};
    dl_blob *item = NULL;
    int64_t sum;

    dl_table_init(&table);
    CHECK_OK(dl_table_set(&table, DL_LITERAL("a"), DL_LITERAL("12")));
    CHECK_OK(dl_table_append(&table, DL_LITERAL("a"), DL_LITERAL("345678901")));
    CHECK_OK(dl_table_add(&table, DL_LITERAL("n"), 5, &sum));
    CHECK_OK(dl_table_queue_push(&table, DL_LITERAL("a"), DL_LITERAL("item")));
    CHECK_OK(dl_table_queue_push(&table, DL_LITERAL("q"), DL_LITERAL("item")));
    CHECK_OK(dl_table_wait(&table, &waiter, DL_WAIT_KEYS, keys, 2));
    CHECK(table.size > 0);
    dl_table_cancel(&table, &waiter);
    CHECK_EQUAL(dl_table_queue_pop(&table, DL_LITERAL("q"), &item), 1);
    dl_blob_unref(item);
    CHECK_EQUAL(dl_table_queue_pop(&table, DL_LITERAL("a"), &item), 1);
    dl_blob_unref(item);
    CHECK(dl_table_delete(&table, DL_LITERAL("a")));
    CHECK(dl_table_delete(&table, DL_LITERAL("n")));
    CHECK_EQUAL(table.size, 0);
    dl_table_fini(&table);
}
