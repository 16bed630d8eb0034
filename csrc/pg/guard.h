/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A check whether the arrays of an operation that runs after its caller has returned
 * are still where they were when it was called.  The core holds addresses only; the
 * maker of a guard knows who owns the memory.  It keeps the owner and the guard alive
 * until the operation has ended. */
#ifndef DISTLITE_PG_GUARD_H
#define DISTLITE_PG_GUARD_H

#include <stddef.h>

#include "base/status.h"

/* Embedded in a struct of its maker. */
typedef struct dl_guard {
    /* Returns DL_OK, or DL_BACKEND with a text on what became of an array.  May be
     * called from any thread, with any lock held, and does not block. */
    dl_status (*check)(const struct dl_guard *guard);
} dl_guard;

/* Calls the guard; NULL always passes. */
static inline dl_status
dl_guard_check(const dl_guard *guard)
{
    return guard == NULL ? DL_OK : guard->check(guard);
}

#endif
