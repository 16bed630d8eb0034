/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CPU backend; answers to "cpu" and "gloo".  Ranks that can exchange a descriptor
 * talk through shared memory. */
#ifndef DISTLITE_PG_CPU_CPU_BACKEND_H
#define DISTLITE_PG_CPU_CPU_BACKEND_H

#include "base/buffer.h"
#include "pg/backend.h"

dl_status dl_cpu_backend_new(const dl_backend_options *options, dl_deadline deadline,
                             dl_backend **backend);

/* Tells the other ranks of a group which this one cannot make, that and why: the thread's
 * last error, which stays.  dl_cpu_backend_new() does so itself.  Best effort. */
void dl_cpu_backend_refuse(const dl_backend_options *options);

/* Lines of a name and an address: "chosen", once for each by which other hosts would reach
 * this process, and those of the interfaces.  `connected`, in numbers, is the local end of a connection
 * to another host, or NULL. */
dl_status dl_cpu_addresses(const char *connected, dl_buffer *text);

#endif
