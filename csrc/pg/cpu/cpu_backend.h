/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU backend, under the names "cpu" and "gloo".  Ranks that can pass descriptors
 * to each other use shared memory; others use TCP. */
#ifndef DISTLITE_PG_CPU_CPU_BACKEND_H
#define DISTLITE_PG_CPU_CPU_BACKEND_H

#include "base/buffer.h"
#include "pg/backend.h"

/* Meets the other ranks of the group, or makes a group out of `options->origin` without
 * a rendezvous.  `*backend` is freed with its `free`. */
dl_status dl_cpu_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* Informs the other ranks of a group that this one cannot make it, with the thread's
 * last error as the reason; that error is kept.  dl_cpu_backend_new() does so itself
 * when it fails.  Best effort. */
void dl_cpu_backend_refuse(const dl_backend_options *options);

/* Watches the processes of the group's ranks on this host until this process ends, also
 * once the group is gone, for dl_cpu_any_has_ended(). */
void dl_cpu_watch_for_good(dl_backend *backend);

/* Returns whether a process of this host that was in a group with this one is known to
 * have ended.  May be called from any thread. */
bool dl_cpu_any_has_ended(void);

/* Writes lines of a name and an address to `text`: "chosen" for each address at which
 * other hosts would reach this process, then the interfaces.  `connected` is the local
 * end of a connection to another host, as a numeric address, or NULL. */
dl_status dl_cpu_addresses(const char *connected, dl_buffer *text);

#endif
