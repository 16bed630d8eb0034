/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/check.h"

#include "pg/device/device.h"
#include "tensor/strided.h"

/* The tensors on one side of a call: one, or one per rank. */
typedef struct side {
    const dl_tensor *tensors;
    int count;
    const char *name; /* "input" or "output" */
} side;

dl_status
dl_check_tensor(const dl_group *group, const dl_tensor *tensor, bool is_written,
                const dl_fingerprint *fingerprint)
{
    const char *name = dl_op_type_name(fingerprint->op);

    if (tensor->device != DL_CPU) {
        DL_TRY(dl_device_check(group, tensor, name));
    }
    if (is_written && !tensor->is_writable) {
        return dl_fail(
            DL_INVALID,
            "%s: the array is read-only, or its library does not report whether it is "
            "writable; pass a writable copy, such as numpy.array(x)",
            name);
    }
    if (!tensor->is_contiguous && tensor->ndim > DL_TENSOR_DIMENSIONS) {
        return dl_fail(DL_INVALID, "%s: the array has %d dimensions, more than %d",
                       name, tensor->ndim, DL_TENSOR_DIMENSIONS);
    }
    if (is_written && dl_strided_may_overlap(tensor)) {
        return dl_fail(DL_INVALID,
                       "%s: elements of the array share memory, so the result cannot "
                       "be written to it; pass a copy, such as numpy.array(x)",
                       name);
    }
    return DL_OK;
}

static dl_status
check_root(const dl_group *group, int root, dl_fingerprint *fingerprint)
{
    if (root < 0 || root >= dl_group_size(group)) {
        return dl_fail(DL_INVALID,
                       "%s: invalid root rank: rank %d is not in group %s of %d",
                       dl_op_type_name(fingerprint->op), root, dl_group_name(group),
                       dl_group_size(group));
    }
    fingerprint->root = (uint32_t)root;
    return DL_OK;
}

void
dl_check_describe(const dl_tensor *tensor, dl_fingerprint *fingerprint)
{
    dl_fingerprint_set_count(fingerprint, tensor->count);
    fingerprint->dtype = (uint8_t)tensor->dtype;
    fingerprint->detail = tensor->opaque_code;
}

/* Describes a tensor that a reducer combines: its dtype and the reducer share one code,
 * since a dtype that is not numeric needs all of `detail`. */
static dl_status
check_reducer(const dl_tensor *tensor, const dl_reducer *reducer,
              dl_fingerprint *fingerprint)
{
    const char *name = dl_op_type_name(fingerprint->op);

    if (tensor->device != DL_CPU) {
        return dl_fail(DL_UNSUPPORTED,
                       "%s: %s is for arrays in the CPU's memory; this one is on a "
                       "device",
                       name, reducer->name);
    }
    if (tensor->pieces != NULL) {
        return dl_fail(DL_INVALID, "%s: %s takes one array at a time", name,
                       reducer->name);
    }
    if (dl_tensor_size(tensor) % reducer->unit != 0) {
        return dl_fail(DL_INVALID,
                       "%s: %s combines %zu bytes at a time, and a block of %zu "
                       "elements of %zu bytes is not a multiple of that",
                       name, reducer->name, reducer->unit, tensor->count,
                       tensor->item_size);
    }
    fingerprint->dtype = DL_OPAQUE;
    fingerprint->detail = reducer->code;
    return DL_OK;
}

/* Describes a tensor that is reduced, after checking that `op` applies to it.  Only
 * numbers have kernels, and their description leaves `detail` free for the
 * reduction. */
static dl_status
check_reduction(const dl_tensor *tensor, dl_reduce_op op, const dl_reducer *reducer,
                dl_fingerprint *fingerprint)
{
    dl_check_describe(tensor, fingerprint);
    if (reducer != NULL) {
        return check_reducer(tensor, reducer, fingerprint);
    }
    DL_TRY(dl_reduce_check(op, tensor, dl_op_type_name(fingerprint->op)));
    fingerprint->detail = (uint32_t)op;
    return DL_OK;
}

dl_status
dl_check_all_reduce(const dl_group *group, const dl_call *call,
                    dl_fingerprint *fingerprint)
{
    if (call->tensor.pieces != NULL) {
        fingerprint->op = DL_ALL_REDUCE_COALESCED;
        fingerprint->root = dl_fingerprint_of_blocks(&call->tensor, 1);
    }
    DL_TRY(dl_check_tensor(group, &call->tensor, true, fingerprint));
    return check_reduction(&call->tensor, call->reduction, call->reducer, fingerprint);
}

