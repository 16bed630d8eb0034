/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A hook that runs before the calling thread blocks.  The binding uses it to release
 * the GIL only when an operation really has to wait: releasing and re-acquiring it
 * costs a third of a small collective, whose peers mostly have arrived already. */
#ifndef DISTLITE_BASE_BLOCKING_H
#define DISTLITE_BASE_BLOCKING_H

/* Sets the hook of the calling thread, which is called at most once; NULL removes
 * it. */
typedef void (*dl_blocking_fn)(void *context);
void dl_blocking_set_hook(dl_blocking_fn begin, void *context);

/* Calls and removes the hook, if one is set.  Called before any wait of more than a few
 * microseconds, possibly with locks held: the hook must not wait for anything. */
void dl_blocking_begin(void);

#endif
