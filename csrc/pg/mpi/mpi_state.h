/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of an MPI backend, and what its operations are made of: for mpi_backend.c,
 * which creates and frees it, and for the files that implement the operations.
 *
 * With each operation travel cards, which say what a rank has called: to all ranks, from
 * the root or to the root, as the data do, by a non-blocking collective of MPI's.  Small
 * arrays follow the cards.  Other data are a second operation of MPI's.  It begins with
 * the cards if it is of the backend's own memory, which has room for what a rank that
 * calls something else may send; one that MPI lets read and write the callers' arrays
 * begins once the cards are equal.  So a difference costs no array anything.
 *
 * A rank waits only for ranks whose cards it needs; the others may be ahead or behind.
 * Each card thus has a digest of all that the rank has called before.  Ranks that wait
 * for long, or give up, tell all others (mpi_notice.h), which finds differences that
 * keep MPI from completing anything.
 *
 * Requests of an operation that has failed are left to MPI.  The backend then gives up
 * its own memory that they use, and callers keep the arrays
 * (dl_backend_keep_memory()). */
#ifndef DISTLITE_PG_MPI_MPI_STATE_H
#define DISTLITE_PG_MPI_MPI_STATE_H

#include "base/buffer.h"
#include "pg/backend.h"
#include "pg/mpi/mpi_comm.h"
#include "pg/mpi/mpi_notice.h"
#include "tensor/tensor.h"

/* Data of at most so many bytes go through the backend's own memory. */
#define DL_MPI_STAGED ((size_t)128 << 10)

/* The calls that a rank remembers, to compare with those that others report. */
#define DL_MPI_REMEMBERED 64

/* The way of the cards: from each rank to all, from the root to all, and from all to
 * the root. */
typedef enum dl_mpi_way {
    DL_MPI_ALL,
    DL_MPI_DOWN,
    DL_MPI_UP,
} dl_mpi_way;

typedef struct dl_mpi_card {
    dl_fingerprint fingerprint;
    uint32_t turn;   /* low half, like the digest */
    uint32_t digest; /* of all calls before */
    uint64_t size;   /* of a block that is a message of its own */
} dl_mpi_card;

_Static_assert(sizeof(dl_mpi_card) == 32, "ranks send it to each other");

typedef struct dl_mpi_call {
    dl_fingerprint fingerprint;
    uint64_t sequence; /* in the group */
} dl_mpi_call;

/* A request of the operation that runs. */
typedef struct dl_mpi_pending {
    dl_mpi_handle request; /* 0: it has ended */
    const char *name;      /* MPI's function */
    int awaited;           /* the rank that it waits for; -1: those of the operation */
} dl_mpi_pending;

typedef struct dl_mpi_backend {
    dl_backend base;
    /* fixed after init */
    dl_mpi_comm *comm;
    const dl_mpi_table *mpi;
    int rank;
    int size;
    /* used only by the thread that runs an operation */
    uint64_t turn; /* operations begun, each exchange counted as one */
    uint64_t digest;
    dl_mpi_call called[DL_MPI_REMEMBERED]; /* by turn */
    uint64_t *heard; /* by rank, the turn in which it said that it waits */
    /* of the operation that runs */
    const dl_op_context *op;
    dl_mpi_way way;
    int root;
    bool is_compared;
    bool uses_arrays; /* MPI has the callers' arrays */
    char *cards;      /* of all ranks that this one needs, with their blocks */
    size_t cards_room;
    size_t stride; /* from card to card */
    dl_mpi_pending *pending;
    int pending_count, pending_room;
    dl_buffer staging; /* memory for data, and for the results of reductions */
    dl_buffer inbox;   /* of the cards of dl_mpi_exchange_blocks(), and its outbox */
} dl_mpi_backend;

static inline dl_mpi_backend *
dl_mpi_self(dl_backend *backend)
{
    return (dl_mpi_backend *)(void *)backend;
}

