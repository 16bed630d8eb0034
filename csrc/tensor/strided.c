/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/strided.h"

#include <string.h>

#include "tensor/copy.h"

/* An iterator over the runs of an array in C order.  A run covers as many trailing
 * dimensions as are contiguous. */
typedef struct walk {
    char *data;
    size_t run_size; /* bytes */
    size_t runs;
    int ndim; /* the leading dimensions, which are iterated over */
    const int64_t *shape;
    const int64_t *strides;
    int64_t index[DL_TENSOR_DIMENSIONS];
} walk;

static walk
walk_of(const dl_tensor *tensor)
{
    walk self = {
        .data = tensor->data,
        .run_size = tensor->item_size,
        .runs = tensor->count,
        .ndim = tensor->ndim,
        .shape = tensor->shape,
        .strides = tensor->strides,
    };

    while (self.ndim > 0 && self.runs > 0) {
        int last = self.ndim - 1;
        bool is_run =
            self.shape[last] == 1 || self.strides[last] == (int64_t)self.run_size;
        if (!is_run) {
            break;
        }
        self.run_size *= (size_t)self.shape[last];
        self.runs /= (size_t)self.shape[last];
        self.ndim = last;
    }
    return self;
}

static void
walk_on(walk *self)
{
    for (int i = self->ndim - 1; i >= 0; i--) {
        /* The stride of a dimension of length 1 is arbitrary and must not be added. */
        if (++self->index[i] < self->shape[i]) {
            self->data += self->strides[i];
            return;
        }
        self->data -= self->strides[i] * (self->shape[i] - 1);
        self->index[i] = 0;
    }
}

/* A copy of constant size compiles to a few instructions, any other to a call. */
static inline void
copy_run(void *target, const void *source, size_t size)
{
    switch (size) {
    case 1:
        memcpy(target, source, 1);
        break;
    case 2:
        memcpy(target, source, 2);
        break;
    case 4:
        memcpy(target, source, 4);
        break;
    case 8:
        memcpy(target, source, 8);
        break;
    default:
        memcpy(target, source, size);
    }
}

