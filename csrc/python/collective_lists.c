/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/collective_blocks.h"
#include "python/collective_functions.h"
#include "python/docstrings.h"
#include "python/reduce_op_arg.h"

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

/* The arguments, group and sides of one call.  begin() returns 1, 0 or -1 as
 * dlpy_collective_begin() does. */
typedef struct begun_call {
    PyObject *values[DLPY_ARGUMENTS_LIMIT];
    dlpy_collective call;
    dlpy_side input;
    dlpy_side output;
} begun_call;

static int
begin(begun_call *self, PyObject *module, const dlpy_signature *signature,
      dlpy_call call, int group)
{
    if (dlpy_take_arguments(signature, call, self->values) < 0) {
        return -1;
    }
    clear_sides(&self->input, &self->output);
    return dlpy_collective_begin(module, signature, self->values, group, &self->call);
}

static PyObject *
finish(begun_call *self, dl_op_type op, const void *args)
{
    return dlpy_sides_finish(&self->call, op, args, &self->input, &self->output);
}

static PyObject *
give_up(begun_call *self)
{
    return dlpy_sides_give_up(&self->call, &self->input, &self->output);
}

static PyObject *
all_gather(PyObject *module, PyObject *const *args, Py_ssize_t count,
           PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "all_gather",
        .required = 2,
        .names = {"tensor_list", "tensor", "group", "async_op", "*stream"},
    };
    begun_call self;
    dl_all_gather_args core;
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords}, 2);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_side_list(&self.output, &self.call, self.values[0], "tensor_list") < 0
        || dlpy_side_array(&self.input, self.values[1], "tensor") < 0) {
        return give_up(&self);
    }
    core.input = self.input.tensor.view;
    core.outputs = dlpy_side_blocks(&self.output);
    return finish(&self, DL_ALL_GATHER, &core);
}

static PyObject *
all_gather_single(PyObject *module, PyObject *const *args, Py_ssize_t count,
                  PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "all_gather_single",
        .required = 2,
        .names = {"output_tensor", "input_tensor", "group", "async_op", "*stream"},
    };
    begun_call self;
    dl_all_gather_args core;
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords}, 2);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_side_cut(&self.output, &self.call, self.values[0], "output_tensor", NULL)
            < 0
        || dlpy_side_array(&self.input, self.values[1], "input_tensor") < 0) {
        return give_up(&self);
    }
    core.input = self.input.tensor.view;
    core.outputs = dlpy_side_blocks(&self.output);
    return finish(&self, DL_ALL_GATHER, &core);
}

/* The signature of the functions that take a list on the root only. */
#define ROOTED(name, list, root, group_root)                                         \
    {                                                                                \
        .function = name,                                                            \
        .required = 1,                                                               \
        .names = {"tensor", list, root, "group", "async_op", group_root, "*stream"}, \
    }

static int
check_root_only(bool is_root, PyObject *list, const char *parameter, const char *role)
{
    bool is_given = list != NULL && list != Py_None;

    if (is_given == is_root) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 is_root ? "Argument ``%s`` must be specified on %s rank."
                         : "Argument ``%s`` must NOT be specified on non-%s ranks.",
                 parameter, role);
    return -1;
}

static PyObject *
gather_blocks(PyObject *module, const dlpy_signature *signature, dlpy_call call,
              bool is_uneven)
{
    begun_call self;
    dl_gather_args core = {.is_uneven = is_uneven};
    int begun = begin(&self, module, signature, call, 3);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_collective_root(&self.call, "dst", self.values[2], self.values[5], 0,
                             &core.root)
        < 0) {
        return give_up(&self);
    }
    bool is_root = core.root == dl_group_rank(self.call.core);
    if (check_root_only(is_root, self.values[1], "gather_list", "destination") < 0
        || dlpy_side_array(&self.input, self.values[0], "tensor") < 0
        || (is_root
            && dlpy_side_list(&self.output, &self.call, self.values[1], "gather_list")
                   < 0)) {
        return give_up(&self);
    }
    core.input = self.input.tensor.view;
    core.outputs = dlpy_side_blocks(&self.output);
    return finish(&self, DL_GATHER, &core);
}

