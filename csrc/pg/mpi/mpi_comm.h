/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A communicator of a group's own, counted, since messages on it may outlive the group;
 * and waiting for what was begun on it.  MPI cannot take back an operation that has begun,
 * nor be woken from one, so all waits that depend on other ranks look at a request again
 * and again: at once, then in naps that grow to a millisecond. */
#ifndef DISTLITE_PG_MPI_MPI_COMM_H
#define DISTLITE_PG_MPI_MPI_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/deadline.h"
#include "base/list.h"
#include "pg/mpi/mpi_world.h"

/* Tags of MPI's messages in a group's communicator.  This library's own come first,
 * because the largest tag differs: MPI promises 32767, and some networks have little more.
 * A user's tag is the offset from DL_MPI_USER_TAG. */
enum {
    DL_MPI_OWN_TAG,
    DL_MPI_NEWS_TAG,
    DL_MPI_GO_TAG,
    DL_MPI_OBJECT_TAG, /* of DL_OBJECT_TAG */
    DL_MPI_DATA_TAG,   /* and those up to the next: large contents (mpi_message.c) */
    DL_MPI_DATA_TAGS = 256,
    DL_MPI_USER_TAG = DL_MPI_DATA_TAG + DL_MPI_DATA_TAGS,
};

/* Receives that wait to be matched (mpi_match.h). */
typedef struct dl_mpi_queue {
    pthread_mutex_t lock;
    dl_list head; /* guarded by lock */
    atomic_int count;
} dl_mpi_queue;

typedef struct dl_mpi_comm {
    /* fixed after init */
    const dl_mpi_table *mpi;
    const dl_mpi_world *world;
    dl_mpi_handle handle;
    int rank;
    int size;
    size_t piece; /* bytes that MPI is handed at a time: its counts are ints */
    char *group_name;
    int eager_looks; /* before others get the core */
    atomic_uint references;
    /* Which of the tags for large contents are in use, in words of 64, by rank. */
    _Atomic uint64_t *data_tags;
    /* Something was left behind in it: it stays for the life of the process. */
    atomic_bool is_forsaken;
    atomic_bool is_aborted;
    /* The others know that this rank's group has failed, and why. */
    atomic_bool has_told;
    dl_mpi_queue matching;
    pthread_mutex_t lock;
    dl_error cause; /* of the abort, guarded by lock; fixed once is_aborted */
} dl_mpi_comm;

/* For the ranks of the world in `ranks` to call, all at about the same time: it waits for
 * the others without looking at clock or signals. */
dl_status dl_mpi_comm_new(const dl_mpi_world *world, const char *group_name,
                          const int *ranks, int size, size_t piece, dl_mpi_comm **comm);
dl_mpi_comm *dl_mpi_comm_ref(dl_mpi_comm *comm);
void dl_mpi_comm_unref(dl_mpi_comm *comm); /* NULL does nothing */

/* From any thread, idempotent: all waits fail with `cause`. */
void dl_mpi_comm_abort(dl_mpi_comm *comm, const dl_error *cause);

/* DL_OK, or why it was aborted, or that MPI has been ended. */
dl_status dl_mpi_comm_admit(dl_mpi_comm *comm);

/* A tag for large contents to that rank, to be given back when a receive has taken them:
 * until then no other message may have it.  0: all are in use. */
int dl_mpi_comm_take_tag(dl_mpi_comm *comm, int rank);
void dl_mpi_comm_give_tag(dl_mpi_comm *comm, int rank, int tag);

/* The pace of looking again; zero at first. */
typedef struct dl_mpi_pace {
    int looks;
    int patience; /* looks before naps beside the usual ones: see dl_mpi_patience() */
    int naps;     /* so far */
    int64_t naps_at; /* when they begin at the latest; 0: not known yet */
    /* Until then neither the deadline nor a signal nor an abort ends the wait; 0: they
     * do. */
    int64_t bound_until;
} dl_mpi_pace;

/* MPI moves a long message in parts, and few of them in a look: a nap between two of
 * them would cost more than the part. */
int dl_mpi_patience(size_t bytes);

/* After a look in vain: DL_OK is to look again.  DL_TIMEOUT (no text written),
 * DL_INTERRUPTED, or the abort's cause. */
dl_status dl_mpi_pause(dl_mpi_comm *comm, dl_mpi_pace *pace, dl_deadline deadline);

/* Until the request is done, where all others take part already, so that it ends by
 * itself. */
dl_status dl_mpi_finish(dl_mpi_comm *comm, dl_mpi_handle *request);

#endif
