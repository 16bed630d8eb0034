/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/paired_backend.h"

#include <stdio.h>

void
dl_paired_abort(dl_backend *backend, const dl_error *cause)
{
    dl_paired_backend *self = (dl_paired_backend *)(void *)backend;

    pthread_mutex_lock(&self->lock);
    if (!atomic_load_explicit(&self->is_aborted, memory_order_relaxed)) {
        self->cause = *cause;
        atomic_store_explicit(&self->is_aborted, true, memory_order_release);
    }
    pthread_mutex_unlock(&self->lock);
    self->base.cpu->ops->abort(self->base.cpu, cause);
}

dl_status
dl_paired_admit(const dl_paired_backend *self)
{
    bool is_aborted = atomic_load_explicit(&self->is_aborted, memory_order_acquire);

    return is_aborted ? dl_rethrow(&self->cause) : DL_OK;
}

dl_status
dl_paired_refuse(const dl_paired_backend *self)
{
    dl_error error = *dl_last_error();
    dl_error cause = dl_error_for_others();
    dl_error told = {.status = DL_PEER_LOST};

    snprintf(told.text, sizeof told.text, "could not make the group: %.1800s",
             cause.text);
    self->base.cpu->ops->abort(self->base.cpu, &told);
    return dl_rethrow(&error);
}
