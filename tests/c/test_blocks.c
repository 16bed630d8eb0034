/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "tensor/blocks.h"

static int32_t memory[600];

static dl_tensor
matrix(const int64_t shape[2], const int64_t strides[2], bool is_contiguous)
{
    return (dl_tensor){.data = memory,
                       .count = (size_t)(shape[0] * shape[1]),
                       .item_size = 4,
                       .dtype = DL_INT32,
                       .ndim = 2,
                       .is_contiguous = is_contiguous,
                       .is_writable = true,
                       .shape = shape,
                       .strides = strides};
}

CHECK_CASE(even_blocks)
{
    int64_t shape[] = {6, 5};
    int64_t strides[] = {20, 4};
    dl_tensor whole = matrix(shape, strides, true);
    dl_blocks blocks;

    CHECK_OK(dl_blocks_cut(&blocks, &whole, NULL, 3));
    for (int i = 0; i < 3; i++) {
        CHECK(blocks.tensors[i].data == memory + i * 10);
        CHECK_EQUAL(blocks.tensors[i].count, 10);
        CHECK(blocks.tensors[i].is_contiguous && blocks.tensors[i].is_writable);
    }
    dl_blocks_fini(&blocks);
    CHECK_STATUS(dl_blocks_cut(&blocks, &whole, NULL, 4), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "first dimension of 6");
}

CHECK_CASE(blocks_of_any_size_and_stride)
{
    int64_t shape[] = {9, 5};
    int64_t strides[] = {-40, 8};
    int64_t rows[] = {0, 4, 1, 0, 1, 1, 1, 0, 1, 0};
    dl_tensor whole = matrix(shape, strides, false);
    dl_blocks blocks;
    int64_t start = 0;

    whole.data = memory + 500;
    CHECK_OK(dl_blocks_cut(&blocks, &whole, rows, 10));
    for (int i = 0; i < 10; i++) {
        const dl_tensor *block = &blocks.tensors[i];
        CHECK_EQUAL(block->count, rows[i] * 5);
        CHECK(block->shape[0] == rows[i] && block->shape[1] == 5);
        CHECK(rows[i] == 0 || block->data == memory + 500 - start * 10);
        start += rows[i];
    }
    dl_blocks_fini(&blocks);
}

CHECK_CASE(sizes_must_add_up)
{
    int64_t shape[] = {6, 0};
    int64_t strides[] = {4, 4};
    dl_tensor whole = matrix(shape, strides, true);
    dl_tensor scalar = {.count = 1, .item_size = 4, .is_contiguous = true};
    dl_blocks blocks;

    CHECK_STATUS(dl_blocks_cut(&blocks, &whole, (int64_t[]){3, 4}, 2), DL_INVALID);
    CHECK_STATUS(dl_blocks_cut(&blocks, &whole, (int64_t[]){3, 2}, 2), DL_INVALID);
    CHECK_STATUS(dl_blocks_cut(&blocks, &whole, (int64_t[]){7, -1}, 2), DL_INVALID);
    CHECK_STATUS(dl_blocks_cut(&blocks, &whole, (int64_t[]){INT64_MAX, INT64_MAX}, 2),
                 DL_INVALID);
    CHECK_STATUS(dl_blocks_cut(&blocks, &scalar, NULL, 1), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, "without dimensions");
    CHECK_OK(dl_blocks_cut(&blocks, &whole, (int64_t[]){2, 4}, 2));
    CHECK_EQUAL(blocks.tensors[1].count, 0);
    dl_blocks_fini(&blocks);
    dl_blocks_fini(&blocks);
}

CHECK_CASE(running_out_of_memory_is_reported)
{
    int64_t shape[] = {9, 5};
    int64_t strides[] = {40, 8};
    dl_tensor whole = matrix(shape, strides, false);
    dl_blocks blocks;

    for (long i = 1; i <= 2; i++) {
        dl_check_fail_allocation_at(i);
        CHECK_STATUS(dl_blocks_cut(&blocks, &whole, NULL, 9), DL_NO_MEMORY);
        CHECK(dl_check_allocation_failed());
    }
}
