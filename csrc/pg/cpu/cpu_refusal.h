/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A refusal tells the other ranks of a group that this one cannot make its backend.
 * Until they have met it, they wait in the store.  After that, and in groups made out
 * of another one, which do not meet, they wait at the board and at links: they find
 * there that this rank has aborted. */
#ifndef DISTLITE_PG_CPU_CPU_REFUSAL_H
#define DISTLITE_PG_CPU_CPU_REFUSAL_H

#include "pg/cpu/cpu_state.h"

/* Tells the other ranks of the thread's last error, which is kept.  `self` may be
 * incomplete. */
void dl_cpu_refuse(dl_cpu_backend *self, const dl_backend_options *options);

/* Answers the ranks of other hosts that call this one for the group, now or later, with
 * `message`, cut to the size of an answer. */
void dl_cpu_end_calls(dl_roster *roster, const char *group_name,
                      const dl_error *message);

/* Fills in the borrower of the memory for a group made out of the roster's.  The caller
 * frees `*places`, to which the borrower points. */
dl_status dl_cpu_borrower_init(dl_borrower *borrower, const dl_roster *roster,
                               const dl_layout *layout, const int *origin_ranks,
                               const char *name, int **places);

#endif
