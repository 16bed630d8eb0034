/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counts of the references to an object that several threads share.  The count is a
 * member of the object, and begins at the number of its first owners. */
#ifndef DISTLITE_BASE_REFERENCES_H
#define DISTLITE_BASE_REFERENCES_H

#include <stdatomic.h>
#include <stdbool.h>

/* Called by a thread that has a reference, or the lock under which there is one. */
static inline void
dl_reference_take(atomic_uint *count)
{
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

/* Returns whether that was the last one, whose caller frees the object: it sees all that
 * other threads have done before they dropped theirs. */
static inline bool
dl_reference_drop(atomic_uint *count)
{
    return atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel) == 1;
}

#endif
