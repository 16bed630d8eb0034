/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a blocked core call learns that its caller wants out (Ctrl-C).  The binding
 * installs the check; without one, calls are never interrupted. */
#ifndef DISTLITE_BASE_INTERRUPT_H
#define DISTLITE_BASE_INTERRUPT_H

#include <stdbool.h>

#include "base/status.h"

/* DL_OK, or DL_INTERRUPTED when the calling thread shall return at once. */
typedef dl_status (*dl_interrupt_fn)(void);

void dl_interrupt_install(dl_interrupt_fn check);

/* Asked, too, where this thread waits, until it is NULL again: true is to give up. */
typedef bool (*dl_interrupt_own_fn)(void *context);
void dl_interrupt_set_own(dl_interrupt_own_fn check, void *context);

/* Called between the slices of every wait, and after EINTR.  Takes the GIL on the main
 * thread: the caller must not hold a lock. */
dl_status dl_interrupt_check(void);

#endif
