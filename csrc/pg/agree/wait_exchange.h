/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The exchange of waits between the ranks of a job through the job's store.  Each rank
 * publishes what it waits for.  Used by one thread.  Calls block until the store answers,
 * and do not wait for other ranks. */
#ifndef DISTLITE_PG_AGREE_WAIT_EXCHANGE_H
#define DISTLITE_PG_AGREE_WAIT_EXCHANGE_H

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

#endif
