/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of blocks in the form that UCC takes: contiguous memory with counts and
 * offsets.  Blocks that are contiguous already are used in place; others are copied to
 * a row, a buffer that holds elements contiguously. */
#ifndef DISTLITE_PG_UCC_UCC_LAYOUT_H
#define DISTLITE_PG_UCC_UCC_LAYOUT_H

#include "base/buffer.h"
#include "pg/ucc/ucc_table.h"
#include "tensor/tensor.h"

/* Makes room for `size` bytes in a row, which then has an address.  Its contents are
 * lost. */
dl_status dl_ucc_row_reserve(dl_buffer *row, size_t size);

typedef struct dl_ucc_layout {
    const dl_tensor *blocks;
    int count;
    uint64_t *counts;  /* in bytes */
    uint64_t *offsets; /* in bytes */
    size_t size;
    void *data; /* NULL until it has been placed */
    bool is_packed;
} dl_ucc_layout;

/* Initialises a layout that is not placed yet.  `lengths` has room for two numbers per
 * block. */
void dl_ucc_layout_init(dl_ucc_layout *layout, const dl_tensor *blocks, int count,
                        uint64_t *lengths);

/* Places the blocks for reading: in place, or copied into `row` if they are not
 * contiguous or `must_copy` is set. */
dl_status dl_ucc_layout_read(dl_ucc_layout *layout, dl_buffer *row, bool must_copy);

/* The first function places the blocks for writing, in place or in `row`; the second
 * copies what was written there to the blocks. */
dl_status dl_ucc_layout_write(dl_ucc_layout *layout, dl_buffer *row);
void dl_ucc_layout_unpack(const dl_ucc_layout *layout);

/* Return the layout as a side of a collective that moves bytes: as one block, or as one
 * block per rank. */
dl_ucc_side dl_ucc_layout_whole(const dl_ucc_layout *layout);
dl_ucc_side dl_ucc_layout_parts(const dl_ucc_layout *layout);

#endif
