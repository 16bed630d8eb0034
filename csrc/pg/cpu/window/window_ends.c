/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_ends.h"

#include <stdlib.h>

dl_window_ends *
dl_window_ends_new(void)
{
    dl_window_ends *made = calloc(1, sizeof *made);

    if (made != NULL) {
        atomic_init(&made->references, 1);
        pthread_mutex_init(&made->lock, NULL);
    }
    return made;
}

dl_window_ends *
dl_window_ends_ref(dl_window_ends *ends)
{
    atomic_fetch_add_explicit(&ends->references, 1, memory_order_relaxed);
    return ends;
}

void
dl_window_ends_unref(dl_window_ends *ends)
{
    if (ends != NULL && atomic_fetch_sub(&ends->references, 1) == 1) {
        pthread_mutex_destroy(&ends->lock);
        free(ends);
    }
}

void
dl_window_ends_set(dl_window_ends *ends, const dl_error *cause)
{
    pthread_mutex_lock(&ends->lock);
    if (!atomic_load(&ends->is_over)) {
        ends->cause = *cause;
        atomic_store(&ends->is_over, true);
    }
    pthread_mutex_unlock(&ends->lock);
}

dl_status
dl_window_ends_check(const dl_window_ends *ends)
{
    return atomic_load(&ends->is_over) ? dl_rethrow(&ends->cause) : DL_OK;
}
