/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a thread holds that others want, and gives up only when it has to wait: the
 * binding's lock on the interpreter.  Passing that on and taking it back costs a third of
 * a small collective, whose peers mostly are there already. */
#ifndef DISTLITE_BASE_BLOCKING_H
#define DISTLITE_BASE_BLOCKING_H

/* For the calling thread, until it is NULL again.  Called at most once. */
typedef void (*dl_blocking_fn)(void *context);
void dl_blocking_watch(dl_blocking_fn begin, void *context);

/* Before any wait of more than a few microseconds, whatever locks are held: `begin` must
 * not wait for anything. */
void dl_blocking_begin(void);

#endif
