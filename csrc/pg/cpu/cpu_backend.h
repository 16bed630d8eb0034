/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU backend, under the names "cpu" and "gloo".  Ranks that can pass descriptors
 * to each other use shared memory; others use TCP. */
#ifndef DISTLITE_PG_CPU_CPU_BACKEND_H
#define DISTLITE_PG_CPU_CPU_BACKEND_H

#include "base/buffer.h"
#include "pg/backend.h"

/* Meets the other ranks of the group, or makes a group out of `options->origin` without
 * a meeting.  `*backend` is freed with its `free`. */
dl_status dl_cpu_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* Informs the other ranks of a group that this one cannot make it, with the thread's
 * last error as the reason; that error is kept.  dl_cpu_backend_new() does so itself
 * when it fails.  Best effort. */
void dl_cpu_backend_refuse(const dl_backend_options *options);

/* Returns a number that is the same in all processes with which this one can share
 * memory, and differs in all others (it is a hash); 0: it can share memory with none. */
uint64_t dl_cpu_memory_space(void);

/* Returns when the failure detector of this process last saw a process of this host end,
 * on dl_now()'s clock; 0: never yet.  May be called from any thread. */
int64_t dl_cpu_last_end(void);

/* Writes lines of a name and an address to `text`: "chosen" for each address at which
 * other hosts would reach this process, then the interfaces.  `connected` is the local
 * end of a connection to another host, as a numeric address, or NULL. */
dl_status dl_cpu_addresses(const char *connected, dl_buffer *text);

#endif
