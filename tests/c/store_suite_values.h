/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cases about what is stored: values, counters, limits, listing. */
#ifndef DISTLITE_TESTS_STORE_SUITE_VALUES_H
#define DISTLITE_TESTS_STORE_SUITE_VALUES_H

#include "store_suite_base.h"

static void
suite_values_are_bytes(dl_store *store)
{
    SUITE_SET(store, A, "first");
    SUITE_SET(store, A, "a\0b");
    SUITE_SET(store, B, "");
    SUITE_SET(store, DL_LITERAL(""), "of the empty key");
    SUITE_SET(store, DL_LITERAL("x\0y/\xff "), "odd");
    SUITE_HOLDS(store, A, "a\0b");
    SUITE_HOLDS(store, B, "");
    SUITE_HOLDS(store, DL_LITERAL(""), "of the empty key");
    SUITE_HOLDS(store, DL_LITERAL("x\0y/\xff "), "odd");
    CHECK(!suite_exists(store, DL_LITERAL("x")));
}

static void
suite_large_values_arrive_whole(dl_store *store)
{
    dl_buffer value = {0}, held = {0};

    /* Sizes around those of segments and pieces, and the limit itself. */
    static const size_t sizes[] = {1439, 65536, 262144 + 1, 3 << 20,
                                   DL_STORE_VALUE_LIMIT};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        dl_buffer_clear(&value);
        CHECK_OK(dl_buffer_reserve(&value, sizes[i]));
        value.size = sizes[i];
        for (size_t at = 0; at < sizes[i]; at++) {
            value.data[at] = (uint8_t)(at * 7 + at / 251 + i);
        }
        CHECK_OK(dl_store_set(store, A, dl_buffer_bytes(&value), SOON));
        CHECK_OK(dl_store_get(store, A, &held, SOON));
        CHECK(dl_bytes_equal(dl_buffer_bytes(&held), dl_buffer_bytes(&value)));
    }
    dl_buffer_fini(&value);
    dl_buffer_fini(&held);
}

static void
suite_limits_are_named(dl_store *store)
{
    size_t key_limit = DL_STORE_KEY_LIMIT - suite_now->key_room;
    uint8_t *memory = calloc(1, (size_t)DL_STORE_VALUE_LIMIT + 1);
    dl_bytes *keys = calloc(DL_STORE_KEYS_LIMIT + 1, sizeof *keys);
    const dl_bytes too_large = {memory, (size_t)DL_STORE_VALUE_LIMIT + 1};
    dl_buffer held = {0};
    bool exist;

    CHECK_OK(dl_store_set(store, (dl_bytes){memory, key_limit}, A, SOON));
    CHECK_OK(dl_store_get(store, (dl_bytes){memory, key_limit}, &held, SOON));
    CHECK_STATUS(dl_store_set(store, (dl_bytes){memory, key_limit + 1}, A, SOON),
                 DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "8192");
    CHECK_CONTAINS(dl_last_error()->text, "8191");
    CHECK_STATUS(dl_store_set(store, A, too_large, SOON), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "8388609");
    CHECK_CONTAINS(dl_last_error()->text, "8388608");
    CHECK_STATUS(dl_store_append(store, A, too_large, SOON), DL_INVALID);
    CHECK_STATUS(dl_store_compare_set(store, A, B, too_large, &held, SOON), DL_INVALID);
    CHECK_STATUS(dl_store_multi_set(store, keys, &too_large, 1, SOON), DL_INVALID);
    CHECK_STATUS(dl_store_check(store, keys, DL_STORE_KEYS_LIMIT + 1, &exist, SOON),
                 DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "131073");
    CHECK_CONTAINS(dl_last_error()->text, "131072");
    CHECK_STATUS(dl_store_wait(store, keys, DL_STORE_KEYS_LIMIT + 1, SOON), DL_INVALID);
    /* None of the refused calls had an effect. */
    CHECK(!suite_exists(store, A));
    CHECK_EQUAL(suite_num_keys(store), 1);
    dl_buffer_fini(&held);
    free(keys);
    free(memory);
}

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

static void
suite_append_creates_and_extends(dl_store *store)
{
    CHECK_OK(dl_store_append(store, A, DL_LITERAL(""), SOON));
    SUITE_HOLDS(store, A, "");
    CHECK_OK(dl_store_append(store, A, DL_LITERAL("x"), SOON));
    /* The same value again must not be taken for a repetition of the call. */
    CHECK_OK(dl_store_append(store, A, DL_LITERAL("x"), SOON));
    CHECK_OK(dl_store_append(store, A, DL_LITERAL("\0z"), SOON));
    SUITE_HOLDS(store, A, "xx\0z");
    CHECK_OK(dl_store_append(store, B, DL_LITERAL("new"), SOON));
    SUITE_HOLDS(store, B, "new");
}

