/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The arguments of each operation as one plain struct per collective.  Tensors may
 * have any strides.  A list of blocks has one entry per rank of the group, all of one
 * dtype; the blocks of the "single" forms are views into one array (tensor/blocks.h).
 * Outputs must not share memory with each other or with inputs, with one exception: a
 * rank's own block may be the same view in the input and the output, and is then left
 * where it is. */
#ifndef DISTLITE_PG_ARGUMENTS_H
#define DISTLITE_PG_ARGUMENTS_H

#include <stddef.h>

#include "base/status.h"
#include "pg/fingerprint.h"
#include "tensor/reduce.h"
#include "tensor/reducer.h"
#include "tensor/tensor.h"

typedef struct dl_all_reduce_args {
    dl_tensor tensor; /* in place */
    dl_reduce_op op;
    double factor; /* of PREMUL_SUM; may differ between ranks */
    /* Of MINLOC, MAXLOC and FUNCTION, here and below; NULL for all others.  Backends
     * never get these (pg/function_reduction.h). */
    const dl_reducer *reducer;
} dl_all_reduce_args;

typedef struct dl_broadcast_args {
    dl_tensor tensor; /* read on the root, written elsewhere */
    int root;         /* rank in the group */
} dl_broadcast_args;

typedef struct dl_reduce_args {
    dl_tensor tensor; /* in place on the root, left as it is elsewhere */
    int root;
    dl_reduce_op op;
    double factor;
    const dl_reducer *reducer;
} dl_reduce_args;

/* Of scan and exscan: rank r gets the reduction of the arrays of ranks 0 to r, or only
 * of those before it, in which case rank 0's array stays as it is. */
typedef struct dl_scan_args {
    dl_tensor tensor; /* in place */
    dl_reduce_op op;  /* not AVG */
    double factor;
    bool is_exclusive;
    const dl_reducer *reducer;
} dl_scan_args;

/* Blocks may differ in size; every rank passes all of the sizes. */
typedef struct dl_all_gather_args {
    dl_tensor input;
    const dl_tensor *outputs;
} dl_all_gather_args;

typedef struct dl_gather_args {
    dl_tensor input;
    const dl_tensor *outputs; /* NULL except on the root */
    int root;
    bool is_uneven; /* blocks may differ in size, which only the root knows */
} dl_gather_args;

typedef struct dl_scatter_args {
    const dl_tensor *inputs; /* NULL except on the root */
    dl_tensor output;
    int root;
    bool is_uneven; /* blocks may differ in size, which only the root knows */
} dl_scatter_args;

/* Blocks may differ in size, with the same sizes on all ranks. */
typedef struct dl_reduce_scatter_args {
    const dl_tensor *inputs;
    dl_tensor output;
    dl_reduce_op op;
    double factor;
    const dl_reducer *reducer;
} dl_reduce_scatter_args;

/* Blocks may differ in size; the block that one rank sends has the size that
 * the other expects. */
typedef struct dl_all_to_all_args {
    const dl_tensor *inputs;  /* by destination */
    const dl_tensor *outputs; /* by source */
} dl_all_to_all_args;

/* The cards with which ranks announce their serialized objects before they move them.
 * The cards are blocks of bytes whose sizes follow from operation, root and group.  The
 * operation is always waited for and never queued. */
typedef struct dl_objects_args {
    dl_all_gather_args cards;
    int root; /* negative if the operation has no root */
} dl_objects_args;

/* The cards with which ranks tell each other of their parts of a window.  Never
 * queued. */
typedef struct dl_window_args {
    dl_all_gather_args cards;
    dl_tensor model; /* of which only the dtype is read */
} dl_window_args;

/* A check whether the arrays of an operation that runs after its caller has returned
 * are still where they were when it was called.  The core holds addresses only; the
 * maker of a guard knows who owns the memory.  It keeps the owner and the guard alive
 * until the operation has ended.  Embedded in a struct of its maker. */
typedef struct dl_guard {
    /* Returns DL_OK, or DL_BACKEND with a text on what became of an array.  May be
     * called from any thread, with any lock held, and does not block. */
    dl_status (*check)(const struct dl_guard *guard);
} dl_guard;

/* Calls the guard; NULL always passes. */
static inline dl_status
dl_guard_check(const dl_guard *guard)
{
    return guard == NULL ? DL_OK : guard->check(guard);
}

/* One array sent to one rank or received from it. */
typedef struct dl_message_args {
    dl_tensor tensor;
    int peer; /* rank in the group; DL_RECV_ANY: DL_ANY_RANK */
    int64_t tag;
    bool is_awaited;       /* the caller waits at once */
    const dl_guard *guard; /* checked before elements are touched, unless NULL */
} dl_message_args;

#define DL_ANY_RANK (-1)

/* The tag of the messages of send_object_list().  A backend may keep them apart from
 * every tag that users choose. */
#define DL_OBJECT_TAG 0x6f626a

/* The arrays of an operation: at most one single array, and lists with one array per
 * rank.  Each member is NULL where the operation has no such array. */
typedef struct dl_arrays {
    const dl_tensor *single;
    const dl_tensor *inputs;
    const dl_tensor *outputs;
    int list_count;
} dl_arrays;

dl_arrays dl_arguments_arrays(dl_op_type op, const void *args, int group_size);

/* Returns array `index` of the operation, counted from 0: the single array, then the
 * inputs, then the outputs.  Returns NULL after the last one. */
const dl_tensor *dl_arrays_at(const dl_arrays *arrays, int index);

/* Returns the reducer of a reduction that has one, otherwise NULL. */
const dl_reducer *dl_arguments_reducer(dl_op_type op, const void *args);

/* Returns the size in bytes of the operation's single array; 0 if the operation has no
 * arrays, SIZE_MAX if it has only lists or the array is on a device. */
size_t dl_arguments_bytes(dl_op_type op, const void *args);

/* Memory that the caller provides; may be empty. */
typedef struct dl_room {
    void *memory; /* aligned for any type */
    size_t size;
} dl_room;

/* Copies the struct of `op` (which may be NULL) with its lists, shapes and strides, but
 * neither elements nor pieces.  The copy is placed in `near` if it fits there, and
 * otherwise in memory of its own that the caller frees with free(3). */
dl_status dl_arguments_copy(dl_op_type op, const void *args, int group_size,
                            dl_room near, void **copy);

#endif
