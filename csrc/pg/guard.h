/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether the arrays of an operation that nobody waited for are still where they were
 * when it was called.  The core holds addresses; only the maker of a guard knows whose
 * memory they are of, and keeps that alive, and the guard itself, until the operation has
 * ended. */
#ifndef DISTLITE_PG_GUARD_H
#define DISTLITE_PG_GUARD_H

#include <stddef.h>

#include "base/status.h"

/* Embedded in the maker's own. */
typedef struct dl_guard {
    /* DL_OK, or DL_BACKEND and what has become of an array; from any thread, with any lock
     * held: it does not wait. */
    dl_status (*check)(const struct dl_guard *guard);
} dl_guard;

/* The same of no guard, NULL. */
static inline dl_status
dl_guard_check(const dl_guard *guard)
{
    return guard == NULL ? DL_OK : guard->check(guard);
}

#endif
