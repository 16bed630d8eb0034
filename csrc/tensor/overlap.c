/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/overlap.h"

#include "tensor/strided.h"

dl_extent
dl_tensor_extent(const dl_tensor *tensor)
{
    uintptr_t first = (uintptr_t)tensor->data;
    size_t size = dl_tensor_size(tensor);

    if (size == 0 || (tensor->pieces != NULL && !tensor->is_contiguous)) {
        return (dl_extent){first, first};
    }
    if (tensor->is_contiguous) {
        return (dl_extent){first, first + size};
    }
    uintptr_t last = first;
    for (int i = 0; i < tensor->ndim; i++) {
        int64_t reach = tensor->strides[i] * (tensor->shape[i] - 1);
        if (reach < 0) {
            first -= (uintptr_t)-reach;
        } else {
            last += (uintptr_t)reach;
        }
    }
    return (dl_extent){first, last + tensor->item_size};
}

/* An iterator over an array's memory as contiguous runs, in ascending order of
 * addresses.  Dimensions are sorted by stride, widest first, and all strides are made
 * positive. */
typedef struct runs {
    uintptr_t next;
    size_t size; /* of each run */
    int ndim;
    bool is_ordered; /* the runs ascend and do not overlap */
    uint64_t strides[DL_TENSOR_DIMENSIONS];
    int64_t shape[DL_TENSOR_DIMENSIONS];
    int64_t index[DL_TENSOR_DIMENSIONS];
} runs;

static void
insert_dimension(runs *self, uint64_t stride, int64_t count)
{
    int at = self->ndim++;

    for (; at > 0 && self->strides[at - 1] < stride; at--) {
        self->strides[at] = self->strides[at - 1];
        self->shape[at] = self->shape[at - 1];
    }
    self->strides[at] = stride;
    self->shape[at] = count;
}

/* Returns whether each stride steps over everything that the narrower
 * dimensions cover. */
static bool
is_nested(const runs *self)
{
    uint64_t span = self->size;

    for (int i = self->ndim - 1; i >= 0; i--) {
        if (self->strides[i] < span) {
            return false;
        }
        span += self->strides[i] * (uint64_t)(self->shape[i] - 1);
    }
    return true;
}

static void
find_runs(runs *self, const dl_tensor *tensor)
{
    self->next = dl_tensor_extent(tensor).first;
    self->size = tensor->is_contiguous ? dl_tensor_size(tensor) : tensor->item_size;
    self->ndim = 0;
    for (int i = 0; !tensor->is_contiguous && i < tensor->ndim; i++) {
        int64_t stride = tensor->strides[i];
        self->index[i] = 0;
        if (tensor->shape[i] > 1 && stride != 0) {
            insert_dimension(self, (uint64_t)(stride < 0 ? -stride : stride),
                             tensor->shape[i]);
        }
    }
    while (self->ndim > 0 && self->strides[self->ndim - 1] == self->size) {
        self->size *= (size_t)self->shape[--self->ndim];
    }
    self->is_ordered = is_nested(self);
}

/* Moves on to the next run.  False: that was the last one. */
static bool
step(runs *self)
{
    for (int i = self->ndim - 1; i >= 0; i--) {
        self->next += self->strides[i];
        if (++self->index[i] < self->shape[i]) {
            return true;
        }
        self->next -= self->strides[i] * (uint64_t)self->shape[i];
        self->index[i] = 0;
    }
    return false;
}

static uint64_t
common_divisor(const runs *self, uint64_t divisor)
{
    for (int i = 0; i < self->ndim; i++) {
        uint64_t stride = self->strides[i];
        while (stride != 0) {
            uint64_t rest = divisor % stride;
            divisor = stride;
            stride = rest;
        }
    }
    return divisor;
}

/* Returns whether the runs keep a distance within every row, as disjoint columns do.  A
 * row is as long as the greatest common divisor of all strides. */
static bool
are_apart_in_every_row(const runs *left, const runs *right)
{
    uint64_t row = common_divisor(right, common_divisor(left, 0));

    if (row == 0) {
        return false;
    }
    uint64_t from = left->next % row;
    uint64_t to = right->next % row;
    uint64_t distance = to >= from ? to - from : to + row - from;
    return distance >= left->size && row - distance >= right->size;
}

static bool
do_meet(runs *left, runs *right)
{
    bool is_going = true;

    while (is_going) {
        if (left->next + left->size <= right->next) {
            is_going = step(left);
        } else if (right->next + right->size <= left->next) {
            is_going = step(right);
        } else {
            return true;
        }
    }
    return false;
}

bool
dl_tensors_overlap(const dl_tensor *left, const dl_tensor *right)
{
    runs walks[2];

    if (!dl_extents_meet(dl_tensor_extent(left), dl_tensor_extent(right))) {
        return false;
    }
    if (left->is_contiguous && right->is_contiguous) {
        return true;
    }
    find_runs(&walks[0], left);
    find_runs(&walks[1], right);
    if (!walks[0].is_ordered || !walks[1].is_ordered) {
        return true;
    }
    return !are_apart_in_every_row(&walks[0], &walks[1])
           && do_meet(&walks[0], &walks[1]);
}

/* Also recognises contiguous tensors whose flag is not set, such as blocks of strided
 * ones. */
static bool
is_one_run(const dl_tensor *tensor)
{
    int64_t stride = (int64_t)tensor->item_size;

    for (int i = tensor->ndim - 1; !tensor->is_contiguous && i >= 0; i--) {
        if (tensor->shape[i] > 1 && tensor->strides[i] != stride) {
            return false;
        }
        stride *= tensor->shape[i];
    }
    return true;
}

/* Returns the first dimension from `at` on that has not exactly one entry, or ndim. */
static int
skip_ones(const dl_tensor *tensor, int at)
{
    while (at < tensor->ndim && tensor->shape[at] == 1) {
        at++;
    }
    return at;
}

static bool
have_same_steps(const dl_tensor *left, const dl_tensor *right)
{
    int i = skip_ones(left, 0);
    int k = skip_ones(right, 0);

    while (i < left->ndim && k < right->ndim) {
        if (left->shape[i] != right->shape[k]
            || left->strides[i] != right->strides[k]) {
            return false;
        }
        i = skip_ones(left, i + 1);
        k = skip_ones(right, k + 1);
    }
    return i == left->ndim && k == right->ndim;
}

bool
dl_tensors_are_same(const dl_tensor *left, const dl_tensor *right)
{
    if (left->data != right->data || left->count != right->count
        || left->item_size != right->item_size) {
        return false;
    }
    bool is_run = is_one_run(left);
    if (is_run || is_one_run(right)) {
        return is_run && is_one_run(right);
    }
    return have_same_steps(left, right);
}
