/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One message of the functions that send and receive arrays: what its arguments become,
 * and what keeps its memory alive. */
#ifndef DISTLITE_PYTHON_GROUPS_P2P_MESSAGE_H
#define DISTLITE_PYTHON_GROUPS_P2P_MESSAGE_H

#include "python/groups/collective_call.h"

/* send, recv, isend and irecv have the same parameters, except for the name of the
 * peer. */
enum {
    DLPY_MESSAGE_TENSOR,
    DLPY_MESSAGE_PEER,
    DLPY_MESSAGE_GROUP,
    DLPY_MESSAGE_TAG,
    DLPY_MESSAGE_GROUP_PEER,
    DLPY_MESSAGE_STREAM,
    DLPY_MESSAGE_ARGUMENTS,
};

typedef struct dlpy_message {
    dlpy_collective collective;
    dl_call core;
    dlpy_tensor tensor;
    PyObject *array; /* borrowed */
} dlpy_message;

/* Clears what is read before it is set, which the dimensions of a tensor, most of the
 * struct, are not. */
static inline void
dlpy_message_init(dlpy_message *self, dl_op_type op)
{
    self->collective = (dlpy_collective){0};
    self->core = (dl_call){.op = op};
    self->tensor.owner = NULL;
    self->array = NULL;
}

/* Takes the ranks of a peer, of which a receive may have none: it is then one from any
 * rank. */
int dlpy_message_take_peer(dlpy_message *self, PyObject *peer, PyObject *group_peer);

/* Takes array, tag and peer from the arguments; `name` is the array's in errors.
 * Returns -1 with an exception set; the tensor must be released in any case. */
int dlpy_message_take(dlpy_message *self, PyObject *const *values, const char *name);

/* Increments torch's version counter for a receive that begins. */
int dlpy_message_note_write(const dlpy_message *self);

/* Returns a Work for the message that keeps its array, or NULL with an exception
 * set. */
PyObject *dlpy_message_prepare(dlpy_message *self);

/* Keeps the array, and the memory that it has now, for good. */
void dlpy_message_keep_forever(dlpy_message *self);

/* Returns the result of a receive that has not begun, as dlpy_collective_answer(); for
 * a process outside of the group that is -1. */
PyObject *dlpy_message_answer_receive(const dlpy_collective *collective, int begun);

#endif
