/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The names of a table copied out of it, so that they can be shown to a visitor after
 * the table's lock was given back: the visitor may use the store, or block. */
#ifndef DISTLITE_STORE_KEY_LIST_H
#define DISTLITE_STORE_KEY_LIST_H

#include "base/buffer.h"
#include "store/table.h"

/* Appends to the caller's `list`. */
dl_status dl_key_list_copy(const dl_table *table, dl_buffer *list);

/* The first failure of `visit` ends it and is returned. */
dl_status dl_key_list_visit(const dl_buffer *list,
                            dl_status (*visit)(void *context, dl_bytes key),
                            void *context);

#endif
