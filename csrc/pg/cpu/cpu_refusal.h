/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the other ranks of a group are told when this one cannot make its backend.  Until
 * they have met it they wait in the store.  After that, and in groups made out of another
 * one, which do not meet, they wait at the board and at links: they find there that it
 * has aborted. */
#ifndef DISTLITE_PG_CPU_CPU_REFUSAL_H
#define DISTLITE_PG_CPU_CPU_REFUSAL_H

#include "pg/cpu/cpu_state.h"

/* The thread's last error, which stays.  `self` is as far as it was made. */
void dl_cpu_refuse(dl_cpu_backend *self, const dl_backend_options *options);

/* Answers the ranks of other hosts that have called this one for the group, or will, with
 * `message`, as far as an answer holds it. */
void dl_cpu_end_calls(dl_roster *roster, const char *group_name,
                      const dl_error *message);

/* Who borrows memory for a group made out of the roster's; `*places`, which it points to,
 * is for the caller to free. */
dl_status dl_cpu_borrower_init(dl_borrower *borrower, const dl_roster *roster,
                               const dl_layout *layout, const int *origin_ranks,
                               const char *name, int **places);

#endif