static PyObject *
gather(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature =
        ROOTED("gather", "gather_list", "dst", "group_dst");

    return gather_blocks(module, &signature, (dlpy_call){args, count, keywords}, false);
}

static PyObject *
gather_v(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature =
        ROOTED("gather_v", "gather_list", "dst", "group_dst");

    return gather_blocks(module, &signature, (dlpy_call){args, count, keywords}, true);
}

static PyObject *
scatter_blocks(PyObject *module, const dlpy_signature *signature, dlpy_call call,
               bool is_uneven)
{
    begun_call self;
    dl_scatter_args core = {.is_uneven = is_uneven};
    int begun = begin(&self, module, signature, call, 3);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_collective_root(&self.call, "src", self.values[2], self.values[5], 0,
                             &core.root)
        < 0) {
        return give_up(&self);
    }
    bool is_root = core.root == dl_group_rank(self.call.core);
    if (check_root_only(is_root, self.values[1], "scatter_list", "source") < 0
        || dlpy_side_array(&self.output, self.values[0], "tensor") < 0
        || (is_root
            && dlpy_side_list(&self.input, &self.call, self.values[1], "scatter_list")
                   < 0)) {
        return give_up(&self);
    }
    core.output = self.output.tensor.view;
    core.inputs = dlpy_side_blocks(&self.input);
    return finish(&self, DL_SCATTER, &core);
}

static PyObject *
scatter(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature =
        ROOTED("scatter", "scatter_list", "src", "group_src");

    return scatter_blocks(module, &signature, (dlpy_call){args, count, keywords},
                          false);
}

static PyObject *
scatter_v(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature =
        ROOTED("scatter_v", "scatter_list", "src", "group_src");

    return scatter_blocks(module, &signature, (dlpy_call){args, count, keywords}, true);
}

static PyObject *
reduce_scatter(PyObject *module, PyObject *const *args, Py_ssize_t count,
               PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "reduce_scatter",
        .required = 2,
        .names = {"output", "input_list", "op", "group", "async_op", "*stream"},
    };
    begun_call self;
    dl_reduce_scatter_args core;
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords}, 3);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_reduce_op_from(self.call.state, self.values[2], &core.op, &core.factor) < 0
        || dlpy_side_array(&self.output, self.values[0], "output") < 0
        || dlpy_side_list(&self.input, &self.call, self.values[1], "input_list") < 0) {
        return give_up(&self);
    }
    core.output = self.output.tensor.view;
    core.inputs = dlpy_side_blocks(&self.input);
    return finish(&self, DL_REDUCE_SCATTER, &core);
}

static PyObject *
reduce_scatter_single(PyObject *module, PyObject *const *args, Py_ssize_t count,
                      PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "reduce_scatter_single",
        .required = 2,
        .names = {"output", "input", "op", "group", "async_op", "*stream"},
    };
    begun_call self;
    dl_reduce_scatter_args core;
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords}, 3);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_reduce_op_from(self.call.state, self.values[2], &core.op, &core.factor) < 0
        || dlpy_side_array(&self.output, self.values[0], "output") < 0
        || dlpy_side_cut(&self.input, &self.call, self.values[1], "input", NULL) < 0) {
        return give_up(&self);
    }
    core.output = self.output.tensor.view;
    core.inputs = dlpy_side_blocks(&self.input);
    return finish(&self, DL_REDUCE_SCATTER, &core);
}

static PyObject *
all_to_all(PyObject *module, PyObject *const *args, Py_ssize_t count,
           PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "all_to_all",
        .required = 2,
        .names = {"output_tensor_list", "input_tensor_list", "group", "async_op",
                  "*stream"},
    };
    begun_call self;
    dl_all_to_all_args core;
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords}, 2);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_side_list(&self.output, &self.call, self.values[0], "output_tensor_list")
            < 0
        || dlpy_side_list(&self.input, &self.call, self.values[1], "input_tensor_list")
               < 0) {
        return give_up(&self);
    }
    core.inputs = dlpy_side_blocks(&self.input);
    core.outputs = dlpy_side_blocks(&self.output);
    return finish(&self, DL_ALL_TO_ALL, &core);
}