dl_status
dl_check_broadcast(const dl_group *group, const dl_call *call,
                   dl_fingerprint *fingerprint)
{
    bool is_written = dl_group_rank(group) != call->root;

    DL_TRY(check_root(group, call->root, fingerprint));
    DL_TRY(dl_check_tensor(group, &call->tensor, is_written, fingerprint));
    dl_check_describe(&call->tensor, fingerprint);
    return DL_OK;
}

dl_status
dl_check_reduce(const dl_group *group, const dl_call *call, dl_fingerprint *fingerprint)
{
    bool is_written = dl_group_rank(group) == call->root;

    DL_TRY(check_root(group, call->root, fingerprint));
    DL_TRY(dl_check_tensor(group, &call->tensor, is_written, fingerprint));
    return check_reduction(&call->tensor, call->reduction, call->reducer, fingerprint);
}

dl_status
dl_check_scan(const dl_group *group, const dl_call *call, dl_fingerprint *fingerprint)
{
    bool is_written = call->op == DL_SCAN || dl_group_rank(group) > 0;

    if (call->reduction == DL_AVG) {
        return dl_fail(DL_INVALID,
                       "%s of AVG is not supported, as each rank would divide by "
                       "another number; use SUM, and divide the result",
                       dl_op_type_name(fingerprint->op));
    }
    DL_TRY(dl_check_tensor(group, &call->tensor, is_written, fingerprint));
    return check_reduction(&call->tensor, call->reduction, call->reducer, fingerprint);
}

/* Returns the side's tensor that stays on this rank. */
static const dl_tensor *
own_of(const dl_group *group, const side *tensors)
{
    return &tensors->tensors[tensors->count == 1 ? 0 : dl_group_rank(group)];
}

/* The backend of a device would use the address of an array in host memory as an
 * address of the device, or the other way round. */
static dl_status
check_device(const dl_tensor *tensor, const dl_tensor *first,
             const dl_fingerprint *fingerprint)
{
    bool is_same_device =
        tensor->device == first->device
        && (tensor->device == DL_CPU || tensor->device_index == first->device_index);

    return is_same_device
               ? DL_OK
               : dl_fail(DL_INVALID, "%s: the arrays are not all on one device",
                         dl_op_type_name(fingerprint->op));
}

static dl_status
check_side(const dl_group *group, const side *all, bool is_written,
           const dl_fingerprint *fingerprint)
{
    const dl_tensor *first = &all->tensors[0];

    for (int i = 0; i < all->count; i++) {
        const dl_tensor *tensor = &all->tensors[i];
        DL_TRY(dl_check_tensor(group, tensor, is_written, fingerprint));
        DL_TRY(check_device(tensor, first, fingerprint));
        if (!dl_tensors_have_same_dtype(tensor, first)) {
            char dtypes[2][DL_DTYPE_TEXT_SIZE];
            dl_dtype_describe(tensor->dtype, tensor->opaque_code, dtypes[0]);
            dl_dtype_describe(first->dtype, first->opaque_code, dtypes[1]);
            return dl_fail(DL_INVALID,
                           "%s: tensors with different dtypes: %s %d has dtype %s, but "
                           "%s 0 has dtype %s",
                           dl_op_type_name(fingerprint->op), all->name, i, dtypes[0],
                           all->name, dtypes[1]);
        }
    }
    return DL_OK;
}

/* Compares the pieces of the own block array by array, where there are several. */
static dl_status
check_own_pieces(const dl_group *group, const dl_pieces *inputs,
                 const dl_pieces *outputs, const char *name)
{
    int input_count = inputs == NULL ? 1 : inputs->count;
    int output_count = outputs == NULL ? 1 : outputs->count;

    if (input_count != output_count) {
        return dl_fail(DL_INVALID, "%s: there are %d inputs, but %d outputs", name,
                       input_count, output_count);
    }
    for (int i = 0; inputs != NULL && outputs != NULL && i < input_count; i++) {
        if (inputs->tensors[i].count != outputs->tensors[i].count) {
            return dl_fail(DL_INVALID,
                           "%s: rank %d's own block of array %d has %zu elements in "
                           "the input, but %zu in the output",
                           name, dl_group_rank(group), i, inputs->tensors[i].count,
                           outputs->tensors[i].count);
        }
    }
    return DL_OK;
}

/* Checks that the own block of the output fits that of the input, from which
 * it is copied. */
