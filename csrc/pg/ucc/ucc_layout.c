/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_layout.h"

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
dl_ucc_layout_init(dl_ucc_layout *layout, const dl_ucc_memory *memory,
                   const dl_tensor *blocks, int count, uint64_t *lengths)
{
    *layout = (dl_ucc_layout){
        .memory = memory,
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

bool
dl_ucc_layout_is_even(const dl_ucc_layout *layout)
{
    for (int i = 1; i < layout->count; i++) {
        if (layout->counts[i] != layout->counts[0]) {
            return false;
        }
    }
    return true;
}

static dl_status
place(dl_ucc_layout *self, dl_ucc_row *row, bool must_copy)
{
    self->is_packed = must_copy || !is_in_a_row(self);
    if (!self->is_packed) {
        self->data = start_of(self);
        return DL_OK;
    }
    DL_TRY(dl_ucc_row_reserve(self->memory, row, self->size));
    self->data = row->data;
    return DL_OK;
}

dl_status
dl_ucc_layout_read(dl_ucc_layout *layout, dl_ucc_row *row, bool must_copy)
{
    DL_TRY(place(layout, row, must_copy));
    for (int i = 0; layout->is_packed && i < layout->count; i++) {
        DL_TRY(dl_ucc_copy_in(layout->memory, (char *)layout->data + layout->offsets[i],
                              &layout->blocks[i]));
    }
    return layout->is_packed ? dl_ucc_memory_settle(layout->memory) : DL_OK;
}

dl_status
dl_ucc_layout_write(dl_ucc_layout *layout, dl_ucc_row *row)
{
    return place(layout, row, false);
}

dl_status
dl_ucc_layout_unpack(const dl_ucc_layout *layout)
{
    for (int i = 0; layout->is_packed && i < layout->count; i++) {
        DL_TRY(dl_ucc_copy_out(layout->memory, &layout->blocks[i],
                               (const char *)layout->data + layout->offsets[i]));
    }
    return layout->is_packed ? dl_ucc_memory_settle(layout->memory) : DL_OK;
}

dl_ucc_side
dl_ucc_layout_whole(const dl_ucc_layout *layout)
{
    return (dl_ucc_side){
        .one = {layout->data, layout->size, DL_UCC_UINT8, layout->memory->kind},
    };
}

dl_ucc_side
dl_ucc_layout_parts(const dl_ucc_layout *layout)
{
    return (dl_ucc_side){
        .many = {layout->data, layout->counts, layout->offsets, DL_UCC_UINT8,
                 layout->memory->kind},
    };
}