static PyObject *
all_to_all_single(PyObject *module, PyObject *const *args, Py_ssize_t count,
                  PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "all_to_all_single",
        .required = 2,
        .names = {"output", "input", "output_split_sizes", "input_split_sizes", "group",
                  "async_op", "*stream"},
    };
    begun_call self;
    dl_all_to_all_args core;
    int begun = begin(&self, module, &signature, (dlpy_call){args, count, keywords}, 4);

    if (begun <= 0) {
        return dlpy_collective_answer(&self.call, begun);
    }
    if (dlpy_side_cut(&self.output, &self.call, self.values[0], "output",
                      self.values[2])
            < 0
        || dlpy_side_cut(&self.input, &self.call, self.values[1], "input",
                         self.values[3])
               < 0) {
        return give_up(&self);
    }
    core.inputs = dlpy_side_blocks(&self.input);
    core.outputs = dlpy_side_blocks(&self.output);
    return finish(&self, DL_ALL_TO_ALL, &core);
}

static PyMethodDef functions[] = {
    DLPY_COLLECTIVE(all_gather,
                    "all_gather($module, /, tensor_list, tensor, group=None, "
                    "async_op=False, *, stream=None)\n--\n\n" DLPY_DOC_ALL_GATHER),
    DLPY_COLLECTIVE(all_gather_single,
                    "all_gather_single($module, /, output_tensor, input_tensor, "
                    "group=None, async_op=False, *, "
                    "stream=None)\n--\n\n" DLPY_DOC_ALL_GATHER_SINGLE),
    DLPY_COLLECTIVE(gather, "gather($module, /, tensor, gather_list=None, dst=None, "
                            "group=None, async_op=False, group_dst=None, *, "
                            "stream=None)\n--\n\n" DLPY_DOC_GATHER),
    DLPY_COLLECTIVE(gather_v,
                    "gather_v($module, /, tensor, gather_list=None, dst=None, "
                    "group=None, async_op=False, group_dst=None, *, "
                    "stream=None)\n--\n\n" DLPY_DOC_GATHER_V),
    DLPY_COLLECTIVE(scatter, "scatter($module, /, tensor, scatter_list=None, src=None, "
                             "group=None, async_op=False, group_src=None, *, "
                             "stream=None)\n--\n\n" DLPY_DOC_SCATTER),
    DLPY_COLLECTIVE(scatter_v,
                    "scatter_v($module, /, tensor, scatter_list=None, src=None, "
                    "group=None, async_op=False, group_src=None, *, "
                    "stream=None)\n--\n\n" DLPY_DOC_SCATTER_V),
    DLPY_COLLECTIVE(
        reduce_scatter,
        "reduce_scatter($module, /, output, input_list, op=ReduceOp.SUM, "
        "group=None, async_op=False, *, stream=None)\n--\n\n" DLPY_DOC_REDUCE_SCATTER),
    DLPY_COLLECTIVE(reduce_scatter_single,
                    "reduce_scatter_single($module, /, output, input, "
                    "op=ReduceOp.SUM, group=None, async_op=False, *, "
                    "stream=None)\n--\n\n" DLPY_DOC_REDUCE_SCATTER_SINGLE),
    DLPY_COLLECTIVE(
        all_to_all,
        "all_to_all($module, /, output_tensor_list, input_tensor_list, "
        "group=None, async_op=False, *, stream=None)\n--\n\n" DLPY_DOC_ALL_TO_ALL),
    DLPY_COLLECTIVE(
        all_to_all_single,
        "all_to_all_single($module, /, output, input, "
        "output_split_sizes=None, input_split_sizes=None, group=None, "
        "async_op=False, *, stream=None)\n--\n\n" DLPY_DOC_ALL_TO_ALL_SINGLE),
    {0},
};

int
dlpy_add_collective_lists(PyObject *module)
{
    return dlpy_add_functions(module, functions);
}
