/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collective functions: distlite.all_reduce and the others are these builtins.  A
 * Python frame costs more than a small all_reduce, so a synchronous call allocates
 * nothing between the caller and the core. */
#include "pg/backend.h"
#include "pg/device/device.h"
#include "python/arrays/cuda_arg.h"
#include "python/groups/collective_blocks.h"
#include "python/groups/collective_call.h"
#include "python/groups/reducer_type.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "tensor/reduce.h"

/* Members are instances of a subclass of int; their values are the core's. */
static int
op_from_member(PyObject *member, dl_reduce_op *op)
{
    long value = PyLong_AsLong(member);

    if (value < 0 || value >= DL_REDUCE_OP_COUNT) {
        PyErr_Format(PyExc_ValueError, "no such reduction: %R", member);
        return -1;
    }
    *op = (dl_reduce_op)value;
    return 0;
}

static int
op_from_wrapper(const dlpy_state *state, PyObject *wrapper, dl_reduce_op *op)
{
    PyObject *member = PyObject_GetAttrString(wrapper, "op");

    if (member == NULL) {
        return -1;
    }
    int result = -1;
    if ((PyObject *)Py_TYPE(member) == DLPY_LOAD(state->red_op_type)) {
        result = op_from_member(member, op);
    } else {
        PyErr_Format(PyExc_TypeError, "%R has no member in `op`", wrapper);
    }
    Py_DECREF(member);
    return result;
}

/* The factor is a number or an array of one element: any object that float()
 * accepts. */
static int
factor_from(PyObject *wrapper, double *factor)
{
    PyObject *object = PyObject_GetAttrString(wrapper, "factor");

    if (object == NULL) {
        return -1;
    }
    *factor = PyFloat_AsDouble(object);
    Py_DECREF(object);
    return *factor == -1.0 && PyErr_Occurred() ? -1 : 0;
}

int
dlpy_reduce_op_from(const dlpy_state *state, PyObject *object, dl_reduce_op *op,
                    double *factor)
{
    *factor = 1;
    if (object == NULL) {
        *op = DL_SUM;
        return 0;
    }
    /* Exact type comparison: subclassing these types serves no purpose, and a pointer
     * comparison is the cheapest test. */
    if ((PyObject *)Py_TYPE(object) == DLPY_LOAD(state->red_op_type)) {
        if (op_from_member(object, op) < 0) {
            return -1;
        }
        if (*op == DL_PREMUL_SUM) {
            PyErr_SetString(
                PyExc_RuntimeError,
                "PREMUL_SUM has no factor; use ReduceOp.PREMUL_SUM(factor)");
            return -1;
        }
        return 0;
    }
    if ((PyObject *)Py_TYPE(object) == DLPY_LOAD(state->reduce_op_type)) {
        if (op_from_wrapper(state, object, op) < 0) {
            return -1;
        }
        return *op == DL_PREMUL_SUM ? factor_from(object, factor) : 0;
    }
    *op = DL_FUNCTION; /* make_reducer() rejects an object that is not a function */
    return 0;
}

/* Finds the reducer of a reduction that has no kernel, for arrays like `array`; NULL
 * for all others.  The call owns it.  Returns 0, or -1 with an exception set. */
static int
take_reducer(dlpy_collective *self, dl_reduce_op op, PyObject *object, PyObject *array,
             const dlpy_tensor *tensor, const dl_reducer **reducer)
{
    *reducer = NULL;
    if (!dl_reduce_op_has_reducer(op)) {
        return 0;
    }
    self->reducer = dlpy_reducer_for(self->state, op, object, array, tensor);
    if (self->reducer == NULL) {
        return -1;
    }
    *reducer = dlpy_reducer_core(self->reducer);
    return 0;
}

/* Runs an operation on one array, its input and its output.  `writes` is true if this
 * rank receives a result in the array.  torch's version counter is incremented here, at
 * the call, for asynchronous operations too: no thread may be running Python when the
 * operation ends, and a tensor must not be read or saved while an operation on it is
 * pending.
 *
 * For a synchronous call the array is kept alive by the caller's frame.  Only a
 * Work, or a batch, which begins the operation later, needs a reference to it. */
