/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "tensor/strided.h"

/* Distinct bytes, so that any wrong step shows. */
static uint8_t memory[4096];

static dl_tensor
view(size_t offset, size_t item_size, int ndim, const int64_t *shape,
     const int64_t *strides)
{
    size_t count = 1;

    for (int i = 0; i < ndim; i++) {
        count *= (size_t)shape[i];
    }
    for (size_t i = 0; i < sizeof memory; i++) {
        memory[i] = (uint8_t)(i * 37 + i / 256);
    }
    return (dl_tensor){.data = memory + offset,
                       .count = count,
                       .item_size = item_size,
                       .ndim = ndim,
                       .is_writable = true,
                       .shape = shape,
                       .strides = strides};
}

/* The long way round: index by index. */
static void
plain_gather(uint8_t *target, const dl_tensor *tensor)
{
    int64_t index[DL_TENSOR_DIMENSIONS] = {0};

    for (size_t n = 0; n < tensor->count; n++) {
        size_t rest = n;
        const uint8_t *source = tensor->data;
        for (int i = tensor->ndim - 1; i >= 0; i--) {
            index[i] = (int64_t)(rest % (size_t)tensor->shape[i]);
            rest /= (size_t)tensor->shape[i];
            source += index[i] * tensor->strides[i];
        }
        memcpy(target + n * tensor->item_size, source, tensor->item_size);
    }
}

/* Cut anywhere, in the middle of elements too. */
static void
check_parts(const dl_tensor *tensor, const uint8_t *expected, size_t size)
{
    static unsigned seed = 4;
    uint8_t got[4096];
    size_t at = 0;

    while (at < size) {
        size_t part = 1 + (size_t)rand_r(&seed) % (size - at);
        dl_strided_gather_part(got + at, tensor, at, part);
        at += part;
    }
    CHECK(memcmp(got, expected, size) == 0);
}

static void
check_scattered_parts(const dl_tensor *tensor)
{
    static uint8_t copies[sizeof memory];
    dl_tensor copy = *tensor;
    uint8_t expected[4096];
    uint8_t got[4096];
    size_t size = dl_tensor_size(tensor);

    copy.data = copies + ((uint8_t *)tensor->data - memory);
    memset(copies, 0, sizeof copies);
    dl_strided_copy_part(&copy, tensor, 0, size / 3);
    dl_strided_copy_part(&copy, tensor, size / 3, size - size / 3);
    plain_gather(expected, tensor);
    plain_gather(got, &copy);
    CHECK(memcmp(got, expected, size) == 0);
    memset(copies, 0, sizeof copies);
    dl_strided_scatter_part(&copy, expected + size / 2, size / 2, size - size / 2);
    dl_strided_scatter_part(&copy, expected, 0, size / 2);
    plain_gather(got, &copy);
    CHECK(memcmp(got, expected, size) == 0);
}

static void
check_view(const dl_tensor *tensor)
{
    uint8_t expected[4096];
    uint8_t got[4096];
    size_t size = dl_tensor_size(tensor);

    CHECK(size <= sizeof got);
    plain_gather(expected, tensor);
    dl_strided_gather_part(got, tensor, 0, size);
    CHECK(memcmp(got, expected, size) == 0);
    check_parts(tensor, expected, size);
    if (dl_strided_may_overlap(tensor)) {
        return;
    }
    check_scattered_parts(tensor);
    /* Scattered, all elements come back, and no byte beside them changes. */
    uint8_t before[sizeof memory];
    memcpy(before, memory, sizeof memory);
    for (size_t i = 0; i < size; i++) {
        got[i] = (uint8_t)~got[i];
    }
    dl_strided_scatter_part(tensor, got, 0, size);
    plain_gather(expected, tensor);
    CHECK(memcmp(got, expected, size) == 0);
    for (size_t i = 0; i < size; i++) {
        got[i] = (uint8_t)~got[i];
    }
    dl_strided_scatter_part(tensor, got, 0, size);
    CHECK(memcmp(before, memory, sizeof memory) == 0);
}

CHECK_CASE(every_second_element)
{
    for (size_t item_size = 1; item_size <= 16; item_size++) {
        dl_tensor tensor = view(0, item_size, 1, (int64_t[]){50},
                                (int64_t[]){(int64_t)(2 * item_size)});
        CHECK(!dl_strided_may_overlap(&tensor));
        check_view(&tensor);
    }
}

CHECK_CASE(transposed_and_reversed)
{
    dl_tensor tensor = view(0, 8, 2, (int64_t[]){7, 5}, (int64_t[]){8, 56});
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
    tensor = view(400, 4, 2, (int64_t[]){5, 20}, (int64_t[]){-80, 4});
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
    tensor = view(396, 4, 1, (int64_t[]){100}, (int64_t[]){-4});
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
}

CHECK_CASE(inner_block_of_a_larger_array)
{
    dl_tensor tensor =
        view(600, 2, 4, (int64_t[]){3, 2, 4, 5}, (int64_t[]){600, 240, 40, 2});
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
}

