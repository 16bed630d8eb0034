/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The listing of all names of a large table, as it goes over the wire: made piece by
 * piece, so that no client keeps the server to itself, and shared by all clients that
 * ask for it, so that many who ask and read nothing hold one copy.
 *
 * A client gets a listing that was begun when it had asked, or later: it shows what the
 * client has set and deleted before.  What changes while a listing is made may be in it
 * or not.  Server thread only; zeroed memory has no listing. */
#ifndef DISTLITE_STORE_TCP_NAMES_H
#define DISTLITE_STORE_TCP_NAMES_H

#include "base/blob.h"
#include "store/table.h"

/* So many listings are held for clients that have not read them.  Only names that come
 * and go while clients read make more than one. */
#define DL_NAMES_HELD 64

typedef struct dl_listing {
    dl_blob *names;   /* each as dl_put_bytes() writes it */
    uint64_t version; /* of the table's names, when it was begun */
    int64_t count;
} dl_listing;

typedef struct dl_names {
    dl_listing latest; /* complete; no blob: none */
    dl_listing begun;  /* under way; no blob: none */
    dl_table_cursor cursor;
    int64_t left;                 /* names of `begun` still to come, at most */
    dl_blob *held[DL_NAMES_HELD]; /* earlier ones that somebody may still read */
} dl_names;

void dl_names_fini(dl_names *names);

/* Makes a listing of version `since` or later, if there is none, by as many names as
 * `*work` says, which is counted down.  True: it is `names->latest`.  False: `*status`
 * is DL_OK, to go on another time, or DL_NO_MEMORY, also when too many listings are held. */
bool dl_names_make(dl_names *names, dl_table *table, uint64_t since, int *work,
                   dl_status *status);

#endif
