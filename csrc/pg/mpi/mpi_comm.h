/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A group's own communicators, and waits for requests on them.  They are
 * reference-counted, since messages on them may outlive the group.  Every operation is a
 * request, which MPI completes while it is polled: at first without a pause, then with
 * naps that grow to a millisecond.  So a deadline, a signal, an abort and the end of a
 * rank end every wait; MPI keeps the request, and the memory that it uses. */
#ifndef DISTLITE_PG_MPI_MPI_COMM_H
#define DISTLITE_PG_MPI_MPI_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/deadline.h"
#include "base/list.h"
#include "pg/mpi/mpi_world.h"

/* Tags in the communicator `handle`.  Large contents of messages take the tags from
 * DL_MPI_CONTENTS_TAG on in turns: many enough that two which are pending do not have the
 * same. */
enum {
    DL_MPI_BLOCK_TAG,
    DL_MPI_NOTICE_TAG,
    DL_MPI_CONTENTS_TAG,
    DL_MPI_CONTENTS_TAGS = 30000, /* MPI guarantees 32767 in all */
};

/* The messages of a communicator that MPI does not match (mpi_message.h); guarded by
 * lock. */
typedef struct dl_mpi_mailbox {
    pthread_mutex_t lock;
    dl_list pending; /* messages that have not ended, in the order of their beginning */
    dl_list arrived; /* heads of messages that no receive has taken yet */
    uint32_t *sent;  /* large contents sent to each rank, modulo the number of tags */
} dl_mpi_mailbox;

typedef struct dl_mpi_comm {
    dl_list node; /* among all communicators of the process */
    /* fixed after init */
    const dl_mpi_table *mpi;
    const dl_mpi_world *world;
    dl_mpi_handle handle;
    dl_mpi_handle users; /* of the heads of users' messages, for probes with any tag */
    int rank;
    int size;
    size_t piece; /* most bytes of one call: MPI's counts are ints */
    char *group_name;
    int *world_ranks;  /* by rank in the group */
    bool shares_cores; /* this host may have more ranks than cores */
    atomic_uint references;
    /* MPI may still use it for an operation that was given up: it is never freed. */
    atomic_bool has_pending;
    atomic_bool is_aborted;
    /* The other ranks know the reason of the group's failure. */
    atomic_bool has_told;
    dl_mpi_mailbox mailbox;
    pthread_mutex_t lock;
    dl_error cause; /* of the abort; guarded by lock, fixed once is_aborted */
} dl_mpi_comm;

/* Creates the communicators of the world's ranks in `ranks`, of which this is the one at
 * `rank`; all of them call this at
 * about the same time: it blocks until they have; neither a deadline nor a signal ends
 * it. */
dl_status dl_mpi_comm_new(const dl_mpi_world *world, const char *group_name,
                          const int *ranks, int rank, int size, dl_mpi_comm **comm);
dl_mpi_comm *dl_mpi_comm_ref(dl_mpi_comm *comm);
void dl_mpi_comm_unref(dl_mpi_comm *comm); /* NULL does nothing */

/* Calls `call`, without locks, for all communicators that have not been freed.  Returns
 * whether one of the calls did. */
bool dl_mpi_comm_for_each(bool (*call)(dl_mpi_comm *comm));

/* Makes all waits fail with `cause`; from any thread, idempotent. */
void dl_mpi_comm_abort(dl_mpi_comm *comm, const dl_error *cause);

/* Returns DL_OK, or fails with the reason of the abort, or because MPI has been
 * ended. */
dl_status dl_mpi_comm_admit(dl_mpi_comm *comm);

/* Returns DL_PEER_LOST if `rank`, or any other rank for -1, is known to have ended. */
dl_status dl_mpi_comm_lost(const dl_mpi_comm *comm, int rank);

/* Leaves a request that MPI has not completed to it, for an unlimited time, and with it
 * the communicator.  `memory` is as in dl_mpi_leftover_add(). */
void dl_mpi_comm_leave(dl_mpi_comm *comm, dl_mpi_handle request, void *memory);

/* Describes `size` contiguous bytes as one part.  `*type` is to be freed with
 * dl_mpi_type_free() once MPI has the request: it is a datatype of our own if an int
 * cannot count the bytes, or 0. */
dl_status dl_mpi_part_of(const dl_mpi_comm *comm, void *data, size_t size,
                         dl_mpi_part *part, dl_mpi_handle *type);
void dl_mpi_type_free(const dl_mpi_comm *comm, dl_mpi_handle type);

/* The state of a wait that polls; zeroed at first. */
typedef struct dl_mpi_pace {
    size_t bytes; /* of the data: MPI moves many in parts, few of them per poll */
    int awaited;  /* the rank that is waited for; -1: any rank that ends matters */
    bool is_any;  /* no rank that ends matters: another one may send */
    int64_t began;
    int looks;
    int naps;     /* so far */
    bool is_late; /* the deadline has passed: not the reason of an abort */
    bool is_lost; /* the awaited rank has ended */
} dl_mpi_pace;

/* Pauses between two polls of a request.  DL_OK: poll again.  Fails with DL_TIMEOUT and
 * `is_late` (no text written), DL_INTERRUPTED, the reason of an abort, which may be a
 * timeout elsewhere, because MPI has been ended, or with DL_PEER_LOST and `is_lost` a
 * while after the awaited rank has ended, so that what it had sent is received. */
dl_status dl_mpi_pause(dl_mpi_comm *comm, dl_mpi_pace *pace, dl_deadline deadline);

#endif
