/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a group leave in the store, each under a key of its own, read in one
 * call: the keys of all, a value for each, and the words for those whose key is not there.
 * Knows nothing of what the values are. */
#ifndef DISTLITE_PG_RANK_KEYS_H
#define DISTLITE_PG_RANK_KEYS_H

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"
#include "store/store.h"

#define DL_RANK_KEY_SIZE 64

typedef struct dl_rank_keys {
    dl_bytes *keys; /* by rank; one piece of memory with their texts */
    int size;
    const int *names; /* the numbers of the ranks in texts; NULL: 0 to size - 1 */
} dl_rank_keys;

/* The key of `rank`, in `text` or elsewhere. */
typedef dl_bytes (*dl_rank_key_fn)(const void *context, int rank,
                                   char text[DL_RANK_KEY_SIZE]);

/* `context` is used in the call only. */
dl_status dl_rank_keys_init(dl_rank_keys *self, int size, dl_rank_key_fn key,
                            const void *context);
void dl_rank_keys_fini(dl_rank_keys *self);

/* `size` zeroed buffers, or NULL with the thread's error set; and their end. */
dl_buffer *dl_rank_values_new(int size);
void dl_rank_values_free(dl_buffer *values, int size);

/* Waits for all of them. */
dl_status dl_rank_keys_get(const dl_rank_keys *self, dl_store *store, dl_buffer *values,
                           dl_deadline deadline);

/* "1", "0, 2", "0, 1 ... 15 and 4 more".  Zeroed, it is empty. */
typedef struct dl_rank_list {
    char text[160];
    int count;
} dl_rank_list;

void dl_rank_list_add(dl_rank_list *list, int rank);

/* Once all are in it. */
void dl_rank_list_end(dl_rank_list *list);

/* Looks which keys are not there now. */
dl_status dl_rank_keys_absent(const dl_rank_keys *self, dl_store *store,
                              dl_rank_list *absent);

#endif
