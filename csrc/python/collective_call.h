/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What all collective functions share: the group meant, waiting or not, the root, and
 * the way through the core and back. */
#ifndef DISTLITE_PYTHON_COLLECTIVE_CALL_H
#define DISTLITE_PYTHON_COLLECTIVE_CALL_H

#include "pg/group.h"
#include "python/arguments.h"
#include "python/tensor_arg.h"
#include "python/work_type.h"

typedef struct dlpy_collective {
    dlpy_state *state;
    PyObject *group; /* a reference: another thread may replace the default group */
    dl_group *core;
    PyObject *answer; /* of a call that is answered already */
    PyObject *inputs; /* borrowed: what torch's profiler is to see; NULL: it is off */
    bool is_async;
    bool has_stream; /* named for this call (cuda_arg.h) */
    bool has_timeout;
    int64_t timeout; /* of this call alone, if it has one */
} dlpy_collective;

/* `values` are those of `signature`, of which number `group` is the group and the next
 * one async_op; both may be NULL.  In the place of a group, a tuple of group and timeout
 * limits this one call (group_methods.py).  1: begun, to be finished or given up.  0:
 * answered already, by the group's handler, or because this process is outside of the
 * group, which has been warned of.  -1: an exception is set. */
int dlpy_collective_begin(PyObject *module, const dlpy_signature *signature,
                          PyObject *const *values, int group, dlpy_collective *self);

/* The same for functions without async_op. */
int dlpy_collective_meet(PyObject *module, const dlpy_signature *signature,
                         PyObject *const *values, int group, dlpy_collective *self);

/* What the function returns when `begin` did not give 1. */
PyObject *dlpy_collective_answer(const dlpy_collective *self, int begun);

/* `peer` counts in the default group, `group_peer` in the group itself; one is given, or,
 * where there is a default (not negative), none.  `name` is "src" or "dst". */
int dlpy_collective_root(const dlpy_collective *self, const char *name, PyObject *peer,
                         PyObject *group_peer, int otherwise, int *root);

/* Runs `op`, without the GIL unless it is over in no time: None, or a Work if that was asked for, which keeps `keep`.
 * NULL with an exception set.  Gives the group back. */
PyObject *dlpy_collective_finish(dlpy_collective *self, dl_op_type op, const void *args,
                                 dlpy_work_keep keep);
PyObject *dlpy_collective_finish_by(dlpy_collective *self, dl_op_type op,
                                    const void *args, dlpy_work_keep keep,
                                    dl_deadline deadline);

/* Whether the operation may use its arrays after the call has returned: it is
 * asynchronous, or joins the batch that is open. */
static inline bool
dlpy_collective_outlives_call(const dlpy_collective *self)
{
    return self->is_async || self->state->batch_pins != NULL;
}

/* How long the call may take. */
static inline int64_t
dlpy_collective_timeout(const dlpy_collective *self)
{
    return self->has_timeout ? self->timeout : dl_group_timeout(self->core);
}

/* After the arrays were looked at: a stream was named for those on devices only. */
int dlpy_collective_check_stream(dlpy_collective *self);

/* After a failure on the way; NULL. */
PyObject *dlpy_collective_give_up(dlpy_collective *self);

/* Functions of one file: their `__module__` is the package, where users find them, and
 * where inspect looks up the `ReduceOp` of their signatures. */
int dlpy_add_functions(PyObject *module, PyMethodDef *functions);

#define DLPY_COLLECTIVE(function, documentation)                                      \
    {#function, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, \
     documentation}

#endif
