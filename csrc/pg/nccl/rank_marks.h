/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ranks have come to a step, as bits of counters in the store: what a rank asks does
 * not grow with their number, however many come.  Who is missing, after a timeout, is read
 * from the counters of all. */
#ifndef DISTLITE_PG_NCCL_RANK_MARKS_H
#define DISTLITE_PG_NCCL_RANK_MARKS_H

#include "base/deadline.h"
#include "base/status.h"
#include "store/store.h"

/* Nobody is missing, or the store does not answer. */
#define DL_NO_MARK (-1)

typedef struct dl_rank_marks {
    dl_store *store;  /* borrowed, like the next */
    const char *step; /* begins the counters' keys */
    int count;        /* of those that are to come, 0 to `count` - 1 */
} dl_rank_marks;

/* Notes that `number` has come; once only, as a second time would count for another one.
 * Stores in `*is_last` whether all have come by that. */
dl_status dl_rank_marks_add(const dl_rank_marks *self, int number, dl_deadline deadline,
                            bool *is_last);

/* Returns the first one from `number` on that has not come, or DL_NO_MARK. */
int dl_rank_marks_find_absent(const dl_rank_marks *self, int number,
                              dl_deadline deadline);

#endif
