/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "pg/agree/rank_keys.h"
#include "store/hash_store.h"

static dl_bytes
write_key(const void *context, int rank, char text[DL_RANK_KEY_SIZE])
{
    snprintf(text, DL_RANK_KEY_SIZE, "%s/%d", (const char *)context, rank);
    return dl_bytes_of(text);
}

static void
set(dl_store *store, const dl_rank_keys *keys, int rank, const char *value)
{
    CHECK_OK(dl_store_set(store, keys->keys[rank], dl_bytes_of(value),
                          dl_deadline_after(-1)));
}

CHECK_CASE(values_of_all_ranks_or_the_missing_ranks)
{
    dl_store *store;
    dl_rank_keys keys;
    dl_rank_list absent;
    dl_buffer *values = dl_rank_values_new(3);

    CHECK_OK(dl_hash_store_new(&store));
    CHECK_OK(dl_rank_keys_init(&keys, 3, write_key, "here"));
    set(store, &keys, 1, "one");
    CHECK_STATUS(dl_rank_keys_get(&keys, store, values, dl_deadline_after(0)),
                 DL_TIMEOUT);
    CHECK_OK(dl_rank_keys_absent(&keys, store, &absent));
    CHECK_EQUAL(absent.count, 2);
    CHECK_TEXT(absent.text, "0, 2");
    set(store, &keys, 0, "zero");
    set(store, &keys, 2, "two");
    for (int turn = 0; turn < 2; turn++) {
        CHECK_OK(dl_rank_keys_get(&keys, store, values, dl_deadline_after(0)));
        CHECK_BYTES(dl_buffer_bytes(&values[0]), "zero");
        CHECK_BYTES(dl_buffer_bytes(&values[2]), "two");
    }
    CHECK_OK(dl_rank_keys_absent(&keys, store, &absent));
    CHECK_EQUAL(absent.count, 0);
    dl_rank_values_free(values, 3);
    dl_rank_keys_fini(&keys);
    dl_store_unref(store);
}

CHECK_CASE(a_long_list_of_ranks_is_cut)
{
    dl_rank_list list = {.count = 0};

    for (int rank = 99990; rank < 99990 + 18; rank++) {
        dl_rank_list_add(&list, rank);
    }
    dl_rank_list_end(&list);
    CHECK_CONTAINS(list.text, "99990, 99991, ");
    CHECK_CONTAINS(list.text, ", 100005 and 2 more");
}

CHECK_CASE(no_memory_for_keys_or_values)
{
    dl_rank_keys keys;

    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_rank_keys_init(&keys, 3, write_key, "here"), DL_NO_MEMORY);
    dl_rank_keys_fini(&keys);
    dl_check_fail_allocation_at(1);
    CHECK(dl_rank_values_new(3) == NULL);
    dl_rank_values_free(NULL, 3);
}