/* Returns the piece with byte `offset` of the whole; `*skipped` is the offset in it. */
static int
find_piece(const dl_pieces *pieces, size_t offset, size_t *skipped)
{
    int low = 0;
    int high = pieces->count - 1;

    while (low < high) {
        int middle = (low + high) / 2;
        if (pieces->ends[middle] <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *skipped = offset - (low == 0 ? 0 : pieces->ends[low - 1]);
    return low;
}

/* Moves to the run with byte `offset` of the whole. */
static void
walk_to(walk *self, size_t offset)
{
    size_t left = offset / self->run_size;

    for (int i = self->ndim - 1; i >= 0; i--) {
        size_t count = (size_t)self->shape[i];
        self->index[i] = (int64_t)(left % count);
        self->data += self->index[i] * self->strides[i];
        left /= count;
    }
}

#define INLINED static inline __attribute__((always_inline))

INLINED void
move_run(char *bytes, char *run, size_t size, bool is_gather)
{
    copy_run(is_gather ? bytes : run, is_gather ? run : bytes, size);
}

/* Moves a part of an array without pieces to `bytes`, or from there. */
INLINED void
move_array(char *bytes, const dl_tensor *tensor, size_t offset, size_t size,
           bool is_gather)
{
    if (tensor->is_contiguous) {
        char *data = (char *)tensor->data + offset;
        dl_copy(is_gather ? bytes : data, is_gather ? data : bytes, size);
        return;
    }
    walk self = walk_of(tensor);
    size_t skipped = offset % self.run_size;
    walk_to(&self, offset);
    while (size > 0) {
        size_t rest = self.run_size - skipped;
        size_t part = rest < size ? rest : size;
        move_run(bytes, self.data + skipped, part, is_gather);
        bytes += part;
        size -= part;
        skipped = 0;
        walk_on(&self);
    }
}

/* Inlined, so that the direction is a constant. */
INLINED void
move_part(char *bytes, const dl_tensor *tensor, size_t offset, size_t size,
          bool is_gather)
{
    if (tensor->is_contiguous || tensor->pieces == NULL) {
        if (size > 0) {
            move_array(bytes, tensor, offset, size, is_gather);
        }
        return;
    }
    size_t skipped;
    const dl_pieces *pieces = tensor->pieces;
    const dl_tensor *piece = &pieces->tensors[find_piece(pieces, offset, &skipped)];
    for (; size > 0; piece++) {
        size_t rest = dl_tensor_size(piece) - skipped;
        size_t part = rest < size ? rest : size;
        if (part > 0) {
            move_array(bytes, piece, skipped, part, is_gather);
        }
        bytes += part;
        size -= part;
        skipped = 0;
    }
}

void
dl_strided_gather_part(void *target, const dl_tensor *tensor, size_t offset,
                       size_t size)
{
    move_part(target, tensor, offset, size, true);
}

void
dl_strided_scatter_part(const dl_tensor *tensor, const void *source, size_t offset,
                        size_t size)
{
    /* The bytes are only read. */
    move_part((char *)(uintptr_t)source, tensor, offset, size, false);
}

void
dl_strided_copy_part(const dl_tensor *target, const dl_tensor *source, size_t offset,
                     size_t size)
{
    char tile[4096];

    if (source->is_contiguous) {
        dl_strided_scatter_part(target, (const char *)source->data + offset, offset,
                                size);
        return;
    }
    if (target->is_contiguous) {
        dl_strided_gather_part((char *)target->data + offset, source, offset, size);
        return;
    }
    while (size > 0) {
        size_t part = size < sizeof tile ? size : sizeof tile;
        dl_strided_gather_part(tile, source, offset, part);
        dl_strided_scatter_part(target, tile, offset, part);
        offset += part;
        size -= part;
    }
}

static uint64_t
magnitude_of(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

bool
dl_tensor_has_addresses(const dl_tensor *tensor)
{
    uint64_t below = (uintptr_t)tensor->data;
    uint64_t above = UINTPTR_MAX - below;

    if (tensor->is_contiguous || tensor->pieces != NULL || tensor->count == 0) {
        return true;
    }
    if (above < tensor->item_size) {
        return false;
    }
    above -= tensor->item_size;
    for (int i = 0; i < tensor->ndim; i++) {
        uint64_t *room = tensor->strides[i] < 0 ? &below : &above;
        uint64_t reach;
        if (__builtin_mul_overflow(magnitude_of(tensor->strides[i]),
                                   (uint64_t)tensor->shape[i] - 1, &reach)
            || reach > *room) {
            return false;
        }
        *room -= reach;
    }
    return true;
}

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
        uint64_t reach =
            magnitude_of(tensor->strides[i]) * (uint64_t)(tensor->shape[i] - 1);
        if (tensor->strides[i] < 0) {
            first -= reach;
        } else {
            last += reach;
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

    for (; at > 0 && self->strides[at - 1] <= stride; at--) {
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

/* `first` is the tensor's lowest address. */
static void
find_runs(runs *self, const dl_tensor *tensor, uintptr_t first)
{
    self->next = first;
    self->size = tensor->is_contiguous ? dl_tensor_size(tensor) : tensor->item_size;
    self->ndim = 0;
    for (int i = 0; !tensor->is_contiguous && i < tensor->ndim; i++) {
        int64_t stride = tensor->strides[i];
        self->index[i] = 0;
        if (tensor->shape[i] > 1 && stride != 0) {
            insert_dimension(self, magnitude_of(stride), tensor->shape[i]);
        }
    }
    while (self->ndim > 0 && self->strides[self->ndim - 1] == self->size) {
        self->size *= (size_t)self->shape[--self->ndim];
    }
    self->is_ordered = is_nested(self);
}

/* Moves on to the next run.  False: that was the last one. */
static bool
next_run(runs *self)
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

bool
dl_strided_may_overlap(const dl_tensor *tensor)
{
    runs self;

    if (tensor->is_contiguous || tensor->count < 2) {
        return false;
    }
    for (int i = 0; tensor->pieces != NULL && i < tensor->pieces->count; i++) {
        if (dl_strided_may_overlap(&tensor->pieces->tensors[i])) {
            return true;
        }
    }
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] > 1 && tensor->strides[i] == 0 && tensor->item_size > 0) {
            return true;
        }
    }
    find_runs(&self, tensor, 0);
    return !self.is_ordered;
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
do_overlap(runs *left, runs *right)
{
    bool is_going = true;

    while (is_going) {
        if (left->next + left->size <= right->next) {
            is_going = next_run(left);
        } else if (right->next + right->size <= left->next) {
            is_going = next_run(right);
        } else {
            return true;
        }
    }
    return false;
}

bool
dl_tensors_overlap(const dl_tensor *left, const dl_tensor *right)
{
    dl_extent extents[2] = {dl_tensor_extent(left), dl_tensor_extent(right)};
    runs walks[2];

    if (!dl_extents_overlap(extents[0], extents[1])) {
        return false;
    }
    if (left->is_contiguous && right->is_contiguous) {
        return true;
    }
    find_runs(&walks[0], left, extents[0].first);
    find_runs(&walks[1], right, extents[1].first);
    if (!walks[0].is_ordered || !walks[1].is_ordered) {
        return true;
    }
    return !are_apart_in_every_row(&walks[0], &walks[1])
           && do_overlap(&walks[0], &walks[1]);
}

bool
dl_tensor_is_one_run(const dl_tensor *tensor)
{
    int64_t stride = (int64_t)tensor->item_size;

    if (tensor->is_contiguous || tensor->count == 0) {
        return true;
    }
    for (int i = tensor->ndim - 1; i >= 0; i--) {
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
    bool is_run = dl_tensor_is_one_run(left);
    if (is_run || dl_tensor_is_one_run(right)) {
        return is_run && dl_tensor_is_one_run(right);
    }
    return have_same_steps(left, right);
}
