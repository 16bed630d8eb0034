/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A store in the memory of this process, shared by its threads: a table
 * under one lock. */
#ifndef DISTLITE_STORE_HASH_STORE_H
#define DISTLITE_STORE_HASH_STORE_H

#include "store/store.h"

dl_status dl_hash_store_new(dl_store **store);

/* Returns the number of keys with values, for descriptions; never waits.  -1:
 * another thread is using the table, or this process is a fork of the one that made
 * the store. */
int64_t dl_hash_store_try_count(dl_store *store);

#endif
