/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/paired_backend.h"

#include <stdio.h>

static dl_backend *
cpu_of(dl_backend *backend)
{
    return ((dl_paired_backend *)(void *)backend)->cpu;
}

dl_status
dl_paired_post(dl_backend *backend, const dl_call *call, dl_deadline deadline,
               dl_work **work)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->post(cpu, call, deadline, work);
}

dl_status
dl_paired_post_all(dl_backend *backend, const dl_call *calls, int count,
                   dl_deadline deadline, dl_work **works, int *posted)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->post_all(cpu, calls, count, deadline, works, posted);
}

dl_status
dl_paired_watch(dl_backend *backend, int rank)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->watch(cpu, rank);
}

dl_status
dl_paired_lost(dl_backend *backend, int rank)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->lost(cpu, rank);
}

bool
dl_paired_has_ended(dl_backend *backend, int rank)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->has_ended(cpu, rank);
}

dl_status
dl_paired_share(dl_backend *backend, size_t size, dl_region **region)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->share(cpu, size, region);
}

dl_status
dl_paired_window(dl_backend *backend, const dl_window_options *options,
                 dl_window_part **part)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->window(cpu, options, part);
}

dl_status
dl_paired_verify_calls(dl_backend *backend, dl_deadline deadline)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->verify_calls(cpu, deadline);
}

dl_status
dl_paired_finish(dl_backend *backend, dl_deadline deadline)
{
    dl_backend *cpu = cpu_of(backend);

    return cpu->ops->finish(cpu, deadline);
}

void
dl_paired_leave(dl_backend *backend)
{
    dl_backend *cpu = cpu_of(backend);

    cpu->ops->leave(cpu);
}

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
    self->cpu->ops->abort(self->cpu, cause);
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
    self->cpu->ops->abort(self->cpu, &told);
    return dl_rethrow(&error);
}
