/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part that all collective functions share: finding the group, `async_op` and the
 * root, running the operation in the core and converting its result. */
#ifndef DISTLITE_PYTHON_GROUPS_COLLECTIVE_CALL_H
#define DISTLITE_PYTHON_GROUPS_COLLECTIVE_CALL_H

#include "pg/group.h"
#include "python/arrays/tensor_arg.h"
#include "python/groups/group_type.h"
#include "python/module/arguments.h"
#include "python/record/events.h"
#include "python/work/work_type.h"

typedef struct dlpy_collective {
    dlpy_state *state;
    PyObject *group; /* owned: another thread may replace the default group */
    dl_group *core;
    PyObject *answer;  /* the result of a call that did not reach the core */
    PyObject *reducer; /* owned: the _Reducer of a reduction that has one; else NULL */
    PyObject *inputs;  /* borrowed: for the event (events.h); NULL if none is wanted */
    bool is_async;
    bool has_stream; /* the call has a `stream` argument (cuda_arg.h) */
    bool has_timeout;
    int64_t timeout; /* the timeout of this call, if has_timeout */
} dlpy_collective;

/* The keyword-only arguments of collectives: the stream (cuda_arg.h), and for the package
 * itself a timeout of this call alone (group_methods.py). */
#define DLPY_KEYWORDS "*stream", "*_timeout"

/* Begins a call.  `values` are the arguments of `signature`; argument number `group` is
 * the group and the next one is async_op, each of which may be NULL.
 *
 * Returns 1 if the call has begun and must be finished or given up.  Returns 0 if the
 * call is complete: the group's handler has answered it, or this process is not in the
 * group, which is reported by a warning.  Returns -1 with an exception set. */
int dlpy_collective_begin(PyObject *module, const dlpy_signature *signature,
                          PyObject *const *values, int group, dlpy_collective *self);

/* Same as dlpy_collective_begin(), for functions without async_op. */
int dlpy_collective_begin_sync(PyObject *module, const dlpy_signature *signature,
                               PyObject *const *values, int group,
                               dlpy_collective *self);

/* Returns the result of the function when dlpy_collective_begin() did not return 1. */
PyObject *dlpy_collective_answer(const dlpy_collective *self, int begun);

/* Stores the root's rank in the group in `*root`.  `peer` is a rank in the default
 * group, `group_peer` a rank in the group itself.  Exactly one of them must be given,
 * or none if there is a default, that is, if `otherwise` is not negative.  `name` is
 * "src" or "dst".  Returns -1 with an exception set on failure. */
int dlpy_collective_root(const dlpy_collective *self, const char *name, PyObject *peer,
                         PyObject *group_peer, int otherwise, int *root);

/* Converts a reduction, such as ReduceOp.SUM or ReduceOp(ReduceOp.SUM); NULL means SUM,
 * and every other object is taken for a function.
 * `*factor` is the factor of PREMUL_SUM, which must have one, and 1 otherwise.  Returns
 * 0, or -1 with an exception set. */
int dlpy_reduce_op_from(const dlpy_state *state, PyObject *object, dl_reduce_op *op,
                        double *factor);

/* Runs the call; releases the GIL unless it completes without waiting.  Returns None,
 * or for async_op a Work that keeps `keep` and whose guard becomes that of the call, or
 * NULL with an exception set.  Drops the reference to the group.  The second form takes
 * a deadline; the first uses dlpy_collective_timeout(). */
PyObject *dlpy_collective_finish(dlpy_collective *self, dl_call *call,
                                 const dlpy_work_keep *keep);
PyObject *dlpy_collective_finish_by(dlpy_collective *self, dl_call *call,
                                    const dlpy_work_keep *keep, dl_deadline deadline);

/* Returns true if the operation may use its arrays after the call has returned: it is
 * asynchronous, or becomes part of an open batch. */
static inline bool
dlpy_collective_outlives_call(const dlpy_collective *self)
{
    return self->is_async || dlpy_group_batch(self->group) != NULL;
}

/* Returns the timeout of the call: its own, or else the group's. */
static inline int64_t
dlpy_collective_timeout(const dlpy_collective *self)
{
    return self->has_timeout ? self->timeout : dl_group_timeout(self->core);
}

/* The part of dlpy_collective_check_stream() for a call with a `stream` argument. */
int dlpy_collective_end_stream(dlpy_collective *self);

/* Fails with an exception set if the call has a `stream` argument and none of its
 * arrays is on a device.  Must be called after the arrays were converted. */
static inline int
dlpy_collective_check_stream(dlpy_collective *self)
{
    return self->has_stream ? dlpy_collective_end_stream(self) : 0;
}

/* Releases the call after a failure with an exception set.  Returns NULL. */
PyObject *dlpy_collective_give_up(dlpy_collective *self);

/* Ends an event (events.h) with `result`: with its operation if it is a Work, and
 * otherwise now.  Takes the reference to `event`, which may be NULL; returns `result`,
 * which may be NULL with an exception set. */
PyObject *dlpy_collective_end_event(const dlpy_state *state, PyObject *event,
                                    PyObject *result);

#endif
