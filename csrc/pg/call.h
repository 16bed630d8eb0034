/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call of an operation, collective or message, as a value: one struct for all of
 * them, of which each uses the members that the table below names.  Members that it
 * does not use are zero.  Tensors may have any strides.
 *
 *   operation       tensor            inputs     outputs    also
 *   all_reduce      in place                                reduction, factor
 *   reduce          in place on root                        reduction, factor, root
 *   scan, exscan    in place                                reduction, factor
 *   broadcast       read on root                            root
 *   all_gather      input                        by rank
 *   gather          input                        root only  root, is_uneven
 *   scatter         output            root only             root, is_uneven
 *   reduce_scatter  output            by rank               reduction, factor
 *   all_to_all                        by rank    by rank
 *   window          own part          one array  parts
 *   messages        whole                                   peer, tag, is_awaited,
 *                                                           is_work_optional
 *
 * A list of blocks has one entry per rank of the group, all of one dtype; the blocks of
 * the "single" forms are views into one array (tensor/blocks.h).  Blocks of all_gather,
 * reduce_scatter and all_to_all may differ in size: every rank passes the sizes that
 * concern it, and two ranks that exchange a block pass the same size.  Outputs must not
 * share memory with each other or with inputs, with one exception: a rank's own block
 * may be the same view in the input and the output, and is then left where it is.  Of
 * the one input of a window only the dtype is read. */
#ifndef DISTLITE_PG_CALL_H
#define DISTLITE_PG_CALL_H

#include <stddef.h>

#include "base/status.h"
#include "pg/fingerprint.h"
#include "tensor/reduce.h"
#include "tensor/reducer.h"
#include "tensor/tensor.h"

/* A check whether the arrays of an operation that runs after its caller has returned
 * are still where they were when it was called.  The core holds addresses only; the
 * maker of a guard knows who owns the memory.  It keeps the owner and the guard alive
 * until the operation has ended.  Embedded in a struct of its maker. */
typedef struct dl_guard {
    /* Returns DL_OK, or DL_BACKEND with a text that says how an array has changed.  May
     * be called from any thread, with any lock held, and does not block. */
    dl_status (*check)(const struct dl_guard *guard);
} dl_guard;

/* Calls the guard; NULL always passes. */
static inline dl_status
dl_guard_check(const dl_guard *guard)
{
    return guard == NULL ? DL_OK : guard->check(guard);
}

#define DL_ANY_RANK (-1)
#define DL_ANY_TAG (-1) /* of probes; all but those below */

/* What a probe has found: the message that a receive with this source and tag would
 * get. */
typedef struct dl_probed {
    int source; /* rank in the group */
    int64_t tag;
    uint64_t size; /* bytes */
    dl_dtype dtype;
    uint32_t opaque_code;
} dl_probed;

typedef struct dl_call {
    dl_op_type op; /* the even, not coalesced form; the check finds out the others */
    dl_reduce_op reduction;
    double factor; /* of PREMUL_SUM; may differ between ranks */
    /* Of MINLOC, MAXLOC and FUNCTION; NULL for all others.  Backends never get these
     * (pg/function_reduction.h). */
    const dl_reducer *reducer;
    int root; /* rank in the group */
    int peer; /* rank in the group; DL_RECV_ANY: DL_ANY_RANK */
    int64_t tag;
    /* Not NULL: a probe, which is a receive without an array that leaves the message in
     * the queue and describes it here.  If it is not awaited, it checks once, and its
     * work ends with DL_NOT_FOUND if there is no message.  The tag may be
     * DL_ANY_TAG. */
    dl_probed *probed;
    bool is_uneven; /* blocks may differ in size, which only the root knows */
    bool
        has_objects; /* the operation on arrays moves the library's blocks of objects */
    bool is_awaited; /* the caller waits for the message at once */
    /* The caller needs no work of a message that ends well at once: it may be NULL, as
     * it may be if the message is awaited. */
    bool is_work_optional;
    /* For a call that outlives its caller: checked before elements are touched.  NULL
     * if the caller guarantees that the arrays stay in place. */
    const dl_guard *guard;
    dl_tensor tensor;
    const dl_tensor *inputs;
    const dl_tensor *outputs;
} dl_call;

/* The tags of the messages of send_object_list() and gather_object(), and from the last
 * one on of the signals of windows, by the operation that made them.  A backend may keep
 * them apart from every tag that users choose. */
#define DL_OBJECT_TAG 0x6f626a
#define DL_GATHER_TAG 0x6f626b
#define DL_SIGNAL_TAG (INT64_C(0x7369676e) << 32)

static inline bool
dl_is_own_tag(int64_t tag)
{
    return tag == DL_OBJECT_TAG || tag == DL_GATHER_TAG
           || (tag & ~INT64_C(0xffffffff)) == DL_SIGNAL_TAG;
}

/* Constructors of the common collectives. */
static inline dl_call
dl_call_barrier(void)
{
    return (dl_call){.op = DL_BARRIER};
}

static inline dl_call
dl_call_all_reduce(const dl_tensor *tensor, dl_reduce_op reduction)
{
    return (dl_call){.op = DL_ALL_REDUCE, .tensor = *tensor, .reduction = reduction};
}

static inline dl_call
dl_call_broadcast(const dl_tensor *tensor, int root)
{
    return (dl_call){.op = DL_BROADCAST, .tensor = *tensor, .root = root};
}

static inline dl_call
dl_call_all_gather(const dl_tensor *input, const dl_tensor *outputs)
{
    return (dl_call){.op = DL_ALL_GATHER, .tensor = *input, .outputs = outputs};
}

/* The arrays of a call: at most one single array, and lists with one array per rank.
 * Each member is NULL where the call has no such array. */
typedef struct dl_arrays {
    const dl_tensor *single;
    const dl_tensor *inputs;
    const dl_tensor *outputs;
    int list_count;
} dl_arrays;

dl_arrays dl_call_arrays(const dl_call *call, int group_size);

/* Returns array `index` of the call, counted from 0: the single array, then the inputs,
 * then the outputs.  Returns NULL after the last one. */
const dl_tensor *dl_arrays_at(const dl_arrays *arrays, int index);

/* Returns whether the arrays of a checked call, which are all on one device, are not in
 * the CPU's memory. */
static inline bool
dl_call_is_on_device(const dl_call *call)
{
    return call->tensor.device != DL_CPU
           || (call->inputs != NULL && call->inputs[0].device != DL_CPU);
}

/* Returns the size in bytes of the call's single array; 0 if the call has no arrays,
 * SIZE_MAX if it has only lists or the array is on a device. */
size_t dl_call_bytes(const dl_call *call);

/* Memory that the caller provides; may be empty. */
typedef struct dl_room {
    void *memory; /* aligned for any type */
    size_t size;
} dl_room;

/* Copies the call with its lists, shapes and strides, but neither elements nor pieces.
 * The copy is placed in `near` if it fits there, and otherwise in memory of its own that
 * the caller frees with free(3). */
dl_status dl_call_copy(const dl_call *call, int group_size, dl_room near,
                       dl_call **copy);

#endif
