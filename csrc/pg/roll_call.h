/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks that meet in the store and leave each other a few words: what the debug wrapper
 * and monitored_barrier are made of.  It needs nothing of the backend, so that it works
 * when that does not, and says of each rank whether it came.  Every call has a number,
 * the same on all ranks; words are kept under "<topic>/<number>/<rank>".  Knows nothing of
 * what the words mean. */
#ifndef DISTLITE_PG_ROLL_CALL_H
#define DISTLITE_PG_ROLL_CALL_H

#include "pg/rank_keys.h"
#include "pg/recording.h"

typedef struct dl_roll_call {
    dl_store *store; /* these are borrowed */
    const char *topic;
    int rank;
    int size;
    /* Asked about ranks that have not come: a failure says that it never will, and ends
     * the wait.  Does not wait.  NULL: nobody knows. */
    dl_status (*watch)(void *context, int rank);
    void *context;
    const dl_record *record; /* of the operation that is waited for, or NULL */
} dl_roll_call;

/* Room for one name and all its parts. */
#define DL_ROLL_CALL_KEY_SIZE DL_RANK_KEY_SIZE

/* This rank has come; the words are not empty. */
dl_status dl_roll_call_say(const dl_roll_call *self, uint64_t number, const char *words,
                           dl_deadline deadline);

/* What `rank` said, if it has by now; empty otherwise. */
dl_status dl_roll_call_peek(const dl_roll_call *self, uint64_t number, int rank,
                            dl_buffer *words);

/* Waits for the words of all ranks: `words` are `size` zeroed buffers of the caller.
 * DL_TIMEOUT (no text written): of those that have not come they are empty.  So they are
 * after a failure of `watch`, about the rank `*gone`, which is -1 otherwise. */
dl_status dl_roll_call_hear(const dl_roll_call *self, uint64_t number, dl_buffer *words,
                            int *gone, dl_deadline deadline);

/* Takes this rank's words away again, once nobody can need them. */
void dl_roll_call_forget(const dl_roll_call *self, uint64_t number);

/* The ranks whose words are empty (`is_absent`) or are not. */
void dl_roll_call_list(const dl_roll_call *self, const dl_buffer *words, bool is_absent,
                       dl_rank_list *list);

/* `size` zeroed buffers, or NULL with the thread's error set; and their end. */
dl_buffer *dl_roll_call_words_new(const dl_roll_call *self);
void dl_roll_call_words_free(const dl_roll_call *self, dl_buffer *words);

#endif
