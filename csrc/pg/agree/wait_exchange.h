/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The exchange of waits between the ranks of a job through the job's store.  Each rank
 * publishes what it waits for, and a rank that finds a deadlock publishes the verdict
 * with which all ranks in it are to fail.  Used by one thread.  Calls block until the
 * store answers, and wait for other ranks only if they take a deadline. */
#ifndef DISTLITE_PG_AGREE_WAIT_EXCHANGE_H
#define DISTLITE_PG_AGREE_WAIT_EXCHANGE_H

#include "base/deadline.h"
#include "pg/agree/wait_words.h"
#include "pg/record/wait_graph.h"
#include "store/store.h"

typedef struct dl_wait_exchange {
    dl_store *store; /* owns a reference */
    int rank;
    int size;
    bool has_published;
    dl_wait_state **states; /* by rank; all but this rank's own are owned */
} dl_wait_exchange;

/* After a failure dl_wait_exchange_fini() must be called as well. */
dl_status dl_wait_exchange_init(dl_wait_exchange *self, dl_store *store, int rank,
                                int size);
void dl_wait_exchange_fini(dl_wait_exchange *self);

/* Publishes this rank's state in the store, in place of the one before. */
dl_status dl_wait_exchange_publish(dl_wait_exchange *self, const dl_wait_state *state);

/* Withdraws what this rank has published, so that later searches do not take it for
 * waiting. */
void dl_wait_exchange_withdraw(dl_wait_exchange *self);

/* Drops all states and keeps `own` only, which is borrowed until the next call. */
void dl_wait_exchange_forget(dl_wait_exchange *self, dl_wait_state *own);

/* Fills `states` with `own`, which is borrowed until the next call, with the states of
 * the ranks that this one waits for, with those that they wait for, and so on. */
dl_status dl_wait_exchange_read(dl_wait_exchange *self, dl_wait_state *own);

/* What all ranks of a cycle are to fail with.  They fail once all of them know it: the
 * first one to raise may exit, and the errors of the others must name the deadlock and
 * not the lost rank. */
typedef struct dl_wait_verdict {
    int32_t count; /* 0 if there is no verdict */
    int32_t ranks[DL_WAIT_STEPS];
    uint64_t epochs[DL_WAIT_STEPS];
    char text[DL_WAIT_TEXT_SIZE];
} dl_wait_verdict;

/* Publishes the verdict for its other ranks. */
dl_status dl_wait_exchange_publish_verdict(const dl_wait_exchange *self,
                                           const dl_wait_verdict *found);

/* Reads the verdict that another rank has found for this one, which
 * waits in `epoch`. */
dl_status dl_wait_exchange_read_verdict(const dl_wait_exchange *self, uint64_t epoch,
                                        dl_wait_verdict *found);

/* Announces that this rank knows the verdict.  Returns when all ranks of the verdict
 * have done so, or the deadline has passed. */
dl_status dl_wait_exchange_confirm_verdict(const dl_wait_exchange *self,
                                           const dl_wait_verdict *found, uint64_t epoch,
                                           dl_deadline deadline);

#endif