static PyObject *
finish_in_place(dlpy_collective *self, dl_call *call, dlpy_tensor *tensor,
                PyObject *array, bool writes)
{
    static const dlpy_work_keep nothing;
    PyObject *result;

    if (dlpy_events_want(tensor)) {
        self->inputs = array;
    }
    if (writes && dlpy_tensor_note_write(tensor, array) < 0) {
        result = dlpy_collective_give_up(self);
    } else if (dlpy_collective_outlives_call(self)) {
        dlpy_guard guard = {0};
        dlpy_work_keep keep = {
            .pins = tensor->owner, .outputs = array, .guard = &guard};
        result = dlpy_guard_add(&guard, array, tensor) < 0
                     ? dlpy_collective_give_up(self)
                     : dlpy_collective_finish(self, call, &keep);
        dlpy_guard_clear(&guard);
    } else {
        result = dlpy_collective_finish(self, call, &nothing);
    }
    if (result == NULL && dl_backend_take_kept_memory()) {
        Py_INCREF(array); /* for good, like the owner of its view */
        return NULL;
    }
    dlpy_tensor_release(tensor);
    return result;
}

/* A function of one array, which is its input and its output.  The numbers are those of
 * its parameters in the signature; 0, the array's, means that it has none. */
typedef struct in_place {
    dlpy_signature signature;
    dl_op_type op;
    int reduction;
    int root; /* the global rank, "src" or "dst" */
    int group;
    int group_root;
} in_place;

