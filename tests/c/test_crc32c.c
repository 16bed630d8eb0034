/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/crc32c.h"

#include "check.h"

/* From RFC 3720, B.4, and the usual check value. */
CHECK_CASE(known_checksums)
{
    uint8_t bytes[32] = {0};

    CHECK_EQUAL(dl_crc32c(0, DL_LITERAL("123456789")), 0xE3069283u);
    CHECK_EQUAL(dl_crc32c(0, (dl_bytes){bytes, 32}), 0x8A9136AAu);
    memset(bytes, 0xff, sizeof bytes);
    CHECK_EQUAL(dl_crc32c(0, (dl_bytes){bytes, 32}), 0x62A8AB43u);
    for (uint8_t i = 0; i < 32; i++) {
        bytes[i] = i;
    }
    CHECK_EQUAL(dl_crc32c(0, (dl_bytes){bytes, 32}), 0x46DD794Eu);
    CHECK_EQUAL(dl_crc32c(0, (dl_bytes){NULL, 0}), 0);
}

CHECK_CASE(pieces_have_the_checksum_of_the_whole)
{
    uint8_t bytes[100];

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7 + 3);
    }
    uint32_t whole = dl_crc32c(0, (dl_bytes){bytes, sizeof bytes});
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t crc = dl_crc32c(0, (dl_bytes){bytes, cut});
        CHECK_EQUAL(dl_crc32c(crc, (dl_bytes){bytes + cut, sizeof bytes - cut}), whole);
    }
}