/* Returns the most bytes that follow a card. */
size_t dl_mpi_room(const dl_mpi_backend *self, dl_mpi_way way);

/* Begins an operation with this rank's card, which has room for `along` bytes behind
 * it. */
dl_status dl_mpi_begin(dl_mpi_backend *self, dl_mpi_way way, int root, size_t along);

/* Returns the block behind the card of `rank`: to be filled before the cards go, and
 * read after dl_mpi_finish(). */
void *dl_mpi_block(const dl_mpi_backend *self, int rank);

/* Sends the cards.  If `size` bytes of data are to follow that exceed DL_MPI_STAGED, this
 * waits until the cards are equal, so that MPI may have the callers' arrays then
 * (`uses_arrays`). */
dl_status dl_mpi_send_cards(dl_mpi_backend *self, size_t size, bool uses_arrays);

/* Returns whether this rank has the blocks of all ranks in the operation: those that it
 * sends, or that it receives.  Otherwise it has one. */
bool dl_mpi_has_all(const dl_mpi_backend *self);

/* Starts MPI's collective for the operation's way: with blocks of `size` bytes, one behind
 * the other in `data`, in which each rank's own is in place. */
dl_status dl_mpi_start(dl_mpi_backend *self, char *data, size_t size);

/* Adds a request that MPI has just made; `result` is what the function returned. */
dl_status dl_mpi_add(dl_mpi_backend *self, int result, dl_mpi_handle request,
                     const char *name, int awaited);

/* Waits for the request, or for all, until it has ended.  Fails with DL_MISMATCH, with
 * DL_TIMEOUT, which names the ranks that have not come, or with DL_PEER_LOST,
 * DL_INTERRUPTED, DL_CANCELLED or DL_BACKEND. */
dl_status dl_mpi_await(dl_mpi_backend *self, dl_mpi_pending *pending);

/* Waits for all requests, compares the cards, and checks that the arrays are still in
 * place. */
dl_status dl_mpi_finish(dl_mpi_backend *self);

/* Ends a failed operation: tells the other ranks, and leaves the requests to MPI. */
dl_status dl_mpi_fail_operation(dl_mpi_backend *self, dl_status status);

/* Writes this rank's card; and fails unless `theirs`, of `rank`, is equal but for the
 * size. */
void dl_mpi_write_card(const dl_mpi_backend *self, dl_mpi_card *card, size_t size);
dl_status dl_mpi_compare_card(dl_mpi_backend *self, int rank,
                              const dl_mpi_card *theirs);

/* Returns staging memory of `size` bytes, behind which there is room for what another
 * rank may send by mistake; its contents are lost.  NULL: there is no memory. */
char *dl_mpi_stage(dl_mpi_backend *self, size_t size);

/* Blocks that go to other ranks, or come from them. */
typedef struct dl_mpi_blocks {
    const dl_tensor *list; /* by rank, or one for all; NULL: none */
    bool is_one;
    int peer; /* the only rank; or -1 */
} dl_mpi_blocks;

/* Sends blocks to ranks and receives blocks from ranks as messages with cards: where
 * only one side knows a size.  Carries out the whole operation. */
dl_status dl_mpi_exchange_blocks(dl_mpi_backend *self, const dl_mpi_blocks *outgoing,
                                 const dl_mpi_blocks *incoming);

/* One operation, without what dl_mpi_fail_operation() does. */
typedef dl_status dl_mpi_run_fn(dl_mpi_backend *self, const dl_call *call);

dl_mpi_run_fn dl_mpi_all_reduce, dl_mpi_reduce, dl_mpi_scan, dl_mpi_reduce_scatter;
dl_mpi_run_fn dl_mpi_broadcast, dl_mpi_barrier, dl_mpi_all_gather, dl_mpi_gather;
dl_mpi_run_fn dl_mpi_scatter, dl_mpi_all_to_all;

#endif