/* Inlined, so that the numbers are constants. */
static inline __attribute__((always_inline)) PyObject *
run_in_place(PyObject *module, const in_place *form, dlpy_call call)
{
    PyObject *values[8];
    dlpy_collective self;
    dlpy_tensor tensor;
    dl_call core = {.op = form->op};

    if (dlpy_take_arguments(&form->signature, call, values) < 0) {
        return NULL;
    }
    int begun =
        dlpy_collective_begin(module, &form->signature, values, form->group, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    PyObject *reduction = form->reduction == 0 ? NULL : values[form->reduction];
    if ((form->root != 0
         && dlpy_collective_root(&self, form->signature.names[form->root],
                                 values[form->root], values[form->group_root], -1,
                                 &core.root)
                < 0)
        || (form->reduction != 0
            && dlpy_reduce_op_from(self.state, reduction, &core.reduction, &core.factor)
                   < 0)
        || dlpy_tensor_from(values[0], "tensor", &tensor) < 0) {
        return dlpy_collective_give_up(&self);
    }
    if (form->reduction != 0
        && take_reducer(&self, core.reduction, reduction, values[0], &tensor,
                        &core.reducer)
               < 0) {
        dlpy_tensor_release(&tensor);
        return dlpy_collective_give_up(&self);
    }
    core.tensor = tensor.view;
    int rank = dl_group_rank(self.core);
    bool writes = form->op == DL_BROADCAST ? rank != core.root
                  : form->op == DL_REDUCE  ? rank == core.root
                                           : form->op != DL_EXSCAN || rank > 0;
    return finish_in_place(&self, &core, &tensor, values[0], writes);
}

/* A reduction whose result is on every rank. */
#define REDUCTION(name, type)                                                    \
    DLPY_BUILTIN(                                                                \
        name, #name, run_in_place, in_place, .signature.required = 1,            \
        .signature.names = {"tensor", "op", "group", "async_op", DLPY_KEYWORDS}, \
        .op = type, .reduction = 1, .group = 2)

REDUCTION(all_reduce, DL_ALL_REDUCE)
REDUCTION(scan, DL_SCAN)
REDUCTION(exscan, DL_EXSCAN)

DLPY_BUILTIN(broadcast, "broadcast", run_in_place, in_place, .signature.required = 1,
             .signature.names = {"tensor", "src", "group", "async_op", "group_src",
                                 DLPY_KEYWORDS},
             .op = DL_BROADCAST, .root = 1, .group = 2, .group_root = 4)

DLPY_BUILTIN(reduce, "reduce", run_in_place, in_place, .signature.required = 1,
             .signature.names = {"tensor", "dst", "op", "group", "async_op",
                                 "group_dst", DLPY_KEYWORDS},
             .op = DL_REDUCE, .root = 1, .reduction = 2, .group = 3, .group_root = 5)

/* Waits until the devices of all ranks have reached the barrier.  Returns 0, or -1 with
 * an exception set. */
static int
meet_on_device(const dlpy_collective *self, int64_t timeout)
{
    void *stream;
    dl_status status;

    if (dlpy_cuda_stream_in_use(&stream) < 0) {
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_device_barrier(self->core, stream, dl_deadline_after(timeout));
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        dlpy_raise_collective(self->state, status);
        return -1;
    }
    return 0;
}

/* The only collective that programs give a timeout; the others use the group's. */
static PyObject *
barrier(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "barrier",
        .names = {"group", "async_op", "device_ids", "timeout", "*_timeout"},
    };
    dlpy_call call = {args, count, keywords};
    PyObject *values[5];
    dlpy_collective self;
    int64_t timeout;

    if (dlpy_take_arguments(&signature, call, values) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_begin(module, &signature, values, 0, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    if (dlpy_timeout_from(values[3], dlpy_collective_timeout(&self), &timeout) < 0) {
        return dlpy_collective_give_up(&self);
    }
    if (dl_device_takes_barriers(self.core) && !self.is_async
        && meet_on_device(&self, timeout) < 0) {
        return dlpy_collective_give_up(&self);
    }
    if (dlpy_events_are_on()) {
        self.inputs = Py_None;
    }
    dl_call core = dl_call_barrier();
    return dlpy_collective_finish_by(&self, &core,
                                     &(dlpy_work_keep){.outputs = Py_None},
                                     dl_deadline_after(timeout));
}

/* A dlpy_side has several kilobytes of space for shapes and blocks; only the fields
 * that are read before they are written need to be cleared. */
static void
clear_sides(dlpy_side *input, dlpy_side *output)
{
    dlpy_side *sides[] = {input, output};

    for (int i = 0; i < 2; i++) {
        sides[i]->has_tensor = false;
        sides[i]->has_blocks = false;
        sides[i]->list = (dlpy_tensor_list){0};
    }
}

/* The arguments, group and sides of one call of a function whose arguments are lists of
 * arrays, or blocks of one array.  begin_function() returns 1, 0 or -1 as
 * dlpy_collective_begin() does. */
typedef struct begun_call {
    PyObject *values[DLPY_ARGUMENTS_LIMIT];
    dlpy_collective call;
    dlpy_side input;
    dlpy_side output;
} begun_call;

static int
begin_function(begun_call *self, PyObject *module, const dlpy_signature *signature,
               dlpy_call call, int group)
{
    if (dlpy_take_arguments(signature, call, self->values) < 0) {
        return -1;
    }
    clear_sides(&self->input, &self->output);
    return dlpy_collective_begin(module, signature, self->values, group, &self->call);
}

/* A function of a list of arrays, or of blocks of one array. */
typedef struct of_blocks {
    dlpy_signature signature;
    dl_op_type op;
    bool is_list; /* the blocks are arrays of a list */
    bool is_uneven;
} of_blocks;

/* Takes argument `i`: a list of arrays, or one array of blocks, which are equal if
 * `sizes` is NULL. */
static int
take_blocks(begun_call *self, dlpy_side *side, int i, const of_blocks *form,
            PyObject *sizes)
{
    const char *name = form->signature.names[i];

    return form->is_list
               ? dlpy_side_list(side, &self->call, self->values[i], name)
               : dlpy_side_cut(side, &self->call, self->values[i], name, sizes);
}

static PyObject *
finish_begun(begun_call *self, dl_call *call)
{
    return dlpy_sides_finish(&self->call, call, &self->input, &self->output);
}

static PyObject *
give_up_begun(begun_call *self)
{
    return dlpy_sides_give_up(&self->call, &self->input, &self->output);
}

/* The outputs are a list of arrays, or equal blocks of one. */
static PyObject *
all_gather_blocks(PyObject *module, const of_blocks *form, dlpy_call call)
{
    const dlpy_signature *signature = &form->signature;
    begun_call self;
    dl_call core = {.op = DL_ALL_GATHER};
    int begun = begin_function(&self, module, signature, call, 2);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (take_blocks(&self, &self.output, 0, form, NULL) < 0
        || dlpy_side_array(&self.input, self.values[1], signature->names[1]) < 0) {
        return give_up_begun(&self);
    }
    core.tensor = self.input.tensor.view;
    core.outputs = dlpy_side_blocks(&self.output);
    return finish_begun(&self, &core);
}

DLPY_BUILTIN(all_gather, "all_gather", all_gather_blocks, of_blocks,
             .signature.required = 2,
             .signature.names = {"tensor_list", "tensor", "group", "async_op",
                                 DLPY_KEYWORDS},
             .is_list = true)

DLPY_BUILTIN(all_gather_single, "all_gather_single", all_gather_blocks, of_blocks,
             .signature.required = 2,
             .signature.names = {"output_tensor", "input_tensor", "group", "async_op",
                                 DLPY_KEYWORDS})

/* An empty list counts as none, as in torch. */
static int
check_root_only(bool is_root, PyObject *list, const char *parameter, const char *role)
{
    bool is_empty = list != NULL && PyList_Check(list) && PyList_GET_SIZE(list) == 0;
    bool is_given = list != NULL && list != Py_None && !is_empty;

    if (is_given == is_root) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 is_root
                     ? "Argument ``%s`` must be specified on %s rank: a list with "
                       "one array for each rank."
                     : "Argument ``%s`` must NOT be specified on non-%s ranks: give "
                       "None there.",
                 parameter, role);
    return -1;
}

/* gather and scatter: the root has a list, and every rank, the root too, one array, as
 * the input of a gather and the output of a scatter. */
static PyObject *
rooted_blocks(PyObject *module, const of_blocks *form, dlpy_call call)
{
    const dlpy_signature *signature = &form->signature;
    begun_call self;
    dl_call core = {.op = form->op, .is_uneven = form->is_uneven};
    bool is_gather = form->op == DL_GATHER;
    const char *list_name = signature->names[1];
    int begun = begin_function(&self, module, signature, call, 3);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_collective_root(&self.call, signature->names[2], self.values[2],
                             self.values[5], 0, &core.root)
        < 0) {
        return give_up_begun(&self);
    }
    bool is_root = core.root == dl_group_rank(self.call.core);
    dlpy_side *own = is_gather ? &self.input : &self.output;
    dlpy_side *list = is_gather ? &self.output : &self.input;
    if (check_root_only(is_root, self.values[1], list_name,
                        is_gather ? "destination" : "source")
            < 0
        || dlpy_side_array(own, self.values[0], "tensor") < 0
        || (is_root
            && dlpy_side_list(list, &self.call, self.values[1], list_name) < 0)) {
        return give_up_begun(&self);
    }
    core.tensor = own->tensor.view;
    *(is_gather ? &core.outputs : &core.inputs) = dlpy_side_blocks(list);
    return finish_begun(&self, &core);
}

