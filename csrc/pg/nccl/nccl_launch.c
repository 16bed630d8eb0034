/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_launch.h"

#include <stdint.h>

enum {
    NCCL_SUM = 0,
    NCCL_PRODUCT = 1,
    NCCL_MAX = 2,
    NCCL_MIN = 3,
    NCCL_AVG = 4,
    NO_OP = -1,
};

enum {
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};

/* The first version of NCCL that reduces eight-bit floats. */
#define EIGHT_BIT_FLOATS 22400

typedef int (*launch_fn)(const dl_nccl_launch *launch);

/* Returns the result of a failed call; ncclGroupEnd would report the same. */
#define TRY_NCCL(call)                     \
    do {                                   \
        int result_ = (call);              \
        if (dl_nccl_has_failed(result_)) { \
            return result_;                \
        }                                  \
    } while (0)

/* NCCL's numbers plus one, so that 0 means a dtype that is not listed. */
static const struct {
    int number;
    size_t per_element;
} dtypes[DL_DTYPE_COUNT] = {
    [DL_BOOL] = {1 + DL_NCCL_UINT8, 1},
    [DL_INT8] = {1 + 0, 1},
    [DL_UINT8] = {1 + DL_NCCL_UINT8, 1},
    [DL_INT32] = {1 + 2, 1},
    [DL_UINT32] = {1 + 3, 1},
    [DL_INT64] = {1 + 4, 1},
    [DL_UINT64] = {1 + 5, 1},
    [DL_FLOAT16] = {1 + NCCL_FLOAT16, 1},
    [DL_FLOAT32] = {1 + NCCL_FLOAT32, 1},
    [DL_FLOAT64] = {1 + NCCL_FLOAT64, 1},
    [DL_BFLOAT16] = {1 + NCCL_BFLOAT16, 1},
    [DL_COMPLEX64] = {1 + NCCL_FLOAT32, 2},
    [DL_COMPLEX128] = {1 + NCCL_FLOAT64, 2},
    [DL_FLOAT8_E4M3FN] = {1 + 10, 1},
    [DL_FLOAT8_E5M2] = {1 + 11, 1},
};

/* The same; the factors of PREMUL_SUM are scale_reduction()'s. */
static const int ops[DL_REDUCE_OP_COUNT] = {
    [DL_SUM] = 1 + NCCL_SUM, [DL_PREMUL_SUM] = 1 + NCCL_SUM,
    [DL_AVG] = 1 + NCCL_AVG, [DL_PRODUCT] = 1 + NCCL_PRODUCT,
    [DL_MIN] = 1 + NCCL_MIN, [DL_MAX] = 1 + NCCL_MAX,
};

/* A bool is a byte of 0 or 1, so that a logical or is the maximum, and a logical and
 * the minimum. */
static const int ops_of_bool[DL_REDUCE_OP_COUNT] = {
    [DL_SUM] = 1 + NCCL_MAX,     [DL_MAX] = 1 + NCCL_MAX, [DL_BOR] = 1 + NCCL_MAX,
    [DL_PRODUCT] = 1 + NCCL_MIN, [DL_MIN] = 1 + NCCL_MIN, [DL_BAND] = 1 + NCCL_MIN,
};

/* The product of complex numbers is not that of their parts; and NCCL multiplies by a
 * factor in the dtype itself. */
static int
op_of(dl_reduce_op op, dl_dtype dtype)
{
    bool is_complex = dtypes[dtype].per_element > 1;
    bool is_missing = (op == DL_PRODUCT && is_complex)
                      || (op == DL_PREMUL_SUM && dl_dtype_size(dtype) == 1);

    return is_missing ? NO_OP : (dtype == DL_BOOL ? ops_of_bool : ops)[op] - 1;
}

dl_status
dl_nccl_reduction_check(const dl_nccl_table *nccl, dl_reduce_op op, dl_dtype dtype)
{
    bool is_eight_bit = dtype == DL_FLOAT8_E4M3FN || dtype == DL_FLOAT8_E5M2;
    char found[32];

    if (is_eight_bit && nccl->version < EIGHT_BIT_FLOATS) {
        dl_nccl_version_text(nccl->version, found, sizeof found);
        return dl_fail(DL_UNSUPPORTED,
                       "reducing %s needs NCCL 2.24 or newer; this is %s",
                       dl_dtype_name(dtype), found);
    }
    if (dtypes[dtype].number == 0) {
        return dl_fail(DL_UNSUPPORTED,
                       "NCCL cannot reduce %s; convert the array, or reduce it on the "
                       "CPU",
                       dl_dtype_name(dtype));
    }
    if (op_of(op, dtype) == NO_OP) {
        return dl_fail(DL_UNSUPPORTED, "Cannot use ReduceOp.%s of %s with NCCL",
                       dl_reduce_op_name(op), dl_dtype_name(dtype));
    }
    return DL_OK;
}

