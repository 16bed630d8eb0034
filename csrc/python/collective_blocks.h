/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An operation between one array or a list of blocks on either side: what the
 * list forms and the single forms have in common on their way to the core. */
#ifndef DISTLITE_PYTHON_COLLECTIVE_BLOCKS_H
#define DISTLITE_PYTHON_COLLECTIVE_BLOCKS_H

#include "python/collective_call.h"
#include "python/tensor_list.h"
#include "tensor/blocks.h"

/* One side: an array, the blocks it is cut into, or a list of arrays.  Zeroed: nothing. */
typedef struct dlpy_side {
    PyObject *array; /* borrowed */
    dlpy_tensor tensor;
    bool has_tensor;
    dl_blocks blocks;
    bool has_blocks;
    dlpy_tensor_list list;
} dlpy_side;

/* The three kinds; -1 with an exception set, to be released all the same.  `rows` is
 * NULL, None or a list of lengths along the first dimension. */
int dlpy_side_array(dlpy_side *side, PyObject *object, const char *parameter);
int dlpy_side_cut(dlpy_side *side, const dlpy_collective *call, PyObject *object,
                  const char *parameter, PyObject *rows);
int dlpy_side_list(dlpy_side *side, const dlpy_collective *call, PyObject *object,
                   const char *parameter);
void dlpy_side_release(dlpy_side *side);

static inline const dl_tensor *
dlpy_side_blocks(const dlpy_side *side)
{
    return side->has_blocks ? side->blocks.tensors : side->list.views;
}

/* Runs the operation between both sides and releases them; a Work keeps them. */
PyObject *dlpy_sides_finish(dlpy_collective *call, dl_op_type op, const void *args,
                            dlpy_side *input, dlpy_side *output);

/* After a failure; NULL. */
PyObject *dlpy_sides_give_up(dlpy_collective *call, dlpy_side *input,
                             dlpy_side *output);

#endif
