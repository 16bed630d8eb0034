/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The values that the ranks of a group leave in the store, each under a key of its own,
 * read in one call: the keys of all ranks, a value for each, and a text that lists the
 * ranks whose keys are missing.  Knows nothing of the values' meaning. */
#ifndef DISTLITE_PG_AGREE_RANK_KEYS_H
#define DISTLITE_PG_AGREE_RANK_KEYS_H

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"
#include "store/store.h"

#define DL_RANK_KEY_SIZE 64

typedef struct dl_rank_keys {
    dl_bytes *keys; /* by rank; one allocation with their texts */
    int size;
} dl_rank_keys;

/* Returns the key of `rank`, which may be written to `text` or be stored elsewhere. */
typedef dl_bytes (*dl_rank_key_fn)(const void *context, int rank,
                                   char text[DL_RANK_KEY_SIZE]);

/* Makes the keys of ranks 0 to `size` - 1; `context` is passed to `key`
 * and not kept. */
dl_status dl_rank_keys_init(dl_rank_keys *self, int size, dl_rank_key_fn key,
                            const void *context);
void dl_rank_keys_fini(dl_rank_keys *self);

/* dl_rank_values_new() returns `size` zeroed buffers, or NULL with the
 * thread's error set. */
dl_buffer *dl_rank_values_new(int size);
void dl_rank_values_free(dl_buffer *values, int size);

/* Waits until all keys exist, and reads their values; only waits if `values` is NULL.  A
 * store answers a wait for absent keys in one request, and a read of them in three. */
dl_status dl_rank_keys_get(const dl_rank_keys *self, dl_store *store, dl_buffer *values,
                           dl_deadline deadline);

/* A list of ranks as text: "1", "0, 2", "0, 1 ... 15 and 4 more".  Zeroed,
 * it is empty. */
typedef struct dl_rank_list {
    char text[160];
    int count;
} dl_rank_list;

void dl_rank_list_add(dl_rank_list *list, int rank);

/* Completes the text after the last rank was added. */
void dl_rank_list_end(dl_rank_list *list);

/* Fails with DL_TIMEOUT after a wait until `deadline`, in which these ranks "did not join"
 * what `what` says. */
dl_status dl_rank_list_fail(const dl_rank_list *absent, const char *what,
                            dl_deadline deadline);

/* Lists the ranks whose keys do not exist now. */
dl_status dl_rank_keys_absent(const dl_rank_keys *self, dl_store *store,
                              dl_rank_list *absent);

#endif
