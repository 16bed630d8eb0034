/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/fake/fake_backend.h"

#include <stdlib.h>

static dl_status
do_nothing(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    (void)backend;
    (void)op;
    (void)call;
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
post_nothing(dl_backend *backend, const dl_call *call, dl_deadline deadline,
             dl_work **work)
{
    dl_work *made = calloc(1, sizeof *made);

    (void)backend;
    (void)deadline;
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_work_init(made, &done_ops, call->op);
    if (call->op != DL_SEND) {
        made->source = call->peer == DL_ANY_RANK ? 0 : call->peer;
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
    .collectives =
        {
            [DL_ALL_REDUCE] = do_nothing,
            [DL_BROADCAST] = do_nothing,
            [DL_BARRIER] = do_nothing,
            [DL_REDUCE] = do_nothing,
            [DL_ALL_GATHER] = do_nothing,
            [DL_GATHER] = do_nothing,
            [DL_SCATTER] = do_nothing,
            [DL_REDUCE_SCATTER] = do_nothing,
            [DL_ALL_TO_ALL] = do_nothing,
            [DL_SCAN] = do_nothing,
            [DL_EXSCAN] = do_nothing,
        },
    .post = post_nothing,
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
make_backend(const dl_backend_ops *ops, dl_backend **backend)
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
    return make_backend(&fake_ops, backend);
}

dl_status
dl_custom_backend_new(const dl_backend_options *options, dl_deadline deadline,
                      dl_backend **backend)
{
    (void)options;
    (void)deadline;
    return make_backend(&custom_ops, backend);
}