dl_nccl_reduction
dl_nccl_reduction_of(dl_reduce_op op, dl_dtype dtype)
{
    return (dl_nccl_reduction){
        .dtype = dtypes[dtype].number - 1,
        .op = op_of(op, dtype),
        .per_element = dtypes[dtype].per_element,
    };
}

/* Makes a custom operation of the communicator, which reduce() destroys.  NCCL
 * reads the factor before op_create() returns, in the dtype of the elements. */
static int
scale_reduction(const dl_nccl_table *nccl, void *comm, double factor,
                dl_nccl_reduction *reduction)
{
    float single = (float)factor;
    uint16_t half;
    void *scalar = &factor;

    if (reduction->dtype == NCCL_FLOAT32) {
        scalar = &single;
    } else if (reduction->dtype != NCCL_FLOAT64) {
        dl_reduce_narrow(&half,
                         reduction->dtype == NCCL_FLOAT16 ? DL_FLOAT16 : DL_BFLOAT16,
                         &single, 1);
        scalar = &half;
    }
    int result = nccl->op_create(&reduction->op, scalar, reduction->dtype,
                                 DL_NCCL_SCALAR_ON_HOST, comm);
    reduction->is_made = !dl_nccl_has_failed(result);
    return result;
}

/* Whether all blocks have the same size.  All ranks get the same answer, unlike that to
 * whether the blocks are contiguous. */
static bool
are_of_one_size(const dl_tensor *blocks, int count)
{
    size_t size = dl_tensor_size(&blocks[0]);

    for (int i = 1; i < count; i++) {
        if (dl_tensor_size(&blocks[i]) != size) {
            return false;
        }
    }
    return true;
}

/* Whether the blocks, of equal size, are contiguous, as a single call needs them. */
static bool
follow_each_other(const dl_tensor *blocks, int count)
{
    size_t size = dl_tensor_size(&blocks[0]);
    const char *next = blocks[0].data;

    for (int i = 0; i < count; i++, next += size) {
        if (blocks[i].data != next) {
            return false;
        }
    }
    return true;
}

/* Sends `out` to and receives `in` from `peer`; either may be NULL.  Empty blocks are
 * left out on both sides, which know the size, so that the calls of the two ranks
 * match.  Bytes are sent and not elements, so that any dtype works and both sides state
 * a size in bytes. */
static int
exchange_with_peer(const dl_nccl_launch *self, const dl_tensor *out,
                   const dl_tensor *in, int peer)
{
    if (out != NULL && in != NULL && peer == self->rank && out->data == in->data) {
        return DL_NCCL_SUCCESS;
    }
    if (out != NULL && dl_tensor_size(out) > 0) {
        TRY_NCCL(self->nccl->send(out->data, dl_tensor_size(out), DL_NCCL_UINT8, peer,
                                  self->comm, self->stream));
    }
    if (in != NULL && dl_tensor_size(in) > 0) {
        TRY_NCCL(self->nccl->receive(in->data, dl_tensor_size(in), DL_NCCL_UINT8, peer,
                                     self->comm, self->stream));
    }
    return DL_NCCL_SUCCESS;
}

/* Left out if the block is empty, which all ranks know. */
static int
broadcast_block(const dl_nccl_launch *self, const void *from, const dl_tensor *to,
                int root)
{
    return dl_tensor_size(to) == 0
               ? DL_NCCL_SUCCESS
               : self->nccl->broadcast(from, to->data, dl_tensor_size(to),
                                       DL_NCCL_UINT8, root, self->comm, self->stream);
}

static int
broadcast(const dl_nccl_launch *self)
{
    const dl_call *call = self->call;

    return broadcast_block(self, call->tensor.data, &call->tensor, call->root);
}

/* If the blocks differ in size, one broadcast for each rank. */
static int
all_gather(const dl_nccl_launch *self)
{
    const dl_call *call = self->call;
    const dl_tensor *outputs = call->outputs;

    if (are_of_one_size(outputs, self->size)) {
        size_t size = dl_tensor_size(&call->tensor);
        void *to = self->packed == NULL ? outputs[0].data : self->packed;
        return size == 0
                   ? DL_NCCL_SUCCESS
                   : self->nccl->all_gather(call->tensor.data, to, size, DL_NCCL_UINT8,
                                            self->comm, self->stream);
    }
    for (int i = 0; i < self->size; i++) {
        const void *from = i == self->rank ? call->tensor.data : outputs[i].data;
        TRY_NCCL(broadcast_block(self, from, &outputs[i], i));
    }
    return DL_NCCL_SUCCESS;
}

