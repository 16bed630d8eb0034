/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/p2p_message.h"

#include "python/module/convert.h"

int
dlpy_message_take_peer(dlpy_message *self, PyObject *peer, PyObject *group_peer)
{
    bool is_given = (peer != NULL && peer != Py_None)
                    || (group_peer != NULL && group_peer != Py_None);

    if (self->core.op == DL_RECV && !is_given) {
        self->core.op = DL_RECV_ANY;
        self->core.peer = DL_ANY_RANK;
        return 0;
    }
    return dlpy_collective_root(&self->collective,
                                self->core.op == DL_SEND ? "dst" : "src", peer,
                                group_peer, -1, &self->core.peer);
}

int
dlpy_message_take(dlpy_message *self, PyObject *const *values, const char *name)
{
    PyObject *tag = values[DLPY_MESSAGE_TAG];

    if (tag != NULL && dlpy_int64_from(tag, "tag", &self->core.tag) < 0) {
        return -1;
    }
    if (dlpy_message_take_peer(self, values[DLPY_MESSAGE_PEER],
                               values[DLPY_MESSAGE_GROUP_PEER])
            < 0
        || dlpy_tensor_from(values[DLPY_MESSAGE_TENSOR], name, &self->tensor) < 0) {
        return -1;
    }
    self->core.tensor = self->tensor.view;
    self->array = values[DLPY_MESSAGE_TENSOR];
    return 0;
}

int
dlpy_message_note_write(const dlpy_message *self)
{
    return self->core.op == DL_SEND
               ? 0
               : dlpy_tensor_note_write(&self->tensor, self->array);
}

PyObject *
dlpy_message_prepare(dlpy_message *self)
{
    dlpy_tensor *tensor = &self->tensor;
    dlpy_guard guard = {0};
    dlpy_work_keep keep = {.pins = tensor->owner == NULL
                                       ? Py_NewRef(self->array)
                                       : PyTuple_Pack(2, self->array, tensor->owner),
                           .guard = &guard};
    PyObject *prepared = NULL;

    if (keep.pins != NULL && dlpy_guard_add(&guard, self->array, tensor) == 0) {
        prepared = dlpy_work_prepare(self->collective.state, &keep);
    }
    if (prepared != NULL) {
        dlpy_work_name_group(prepared, self->collective.group);
    }
    dlpy_guard_clear(&guard);
    Py_XDECREF(keep.pins);
    return prepared;
}

void
dlpy_message_keep_forever(dlpy_message *self)
{
    PyObject *error = dlpy_error_take();

    if (dlpy_message_prepare(self) == NULL) {
        PyErr_Clear();
        Py_INCREF(self->array); /* the owner of a view is not released, either */
    }
    dlpy_error_restore(error);
}

PyObject *
dlpy_message_answer_receive(const dlpy_collective *collective, int begun)
{
    PyObject *answer = dlpy_collective_answer(collective, begun);

    if (answer == Py_None) {
        Py_DECREF(answer);
        return PyLong_FromLong(-1);
    }
    return answer;
}
