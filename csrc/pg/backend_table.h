/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backends by name: which memory each serves, and how it is made. */
#ifndef DISTLITE_PG_BACKEND_TABLE_H
#define DISTLITE_PG_BACKEND_TABLE_H

#include "pg/backend.h"

typedef struct dl_backend_kind {
    const char *name;
    /* NULL if the backend does not serve the CPU's memory. */
    dl_backend_new_fn make;
    /* Tells the other ranks that this one fails before it calls `make`, as `make`
     * itself does for its own failures; or NULL. */
    void (*refuse)(const dl_backend_options *options);
    /* Makes the backend of a group's arrays on devices; NULL if it serves none. */
    dl_backend_new_fn make_on_device;
    /* On devices its operations are ordered by streams (dl_backend_ops.enqueue).  The
     * operations of all others run on the host once the streams have reached them. */
    bool is_ordered;
} dl_backend_kind;

/* Returns the row, also of a backend that another package has registered, or NULL. */
const dl_backend_kind *dl_backend_find(const char *name);

#endif