#define ROOTED(name, type, list, root, group_root, is_of_v)                      \
    DLPY_BUILTIN(name, #name, rooted_blocks, of_blocks, .signature.required = 1, \
                 .signature.names = {"tensor", list, root, "group", "async_op",  \
                                     group_root, DLPY_KEYWORDS},                 \
                 .op = type, .is_uneven = is_of_v)

ROOTED(gather, DL_GATHER, "gather_list", "dst", "group_dst", false)
ROOTED(gather_v, DL_GATHER, "gather_list", "dst", "group_dst", true)
ROOTED(scatter, DL_SCATTER, "scatter_list", "src", "group_src", false)
ROOTED(scatter_v, DL_SCATTER, "scatter_list", "src", "group_src", true)

/* The inputs are a list of arrays, or equal blocks of one. */
static PyObject *
reduce_scatter_blocks(PyObject *module, const of_blocks *form, dlpy_call call)
{
    begun_call self;
    dl_call core = {.op = DL_REDUCE_SCATTER};
    int begun = begin_function(&self, module, &form->signature, call, 3);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_reduce_op_from(self.call.state, self.values[2], &core.reduction,
                            &core.factor)
            < 0
        || dlpy_side_array(&self.output, self.values[0], "output") < 0
        || take_blocks(&self, &self.input, 1, form, NULL) < 0
        || take_reducer(&self.call, core.reduction, self.values[2], self.values[0],
                        &self.output.tensor, &core.reducer)
               < 0) {
        return give_up_begun(&self);
    }
    core.tensor = self.output.tensor.view;
    core.inputs = dlpy_side_blocks(&self.input);
    return finish_begun(&self, &core);
}

