/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The listing of all names of a large table, encoded for the wire.  It is built in
 * steps, so that no client monopolises the server, and shared by all clients that ask
 * for it, so that clients that never read their replies together hold one copy.
 *
 * A client is given a listing that was begun after its request arrived, so that it
 * reflects what the client has set and deleted before.  Changes made while a listing is
 * built may or may not be in it.  Server thread only; zeroed memory has no listing. */
#ifndef DISTLITE_STORE_TCP_NAMES_H
#define DISTLITE_STORE_TCP_NAMES_H

#include "base/blob.h"
#include "store/table.h"

/* Number of superseded listings that are kept for clients that are still reading them.
 * There are some only when names are set and deleted while clients read. */
#define DL_NAMES_HELD 64

typedef struct dl_listing {
    dl_blob *names;   /* each as dl_put_bytes() writes it */
    uint64_t version; /* the table's names_version when it was begun */
    int64_t count;
} dl_listing;

typedef struct dl_names {
    dl_listing latest; /* complete; none if `names` is NULL */
    dl_listing begun;  /* being built; none if `names` is NULL */
    dl_table_cursor cursor;
    int64_t left;                 /* names that `begun` still lacks, at most */
    dl_blob *held[DL_NAMES_HELD]; /* earlier ones that a client may still be reading */
} dl_names;

void dl_names_fini(dl_names *names);

/* Builds a listing of version `since` or later, unless there is one, and decrements
 * `*work` for each name.  Returns true when `names->latest` is such a listing.  Returns
 * false with `*status` DL_OK when `*work` is used up (call again), or DL_NO_MEMORY when
 * out of memory or when DL_NAMES_HELD earlier listings are still being read. */
bool dl_names_make(dl_names *names, dl_table *table, uint64_t since, int *work,
                   dl_status *status);

#endif
