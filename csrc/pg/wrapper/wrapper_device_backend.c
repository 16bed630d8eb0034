/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/wrapper/wrapper_device_backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/call_site.h"
#include "pg/wrapper/agreement.h"

typedef struct wrapper {
    dl_device_backend base;
    /* fixed after init */
    dl_device_backend *inside;
    dl_agreement agreement;
    dl_store *store;
    char *label; /* "0 (nccl)": operations on devices are numbered separately */
} wrapper;

static wrapper *
self_of(dl_device_backend *backend)
{
    return (wrapper *)(void *)backend;
}

/* Compares the call with those of the other ranks.  Any failure but a mismatch aborts
 * the backend inside, so that ranks which come later fail at once and do not wait. */
static dl_status
agree(wrapper *self, const dl_device_item *item, dl_deadline deadline)
{
    dl_op_context op = {
        .sequence = item->sequence,
        .fingerprint = item->fingerprint,
        .deadline = deadline,
        .call_site = item->call_site,
    };
    dl_status status = dl_agreement_reach(&self->agreement, &op, item->call);

    if (status != DL_OK && status != DL_MISMATCH) {
        dl_error error = *dl_last_error();
        dl_error cause = dl_error_for_others();
        self->inside->ops->abort(self->inside, &cause);
        return dl_fail_again(&error);
    }
    return status;
}

static dl_status
enqueue(dl_device_backend *backend, const dl_device_call *call, dl_work **work)
{
    wrapper *self = self_of(backend);

    for (size_t i = 0; i < call->count; i++) {
        if (call->items[i].sequence > 0) {
            DL_TRY(agree(self, &call->items[i], call->deadline));
        }
    }
    return self->inside->ops->enqueue(self->inside, call, work);
}

static dl_status
split(dl_device_backend *backend, const dl_device_split_args *wanted,
      dl_deadline deadline, dl_device_backend *child)
{
    dl_device_backend *inside = self_of(backend)->inside;

    return inside->ops->split(inside, wanted, deadline, child);
}

static dl_status
connect_inside(dl_device_backend *backend, int device, dl_deadline deadline)
{
    dl_device_backend *inside = self_of(backend)->inside;

    return inside->ops->connect(inside, device, deadline);
}

static void
abort_inside(dl_device_backend *backend, const dl_error *cause)
{
    wrapper *self = self_of(backend);

    dl_agreement_abort(&self->agreement, cause);
    self->inside->ops->abort(self->inside, cause);
}

static void
leave(dl_device_backend *backend)
{
    wrapper *self = self_of(backend);
    dl_error cause = {.status = DL_CLOSED};

    snprintf(cause.text, sizeof cause.text, "group %s was closed", self->label);
    dl_agreement_abort(&self->agreement, &cause);
    self->inside->ops->leave(self->inside);
}

static void
free_wrapper(dl_device_backend *backend)
{
    wrapper *self = self_of(backend);

    self->inside->ops->free(self->inside);
    dl_agreement_fini(&self->agreement);
    dl_store_unref(self->store);
    free(self->label);
    free(self);
}

static const dl_device_ops wrapper_ops = {
    .name = "wrapper",
    .enqueue = enqueue,
    .split = split,
    .connect = connect_inside,
    .abort = abort_inside,
    .leave = leave,
    .free = free_wrapper,
};

dl_device_backend *
dl_wrapper_device_inside(dl_device_backend *backend)
{
    return backend->ops == &wrapper_ops ? self_of(backend)->inside : backend;
}

dl_status
dl_wrapper_device_backend_wrap(const dl_device_backend_options *options,
                               dl_device_backend **backend)
{
    wrapper *self = calloc(1, sizeof *self);

    if (self == NULL
        || asprintf(&self->label, "%s (%s)", options->group_name, (*backend)->ops->name)
               < 0) {
        free(self);
        return dl_fail_no_memory();
    }
    dl_call_sites_enable();
    self->base.ops = &wrapper_ops;
    self->inside = *backend;
    self->store = dl_store_ref(options->store);
    dl_agreement_init(&self->agreement,
                      &(dl_agreement_options){.store = self->store,
                                              .topic = "debug-device",
                                              .group_name = self->label,
                                              .watch = options->watch,
                                              .context = options->context,
                                              .rank = options->rank,
                                              .size = options->size});
    *backend = &self->base;
    return DL_OK;
}