static dl_status
check_own(const dl_group *group, const side *inputs, const side *outputs,
          const dl_fingerprint *fingerprint)
{
    const dl_tensor *input = own_of(group, inputs);
    const dl_tensor *output = own_of(group, outputs);
    const char *name = dl_op_type_name(fingerprint->op);

    if (!dl_tensors_have_same_dtype(input, output)) {
        char dtypes[2][DL_DTYPE_TEXT_SIZE];
        dl_dtype_describe(input->dtype, input->opaque_code, dtypes[0]);
        dl_dtype_describe(output->dtype, output->opaque_code, dtypes[1]);
        return dl_fail(
            DL_INVALID,
            "%s: tensors with different dtypes: the input has dtype %s, but the "
            "output has dtype %s",
            name, dtypes[0], dtypes[1]);
    }
    if (input->count != output->count) {
        return dl_fail(DL_INVALID,
                       "%s: rank %d's own block has %zu elements in the input, but "
                       "%zu in the output",
                       name, dl_group_rank(group), input->count, output->count);
    }
    return check_own_pieces(group, input->pieces, output->pieces, name);
}

static dl_extent
extent_of_side(const side *all)
{
    dl_extent whole = {UINTPTR_MAX, 0};

    for (int i = 0; i < all->count; i++) {
        dl_extent part = dl_tensor_extent(&all->tensors[i]);
        if (part.first != part.end) {
            whole.first = part.first < whole.first ? part.first : whole.first;
            whole.end = part.end > whole.end ? part.end : whole.end;
        }
    }
    return whole;
}

static dl_status
check_outputs_apart(const side *outputs, const dl_fingerprint *fingerprint)
{
    uintptr_t end = 0;
    bool is_rising = true;

    /* Outputs in the order of their addresses, such as the blocks of one array, are
     * checked in a single pass. */
    for (int i = 0; i < outputs->count && is_rising; i++) {
        dl_extent extent = dl_tensor_extent(&outputs->tensors[i]);
        is_rising = extent.first >= end;
        end = extent.end;
    }
    if (is_rising) {
        return DL_OK;
    }
    for (int i = 1; i < outputs->count; i++) {
        for (int k = 0; k < i; k++) {
            if (dl_tensors_overlap(&outputs->tensors[i], &outputs->tensors[k])) {
                return dl_fail(DL_INVALID, "%s: outputs %d and %d share memory",
                               dl_op_type_name(fingerprint->op), k, i);
            }
        }
    }
    return DL_OK;
}

/* Checks that inputs and outputs share no memory.  Only a rank's own block may
 * be in place. */
static dl_status
check_apart(const dl_group *group, const side *inputs, const side *outputs,
            const dl_fingerprint *fingerprint)
{
    DL_TRY(check_outputs_apart(outputs, fingerprint));
    if (!dl_extents_overlap(extent_of_side(inputs), extent_of_side(outputs))) {
        return DL_OK;
    }
    const dl_tensor *own_input = own_of(group, inputs);
    const dl_tensor *own_output = own_of(group, outputs);
    bool is_in_place = dl_tensors_are_same(own_input, own_output);
    for (int i = 0; i < inputs->count; i++) {
        const dl_tensor *input = &inputs->tensors[i];
        for (int k = 0; k < outputs->count; k++) {
            const dl_tensor *output = &outputs->tensors[k];
            bool is_own = input == own_input && output == own_output;
            if (!(is_own && is_in_place) && dl_tensors_overlap(input, output)) {
                return dl_fail(DL_INVALID, "%s: an output shares memory with an input",
                               dl_op_type_name(fingerprint->op));
            }
        }
    }
    return DL_OK;
}

static dl_status
check_sides(const dl_group *group, const side *inputs, const side *outputs,
            const dl_fingerprint *fingerprint)
{
    DL_TRY(check_side(group, inputs, false, fingerprint));
    DL_TRY(check_side(group, outputs, true, fingerprint));
    DL_TRY(check_device(&outputs->tensors[0], &inputs->tensors[0], fingerprint));
    DL_TRY(check_own(group, inputs, outputs, fingerprint));
    return check_apart(group, inputs, outputs, fingerprint);
}

/* Returns the first block of another size than block 0, or 0 if there is none. */
static int
find_uneven(const side *blocks)
{
    for (int i = 1; i < blocks->count; i++) {
        if (blocks->tensors[i].count != blocks->tensors[0].count) {
            return i;
        }
    }
    return 0;
}

static dl_status
check_even(const side *blocks, const dl_fingerprint *fingerprint)
{
    int uneven = find_uneven(blocks);

    return uneven == 0
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "%s: %s %d has %zu elements, %s 0 has %zu; use %s_v for "
                         "blocks of different sizes",
                         dl_op_type_name(fingerprint->op), blocks->name, uneven,
                         blocks->tensors[uneven].count, blocks->name,
                         blocks->tensors[0].count, dl_op_type_name(fingerprint->op));
}

