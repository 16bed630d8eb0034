/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the front door does for a kind of store whose table leaves an entry NULL, built
 * from the other calls.  Private to store.c. */
#ifndef DISTLITE_STORE_GENERIC_H
#define DISTLITE_STORE_GENERIC_H

#include "store/store.h"

/* Looks every few milliseconds. */
dl_status dl_generic_wait(dl_store *store, const dl_bytes *keys, size_t count,
                          dl_deadline deadline);

/* A loop of compare_set, whose answer cannot tell two writers of the same bytes apart:
 * equal appends at one moment may become one. */
dl_status dl_generic_append(dl_store *store, dl_bytes key, dl_bytes value,
                            dl_deadline deadline);

dl_status dl_generic_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                               dl_buffer *values, dl_deadline deadline);
dl_status dl_generic_multi_set(dl_store *store, const dl_bytes *keys,
                               const dl_bytes *values, size_t count,
                               dl_deadline deadline);

/* Counts in "<key>/num_members"; the last sets "<key>/last_member", for which all wait.
 * With no members it is over at once. */
dl_status dl_generic_barrier(dl_store *store, dl_bytes key, int64_t world_size,
                             dl_deadline deadline);

#endif
