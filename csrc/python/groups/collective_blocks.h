/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations with an array or a list of blocks on either side: the part of a call that
 * the list forms and the single-tensor forms share. */
#ifndef DISTLITE_PYTHON_GROUPS_COLLECTIVE_BLOCKS_H
#define DISTLITE_PYTHON_GROUPS_COLLECTIVE_BLOCKS_H

#include "python/arrays/tensor_arg.h"
#include "python/groups/collective_call.h"
#include "tensor/blocks.h"

/* A list argument, with one array for each rank of a group. */
typedef struct dlpy_tensor_list {
    dl_tensor *views; /* passed to the core */
    dlpy_tensor *tensors;
    PyObject *items; /* tuple of the arrays, which keeps them alive */
    int count;
} dlpy_tensor_list;

/* One side of an operation: an array, an array cut into blocks, or a list of arrays.  A
 * zeroed side is valid and empty. */
typedef struct dlpy_side {
    PyObject *array; /* borrowed */
    dlpy_tensor tensor;
    bool has_tensor;
    dl_blocks blocks;
    bool has_blocks;
    dlpy_tensor_list list;
} dlpy_side;

/* Initialise a side of each of the three kinds.  They return -1 with an exception set
 * on failure; the side must be released in either case.  `rows` is NULL, None or a list
 * of lengths along the first dimension, one per rank. */
int dlpy_side_array(dlpy_side *side, PyObject *object, const char *parameter);
int dlpy_side_cut(dlpy_side *side, const dlpy_collective *call, PyObject *object,
                  const char *parameter, PyObject *rows);
int dlpy_side_list(dlpy_side *side, const dlpy_collective *call, PyObject *object,
                   const char *parameter);

static inline const dl_tensor *
dlpy_side_blocks(const dlpy_side *side)
{
    return side->has_blocks ? side->blocks.tensors : side->list.views;
}

/* Runs the operation and releases both sides; a Work keeps the arrays.  Returns the
 * result as dlpy_collective_finish() does. */
PyObject *dlpy_sides_finish(dlpy_collective *self, dl_call *call, dlpy_side *input,
                            dlpy_side *output);

/* Releases both sides and the call after a failure with an exception set.  Returns
 * NULL. */
PyObject *dlpy_sides_give_up(dlpy_collective *call, dlpy_side *input,
                             dlpy_side *output);

#endif
