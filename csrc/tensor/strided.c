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
        self->data += self->strides[i];
        if (++self->index[i] < self->shape[i]) {
            return;
        }
        self->data -= self->strides[i] * self->shape[i];
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

static inline size_t
part_of_piece(const dl_tensor *piece, size_t skipped, size_t left)
{
    size_t rest = dl_tensor_size(piece) - skipped;

    return rest < left ? rest : left;
}

static void
gather_pieces(char *target, const dl_pieces *pieces, size_t offset, size_t size)
{
    size_t skipped;
    const dl_tensor *piece = &pieces->tensors[find_piece(pieces, offset, &skipped)];

    for (; size > 0; piece++) {
        size_t part = part_of_piece(piece, skipped, size);
        dl_strided_gather_part(target, piece, skipped, part);
        target += part;
        size -= part;
        skipped = 0;
    }
}

static void
scatter_pieces(const dl_pieces *pieces, const char *source, size_t offset, size_t size)
{
    size_t skipped;
    const dl_tensor *piece = &pieces->tensors[find_piece(pieces, offset, &skipped)];

    for (; size > 0; piece++) {
        size_t part = part_of_piece(piece, skipped, size);
        dl_strided_scatter_part(piece, source, skipped, part);
        source += part;
        size -= part;
        skipped = 0;
    }
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

/* Returns the bytes of the run after `skipped`, at most `left`. */
static inline size_t
part_of_run(const walk *self, size_t skipped, size_t left)
{
    size_t rest = self->run_size - skipped;

    return rest < left ? rest : left;
}

void
dl_strided_gather_part(void *target, const dl_tensor *tensor, size_t offset,
                       size_t size)
{
    char *next = target;

    if (size == 0) {
        return;
    }
    if (tensor->is_contiguous) {
        dl_copy(target, (const char *)tensor->data + offset, size);
        return;
    }
    if (tensor->pieces != NULL) {
        gather_pieces(target, tensor->pieces, offset, size);
        return;
    }
    walk self = walk_of(tensor);
    size_t skipped = offset % self.run_size;
    walk_to(&self, offset);
    while (size > 0) {
        size_t part = part_of_run(&self, skipped, size);
        copy_run(next, self.data + skipped, part);
        next += part;
        size -= part;
        skipped = 0;
        walk_on(&self);
    }
}

void
dl_strided_scatter_part(const dl_tensor *tensor, const void *source, size_t offset,
                        size_t size)
{
    const char *next = source;

    if (size == 0) {
        return;
    }
    if (tensor->is_contiguous) {
        dl_copy((char *)tensor->data + offset, source, size);
        return;
    }
    if (tensor->pieces != NULL) {
        scatter_pieces(tensor->pieces, source, offset, size);
        return;
    }
    walk self = walk_of(tensor);
    size_t skipped = offset % self.run_size;
    walk_to(&self, offset);
    while (size > 0) {
        size_t part = part_of_run(&self, skipped, size);
        copy_run(self.data + skipped, next, part);
        next += part;
        size -= part;
        skipped = 0;
        walk_on(&self);
    }
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
magnitude(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

/* Sorts the dimensions of more than one entry by stride, smallest first. */
static int
sorted_dimensions(const dl_tensor *tensor, int order[DL_TENSOR_DIMENSIONS])
{
    int count = 0;

    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 2) {
            continue;
        }
        int at = count++;
        for (; at > 0
               && magnitude(tensor->strides[order[at - 1]])
                      > magnitude(tensor->strides[i]);
             at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return count;
}

bool
dl_strided_may_overlap(const dl_tensor *tensor)
{
    int order[DL_TENSOR_DIMENSIONS];
    uint64_t span = tensor->item_size; /* bytes from the first to the last element */

    if (tensor->is_contiguous || tensor->count < 2) {
        return false;
    }
    for (int i = 0; tensor->pieces != NULL && i < tensor->pieces->count; i++) {
        if (dl_strided_may_overlap(&tensor->pieces->tensors[i])) {
            return true;
        }
    }
    int count = sorted_dimensions(tensor, order);
    for (int i = 0; i < count; i++) {
        uint64_t stride = magnitude(tensor->strides[order[i]]);
        if (stride < span) {
            return true;
        }
        span += stride * (uint64_t)(tensor->shape[order[i]] - 1);
    }
    return false;
}
