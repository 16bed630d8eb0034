/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buffer.h"
#include "check.h"

CHECK_CASE(zeroed_memory_is_an_empty_buffer)
{
    dl_buffer buffer = {0};

    CHECK_BYTES(dl_buffer_bytes(&buffer), "");
    CHECK_OK(dl_buffer_check(&buffer));
    dl_buffer_put(&buffer, (dl_bytes){NULL, 0});
    dl_buffer_consume(&buffer, 0);
    CHECK(buffer.data == NULL);
    dl_buffer_fini(&buffer);
    dl_buffer_fini(&buffer);
}

CHECK_CASE(puts_follow_each_other)
{
    dl_buffer buffer = {0};

    dl_buffer_put(&buffer, DL_LITERAL("one"));
    dl_buffer_put(&buffer, DL_LITERAL(""));
    dl_buffer_put(&buffer, DL_LITERAL("\0two"));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "one\0two");
    dl_buffer_fini(&buffer);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "");
}

CHECK_CASE(growth_is_geometric_and_keeps_the_contents)
{
    dl_buffer buffer = {0};
    size_t capacity = 0;
    int growths = 0;

    for (unsigned i = 0; i < 100000; i++) {
        uint8_t byte = (uint8_t)(i * 7);
        dl_buffer_put(&buffer, (dl_bytes){&byte, 1});
        growths += buffer.capacity != capacity;
        capacity = buffer.capacity;
    }
    CHECK_OK(dl_buffer_check(&buffer));
    CHECK_EQUAL(buffer.size, 100000);
    CHECK(growths < 15);
    for (unsigned i = 0; i < 100000; i++) {
        CHECK_EQUAL(buffer.data[i], (uint8_t)(i * 7));
    }
    dl_buffer_fini(&buffer);
}

CHECK_CASE(reserve_makes_room_that_later_puts_use)
{
    dl_buffer buffer = {0};

    dl_buffer_put(&buffer, DL_LITERAL("ab"));
    CHECK_OK(dl_buffer_reserve(&buffer, 1000));
    CHECK(buffer.capacity >= 1002);
    CHECK_EQUAL(buffer.size, 2);
    const uint8_t *data = buffer.data;
    for (int i = 0; i < 100; i++) {
        dl_buffer_put(&buffer, DL_LITERAL("0123456789"));
    }
    CHECK(buffer.data == data);
    dl_buffer_fini(&buffer);
}

CHECK_CASE(capacity_is_set_exactly_and_shrinks)
{
    dl_buffer buffer = {0};

    CHECK_OK(dl_buffer_resize_capacity(&buffer, 10));
    CHECK_EQUAL(buffer.capacity, 10);
    dl_buffer_put(&buffer, DL_LITERAL("0123456789"));
    CHECK_EQUAL(buffer.capacity, 10);
    CHECK_OK(dl_buffer_resize_capacity(&buffer, 4));
    CHECK_EQUAL(buffer.capacity, 4);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "0123");
    CHECK_OK(dl_buffer_resize_capacity(&buffer, 0));
    CHECK(buffer.data == NULL);
    CHECK_EQUAL(buffer.size, 0);
}

CHECK_CASE(consume_drops_from_the_front)
{
    dl_buffer buffer = {0};

    dl_buffer_put(&buffer, DL_LITERAL("abcdef"));
    dl_buffer_consume(&buffer, 2);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "cdef");
    dl_buffer_consume(&buffer, 0);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "cdef");
    dl_buffer_consume(&buffer, 4);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "");
    dl_buffer_fini(&buffer);
}

CHECK_CASE(set_replaces_the_contents)
{
    dl_buffer buffer = {0};

    CHECK_OK(dl_buffer_set(&buffer, DL_LITERAL("long enough")));
    CHECK_OK(dl_buffer_set(&buffer, DL_LITERAL("short")));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "short");
    CHECK_OK(dl_buffer_set(&buffer, DL_LITERAL("")));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "");
    dl_buffer_fini(&buffer);
}

CHECK_CASE(a_failed_put_is_remembered_until_clear)
{
    dl_buffer buffer = {0};
    uint8_t large[500] = {0};

    dl_buffer_put(&buffer, DL_LITERAL("kept"));
    dl_check_fail_allocation_at(1);
    dl_buffer_put(&buffer, (dl_bytes){large, sizeof large});
    CHECK(dl_check_allocation_failed());
    dl_buffer_put(&buffer, DL_LITERAL("too late"));
    CHECK_STATUS(dl_buffer_check(&buffer), DL_NO_MEMORY);
    CHECK_STATUS(dl_buffer_reserve(&buffer, 1), DL_NO_MEMORY);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "kept");
    dl_buffer_clear(&buffer);
    dl_buffer_put(&buffer, DL_LITERAL("again"));
    CHECK_OK(dl_buffer_check(&buffer));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "again");
    dl_buffer_fini(&buffer);
}

