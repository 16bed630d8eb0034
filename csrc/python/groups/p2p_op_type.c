/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/p2p_op_type.h"

#include <structmember.h>

#include "python/arrays/tensor_arg.h"
#include "python/groups/default_group.h"
#include "python/module/arguments.h"
#include "python/module/parts.h"

/* The order of the arguments. */
enum { OP, TENSOR, PEER, GROUP, TAG, GROUP_PEER, ARGUMENTS };

static bool
is_given(const PyObject *value)
{
    return value != NULL && value != Py_None;
}

/* Returns the default group if that is the group of the arguments, otherwise NULL,
 * without an exception. */
static PyObject *
find_default(PyObject *object, PyObject *given)
{
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(object));
    PyObject *group = state == NULL ? NULL : dlpy_default_group(state);

    if (state == NULL) {
        PyErr_Clear();
    }
    if (is_given(given) && given != group) {
        Py_CLEAR(group);
    }
    return group;
}

/* Has the class itself, in Python, set the members. */
static int
resolve(PyObject *object, PyObject *args, PyObject *keywords)
{
    PyObject *method = PyObject_GetAttrString(object, "_resolve");
    PyObject *result = method == NULL ? NULL : PyObject_Call(method, args, keywords);

    Py_XDECREF(method);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int
op_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "P2POp",
        .required = 2,
        .names = {"op", "tensor", "peer", "group", "tag", "group_peer"},
    };
    dlpy_p2p_op *self = (dlpy_p2p_op *)object;
    PyObject *values[ARGUMENTS];
    PyObject *group = NULL;

    if (dlpy_take_init_arguments(&signature, args, keywords, values) < 0) {
        return -1;
    }
    if (dlpy_message_direction(values[OP]) >= 0 && is_given(values[PEER])
        && !is_given(values[GROUP_PEER]) && dlpy_tensor_is_known(values[TENSOR])) {
        group = find_default(object, values[GROUP]);
    }
    if (group == NULL) {
        return resolve(object, args, keywords);
    }
    PyObject *tag = values[TAG] == NULL ? PyLong_FromLong(0) : Py_NewRef(values[TAG]);
    if (tag == NULL) {
        Py_DECREF(group);
        return -1;
    }
    Py_XSETREF(self->op, Py_NewRef(values[OP]));
    Py_XSETREF(self->tensor, Py_NewRef(values[TENSOR]));
    Py_XSETREF(self->group, group);
    Py_XSETREF(self->tag, tag);
    Py_XSETREF(self->peer, Py_NewRef(values[PEER]));
    Py_XSETREF(self->group_peer, Py_NewRef(values[PEER]));
    return 0;
}

static PyMemberDef op_members[] = {
    {"op", T_OBJECT_EX, offsetof(dlpy_p2p_op, op), 0, NULL},
    {"tensor", T_OBJECT_EX, offsetof(dlpy_p2p_op, tensor), 0, NULL},
    {"group", T_OBJECT_EX, offsetof(dlpy_p2p_op, group), 0, NULL},
    {"tag", T_OBJECT_EX, offsetof(dlpy_p2p_op, tag), 0, NULL},
    {"peer", T_OBJECT_EX, offsetof(dlpy_p2p_op, peer), 0, NULL},
    {"group_peer", T_OBJECT_EX, offsetof(dlpy_p2p_op, group_peer), 0, NULL},
    {0},
};

#define MEMBER(object, member) \
    (*(PyObject **)(void *)((char *)(object) + (member)->offset))

static int
op_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    for (const PyMemberDef *each = op_members; each->name != NULL; each++) {
        Py_VISIT(MEMBER(object, each));
    }
    return 0;
}

static int
op_clear(PyObject *object)
{
    for (const PyMemberDef *each = op_members; each->name != NULL; each++) {
        Py_CLEAR(MEMBER(object, each));
    }
    return 0;
}

static void
op_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    (void)op_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot op_slots[] = {
    {Py_tp_doc, "_P2POp(op, tensor, peer=None, group=None, tag=0, group_peer=None)"
                "\n--\n\n"},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, op_init},
    {Py_tp_traverse, op_traverse},
    {Py_tp_clear, op_clear},
    {Py_tp_dealloc, op_dealloc},
    {Py_tp_members, op_members},
    {0, NULL},
};

static PyType_Spec op_spec = {
    .name = "distlite._P2POp",
    .basicsize = sizeof(dlpy_p2p_op),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = op_slots,
};

const dlpy_part dlpy_p2p_op_type = {
    .type = &op_spec,
    .slot = offsetof(dlpy_state, p2p_op_type),
};
