/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/blob.h"
#include "check.h"

CHECK_CASE(a_copy_is_its_own)
{
    char text[] = "value";
    dl_blob *blob = dl_blob_copy(dl_bytes_of(text));

    text[0] = 'x';
    CHECK_BYTES(dl_blob_bytes(blob), "value");
    dl_blob_unref(blob);
    dl_blob_unref(NULL);
}

CHECK_CASE(empty_blobs_are_blobs)
{
    dl_blob *blob = dl_blob_copy((dl_bytes){NULL, 0});

    CHECK(blob != NULL);
    CHECK_EQUAL(blob->size, 0);
    CHECK_OK(dl_blob_append(&blob, DL_LITERAL("")));
    CHECK_OK(dl_blob_append(&blob, DL_LITERAL("a\0b")));
    CHECK_BYTES(dl_blob_bytes(blob), "a\0b");
    dl_blob_unref(blob);
}

CHECK_CASE(appending_leaves_other_holders_their_bytes)
{
    dl_blob *blob = dl_blob_copy(DL_LITERAL("one"));
    dl_blob *held = dl_blob_ref(blob);

    CHECK_OK(dl_blob_append(&blob, DL_LITERAL("two")));
    CHECK(blob != held);
    CHECK_BYTES(dl_blob_bytes(held), "one");
    CHECK_BYTES(dl_blob_bytes(blob), "onetwo");
    dl_blob_unref(held);
    held = dl_blob_ref(blob);
    /* There is spare room now, and still it must not be written into. */
    CHECK_OK(dl_blob_append(&blob, DL_LITERAL("3")));
    CHECK_BYTES(dl_blob_bytes(held), "onetwo");
    dl_blob_unref(held);
    dl_blob_unref(blob);
}

CHECK_CASE(many_small_appends_allocate_seldom)
{
    dl_blob *blob = dl_blob_new(0);

    dl_check_fail_allocation_at(0);
    for (int i = 0; i < 100000; i++) {
        CHECK_OK(dl_blob_append(&blob, (dl_bytes){(const uint8_t *)&i, 1}));
    }
    CHECK(atomic_load(&dl_check_allocations) < 40);
    CHECK_EQUAL(blob->size, 100000);
    for (int i = 0; i < 100000; i++) {
        CHECK_EQUAL(blob->data[i], i & 0xff);
    }
    dl_blob_unref(blob);
}

CHECK_CASE(without_memory_nothing_changes)
{
    dl_check_fail_allocation_at(1);
    CHECK(dl_blob_copy(DL_LITERAL("one")) == NULL);
    CHECK(dl_check_allocation_failed());
    CHECK(dl_blob_new(SIZE_MAX - 8) == NULL);

    dl_blob *blob = dl_blob_copy(DL_LITERAL("one"));
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_blob_append(&blob, DL_LITERAL("two")), DL_NO_MEMORY);
    CHECK_BYTES(dl_blob_bytes(blob), "one");

    dl_blob *held = dl_blob_ref(blob);
    dl_check_fail_allocation_at(1);
    CHECK_STATUS(dl_blob_append(&blob, DL_LITERAL("two")), DL_NO_MEMORY);
    CHECK(held == blob);
    CHECK_STATUS(dl_blob_append(&blob, (dl_bytes){blob->data, SIZE_MAX / 2}),
                 DL_NO_MEMORY);
    dl_blob_unref(held);
    dl_blob_unref(blob);
}
