/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The exchange of bytes that UCC needs before its own network is up (its "out-of-band"
 * all-gather): each rank puts its bytes into the store and reads those of all others.
 * UCC calls it from the thread that creates, progresses or destroys a context or team,
 * so that thread sets the deadline up to which it may block.  The first error is kept
 * here, because UCC passes on only a number. */
#ifndef DISTLITE_PG_UCC_UCC_EXCHANGE_H
#define DISTLITE_PG_UCC_UCC_EXCHANGE_H

#include "base/deadline.h"
#include "pg/backend.h"
#include "pg/ucc/ucc_table.h"
#include "store/store.h"

typedef struct dl_ucc_exchange {
    dl_store *store;  /* a reference */
    const char *what; /* "context" or "team"; part of the keys */
    int rank;
    int size;
    /* only for the one thread that is in UCC for this exchange */
    uint64_t round;
    dl_deadline deadline;
    dl_backend *watcher; /* asked which ranks are gone, or NULL */
    bool is_leaving;     /* nobody is left to handle an interrupt */
    dl_error error;      /* the first failure; DL_OK: none so far */
} dl_ucc_exchange;

void dl_ucc_exchange_init(dl_ucc_exchange *exchange, dl_store *store, const char *what,
                          int rank, int size);
void dl_ucc_exchange_fini(dl_ucc_exchange *exchange);

/* Returns `status` of a call of UCC, or fails with the error of the exchange, if there
 * was one: it says more than UCC's number. */
dl_status dl_ucc_exchange_explain(const dl_ucc_exchange *exchange, dl_status status);

/* Publishes the thread's last error, because of which this rank does not make the
 * group: exchanges of the other ranks fail with it.  An error that the others find
 * themselves (a timeout, a rank that is gone) is not published.  Best effort; keeps the
 * error. */
void dl_ucc_exchange_refuse(dl_store *store, int rank);

/* Removes the error that an earlier attempt to make a group in this store has
 * published.  To be called before the ranks meet. */
void dl_ucc_exchange_forget(dl_store *store);

/* Returns the callbacks for UCC.  `exchange` must stay in place for as long as UCC has
 * them. */
dl_ucc_oob dl_ucc_exchange_oob(dl_ucc_exchange *exchange);

#endif
