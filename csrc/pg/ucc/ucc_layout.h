/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of blocks as UCC wants them: one piece of memory, with counts and offsets.  Blocks
 * that lie one behind another already are used where they are. */
#ifndef DISTLITE_PG_UCC_UCC_LAYOUT_H
#define DISTLITE_PG_UCC_UCC_LAYOUT_H

#include "pg/ucc/ucc_state.h"
#include "tensor/tensor.h"

typedef struct dl_ucc_layout {
    const dl_ucc_memory *memory;
    const dl_tensor *blocks;
    int count;
    uint64_t *counts;  /* bytes */
    uint64_t *offsets; /* bytes */
    size_t size;
    void *data; /* NULL until it has a place */
    bool is_packed;
} dl_ucc_layout;

/* `lengths`: room for two numbers per block. */
void dl_ucc_layout_init(dl_ucc_layout *layout, const dl_ucc_memory *memory,
                        const dl_tensor *blocks, int count, uint64_t *lengths);

bool dl_ucc_layout_is_even(const dl_ucc_layout *layout);

/* Where to read the blocks: copied into `row` if need be, or if `must_copy`. */
dl_status dl_ucc_layout_read(dl_ucc_layout *layout, dl_ucc_row *row, bool must_copy);

/* Where to write them; then, whatever was written there goes to the blocks. */
dl_status dl_ucc_layout_write(dl_ucc_layout *layout, dl_ucc_row *row);
dl_status dl_ucc_layout_unpack(const dl_ucc_layout *layout);

/* Both as sides of a collective that moves bytes. */
dl_ucc_side dl_ucc_layout_whole(const dl_ucc_layout *layout);
dl_ucc_side dl_ucc_layout_parts(const dl_ucc_layout *layout);

#endif
