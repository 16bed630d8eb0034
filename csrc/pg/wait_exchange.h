/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a job tell each other of their waits, through the job's store: each
 * what it waits for, and one that finds a deadlock all ranks in it what they are to fail
 * with.  Used by one thread; calls wait for the store's answer, and for no other rank
 * unless they take a deadline. */
#ifndef DISTLITE_PG_WAIT_EXCHANGE_H
#define DISTLITE_PG_WAIT_EXCHANGE_H

#include "base/deadline.h"
#include "pg/wait_graph.h"
#include "pg/wait_words.h"
#include "store/store.h"

typedef struct dl_wait_exchange {
    dl_store *store; /* counted */
    int rank;
    int size;
    bool has_published;
    dl_wait_state **states; /* by rank; those of others are owned */
} dl_wait_exchange;

/* After a failure dl_wait_exchange_fini() is to be called as well. */
dl_status dl_wait_exchange_init(dl_wait_exchange *self, dl_store *store, int rank,
                                int size);
void dl_wait_exchange_fini(dl_wait_exchange *self);

dl_status dl_wait_exchange_publish(dl_wait_exchange *self, const dl_wait_state *state);

/* So that nobody takes it for waiting who looks much later. */
void dl_wait_exchange_withdraw(dl_wait_exchange *self);

/* Of the states only `own` is left, which is borrowed until the next call. */
void dl_wait_exchange_forget(dl_wait_exchange *self, dl_wait_state *own);

/* Fills `states`: `own`, which is borrowed until the next call, the states of the ranks that
 * this one waits for, of those that they wait for, and so on. */
dl_status dl_wait_exchange_read(dl_wait_exchange *self, dl_wait_state *own);

/* What all ranks of a cycle are to fail with, once all of them know it: whoever raises
 * first may end, and the others are to name the deadlock and not its absence. */
typedef struct dl_wait_verdict {
    int32_t count; /* 0: there is none */
    int32_t ranks[DL_WAIT_STEPS];
    uint64_t epochs[DL_WAIT_STEPS];
    char text[DL_WAIT_TEXT_SIZE];
} dl_wait_verdict;

/* For the other ranks of the verdict. */
dl_status dl_wait_exchange_tell(const dl_wait_exchange *self,
                                const dl_wait_verdict *found);

/* What another rank has found for this one, which waits in `epoch`. */
dl_status dl_wait_exchange_hear(const dl_wait_exchange *self, uint64_t epoch,
                                dl_wait_verdict *found);

/* Says that this rank knows the verdict, and returns when all of its ranks have said so, or
 * are too late for it. */
dl_status dl_wait_exchange_agree(const dl_wait_exchange *self,
                                 const dl_wait_verdict *found, uint64_t epoch,
                                 dl_deadline deadline);

#endif