DLPY_BUILTIN(reduce_scatter, "reduce_scatter", reduce_scatter_blocks, of_blocks,
             .signature.required = 2,
             .signature.names = {"output", "input_list", "op", "group", "async_op",
                                 DLPY_KEYWORDS},
             .is_list = true)

DLPY_BUILTIN(reduce_scatter_single, "reduce_scatter_single", reduce_scatter_blocks,
             of_blocks, .signature.required = 2,
             .signature.names = {"output", "input", "op", "group", "async_op",
                                 DLPY_KEYWORDS})

static PyObject *
all_to_all_blocks(PyObject *module, const of_blocks *form, dlpy_call call)
{
    begun_call self;
    dl_call core = {.op = DL_ALL_TO_ALL};
    int begun =
        begin_function(&self, module, &form->signature, call, form->is_list ? 2 : 4);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    PyObject *const *sizes = self.values + 2;
    if (take_blocks(&self, &self.output, 0, form, form->is_list ? NULL : sizes[0]) < 0
        || take_blocks(&self, &self.input, 1, form, form->is_list ? NULL : sizes[1])
               < 0) {
        return give_up_begun(&self);
    }
    core.inputs = dlpy_side_blocks(&self.input);
    core.outputs = dlpy_side_blocks(&self.output);
    return finish_begun(&self, &core);
}

DLPY_BUILTIN(all_to_all, "all_to_all", all_to_all_blocks, of_blocks,
             .signature.required = 2,
             .signature.names = {"output_tensor_list", "input_tensor_list", "group",
                                 "async_op", DLPY_KEYWORDS},
             .is_list = true)

DLPY_BUILTIN(all_to_all_single, "all_to_all_single", all_to_all_blocks, of_blocks,
             .signature.required = 2,
             .signature.names = {"output", "input", "output_split_sizes",
                                 "input_split_sizes", "group", "async_op",
                                 DLPY_KEYWORDS})

static PyMethodDef functions[] = {
    DLPY_FUNCTION("all_reduce", all_reduce, DLPY_DOC_ALL_REDUCE),
    DLPY_FUNCTION("scan", scan, DLPY_DOC_SCAN),
    DLPY_FUNCTION("exscan", exscan, DLPY_DOC_EXSCAN),
    DLPY_FUNCTION("broadcast", broadcast, DLPY_DOC_BROADCAST),
    DLPY_FUNCTION("reduce", reduce, DLPY_DOC_REDUCE),
    DLPY_FUNCTION("barrier", barrier, DLPY_DOC_BARRIER),
    DLPY_FUNCTION("all_gather", all_gather, DLPY_DOC_ALL_GATHER),
    DLPY_FUNCTION("all_gather_single", all_gather_single, DLPY_DOC_ALL_GATHER_SINGLE),
    DLPY_FUNCTION("gather", gather, DLPY_DOC_GATHER),
    DLPY_FUNCTION("gather_v", gather_v, DLPY_DOC_GATHER_V),
    DLPY_FUNCTION("scatter", scatter, DLPY_DOC_SCATTER),
    DLPY_FUNCTION("scatter_v", scatter_v, DLPY_DOC_SCATTER_V),
    DLPY_FUNCTION("reduce_scatter", reduce_scatter, DLPY_DOC_REDUCE_SCATTER),
    DLPY_FUNCTION("reduce_scatter_single", reduce_scatter_single,
                  DLPY_DOC_REDUCE_SCATTER_SINGLE),
    DLPY_FUNCTION("all_to_all", all_to_all, DLPY_DOC_ALL_TO_ALL),
    DLPY_FUNCTION("all_to_all_single", all_to_all_single, DLPY_DOC_ALL_TO_ALL_SINGLE),
    {0},
};

const dlpy_part dlpy_collective_functions = {.functions = functions};
