/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/slot_writer.h"

#include "check.h"

#define SAMPLE 4096
#define FAST 200
#define SLOW 2000

static void
take_samples(dl_slot_writer *writer, int count, int64_t nanoseconds)
{
    for (int i = 0; i < count; i++) {
        dl_slot_writer_sample(writer, SAMPLE, nanoseconds);
    }
}

CHECK_CASE(three_samples_that_agree_change_the_stores)
{
    dl_slot_writer writer = {0};

    take_samples(&writer, 10, FAST);
    CHECK(!writer.is_streaming);
    take_samples(&writer, 2, SLOW);
    take_samples(&writer, 1, FAST);
    take_samples(&writer, 2, SLOW);
    CHECK(!writer.is_streaming);
    take_samples(&writer, 1, SLOW);
    CHECK(writer.is_streaming);
    take_samples(&writer, 10, SLOW);
    take_samples(&writer, 2, FAST);
    take_samples(&writer, 1, SLOW);
    CHECK(writer.is_streaming);
    take_samples(&writer, 3, FAST);
    CHECK(!writer.is_streaming);
}

CHECK_CASE(it_looks_back_seldom_until_a_change_shows)
{
    dl_slot_writer writer = {0};

    take_samples(&writer, 1, FAST);
    size_t plain = writer.until_sample;
    CHECK(plain > SAMPLE);
    take_samples(&writer, 1, SLOW);
    CHECK_EQUAL(writer.until_sample, 0);
    take_samples(&writer, 2, SLOW);
    CHECK(writer.is_streaming);
    size_t seldom = writer.until_sample;
    CHECK(seldom > 8 * plain);
    take_samples(&writer, 1, FAST);
    CHECK_EQUAL(writer.until_sample, 0);
    take_samples(&writer, 1, SLOW);
    CHECK_EQUAL(writer.until_sample, seldom);
}

static uint8_t source[1 << 16];
static uint8_t target[(1 << 16) + 200];

static void
fill_source(void)
{
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (uint8_t)(i * 7 + i / 256);
    }
}

/* Writers that never sample, that sample always, and that stream. */
static const dl_slot_writer kinds[] = {
    {.until_sample = SIZE_MAX},
    {0},
    {.is_streaming = true, .until_sample = SIZE_MAX},
    {.is_streaming = true},
};

CHECK_CASE(the_bytes_are_the_same_in_every_way)
{
    static const size_t sizes[] = {0, 1, 2047, 2048, 2049, 4096, 4097, 8191, 60000};

    fill_source();
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
            for (size_t at = 0; at < 130; at += 13) {
                dl_slot_writer writer = kinds[kind];
                memset(target, 0xee, sizeof target);
                dl_slot_write(&writer, target + at, source + at / 2, sizes[n]);
                CHECK(memcmp(target + at, source + at / 2, sizes[n]) == 0);
                CHECK(at == 0 || target[at - 1] == 0xee);
                CHECK_EQUAL(target[at + sizes[n]], 0xee);
            }
        }
    }
}

CHECK_CASE(elements_with_gaps_are_gathered)
{
    const int64_t shape[] = {sizeof source / 8};
    const int64_t strides[] = {8};
    dl_tensor tensor = {.data = source,
                        .count = sizeof source / 8,
                        .item_size = 4,
                        .ndim = 1,
                        .shape = shape,
                        .strides = strides};
    size_t size = dl_tensor_size(&tensor);

    fill_source();
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (size_t offset = 0; offset < 20; offset += 5) {
            dl_slot_writer writer = kinds[kind];
            memset(target, 0xee, sizeof target);
            dl_slot_gather(&writer, target, &tensor, offset, size - offset);
            for (size_t i = offset; i < size; i++) {
                CHECK_EQUAL(target[i - offset], source[i / 4 * 8 + i % 4]);
            }
            CHECK_EQUAL(target[size - offset], 0xee);
        }
    }
}