CHECK_CASE(an_absurd_reservation_is_refused_without_asking)
{
    dl_buffer buffer = {0};

    dl_buffer_put(&buffer, DL_LITERAL("kept"));
    CHECK_STATUS(dl_buffer_reserve(&buffer, SIZE_MAX), DL_NO_MEMORY);
    CHECK_STATUS(dl_buffer_reserve(&buffer, SIZE_MAX / 2 - 3), DL_NO_MEMORY);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "kept");
    dl_buffer_fini(&buffer);
}

CHECK_CASE(bytes_compare_by_contents)
{
    CHECK(dl_bytes_equal(DL_LITERAL("a\0b"), DL_LITERAL("a\0b")));
    CHECK(!dl_bytes_equal(DL_LITERAL("a\0b"), DL_LITERAL("a\0c")));
    CHECK(!dl_bytes_equal(DL_LITERAL("a"), DL_LITERAL("ab")));
    CHECK(dl_bytes_equal((dl_bytes){NULL, 0}, DL_LITERAL("")));
    CHECK(dl_bytes_start_with(DL_LITERAL("abc"), DL_LITERAL("ab")));
    CHECK(dl_bytes_start_with(DL_LITERAL("abc"), (dl_bytes){NULL, 0}));
    CHECK(!dl_bytes_start_with(DL_LITERAL("abc"), DL_LITERAL("bc")));
    CHECK(!dl_bytes_start_with(DL_LITERAL("a"), DL_LITERAL("ab")));
}

/* Memory that the eight bytes before it distinguish from the heap's. */
static int large_blocks;

static void *
resize_counted(void *data, size_t kept, size_t capacity)
{
    uint64_t *block = NULL;

    if (capacity > 0) {
        block = malloc(sizeof *block + capacity);
        *block++ = 42;
        large_blocks++;
    }
    if (data != NULL) {
        CHECK_EQUAL(((uint64_t *)data)[-1], 42);
        if (kept > 0) {
            memcpy(block, data, kept);
        }
        free((uint64_t *)data - 1);
        large_blocks--;
    }
    return block;
}

CHECK_CASE(large_contents_live_where_the_owner_says)
{
    dl_buffer buffer = {.large = resize_counted};

    dl_buffer_put(&buffer, DL_LITERAL("small"));
    CHECK(!buffer.is_large);
    CHECK_OK(dl_buffer_reserve(&buffer, DL_BUFFER_LARGE));
    CHECK(buffer.is_large);
    CHECK_EQUAL(large_blocks, 1);
    CHECK_BYTES(dl_buffer_bytes(&buffer), "small");
    CHECK_OK(dl_buffer_reserve(&buffer, 4 * DL_BUFFER_LARGE));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "small");
    CHECK_OK(dl_buffer_resize_capacity(&buffer, 2));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "sm");
    CHECK_EQUAL(large_blocks, 1);
    dl_buffer_fini(&buffer);
    CHECK_EQUAL(large_blocks, 0);
    dl_buffer_put(&buffer, DL_LITERAL("again"));
    CHECK(!buffer.is_large);
    dl_buffer_fini(&buffer);
}

CHECK_CASE(small_contents_live_in_lent_memory_and_leave_it_when_they_grow)
{
    char room[8] = "";
    dl_buffer lent = {
        .data = (uint8_t *)room,
        .capacity = sizeof room,
        .is_lent = true,
        .large = resize_counted,
    };

    CHECK_OK(dl_buffer_set(&lent, DL_LITERAL("12345678")));
    CHECK(lent.data == (uint8_t *)room && lent.is_lent);
    dl_buffer_put(&lent, DL_LITERAL("9"));
    CHECK(!lent.is_lent && !lent.is_large);
    CHECK_BYTES(dl_buffer_bytes(&lent), "123456789");
    CHECK_EQUAL(memcmp(room, "12345678", sizeof room), 0);
    dl_buffer_fini(&lent);
    CHECK(lent.data == NULL && !lent.is_lent);

    dl_buffer large = {
        .data = (uint8_t *)room,
        .capacity = sizeof room,
        .is_lent = true,
        .large = resize_counted,
    };
    CHECK_OK(dl_buffer_set(&large, DL_LITERAL("few")));
    CHECK_OK(dl_buffer_reserve(&large, DL_BUFFER_LARGE));
    CHECK(large.is_large && !large.is_lent);
    CHECK_BYTES(dl_buffer_bytes(&large), "few");
    CHECK_EQUAL(large_blocks, 1);
    dl_buffer_fini(&large);
    CHECK_EQUAL(large_blocks, 0);

    dl_buffer untouched = {
        .data = (uint8_t *)room, .capacity = sizeof room, .is_lent = true};
    dl_buffer_fini(&untouched);
    CHECK(untouched.data == NULL && untouched.capacity == 0);
}