/* gather, scatter and all_to_all: the messages of all pairs run at the same time.  NCCL's
 * own calls need 2.28 and blocks of equal size, and do the same internally. */
static int
exchange_blocks(const dl_nccl_launch *self)
{
    const dl_call *call = self->call;
    bool is_root = self->rank == call->root;

    for (int i = 0; i < self->size; i++) {
        const dl_tensor *own = i == call->root ? &call->tensor : NULL;
        const dl_tensor *out = call->op == DL_GATHER                  ? own
                               : call->op == DL_ALL_TO_ALL || is_root ? &call->inputs[i]
                                                                      : NULL;
        const dl_tensor *in = call->op == DL_SCATTER                 ? own
                              : call->op == DL_ALL_TO_ALL || is_root ? &call->outputs[i]
                                                                     : NULL;
        TRY_NCCL(exchange_with_peer(self, out, in, i));
    }
    return DL_NCCL_SUCCESS;
}

static int
message(const dl_nccl_launch *self)
{
    const dl_tensor *tensor = &self->call->tensor;
    bool is_send = self->call->op == DL_SEND;

    return exchange_with_peer(self, is_send ? tensor : NULL, is_send ? NULL : tensor,
                              self->peer);
}

/* `to` is used on the root only. */
static int
reduce_block(const dl_nccl_launch *self, const dl_nccl_reduction *reduction,
             const dl_tensor *from, const dl_tensor *to, int root)
{
    return from->count == 0 ? DL_NCCL_SUCCESS
                            : self->nccl->reduce(from->data, to->data,
                                                 from->count * reduction->per_element,
                                                 reduction->dtype, reduction->op, root,
                                                 self->comm, self->stream);
}

/* If the blocks differ in size, one reduction for each rank. */
static int
reduce_blocks(const dl_nccl_launch *self, const dl_nccl_reduction *reduction)
{
    const dl_call *call = self->call;
    const dl_tensor *inputs = call->inputs;

    if (are_of_one_size(inputs, self->size)) {
        size_t count = call->tensor.count * reduction->per_element;
        const void *from = self->packed == NULL ? inputs[0].data : self->packed;
        return count == 0 ? DL_NCCL_SUCCESS
                          : self->nccl->reduce_scatter(from, call->tensor.data, count,
                                                       reduction->dtype, reduction->op,
                                                       self->comm, self->stream);
    }
    for (int i = 0; i < self->size; i++) {
        TRY_NCCL(reduce_block(self, reduction, &inputs[i], &call->tensor, i));
    }
    return DL_NCCL_SUCCESS;
}

/* all_reduce, reduce and reduce_scatter.  PREMUL_SUM needs an operation of its own, with
 * this rank's factor. */
static int
reduce(const dl_nccl_launch *self)
{
    const dl_call *call = self->call;
    const dl_tensor *tensor = &call->tensor;
    dl_nccl_reduction reduction = dl_nccl_reduction_of(call->reduction, tensor->dtype);
    int result;

    if (call->op == DL_ALL_REDUCE && tensor->count == 0) {
        return DL_NCCL_SUCCESS;
    }
    if (call->reduction == DL_PREMUL_SUM) {
        TRY_NCCL(scale_reduction(self->nccl, self->comm, call->factor, &reduction));
    }
    if (call->op == DL_ALL_REDUCE) {
        result = self->nccl->all_reduce(
            tensor->data, tensor->data, tensor->count * reduction.per_element,
            reduction.dtype, reduction.op, self->comm, self->stream);
    } else {
        result = call->op == DL_REDUCE
                     ? reduce_block(self, &reduction, tensor, tensor, call->root)
                     : reduce_blocks(self, &reduction);
    }
    if (reduction.is_made) {
        self->nccl->op_destroy(reduction.op, self->comm);
    }
    return result;
}

/* NCCL cannot do an operation without an entry, such as a receive from any rank. */
static const launch_fn launches[DL_OP_TYPE_COUNT] = {
    [DL_ALL_REDUCE] = reduce,      [DL_BROADCAST] = broadcast,
    [DL_REDUCE] = reduce,          [DL_ALL_GATHER] = all_gather,
    [DL_GATHER] = exchange_blocks, [DL_SCATTER] = exchange_blocks,
    [DL_REDUCE_SCATTER] = reduce,  [DL_ALL_TO_ALL] = exchange_blocks,
    [DL_SEND] = message,           [DL_RECV] = message,
};

int
dl_nccl_launch_op(const dl_nccl_launch *launch)
{
    return launches[launch->call->op](launch);
}

