/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Informs other ranks that this one cannot make a group, or has ended it. */
#ifndef DISTLITE_PG_CPU_CPU_REFUSAL_H
#define DISTLITE_PG_CPU_CPU_REFUSAL_H

#include "pg/cpu/bootstrap.h"
#include "pg/cpu/shm/segment.h"

/* As dl_cpu_backend_refuse(), which has neither: `bootstrap` is NULL before the
 * rendezvous, and `segment` is this rank's memory of the group, empty if it has
 * none. */
void dl_cpu_refuse(const dl_backend_options *options, dl_bootstrap *bootstrap,
                   const dl_segment *segment);

/* Answers ranks of other hosts that connect to this one for the group, now or later,
 * with `message`, cut to the size of an answer. */
void dl_cpu_end_calls(dl_bootstrap *bootstrap, const char *group_name,
                      const dl_error *message);

#endif
