/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How UCC's ranks talk before they have UCC: each puts its bytes into the store and reads
 * all the others'.  UCC calls from the thread that creates, progresses or destroys
 * something, so the deadline here is that thread's licence to block; what goes wrong is
 * kept, because UCC passes on no more than a number. */
#ifndef DISTLITE_PG_UCC_UCC_EXCHANGE_H
#define DISTLITE_PG_UCC_UCC_EXCHANGE_H

#include "base/deadline.h"
#include "pg/backend.h"
#include "pg/ucc/ucc_table.h"
#include "store/store.h"

typedef struct dl_ucc_exchange {
    dl_store *store;  /* a reference */
    const char *what; /* "context" or "team": a part of the keys */
    int rank;
    int size;
    /* Of the one thread that is in UCC for this. */
    uint64_t round;
    dl_deadline deadline;
    dl_backend *company; /* of the same ranks: asked who is gone; NULL: nobody is */
    bool is_leaving;     /* nobody is there to be told of an interrupt */
    dl_error error;      /* the first failure; DL_OK: none yet */
} dl_ucc_exchange;

void dl_ucc_exchange_init(dl_ucc_exchange *exchange, dl_store *store, const char *what,
                          int rank, int size);
void dl_ucc_exchange_fini(dl_ucc_exchange *exchange);

/* Publishes the thread's last error, with which this rank gives up making the group:
 * exchanges of the others end with it.  An error that the others find for themselves (a
 * timeout, a rank that is gone) is not published.  Best effort; keeps the error. */
void dl_ucc_exchange_refuse(dl_store *store, int rank);

/* Removes what an earlier attempt to make a group in this store has published.  To be called
 * before the ranks meet. */
void dl_ucc_exchange_forget(dl_store *store);

/* `exchange` must stay where it is, for as long as UCC has this. */
dl_ucc_oob dl_ucc_exchange_oob(dl_ucc_exchange *exchange);

#endif
