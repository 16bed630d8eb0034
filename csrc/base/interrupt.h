/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Callbacks of the binding for the core's waits: a hook before a thread blocks, and a
 * check, between the slices of a wait, whether the call must return early (Ctrl-C).
 * Without them, calls are never interrupted. */
#ifndef DISTLITE_BASE_INTERRUPT_H
#define DISTLITE_BASE_INTERRUPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* Returns DL_OK, or DL_INTERRUPTED if the calling thread must return at once. */
typedef dl_status (*dl_interrupt_fn)(void);

/* Installs the check of the process; NULL removes it. */
void dl_interrupt_install(dl_interrupt_fn check);

/* Sets an additional check for the waits of the calling thread, and returns the one that
 * was set before; there is none if `check` is NULL.  The check returns true to interrupt
 * the wait. */
typedef struct dl_interrupt_own {
    bool (*check)(void *context);
    void *context;
    int64_t pause; /* for which a wait may go on without a check; 0: DL_WAIT_SLICE */
} dl_interrupt_own;

dl_interrupt_own dl_interrupt_set_own(dl_interrupt_own next);

/* Runs the checks: called between the slices of every wait, and after EINTR.  Takes the
 * GIL on the main thread, so the caller must hold no lock. */
dl_status dl_interrupt_check(void);

/* Returns how long a wait of the calling thread that needs nothing else may sleep between
 * the checks: DL_WAIT_SLICE where one is installed, or else longer, because thousands of
 * ranks on few cores would do little but wake up. */
int64_t dl_interrupt_slice(void);

/* The hook of the calling thread, or NULL: `passed` is called once, at the next check,
 * when the thread has waited for a slice.  The caller of the check may hold locks: the
 * hook must not wait for anything. */
typedef struct dl_slice_hook {
    void (*passed)(struct dl_slice_hook *);
} dl_slice_hook;

extern _Thread_local dl_slice_hook *dl_slice_current;

/* Sets the hook that runs before the calling thread blocks; it is called at most once,
 * and NULL removes it.  The binding uses it to release the GIL only when an operation
 * really has to wait: releasing and re-acquiring it costs a third of a small collective,
 * whose peers mostly have arrived already. */
typedef void (*dl_blocking_fn)(void *context);
void dl_blocking_set_hook(dl_blocking_fn begin, void *context);

/* Calls and removes the hook, if one is set.  Called before any wait of more than a few
 * microseconds, possibly with locks held: the hook must not wait for anything. */
void dl_blocking_begin(void);

/* Locks, and calls the hook first if that has to wait. */
static inline void
dl_blocking_lock(pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) != 0) {
        dl_blocking_begin();
        pthread_mutex_lock(lock);
    }
}

#endif
