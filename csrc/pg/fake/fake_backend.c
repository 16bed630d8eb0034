/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/fake/fake_backend.h"

#include <stdlib.h>

/* Defines one function per operation, because their arguments differ in type; all
 * ignore them. */
#define DONE_AT_ONCE(operation)                                              \
    static dl_status operation(dl_backend *backend, const dl_op_context *op, \
                               const dl_##operation##_args *args)            \
    {                                                                        \
        (void)backend;                                                       \
        (void)op;                                                            \
        (void)args;                                                          \
        return DL_OK;                                                        \
    }

DONE_AT_ONCE(all_reduce)
DONE_AT_ONCE(broadcast)
DONE_AT_ONCE(reduce)
DONE_AT_ONCE(scan)
DONE_AT_ONCE(all_gather)
DONE_AT_ONCE(gather)
DONE_AT_ONCE(scatter)
DONE_AT_ONCE(reduce_scatter)
DONE_AT_ONCE(all_to_all)

static dl_status
barrier(dl_backend *backend, const dl_op_context *op)
{
    (void)backend;
    (void)op;
    return DL_OK;
}

static dl_status
wait_for_nothing(dl_work *work, dl_deadline deadline)
{
    (void)work;
    (void)deadline;
    return DL_OK;
}

static void
free_work(dl_work *work)
{
    dl_work_fini(work);
    free(work);
}

static const dl_work_ops done_ops = {.wait = wait_for_nothing, .free = free_work};

/* Returns a work that is done.  The source of a receive from any rank is rank 0. */
static dl_status
post(dl_backend *backend, dl_op_type op, const dl_message_args *args,
     dl_deadline deadline, dl_work **work)
{
    dl_work *made = calloc(1, sizeof *made);

    (void)backend;
    (void)deadline;
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_work_init(made, &done_ops, op);
    if (op != DL_SEND) {
        made->source = args->peer == DL_ANY_RANK ? 0 : args->peer;
    }
    dl_work_finish(made, DL_OK);
    dl_work_unref(made);
    *work = made;
    return DL_OK;
}

/* No call ever waits, so there is no waiter to wake and no peer to tell. */
static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    (void)backend;
    (void)cause;
}

static void
leave_backend(dl_backend *backend)
{
    (void)backend;
}

static void
free_backend(dl_backend *backend)
{
    free(backend);
}

/* Nothing comes from another rank. */
static bool
is_proved(dl_backend *backend, int rank)
{
    (void)backend;
    (void)rank;
    return true;
}

static const dl_backend_ops fake_ops = {
    .name = "fake",
    .is_alone = true,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .barrier = barrier,
    .reduce = reduce,
    .scan = scan,
    .all_gather = all_gather,
    .gather = gather,
    .scatter = scatter,
    .reduce_scatter = reduce_scatter,
    .all_to_all = all_to_all,
    .post = post,
    .is_proved = is_proved,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

static const dl_backend_ops custom_ops = {
    .name = "custom",
    .is_alone = true,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

static dl_status
make(const dl_backend_ops *ops, dl_backend **backend)
{
    dl_backend *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->ops = ops;
    *backend = made;
    return DL_OK;
}

dl_status
dl_fake_backend_new(const dl_backend_options *options, dl_deadline deadline,
                    dl_backend **backend)
{
    (void)options;
    (void)deadline;
    return make(&fake_ops, backend);
}

dl_status
dl_custom_backend_new(const dl_backend_options *options, dl_deadline deadline,
                      dl_backend **backend)
{
    (void)options;
    (void)deadline;
    return make(&custom_ops, backend);
}
