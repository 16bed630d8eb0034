/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of a group, for its windows.  A window may outlive its group, and its
 * accesses are not operations of the group: the group's backend stores the end here,
 * and the waits of windows check it. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_ENDS_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_ENDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct dl_window_ends {
    atomic_uint references;
    atomic_bool is_over;
    pthread_mutex_t lock;
    dl_error cause; /* guarded by lock until is_over; then fixed */
} dl_window_ends;

/* NULL if there is no memory. */
dl_window_ends *dl_window_ends_new(void);
dl_window_ends *dl_window_ends_ref(dl_window_ends *ends);
void dl_window_ends_unref(dl_window_ends *ends); /* NULL does nothing */

/* Stores that the group has ended with `cause`; the first cause is kept.  Any
 * thread. */
void dl_window_ends_set(dl_window_ends *ends, const dl_error *cause);

/* Fails with the cause if the group has ended. */
dl_status dl_window_ends_check(const dl_window_ends *ends);

#endif
