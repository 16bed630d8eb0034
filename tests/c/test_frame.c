/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/frame.h"

#include "check.h"

static const dl_head sample = {
    .kind = DL_HEAD_DATA,
    .detail = 2,
    .dtype = 3,
    .size = 0x105,
    .root = 0x10203,
    .code = 0x81020304,
    .id = 0x0102030405060708,
    .tag = -2,
    .total = 9,
    .length = 0x100000001,
};

CHECK_CASE(a_head_lies_in_these_bytes)
{
    uint8_t bytes[DL_HEAD_SIZE];

    dl_head_put(bytes, &sample);
    CHECK_BYTES(((dl_bytes){bytes, sizeof bytes}),
                "DLF2\x03\x02\x03\0\x05\x01\0\0\x03\x02\x01\0"
                "\x04\x03\x02\x81"
                "\x08\x07\x06\x05\x04\x03\x02\x01"
                "\xfe\xff\xff\xff\xff\xff\xff\xff"
                "\x09\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0");
}

CHECK_CASE(bytes_put_are_taken)
{
    uint8_t bytes[DL_HEAD_SIZE];
    uint8_t again[DL_HEAD_SIZE];
    dl_head head;

    dl_head_put(bytes, &sample);
    CHECK(dl_head_take(bytes, &head));
    dl_head_put(again, &head);
    CHECK(memcmp(bytes, again, sizeof bytes) == 0);
    CHECK_EQUAL(head.tag, -2);
}

CHECK_CASE(other_versions_kinds_and_sizes_are_refused)
{
    dl_head head = sample;
    uint8_t bytes[DL_HEAD_SIZE];

    dl_head_put(bytes, &head);
    for (size_t i = 0; i < 4; i++) {
        bytes[i] ^= 1;
        CHECK(!dl_head_take(bytes, &head));
        bytes[i] ^= 1;
    }
    bytes[7] = 1;
    CHECK(!dl_head_take(bytes, &head));
    bytes[7] = 0;
    bytes[4] = 0;
    CHECK(!dl_head_take(bytes, &head));
    bytes[4] = DL_HEAD_KIND_COUNT;
    CHECK(!dl_head_take(bytes, &head));
    head = sample;
    head.size = DL_PART_LIMIT;
    dl_head_put(bytes, &head);
    CHECK(dl_head_take(bytes, &head));
    head.size = DL_PART_LIMIT + 1;
    dl_head_put(bytes, &head);
    CHECK(!dl_head_take(bytes, &head));
}
