/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_layout.h"

#include "tensor/strided.h"

dl_status
dl_ucc_row_reserve(dl_buffer *row, size_t size)
{
    dl_buffer_clear(row);
    return dl_buffer_reserve(row, size + 1);
}

/* Blocks without elements have no place in memory and are ignored. */
static bool
is_in_a_row(const dl_ucc_layout *self)
{
    const char *first = NULL;

    for (int i = 0; i < self->count; i++) {
        const dl_tensor *block = &self->blocks[i];
        if (block->count == 0) {
            continue;
        }
        if (first == NULL) {
            first = (const char *)block->data - self->offsets[i];
        }
        if (!block->is_contiguous
            || (const char *)block->data != first + self->offsets[i]) {
            return false;
        }
    }
    return true;
}

static void *
start_of(const dl_ucc_layout *self)
{
    for (int i = 0; i < self->count; i++) {
        if (self->blocks[i].count > 0) {
            return (char *)self->blocks[i].data - self->offsets[i];
        }
    }
    return NULL;
}

void
dl_ucc_layout_init(dl_ucc_layout *layout, const dl_tensor *blocks, int count,
                   uint64_t *lengths)
{
    *layout = (dl_ucc_layout){
        .blocks = blocks,
        .count = count,
        .counts = lengths,
        .offsets = lengths + count,
    };
    for (int i = 0; i < count; i++) {
        layout->counts[i] = dl_tensor_size(&blocks[i]);
        layout->offsets[i] = layout->size;
        layout->size += layout->counts[i];
    }
}

static dl_status
place_blocks(dl_ucc_layout *self, dl_buffer *row, bool must_copy)
{
    self->is_packed = must_copy || !is_in_a_row(self);
    if (!self->is_packed) {
        self->data = start_of(self);
        return DL_OK;
    }
    DL_TRY(dl_ucc_row_reserve(row, self->size));
    self->data = row->data;
    return DL_OK;
}

dl_status
dl_ucc_layout_read(dl_ucc_layout *layout, dl_buffer *row, bool must_copy)
{
    DL_TRY(place_blocks(layout, row, must_copy));
    for (int i = 0; layout->is_packed && i < layout->count; i++) {
        dl_strided_gather_part((char *)layout->data + layout->offsets[i],
                               &layout->blocks[i], 0, layout->counts[i]);
    }
    return DL_OK;
}

dl_status
dl_ucc_layout_write(dl_ucc_layout *layout, dl_buffer *row)
{
    return place_blocks(layout, row, false);
}

void
dl_ucc_layout_unpack(const dl_ucc_layout *layout)
{
    for (int i = 0; layout->is_packed && i < layout->count; i++) {
        dl_strided_scatter_part(&layout->blocks[i],
                                (const char *)layout->data + layout->offsets[i], 0,
                                layout->counts[i]);
    }
}

dl_ucc_side
dl_ucc_layout_whole(const dl_ucc_layout *layout)
{
    return (dl_ucc_side){
        .one = {layout->data, layout->size, DL_UCC_UINT8, DL_UCC_HOST},
    };
}

dl_ucc_side
dl_ucc_layout_parts(const dl_ucc_layout *layout)
{
    return (dl_ucc_side){
        .many = {layout->data, layout->counts, layout->offsets, DL_UCC_UINT8,
                 DL_UCC_HOST},
    };
}
