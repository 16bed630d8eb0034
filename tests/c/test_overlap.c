/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "tensor/strided.h"

/* An array of bytes of up to three dimensions. */
typedef struct view {
    int64_t shape[3];
    int64_t strides[3];
    dl_tensor tensor;
} view;

static uint8_t memory[4096];

static void
view_init(view *self, size_t start, const int64_t shape[3], const int64_t strides[3])
{
    memcpy(self->shape, shape, sizeof self->shape);
    memcpy(self->strides, strides, sizeof self->strides);
    self->tensor = (dl_tensor){.data = memory + start,
                               .count = (size_t)(shape[0] * shape[1] * shape[2]),
                               .item_size = 4,
                               .ndim = 3,
                               .shape = self->shape,
                               .strides = self->strides};
}

static bool
overlap(const view *left, const view *right)
{
    bool forward = dl_tensors_overlap(&left->tensor, &right->tensor);

    CHECK_EQUAL(forward, dl_tensors_overlap(&right->tensor, &left->tensor));
    return forward;
}

/* Views of a 3 x 4 x 8 array of four-byte elements. */
static view
part(size_t start, int64_t a, int64_t b, int64_t c)
{
    static view views[4];
    static int next;
    view *self = &views[next++ % 4];

    view_init(self, start, (int64_t[]){a, b, c}, (int64_t[]){128, 32, 4});
    return *self;
}

static bool
parts_overlap(view left, view right)
{
    left.tensor.shape = left.shape;
    left.tensor.strides = left.strides;
    right.tensor.shape = right.shape;
    right.tensor.strides = right.strides;
    return overlap(&left, &right);
}

CHECK_CASE(parts_of_one_array)
{
    /* Columns, rows, and blocks that differ in the middle dimension only. */
    CHECK(!parts_overlap(part(0, 3, 4, 4), part(16, 3, 4, 4)));
    CHECK(parts_overlap(part(0, 3, 4, 5), part(16, 3, 4, 4)));
    CHECK(!parts_overlap(part(0, 3, 2, 8), part(64, 3, 2, 8)));
    CHECK(parts_overlap(part(0, 3, 3, 8), part(64, 3, 2, 8)));
    CHECK(!parts_overlap(part(0, 3, 2, 3), part(64, 3, 2, 3)));
    CHECK(parts_overlap(part(0, 3, 3, 3), part(64, 3, 2, 3)));
    CHECK(!parts_overlap(part(0, 1, 4, 8), part(128, 2, 4, 8)));
    CHECK(!parts_overlap(part(0, 3, 4, 0), part(0, 3, 4, 8)));
}

static view
random_view(unsigned *seed)
{
    int64_t strides[3];
    int64_t shape[3];
    view self;

    for (int i = 0; i < 3; i++) {
        static const int64_t choices[] = {4, 8, 12, 16, 36, 48, 128, -4, -16, -40, 0};
        strides[i] = choices[rand_r(seed) % 11];
        shape[i] = 1 + rand_r(seed) % 4;
    }
    view_init(&self, 2048 + (size_t)(rand_r(seed) % 64), shape, strides);
    return self;
}

/* How many elements cover each byte. */
static void
mark(const view *self, uint8_t *marks)
{
    for (int64_t a = 0; a < self->shape[0]; a++) {
        for (int64_t b = 0; b < self->shape[1]; b++) {
            for (int64_t c = 0; c < self->shape[2]; c++) {
                uint8_t *element = (uint8_t *)self->tensor.data - memory + marks
                                   + a * self->strides[0] + b * self->strides[1]
                                   + c * self->strides[2];
                for (int i = 0; i < 4; i++) {
                    element[i]++;
                }
            }
        }
    }
}

CHECK_CASE(random_views_are_distinguished)
{
    unsigned seed = 1;
    int exact = 0;

    for (int n = 0; n < 20000; n++) {
        uint8_t marks[2][sizeof memory] = {{0}};
        view left = random_view(&seed);
        view right = random_view(&seed);
        left.tensor.shape = left.shape;
        left.tensor.strides = left.strides;
        right.tensor.shape = right.shape;
        right.tensor.strides = right.strides;
        mark(&left, marks[0]);
        mark(&right, marks[1]);
        bool do_share = false;
        for (size_t i = 0; i < sizeof memory; i++) {
            do_share |= marks[0][i] > 0 && marks[1][i] > 0;
        }
        bool got = overlap(&left, &right);
        CHECK(got || !do_share);
        if (!dl_strided_may_overlap(&left.tensor)
            && !dl_strided_may_overlap(&right.tensor)) {
            CHECK_EQUAL(got, do_share);
            exact++;
        }
        dl_extent extent = dl_tensor_extent(&left.tensor);
        CHECK(marks[0][extent.first - (uintptr_t)memory] > 0);
        CHECK(marks[0][extent.end - (uintptr_t)memory - 1] > 0);
    }
    CHECK(exact > 1000);
}

