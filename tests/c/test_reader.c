/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/reader.h"
#include "check.h"

CHECK_CASE(fields_are_little_endian)
{
    dl_buffer buffer = {0};

    dl_put_u8(&buffer, 0xab);
    dl_put_u32(&buffer, 0x01020304);
    dl_put_u64(&buffer, UINT64_C(0x1112131415161718));
    dl_put_i64(&buffer, -2);
    dl_put_bytes(&buffer, DL_LITERAL("hi"));
    CHECK_OK(dl_buffer_check(&buffer));
    CHECK_BYTES(dl_buffer_bytes(&buffer), "\xab"
                                          "\x04\x03\x02\x01"
                                          "\x18\x17\x16\x15\x14\x13\x12\x11"
                                          "\xfe\xff\xff\xff\xff\xff\xff\xff"
                                          "\x02\0\0\0\0\0\0\0hi");
    dl_buffer_fini(&buffer);
}

/* Every take of `bytes`, in the order of the case above, as long as they last. */
static int
take_all(dl_bytes bytes)
{
    dl_reader reader = dl_reader_of(bytes);
    uint8_t u8;
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    dl_bytes text;
    int taken = 0;

    taken += dl_take_u8(&reader, &u8) && u8 == 0xab;
    taken += dl_take_u32(&reader, &u32) && u32 == 0x01020304;
    taken += dl_take_u64(&reader, &u64) && u64 == UINT64_C(0x1112131415161718);
    taken += dl_take_i64(&reader, &i64) && i64 == INT64_MIN;
    taken +=
        dl_take_bytes(&reader, 2, &text) == 1 && dl_bytes_equal(text, DL_LITERAL("hi"));
    return taken;
}

CHECK_CASE(takes_read_what_puts_wrote_and_stop_short_at_every_length)
{
    static const size_t ends[] = {1, 5, 13, 21, 31};
    dl_buffer buffer = {0};

    dl_put_u8(&buffer, 0xab);
    dl_put_u32(&buffer, 0x01020304);
    dl_put_u64(&buffer, UINT64_C(0x1112131415161718));
    dl_put_i64(&buffer, INT64_MIN);
    dl_put_bytes(&buffer, DL_LITERAL("hi"));
    CHECK_EQUAL(buffer.size, 31);
    for (size_t size = 0; size <= buffer.size; size++) {
        /* A copy of its own, so that the address sanitizer sees a step too far. */
        dl_buffer part = {0};
        int expected = 0;
        for (size_t i = 0; i < 5; i++) {
            expected += size >= ends[i];
        }
        CHECK_OK(dl_buffer_resize_capacity(&part, size));
        dl_buffer_put(&part, (dl_bytes){buffer.data, size});
        CHECK_EQUAL(take_all(dl_buffer_bytes(&part)), expected);
        dl_buffer_fini(&part);
    }
    dl_buffer_fini(&buffer);
}

CHECK_CASE(a_take_that_fails_moves_nothing)
{
    dl_reader reader = dl_reader_of(DL_LITERAL("\x03\0\0\0\0\0\0\0ab"));
    const uint8_t *start = reader.next;
    dl_bytes value = DL_LITERAL("before");

    CHECK_EQUAL(dl_take_bytes(&reader, 100, &value), 0);
    CHECK(reader.next == start);
    CHECK_EQUAL(dl_take_bytes(&reader, 2, &value), -1);
    CHECK(reader.next == start);
    CHECK_BYTES(value, "before");
    reader.end = start + 7;
    CHECK_EQUAL(dl_take_bytes(&reader, 2, &value), 0);
    CHECK(reader.next == start);
}

CHECK_CASE(an_absurd_length_is_given_up_before_its_bytes_arrive)
{
    dl_reader reader = dl_reader_of(DL_LITERAL("\xff\xff\xff\xff\xff\xff\xff\xff"));
    dl_bytes value;

    CHECK_EQUAL(dl_take_bytes(&reader, 8192, &value), -1);
    /* With no limit at all the sum of pointer and length must not wrap round. */
    CHECK_EQUAL(dl_take_bytes(&reader, SIZE_MAX, &value), 0);
    CHECK_EQUAL(dl_reader_left(&reader), 8);
}

CHECK_CASE(empty_bytes_are_taken_at_once)
{
    dl_reader reader = dl_reader_of(DL_LITERAL("\0\0\0\0\0\0\0\0"));
    dl_reader nothing = dl_reader_of((dl_bytes){NULL, 0});
    dl_bytes value = DL_LITERAL("before");
    uint8_t byte;

    CHECK_EQUAL(dl_take_bytes(&reader, 0, &value), 1);
    CHECK_BYTES(value, "");
    CHECK_EQUAL(dl_reader_left(&reader), 0);
    CHECK(!dl_take_u8(&nothing, &byte));
    CHECK_EQUAL(dl_take_bytes(&nothing, 0, &value), 0);
}