static void
suite_add_counts(dl_store *store)
{
    CHECK_EQUAL(suite_add(store, A, 0), 0);
    SUITE_HOLDS(store, A, "0");
    CHECK_EQUAL(suite_add(store, A, 12), 12);
    CHECK_EQUAL(suite_add(store, A, -20), -8);
    SUITE_HOLDS(store, A, "-8");
    SUITE_SET(store, A, " 12abc");
    CHECK_EQUAL(suite_add(store, A, 1), 13);
    SUITE_SET(store, A, "9223372036854775807");
    CHECK(suite_add(store, A, 1) == INT64_MIN);
}

static void
suite_add_on_text_is_an_error_of_that_call(dl_store *store)
{
    int64_t sum = 5;

    SUITE_SET(store, DL_LITERAL("lr"), "high");
    CHECK_STATUS(dl_store_add(store, DL_LITERAL("lr"), 1, &sum, SOON), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "lr");
    CHECK_CONTAINS(dl_last_error()->text, "high");
    CHECK_EQUAL(sum, 5);
    SUITE_HOLDS(store, DL_LITERAL("lr"), "high");
    CHECK_EQUAL(suite_add(store, A, 2), 2);
}

static void
suite_compare_set_follows_its_table(dl_store *store)
{
    static const struct {
        const char *before; /* NULL: absent */
        const char *expected;
        const char *answer;
        const char *after;
    } rows[] = {
        {NULL, "", "new", "new"},  {NULL, "old", "old", NULL},
        {"", "", "new", "new"},    {"old", "old", "new", "new"},
        {"old", "", "old", "old"}, {"old", "else", "old", "old"},
        {"", "old", "", ""},
    };
    dl_buffer held = {0};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        suite_delete(store, A);
        if (rows[i].before != NULL) {
            CHECK_OK(dl_store_set(store, A, dl_bytes_of(rows[i].before), SOON));
        }
        CHECK_OK(dl_store_compare_set(store, A, dl_bytes_of(rows[i].expected),
                                      DL_LITERAL("new"), &held, SOON));
        CHECK(dl_bytes_equal(dl_buffer_bytes(&held), dl_bytes_of(rows[i].answer)));
        CHECK(suite_exists(store, A) == (rows[i].after != NULL));
        if (rows[i].after != NULL) {
            CHECK_OK(dl_store_get(store, A, &held, SOON));
            CHECK(dl_bytes_equal(dl_buffer_bytes(&held), dl_bytes_of(rows[i].after)));
        }
    }
    dl_buffer_fini(&held);
}

static void
suite_delete_tells_the_truth(dl_store *store)
{
    CHECK(!suite_delete(store, A));
    SUITE_SET(store, A, "1");
    CHECK(suite_delete(store, A));
    CHECK(!suite_delete(store, A));
    CHECK(!suite_exists(store, A));
    SUITE_SET(store, A, "2");
    SUITE_HOLDS(store, A, "2");
}

static void
suite_num_keys_counts_names(dl_store *store)
{
    CHECK_EQUAL(suite_num_keys(store), 0);
    SUITE_SET(store, A, "1");
    SUITE_SET(store, A, "2");
    suite_add(store, B, 1);
    CHECK_EQUAL(suite_num_keys(store), 2);
    CHECK(!suite_delete(store, C));
    CHECK(suite_delete(store, A));
    CHECK_EQUAL(suite_num_keys(store), 1);
}

static void
suite_check_needs_all(dl_store *store)
{
    const dl_bytes keys[] = {A, B, A};
    bool exist = false;

    CHECK_OK(dl_store_check(store, NULL, 0, &exist, SOON));
    CHECK(exist);
    SUITE_SET(store, A, "");
    CHECK_OK(dl_store_check(store, keys, 3, &exist, SOON));
    CHECK(!exist);
    SUITE_SET(store, B, "");
    CHECK_OK(dl_store_check(store, keys, 3, &exist, SOON));
    CHECK(exist);
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

static void
suite_multi_calls_keep_order(dl_store *store)
{
    enum { COUNT = 700 };
    static char names[COUNT][16], texts[COUNT][24];
    dl_bytes keys[COUNT], values[COUNT];
    dl_buffer held[COUNT] = {0};

    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "key%d", i);
        snprintf(texts[i], sizeof texts[i], "%.*d", i % 20, i);
        keys[i] = dl_bytes_of(names[i]);
        values[i] = dl_bytes_of(texts[i]);
    }
    CHECK_OK(dl_store_multi_set(store, keys, values, COUNT, SOON));
    /* The keys are requested in another order, and one of them twice. */
    for (int i = 0; i < COUNT; i++) {
        keys[i] = dl_bytes_of(names[COUNT - 1 - i]);
    }
    keys[1] = keys[0];
    CHECK_OK(dl_store_multi_get(store, keys, COUNT, held, SOON));
    for (int i = 0; i < COUNT; i++) {
        int number = COUNT - 1 - (i == 1 ? 0 : i);
        CHECK(dl_bytes_equal(dl_buffer_bytes(&held[i]), dl_bytes_of(texts[number])));
        dl_buffer_fini(&held[i]);
    }
    CHECK_OK(dl_store_multi_set(store, NULL, NULL, 0, SOON));
    CHECK_OK(dl_store_multi_get(store, NULL, 0, NULL, SOON));
    CHECK_EQUAL(suite_num_keys(store), COUNT);
}

#endif