CHECK_CASE(contiguous_arrays_need_no_shape)
{
    dl_tensor left = {
        .data = memory, .count = 10, .item_size = 4, .is_contiguous = true};
    dl_tensor right = left;

    CHECK(dl_tensors_overlap(&left, &right) && dl_tensors_are_same(&left, &right));
    right.data = memory + 40;
    CHECK(!dl_tensors_overlap(&left, &right) && !dl_tensors_are_same(&left, &right));
    right.data = memory + 39;
    CHECK(dl_tensors_overlap(&left, &right));
    right = left;
    right.count = 9;
    CHECK(!dl_tensors_are_same(&left, &right));
}

CHECK_CASE(same_views_have_the_same_elements_in_the_same_order)
{
    view left = part(0, 3, 2, 8);
    view right = part(0, 3, 2, 8);

    left.tensor.shape = left.shape;
    left.tensor.strides = left.strides;
    right.tensor.shape = right.shape;
    right.tensor.strides = right.strides;
    CHECK(dl_tensors_are_same(&left.tensor, &right.tensor));
    right.strides[1] = 64;
    CHECK(!dl_tensors_are_same(&left.tensor, &right.tensor));
    right = part(0, 3, 2, 8);
    right.tensor.shape = right.shape;
    right.tensor.strides = right.strides;
    right.shape[0] = 2;
    right.shape[1] = 3;
    CHECK(!dl_tensors_are_same(&left.tensor, &right.tensor));
}

/* 3 x 1 x 4 of every second element, as cut out of an array and as a view of its own. */
CHECK_CASE(same_views_may_differ_in_dimensions_of_one)
{
    dl_tensor left = {.data = memory, .count = 12, .item_size = 4, .ndim = 3};
    dl_tensor right = left;

    left.shape = (int64_t[]){3, 1, 4};
    left.strides = (int64_t[]){64, 999, 8};
    right.ndim = 2;
    right.shape = (int64_t[]){3, 4};
    right.strides = (int64_t[]){64, 8};
    CHECK(dl_tensors_are_same(&left, &right) && dl_tensors_are_same(&right, &left));
    right.strides = (int64_t[]){64, -8};
    CHECK(!dl_tensors_are_same(&left, &right) && !dl_tensors_are_same(&right, &left));
    right.ndim = 3;
    right.shape = (int64_t[]){3, 2, 2};
    right.strides = (int64_t[]){64, 16, 8};
    CHECK(!dl_tensors_are_same(&left, &right) && !dl_tensors_are_same(&right, &left));
}

/* A row cut out of a strided array has the array's dimensions, and no gaps. */
CHECK_CASE(same_views_may_differ_in_the_word_contiguous)
{
    dl_tensor left = {.data = memory, .count = 4, .item_size = 4, .ndim = 2};
    dl_tensor right = {
        .data = memory, .count = 4, .item_size = 4, .is_contiguous = true};

    left.shape = (int64_t[]){1, 4};
    left.strides = (int64_t[]){64, 4};
    CHECK(dl_tensors_are_same(&left, &right) && dl_tensors_are_same(&right, &left));
    left.strides = (int64_t[]){64, 8};
    CHECK(!dl_tensors_are_same(&left, &right) && !dl_tensors_are_same(&right, &left));
}

CHECK_CASE(empty_arrays_overlap_with_nothing)
{
    dl_tensor empty = {
        .data = memory + 40, .count = 0, .item_size = 4, .is_contiguous = true};
    view around = part(0, 3, 4, 8);

    around.tensor.shape = around.shape;
    around.tensor.strides = around.strides;
    CHECK(!dl_tensors_overlap(&empty, &around.tensor));
    CHECK(!dl_tensors_overlap(&around.tensor, &empty));
}
