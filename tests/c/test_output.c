/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/output.h"

#include <stdlib.h>

#include "base/reader.h"
#include "check.h"

#define LARGE (16u << 10)

/* A value of `size` bytes that differ from those of other seeds. */
static dl_blob *
make_value(size_t size, uint8_t seed)
{
    dl_blob *blob = dl_blob_new(size);

    for (size_t i = 0; i < size; i++) {
        blob->data[i] = (uint8_t)(seed + i * 7);
    }
    return blob;
}

/* Three large values between, before and behind small replies; `expected` is the same
 * in one piece. */
static void
fill(dl_output *output, dl_buffer *expected)
{
    const size_t sizes[] = {LARGE, 3, LARGE + 1, 0, 5 * LARGE};
    size_t before = dl_output_size(output);

    for (uint8_t i = 0; i < 5; i++) {
        dl_blob *value = make_value(sizes[i], i);
        dl_output_put_value(output, value);
        dl_put_bytes(expected, dl_blob_bytes(value));
        dl_blob_unref(value);
        dl_put_u8(&output->bytes, i);
        dl_put_u8(expected, i);
    }
    dl_output_put_value(output, NULL);
    dl_put_u64(expected, 0);
    CHECK_OK(dl_output_check(output));
    CHECK_EQUAL(dl_output_size(output) - before, expected->size);
}

/* Takes everything, `room` parts and at most `step` bytes at a time. */
static void
check_drained(dl_output *output, dl_bytes expected, int room, size_t step)
{
    struct iovec parts[16];
    size_t seen = 0;

    while (dl_output_size(output) > 0) {
        size_t left = step;
        size_t taken = 0;
        int count = dl_output_gather(output, parts, room, SIZE_MAX);
        CHECK(count >= 1 && count <= room);
        for (int i = 0; i < count && left > 0; i++) {
            size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
            CHECK(parts[i].iov_len > 0);
            CHECK(memcmp(parts[i].iov_base, expected.data + seen + taken, size) == 0);
            left -= size;
            taken += size;
        }
        dl_output_consume(output, taken);
        seen += taken;
        CHECK_EQUAL(dl_output_size(output), expected.size - seen);
    }
    CHECK_EQUAL(seen, expected.size);
    CHECK_EQUAL(dl_output_gather(output, parts, room, SIZE_MAX), 0);
}

CHECK_CASE(bytes_and_values_come_out_in_order_however_they_are_taken)
{
    const size_t steps[] = {1, 7, 8, 9, LARGE - 1, LARGE, LARGE + 9, 1 << 30};

    for (int room = 1; room <= 16; room++) {
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            dl_output output = {0};
            dl_buffer expected = {0};
            if (steps[i] < 7 && room > 1) {
                continue;
            }
            fill(&output, &expected);
            check_drained(&output, dl_buffer_bytes(&expected), room, steps[i]);
            /* Empty again, it can be used again. */
            dl_buffer_clear(&expected);
            fill(&output, &expected);
            check_drained(&output, dl_buffer_bytes(&expected), room, 1 << 30);
            dl_output_fini(&output);
            dl_buffer_fini(&expected);
        }
    }
}

CHECK_CASE(a_large_value_is_not_copied_and_outlives_its_other_owners)
{
    dl_output output = {0};
    struct iovec parts[2];
    dl_blob *value = make_value(LARGE, 1);
    const void *data = value->data;

    dl_output_put_value(&output, value);
    dl_blob_unref(value);
    CHECK_EQUAL(dl_output_gather(&output, parts, 2, SIZE_MAX), 2);
    CHECK_EQUAL(parts[0].iov_len, 8);
    CHECK(parts[1].iov_base == data);
    dl_output_fini(&output);
}

CHECK_CASE(an_empty_blob_is_not_held)
{
    dl_output output = {0};
    dl_blob *blob = dl_blob_new(0);

    dl_put_u8(&output.bytes, 1);
    dl_output_put_blob(&output, blob);
    dl_output_consume(&output, 1);
    CHECK_EQUAL(dl_output_size(&output), 0);
    CHECK(dl_blob_is_unique(blob));
    dl_output_fini(&output);
    dl_blob_unref(blob);
}

CHECK_CASE(a_half_sent_output_can_be_thrown_away)
{
    dl_output output = {0};
    dl_buffer expected = {0};

    fill(&output, &expected);
    dl_output_consume(&output, 8 + LARGE + 9 + 8 + 100);
    dl_output_fini(&output);
    CHECK_EQUAL(dl_output_size(&output), 0);
    dl_buffer_fini(&expected);
}

CHECK_CASE(an_output_is_full_until_all_of_it_is_sent)
{
    dl_output output = {0};
    dl_blob *value = make_value(DL_OUTPUT_LIMIT / 2, 1);

    dl_output_put_value(&output, value);
    CHECK(!dl_output_is_full(&output));
    dl_output_put_value(&output, value);
    dl_put_u8(&output.bytes, 0);
    CHECK(dl_output_is_full(&output));
    dl_output_consume(&output, dl_output_size(&output));
    CHECK(!dl_output_is_full(&output));
    /* Bytes that are sent are still in memory. */
    uint8_t *zeros = calloc(1, DL_OUTPUT_LIMIT);
    dl_put_bytes(&output.bytes, (dl_bytes){zeros, DL_OUTPUT_LIMIT});
    dl_output_consume(&output, DL_OUTPUT_LIMIT);
    CHECK_EQUAL(dl_output_size(&output), 8);
    CHECK(dl_output_is_full(&output));
    dl_output_consume(&output, 8);
    CHECK_EQUAL(output.bytes.capacity, 0);
    free(zeros);
    dl_blob_unref(value);
    dl_output_fini(&output);
}

CHECK_CASE(a_failed_allocation_is_remembered)
{
    dl_blob *value = make_value(LARGE, 1);

    for (long failing = 1; failing <= 2; failing++) {
        dl_output output = {0};
        dl_check_fail_allocation_at(failing);
        dl_output_put_value(&output, value);
        CHECK(dl_check_allocation_failed());
        CHECK_STATUS(dl_output_check(&output), DL_NO_MEMORY);
        dl_output_fini(&output);
    }
    dl_blob_unref(value);
}

CHECK_CASE(the_last_bytes_put_can_be_withdrawn)
{
    for (size_t sent = 0; sent < 3; sent++) {
        dl_output output = {0};
        dl_buffer expected = {0}, dropped = {0};

        fill(&output, &expected);
        size_t taken = sent * (LARGE + 20);
        dl_output_consume(&output, taken);
        dl_output_mark mark = dl_output_end(&output);
        fill(&output, &dropped);
        dl_output_cut(&output, mark);
        check_drained(&output, (dl_bytes){expected.data + taken, expected.size - taken},
                      16, 1000);
        dl_output_fini(&output);
        dl_buffer_fini(&expected);
        dl_buffer_fini(&dropped);
    }
}
