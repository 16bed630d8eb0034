/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A rendezvous of the ranks in the store, at which each leaves a short text ("words"),
 * for agreements and monitored_barrier.  It does not use the backend, so it
 * works when the backend does not, and reports for each rank whether it has arrived.
 * Every roll call has a number, the same on all ranks; words are kept under
 * "<topic>/<number>/<rank>".  Knows nothing of what the words mean. */
#ifndef DISTLITE_PG_AGREE_ROLL_CALL_H
#define DISTLITE_PG_AGREE_ROLL_CALL_H

#include "pg/agree/rank_keys.h"
#include "pg/record/recording.h"

typedef struct dl_roll_call {
    dl_store *store; /* borrowed, like `topic` */
    const char *topic;
    int rank;
    int size;
    /* Called for ranks that have not come: a failure means that the rank never will,
     * and ends the wait.  Must not block.  NULL if there is no such information. */
    dl_status (*check_rank)(void *context, int rank);
    void *context;
    const dl_record *record; /* of the operation that waits, or NULL */
} dl_roll_call;

/* Announces this rank; `words` must not be empty. */
dl_status dl_roll_call_announce(const dl_roll_call *self, uint64_t number,
                                const char *words, dl_deadline deadline);

/* Reads the words of `rank`; they are empty if it has not come yet. */
dl_status dl_roll_call_read(const dl_roll_call *self, uint64_t number, int rank,
                            dl_buffer *words);

/* Waits for the words of all ranks; `words` are `size` zeroed buffers of the caller.
 * DL_TIMEOUT (no text written): the words of ranks that have not come are empty.  They
 * are empty as well after a failure of `check_rank`, which sets `*gone` to the rank that it
 * is about; `*gone` is -1 otherwise. */
dl_status dl_roll_call_wait(const dl_roll_call *self, uint64_t number, dl_buffer *words,
                            int *gone, dl_deadline deadline);

/* Deletes this rank's words, once nobody can need them. */
void dl_roll_call_delete(const dl_roll_call *self, uint64_t number);

/* Lists the ranks whose words are empty. */
void dl_roll_call_list(const dl_roll_call *self, const dl_buffer *words,
                       dl_rank_list *list);

#endif
