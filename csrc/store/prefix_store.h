/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A view of another store in which all keys have the prefix "<prefix>/". */
#ifndef DISTLITE_STORE_PREFIX_STORE_H
#define DISTLITE_STORE_PREFIX_STORE_H

#include "store/store.h"

/* Takes a reference to `below`. */
dl_status dl_prefix_store_new(dl_bytes prefix, dl_store *below, dl_store **store);

/* Returns the prefix; borrowed from `store`. */
dl_bytes dl_prefix_store_prefix(const dl_store *store);

#endif
