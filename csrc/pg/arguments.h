/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One plain struct per collective: what the caller asked for.  Tensors may have any
 * strides.  A list of blocks has one entry per rank of the group, all of one dtype; the
 * blocks of the "single" forms are views into one array (tensor/blocks.h).  Outputs may
 * not share memory with each other or with inputs, but a rank's own block may be the
 * very same view as its counterpart: then it is left where it is. */
#ifndef DISTLITE_PG_ARGUMENTS_H
#define DISTLITE_PG_ARGUMENTS_H

#include "pg/fingerprint.h"
#include "pg/guard.h"
#include "tensor/reduce.h"
#include "tensor/tensor.h"

typedef struct dl_all_reduce_args {
    dl_tensor tensor; /* in place */
    dl_reduce_op op;
    double factor; /* of PREMUL_SUM; each rank may have its own */
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
} dl_reduce_args;

/* Blocks may differ in size: every rank knows all of them. */
typedef struct dl_all_gather_args {
    dl_tensor input;
    const dl_tensor *outputs;
} dl_all_gather_args;

typedef struct dl_gather_args {
    dl_tensor input;
    const dl_tensor *outputs; /* NULL but on the root */
    int root;
    bool is_uneven; /* blocks may differ in size, which only the root knows */
} dl_gather_args;

typedef struct dl_scatter_args {
    const dl_tensor *inputs; /* NULL but on the root */
    dl_tensor output;
    int root;
    bool is_uneven; /* blocks may differ in size, which only the root knows */
} dl_scatter_args;

/* Blocks may differ in size, on all ranks the same way. */
typedef struct dl_reduce_scatter_args {
    const dl_tensor *inputs;
    dl_tensor output;
    dl_reduce_op op;
    double factor;
} dl_reduce_scatter_args;

/* Blocks may differ in size; what one rank sends, the other must expect. */
typedef struct dl_all_to_all_args {
    const dl_tensor *inputs;  /* by destination */
    const dl_tensor *outputs; /* by source */
} dl_all_to_all_args;

/* What each rank says of its objects before they are moved, in bytes: blocks whose sizes
 * follow from operation, root and group.  Only waited for, never queued. */
typedef struct dl_objects_args {
    dl_all_gather_args cards;
    int root; /* negative: there is none */
} dl_objects_args;

/* One array to or from one rank. */
typedef struct dl_message_args {
    dl_tensor tensor;
    int peer; /* rank in the group; of a receive also DL_ANY_RANK */
    int64_t tag;
    bool is_awaited;       /* the caller waits at once */
    const dl_guard *guard; /* asked before elements are touched; NULL: none */
} dl_message_args;

#define DL_ANY_RANK (-1)

/* The tag of the messages of send_object_list(), which a backend may keep apart from all
 * that users choose. */
#define DL_OBJECT_TAG 0x6f626a

/* The arrays of an operation: one, and lists of one for each rank. */
typedef struct dl_arrays {
    const dl_tensor *single; /* NULL: none, as the lists */
    const dl_tensor *inputs;
    const dl_tensor *outputs;
    int list_count;
} dl_arrays;

dl_arrays dl_arguments_arrays(dl_op_type op, const void *args, int group_size);

/* The `index`-th of them, from 0; NULL after the last. */
const dl_tensor *dl_arrays_at(const dl_arrays *arrays, int index);

/* Bytes of the array that this rank brings or takes; SIZE_MAX where that is a list, or on
 * a device. */
size_t dl_arguments_bytes(dl_op_type op, const void *args);

/* Memory that the caller has anyway; may be none. */
typedef struct dl_room {
    void *memory; /* aligned for anything */
    size_t size;
} dl_room;

/* The struct of `op` (NULL for none) with its lists, shapes and strides, in `near` if
 * that is enough for it, else in memory of its own, freed with free(3); the elements stay
 * where they are. */
dl_status dl_arguments_copy(dl_op_type op, const void *args, int group_size,
                            dl_room near, void **copy);

#endif
