/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/wrapper/wrapper_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/call_site.h"
#include "pg/wrapper/agreement.h"

typedef struct wrapper {
    dl_backend base;
    dl_backend_ops ops; /* wrapper_ops without the entries that `inside` lacks */
    /* fixed after init */
    dl_backend *inside;
    dl_agreement agreement;
    dl_store *store;
    /* "0"; "0 (nccl)" on devices, whose operations are counted separately */
    char *group_name;
    /* As in dl_backend_options, for an `inside` without a watch. */
    dl_status (*watch)(void *context, int rank);
    void *context;
} wrapper;

static wrapper *
self_of(dl_backend *backend)
{
    return (wrapper *)(void *)backend;
}

/* Compares the call with those of the other ranks.  Any failure but a mismatch aborts
 * the backend inside, so that ranks which come later fail at once and do not wait. */
static dl_status
compare_calls(wrapper *self, const dl_op_context *op, const dl_call *call)
{
    dl_status status = dl_agreement_reach(&self->agreement, op, call);

    if (status != DL_OK && status != DL_MISMATCH) {
        dl_error error = *dl_last_error();
        dl_error cause = dl_error_for_others();
        self->inside->ops->abort(self->inside, &cause);
        return dl_fail_again(&error);
    }
    return status;
}

/* The entry of every collective that the backend inside has. */
static dl_status
compare_and_run(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    wrapper *self = self_of(backend);

    DL_TRY(compare_calls(self, op, call));
    return dl_backend_run(self->inside, op, call);
}

static dl_status
enter(dl_backend *backend, const dl_op_context *op, const dl_call *call,
      dl_backend **inside)
{
    wrapper *self = self_of(backend);

    DL_TRY(compare_calls(self, op, call));
    *inside = self->inside;
    return DL_OK;
}

static dl_status
post(dl_backend *backend, const dl_call *call, dl_deadline deadline, dl_work **work)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->post(inside, call, deadline, work);
}

static dl_status
enqueue(dl_backend *backend, const dl_batch *batch, dl_work **work)
{
    wrapper *self = self_of(backend);

    for (size_t i = 0; i < batch->count; i++) {
        const dl_op *op = &batch->ops[i];
        if (op->context.sequence > 0) {
            DL_TRY(compare_calls(self, &op->context, op->call));
        }
    }
    return self->inside->ops->enqueue(self->inside, batch, work);
}

static dl_status
connect_inside(dl_backend *backend, int device, dl_deadline deadline)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->connect(inside, device, deadline);
}

static int
device(const dl_backend *backend)
{
    const dl_backend *inside = ((const wrapper *)(const void *)backend)->inside;

    return inside->ops->device(inside);
}

static dl_status
split(dl_backend *backend, const dl_device_split_args *wanted, dl_deadline deadline,
      dl_backend *child)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->split(inside, wanted, deadline, child);
}

static dl_status
share(dl_backend *backend, size_t size, dl_region **region)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->share(inside, size, region);
}

static dl_status
window(dl_backend *backend, const dl_window_options *options, dl_window_part **part)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->window(inside, options, part);
}

static dl_status
watch(dl_backend *backend, int rank)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->watch(inside, rank);
}

static bool
is_proved(dl_backend *backend, int rank)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->is_proved(inside, rank);
}

static dl_status
lost(dl_backend *backend, int rank)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->lost(inside, rank);
}

static void
note_loss(dl_backend *backend)
{
    dl_backend *inside = self_of(backend)->inside;

    inside->ops->note_loss(inside);
}

static dl_status
watch_inside(void *context, int rank)
{
    const wrapper *self = context;
    const dl_backend_ops *ops = self->inside->ops;

    if (ops->watch != NULL) {
        return ops->watch(self->inside, rank);
    }
    return self->watch == NULL ? DL_OK : self->watch(self->context, rank);
}

static void
abort_inside(dl_backend *backend, const dl_error *cause)
{
    wrapper *self = self_of(backend);

    dl_agreement_abort(&self->agreement, cause);
    self->inside->ops->abort(self->inside, cause);
}

static dl_status
verify_calls(dl_backend *backend, dl_deadline deadline)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->verify_calls(inside, deadline);
}

static dl_status
finish(dl_backend *backend, dl_deadline deadline)
{
    dl_backend *inside = self_of(backend)->inside;

    return inside->ops->finish(inside, deadline);
}