CHECK_CASE(dimensions_of_one_and_of_none)
{
    dl_tensor tensor = view(0, 8, 3, (int64_t[]){1, 4, 1}, (int64_t[]){0, 24, -1000});
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
    tensor = view(0, 8, 0, NULL, NULL);
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
    tensor = view(0, 8, 2, (int64_t[]){3, 0}, (int64_t[]){16, 16});
    CHECK(!dl_strided_may_overlap(&tensor));
    check_view(&tensor);
}

CHECK_CASE(broadcast_and_windows_overlap)
{
    dl_tensor tensor = view(0, 4, 2, (int64_t[]){3, 4}, (int64_t[]){0, 4});
    CHECK(dl_strided_may_overlap(&tensor));
    check_view(&tensor);
    tensor = view(0, 4, 2, (int64_t[]){10, 3}, (int64_t[]){4, 4});
    CHECK(dl_strided_may_overlap(&tensor));
    check_view(&tensor);
    tensor = view(0, 8, 1, (int64_t[]){10}, (int64_t[]){4});
    CHECK(dl_strided_may_overlap(&tensor));
    tensor.is_contiguous = true;
    CHECK(!dl_strided_may_overlap(&tensor));
}

CHECK_CASE(random_views)
{
    unsigned seed = 12345;

    for (int round = 0; round < 2000; round++) {
        int64_t shape[5];
        int64_t strides[5];
        int ndim = 1 + rand_r(&seed) % 5;
        size_t item_size = (size_t)1 << (rand_r(&seed) % 4);
        int64_t low = 0;
        int64_t high = 0;
        for (int i = 0; i < ndim; i++) {
            shape[i] = 1 + rand_r(&seed) % 4;
            strides[i] = (rand_r(&seed) % 61 - 30) * (int64_t)item_size;
            int64_t reach = strides[i] * (shape[i] - 1);
            low += reach < 0 ? reach : 0;
            high += reach > 0 ? reach : 0;
        }
        CHECK(high - low + (int64_t)item_size <= (int64_t)sizeof memory);
        dl_tensor tensor = view((size_t)-low, item_size, ndim, shape, strides);
        check_view(&tensor);
    }
}

/* One after another: a run, every second element, nothing, and a run again. */
CHECK_CASE(pieces_count_as_one_array)
{
    const int64_t shape[] = {7}, strides[] = {6};
    dl_tensor tensors[4];
    dl_tensor whole = view(0, 3, 0, NULL, NULL);
    uint8_t expected[18 * 3], got[18 * 3];
    size_t ends[4], at = 0;

    tensors[0] = (dl_tensor){
        .data = memory + 100, .count = 5, .item_size = 3, .is_contiguous = true};
    tensors[1] = view(200, 3, 1, shape, strides);
    tensors[2] = (dl_tensor){.data = memory, .item_size = 3, .is_contiguous = true};
    tensors[3] = tensors[0];
    tensors[3].data = memory + 300;
    tensors[3].count = 6;
    for (int i = 0; i < 4; i++) {
        dl_strided_gather_part(expected + at, &tensors[i], 0,
                               dl_tensor_size(&tensors[i]));
        at += dl_tensor_size(&tensors[i]);
        ends[i] = at;
    }
    const dl_pieces pieces = {4, tensors, ends};
    whole.data = (void *)(uintptr_t)&pieces;
    whole.pieces = &pieces;
    whole.count = 18;
    CHECK_EQUAL(at, dl_tensor_size(&whole));
    for (int i = 0; i < 50; i++) {
        check_parts(&whole, expected, at);
    }
    CHECK(!dl_strided_may_overlap(&whole));
    for (size_t i = 0; i < at; i++) {
        expected[i] = (uint8_t)(200 - i);
    }
    dl_strided_scatter_part(&whole, expected, 0, 20);
    dl_strided_scatter_part(&whole, expected + 20, 20, 1);
    dl_strided_scatter_part(&whole, expected + 21, 21, at - 21);
    dl_strided_gather_part(got, &whole, 0, at);
    CHECK(memcmp(got, expected, at) == 0);
    CHECK(memory[203] == (uint8_t)(203 * 37));
    const int64_t zero[] = {0};
    tensors[1].strides = zero;
    CHECK(dl_strided_may_overlap(&whole));
}

CHECK_CASE(strides_that_lead_out_of_the_address_space)
{
    static const struct {
        int64_t shape[2], strides[2];
        bool has_addresses;
    } rows[] = {
        {{2, 3}, {100, 8}, true},
        {{2, 3}, {-8, -16}, true},
        {{3, 2}, {INT64_MAX, 8}, false},
        {{2, 2}, {INT64_MIN, 8}, false},
        {{5, 2}, {INT64_MIN, 8}, false},
        {{9, 2}, {INT64_MAX / 4, 1}, false},
        {{1, 2}, {INT64_MIN, 8}, true}, /* never added */
        {{2, 2}, {INT64_MAX, INT64_MAX}, false},
    };
    char target[48];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dl_tensor tensor = view(64, 8, 2, rows[i].shape, rows[i].strides);
        CHECK_EQUAL(dl_tensor_has_addresses(&tensor), rows[i].has_addresses);
        (void)dl_tensor_extent(&tensor);
        if (rows[i].has_addresses) {
            dl_strided_gather_part(target, &tensor, 0, dl_tensor_size(&tensor));
        }
    }
}