/* Returns a tensor that stands for all blocks, for operations in which every rank
 * knows all sizes; sets the fingerprint's op and hash of sizes if they are uneven
 * or in pieces. */
static dl_tensor
whole_of_blocks(const side *blocks, dl_op_type uneven, dl_op_type coalesced,
                dl_fingerprint *fingerprint)
{
    dl_tensor all = blocks->tensors[0];

    if (all.pieces != NULL) {
        fingerprint->op = (uint8_t)coalesced;
        fingerprint->root = dl_fingerprint_of_blocks(blocks->tensors, blocks->count);
    } else if (find_uneven(blocks) != 0) {
        fingerprint->op = (uint8_t)uneven;
        fingerprint->root = dl_fingerprint_of_blocks(blocks->tensors, blocks->count);
        for (int i = 1; i < blocks->count; i++) {
            all.count += blocks->tensors[i].count;
        }
    }
    return all;
}

/* Describes a rank's own block.  Uneven blocks are described without their size, which
 * only the root knows, or which differs between pairs of ranks. */
static void
describe_own_block(const dl_tensor *block, bool is_uneven, dl_fingerprint *fingerprint)
{
    dl_tensor own = *block;

    if (is_uneven) {
        own.count = 0;
    }
    dl_check_describe(&own, fingerprint);
}

dl_status
dl_check_all_gather(const dl_group *group, const dl_call *call,
                    dl_fingerprint *fingerprint)
{
    side inputs = {&call->tensor, 1, "input"};
    side outputs = {call->outputs, dl_group_size(group), "output"};

    /* The library's own blocks of objects are alike and apart. */
    DL_TRY(call->has_objects ? check_side(group, &inputs, true, fingerprint)
                             : check_sides(group, &inputs, &outputs, fingerprint));
    dl_tensor whole = whole_of_blocks(&outputs, DL_ALL_GATHER_V,
                                      DL_ALL_GATHER_COALESCED, fingerprint);
    dl_check_describe(&whole, fingerprint);
    return DL_OK;
}

/* The root has a list, every rank one block: the input of a gather, the output of a
 * scatter. */
dl_status
dl_check_rooted(const dl_group *group, const dl_call *call, dl_fingerprint *fingerprint)
{
    bool is_gather = fingerprint->op == DL_GATHER;
    side own = {&call->tensor, 1, is_gather ? "input" : "output"};
    side list = {is_gather ? call->outputs : call->inputs, dl_group_size(group),
                 is_gather ? "output" : "input"};

    if (call->is_uneven) {
        fingerprint->op = is_gather ? DL_GATHER_V : DL_SCATTER_V;
    }
    DL_TRY(check_root(group, call->root, fingerprint));
    if (dl_group_rank(group) == call->root && !call->has_objects) {
        DL_TRY(check_sides(group, is_gather ? &own : &list, is_gather ? &list : &own,
                           fingerprint));
        DL_TRY(call->is_uneven ? DL_OK : check_even(&list, fingerprint));
    } else {
        DL_TRY(check_side(group, &own, !is_gather, fingerprint));
    }
    describe_own_block(&call->tensor, call->is_uneven, fingerprint);
    return DL_OK;
}

dl_status
dl_check_reduce_scatter(const dl_group *group, const dl_call *call,
                        dl_fingerprint *fingerprint)
{
    side inputs = {call->inputs, dl_group_size(group), "input"};
    side outputs = {&call->tensor, 1, "output"};

    DL_TRY(check_sides(group, &inputs, &outputs, fingerprint));
    dl_tensor whole = whole_of_blocks(&inputs, DL_REDUCE_SCATTER_V,
                                      DL_REDUCE_SCATTER_COALESCED, fingerprint);
    for (int i = 0; call->reducer != NULL && i < inputs.count; i++) {
        DL_TRY(check_reducer(&call->inputs[i], call->reducer, fingerprint));
    }
    return check_reduction(&whole, call->reduction, call->reducer, fingerprint);
}

dl_status
dl_check_all_to_all(const dl_group *group, const dl_call *call,
                    dl_fingerprint *fingerprint)
{
    side inputs = {call->inputs, dl_group_size(group), "input"};
    side outputs = {call->outputs, dl_group_size(group), "output"};

    DL_TRY(check_sides(group, &inputs, &outputs, fingerprint));
    describe_own_block(&call->inputs[0], true, fingerprint);
    return DL_OK;
}

dl_status
dl_check_window(const dl_group *group, const dl_call *call, dl_fingerprint *fingerprint)
{
    (void)group;
    dl_check_describe(call->inputs, fingerprint);
    dl_fingerprint_set_count(fingerprint, 0);
    return DL_OK;
}