/* Returns the blocks that must be packed, or NULL if there are none. */
static const dl_tensor *
blocks_to_pack(const dl_nccl_launch *self)
{
    const dl_call *call = self->call;
    const dl_tensor *blocks = call->op == DL_ALL_GATHER       ? call->outputs
                              : call->op == DL_REDUCE_SCATTER ? call->inputs
                                                              : NULL;

    return blocks == NULL || dl_tensor_size(&blocks[0]) == 0
                   || !are_of_one_size(blocks, self->size)
                   || follow_each_other(blocks, self->size)
               ? NULL
               : blocks;
}

static dl_status
copy_blocks(const dl_nccl_launch *self, const dl_tensor *blocks, bool is_packing)
{
    size_t size = dl_tensor_size(&blocks[0]);
    char *packed = self->packed;
    int result = DL_CUDA_SUCCESS;

    for (int i = 0; i < self->size && result == DL_CUDA_SUCCESS; i++, packed += size) {
        result = self->cuda->copy(is_packing ? packed : blocks[i].data,
                                  is_packing ? blocks[i].data : packed, size,
                                  DL_CUDA_ON_DEVICE, self->stream);
    }
    return dl_cuda_check(self->cuda, result, "cudaMemcpyAsync");
}

dl_status
dl_nccl_launch_begin(dl_nccl_launch *self)
{
    const dl_tensor *blocks = blocks_to_pack(self);

    self->packed = NULL;
    if (blocks == NULL) {
        return DL_OK;
    }
    size_t size = dl_tensor_size(&blocks[0]) * (size_t)self->size;
    dl_status status = dl_cuda_check(
        self->cuda, self->cuda->memory_new_ordered(&self->packed, size, self->stream),
        "cudaMallocAsync");
    if (status != DL_OK) {
        self->packed = NULL;
        return dl_fail_while("packing the separate blocks of %s",
                             dl_op_type_name((uint8_t)self->call->op));
    }
    return self->call->op == DL_REDUCE_SCATTER ? copy_blocks(self, blocks, true)
                                               : DL_OK;
}

dl_status
dl_nccl_launch_end(dl_nccl_launch *self, bool is_launched)
{
    dl_status status = DL_OK;

    if (self->packed == NULL) {
        return DL_OK;
    }
    if (is_launched && self->call->op == DL_ALL_GATHER) {
        status = copy_blocks(self, blocks_to_pack(self), false);
    }
    int result = self->cuda->memory_free_ordered(self->packed, self->stream);
    self->packed = NULL;
    return status == DL_OK ? dl_cuda_check(self->cuda, result, "cudaFreeAsync")
                           : status;
}

/* Reducing eight-bit floats needs compute capability 9.0.  It is checked here because
 * NCCL would refuse in the middle of a group of calls, which breaks the
 * communicator. */
static dl_status
check_reduction(const dl_nccl_table *nccl, const dl_cuda_table *cuda, int device,
                dl_reduce_op op, dl_dtype dtype)
{
    int major = 0, minor = 0;

    DL_TRY(dl_nccl_reduction_check(nccl, op, dtype));
    if (dtype != DL_FLOAT8_E4M3FN && dtype != DL_FLOAT8_E5M2) {
        return DL_OK;
    }
    int result = cuda->device_attribute(&major, DL_CUDA_CAPABILITY_MAJOR, device);
    if (result == DL_CUDA_SUCCESS) {
        result = cuda->device_attribute(&minor, DL_CUDA_CAPABILITY_MINOR, device);
    }
    DL_TRY(dl_cuda_check(cuda, result, "cudaDeviceGetAttribute"));
    return major >= 9
               ? DL_OK
               : dl_fail(DL_UNSUPPORTED,
                         "NCCL reduces %s on devices of compute capability 9.0 or "
                         "newer; cuda:%d has %d.%d; convert the array",
                         dl_dtype_name(dtype), device, major, minor);
}

dl_status
dl_nccl_launch_check(const dl_nccl_table *nccl, const dl_cuda_table *cuda, int device,
                     const dl_call *call)
{
    dl_op_type op = call->op;

    if ((unsigned)op >= DL_OP_TYPE_COUNT || launches[op] == NULL) {
        return dl_fail(DL_UNSUPPORTED, "NCCL has no %s%s", dl_op_type_name((uint8_t)op),
                       op == DL_RECV_ANY ? " from any rank; name the source" : "");
    }
    return op == DL_ALL_REDUCE || op == DL_REDUCE || op == DL_REDUCE_SCATTER
               ? check_reduction(nccl, cuda, device, call->reduction,
                                 call->tensor.dtype)
               : DL_OK;
}