static void
leave(dl_backend *backend)
{
    dl_backend *inside = self_of(backend)->inside;

    inside->ops->leave(inside);
}

static void
end_family(dl_backend *backend)
{
    dl_backend *inside = self_of(backend)->inside;

    inside->ops->end_family(inside);
}

static void
free_wrapper(dl_backend *backend)
{
    wrapper *self = self_of(backend);

    if (self->inside != NULL) {
        self->inside->ops->free(self->inside);
    }
    dl_agreement_fini(&self->agreement);
    dl_store_unref(self->store);
    free(self->group_name);
    free(self);
}

static const dl_backend_ops wrapper_ops = {
    .enter = enter,
    .post = post,
    .enqueue = enqueue,
    .connect = connect_inside,
    .device = device,
    .split = split,
    .share = share,
    .window = window,
    .watch = watch,
    .lost = lost,
    .note_loss = note_loss,
    .is_proved = is_proved,
    .abort = abort_inside,
    .verify_calls = verify_calls,
    .finish = finish,
    .leave = leave,
    .end_family = end_family,
    .free = free_wrapper,
};

/* An entry that is NULL inside must be NULL here, too: the group then fails the
 * call. */
#define LEAVE_OUT(ops, inside, entry) \
    ((ops)->entry = (inside)->entry == NULL ? NULL : (ops)->entry)

static void
remove_missing_entries(dl_backend_ops *ops, const dl_backend_ops *inside)
{
    ops->name = inside->name;
    ops->leaves_windows = inside->leaves_windows;
    for (int op = 0; op < DL_OP_TYPE_COUNT; op++) {
        ops->collectives[op] = inside->collectives[op] == NULL ? NULL : compare_and_run;
    }
    LEAVE_OUT(ops, inside, post);
    LEAVE_OUT(ops, inside, enqueue);
    LEAVE_OUT(ops, inside, connect);
    LEAVE_OUT(ops, inside, device);
    LEAVE_OUT(ops, inside, split);
    LEAVE_OUT(ops, inside, share);
    LEAVE_OUT(ops, inside, window);
    LEAVE_OUT(ops, inside, watch);
    LEAVE_OUT(ops, inside, lost);
    LEAVE_OUT(ops, inside, note_loss);
    LEAVE_OUT(ops, inside, is_proved);
    LEAVE_OUT(ops, inside, verify_calls);
    LEAVE_OUT(ops, inside, finish);
    LEAVE_OUT(ops, inside, end_family);
}

static char *
label_new(const dl_backend_options *options)
{
    char *label = NULL;

    if (options->on_device == NULL) {
        return strdup(options->group_name);
    }
    return asprintf(&label, "%s (%s)", options->group_name, options->backend_name) < 0
               ? NULL
               : label;
}

dl_status
dl_wrapper_backend_wrap(const dl_backend_options *options, dl_backend **backend)
{
    if ((*backend)->ops->is_alone) {
        return DL_OK;
    }
    wrapper *self = calloc(1, sizeof *self);
    char *name = label_new(options);

    if (self == NULL || name == NULL) {
        free(self);
        free(name);
        return dl_fail_no_memory();
    }
    dl_call_sites_enable();
    self->ops = wrapper_ops;
    remove_missing_entries(&self->ops, (*backend)->ops);
    self->base.ops = &self->ops;
    self->base.spans_hosts = (*backend)->spans_hosts;
    self->base.origin = (*backend)->origin;
    self->base.origin_ranks = (*backend)->origin_ranks;
    self->group_name = name;
    self->watch = options->watch;
    self->context = options->context;
    self->store = options->store == NULL ? NULL : dl_store_ref(options->store);
    self->inside = *backend;
    dl_agreement_init(&self->agreement,
                      &(dl_agreement_options){.store = self->store,
                                              .topic = options->on_device == NULL
                                                           ? "debug"
                                                           : "debug-device",
                                              .watch = watch_inside,
                                              .context = self,
                                              .group_name = name,
                                              .rank = options->rank,
                                              .size = options->size});
    *backend = &self->base;
    return DL_OK;
}

dl_backend *
dl_wrapper_backend_inside(dl_backend *backend)
{
    return backend->ops->free == free_wrapper ? self_of(backend)->inside : backend;
}
