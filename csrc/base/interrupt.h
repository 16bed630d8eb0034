/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a blocked call of the core finds out that it shall return early (Ctrl-C).  The
 * binding installs the check; without one, calls are never interrupted. */
#ifndef DISTLITE_BASE_INTERRUPT_H
#define DISTLITE_BASE_INTERRUPT_H

#include <stdbool.h>

#include "base/status.h"

/* Returns DL_OK, or DL_INTERRUPTED if the calling thread shall return at once. */
typedef dl_status (*dl_interrupt_fn)(void);

/* Installs the check of the process; NULL removes it. */
void dl_interrupt_install(dl_interrupt_fn check);

/* Sets an additional check for the waits of the calling thread; NULL removes it.  The
 * check returns true to interrupt the wait. */
typedef bool (*dl_interrupt_own_fn)(void *context);
void dl_interrupt_set_own(dl_interrupt_own_fn check, void *context);

/* Runs the checks: called between the slices of every wait, and after EINTR.  Takes the
 * GIL on the main thread, so the caller must hold no lock. */
dl_status dl_interrupt_check(void);

#endif
