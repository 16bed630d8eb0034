/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A group's own communicators, one for the messages of users and one for all else, and
 * waits for requests on them.  They are reference-counted, since messages on them may
 * outlive the group.  MPI can neither withdraw an operation that has begun nor wake a
 * thread from it, so every wait that depends on other ranks polls a request: at first
 * without a pause, then with naps that grow to a millisecond. */
#ifndef DISTLITE_PG_MPI_MPI_COMM_H
#define DISTLITE_PG_MPI_MPI_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/deadline.h"
#include "base/list.h"
#include "pg/mpi/mpi_world.h"

/* Tags of MPI's messages in a group's communicator.  This library's own come first,
 * because the largest tag differs: MPI guarantees 32767, and some networks have little
 * more.  A user's tag is added to DL_MPI_USER_TAG. */
enum {
    DL_MPI_OWN_TAG,
    DL_MPI_NEWS_TAG,
    DL_MPI_GO_TAG,
    DL_MPI_OBJECT_TAG, /* stands for DL_OBJECT_TAG */
    DL_MPI_DATA_TAG,   /* the first tag of large contents (mpi_message.c) */
    DL_MPI_DATA_TAGS = 256,
    DL_MPI_USER_TAG = DL_MPI_DATA_TAG + DL_MPI_DATA_TAGS,
};

/* What MPI cannot match by itself; guarded by lock. */
typedef struct dl_mpi_queue {
    pthread_mutex_t lock;
    dl_list head; /* receives that wait for their match (mpi_match.h) */
    dl_list kept; /* heads of messages that probes have received (mpi_probe.h) */
} dl_mpi_queue;

typedef struct dl_mpi_comm {
    /* fixed after init */
    const dl_mpi_table *mpi;
    const dl_mpi_world *world;
    dl_mpi_handle handle;
    dl_mpi_handle users; /* see dl_mpi_comm_of_tag() */
    int rank;
    int size;
    size_t piece; /* most bytes of one call: MPI's counts are ints */
    char *group_name;
    int *world_ranks;  /* by rank in the group */
    bool shares_cores; /* this host may have more ranks than cores */
    atomic_uint references;
    /* The tags for large contents that are in use: a bit for each, in
     * words of 64, by rank. */
    _Atomic uint64_t *data_tags;
    /* MPI may still use it for an operation that was given up: it is never freed. */
    atomic_bool has_pending;
    atomic_bool is_aborted;
    /* The other ranks have been sent the reason of the group's failure. */
    atomic_bool has_told;
    /* Memory for the head of a receive, which the next one uses again; or NULL.  It is too
     * large for the caches of most allocators. */
    struct dl_mpi_frame *_Atomic spare;
    dl_mpi_queue matching;
    pthread_mutex_t lock;
    dl_error cause; /* of the abort; guarded by lock, fixed once is_aborted */
} dl_mpi_comm;

/* Creates the communicators of the world's ranks in `ranks`, all of which call this at
 * about the same time: it blocks until they have; neither a deadline nor a signal ends
 * it. */
dl_status dl_mpi_comm_new(const dl_mpi_world *world, const char *group_name,
                          const int *ranks, int size, size_t piece, dl_mpi_comm **comm);
dl_mpi_comm *dl_mpi_comm_ref(dl_mpi_comm *comm);
void dl_mpi_comm_unref(dl_mpi_comm *comm); /* NULL does nothing */

/* Returns the communicator of the messages with this tag of MPI's.  Users' messages have
 * one of their own, so that a probe for any tag finds nothing else. */
static inline dl_mpi_handle
dl_mpi_comm_of_tag(const dl_mpi_comm *comm, int tag)
{
    return tag >= DL_MPI_USER_TAG || tag == comm->mpi->any_tag ? comm->users
                                                               : comm->handle;
}

/* Makes all waits fail with `cause`; from any thread, idempotent. */
void dl_mpi_comm_abort(dl_mpi_comm *comm, const dl_error *cause);

/* Returns DL_OK, or fails with the reason of the abort, or because MPI has been
 * ended. */
dl_status dl_mpi_comm_admit(dl_mpi_comm *comm);

/* Fails because the message of `what` ("send", "recv" or "probe") is late.  The text
 * names `peer`, the other rank of the message, unless that is DL_ANY_RANK. */
dl_status dl_mpi_comm_fail_timeout(const dl_mpi_comm *comm, const char *what, int peer,
                                   dl_deadline deadline);

/* Returns DL_PEER_LOST if `rank`, or any other rank for -1, is known to have ended. */
dl_status dl_mpi_comm_lost(const dl_mpi_comm *comm, int rank);

/* Reserves a tag for large contents to `rank`; returns 0 if all are in use.  No
 * other message may have that tag until a receive has taken the contents and the
 * tag is given back. */
int dl_mpi_comm_take_tag(dl_mpi_comm *comm, int rank);
void dl_mpi_comm_give_tag(dl_mpi_comm *comm, int rank, int tag);

/* After a failure: leaves a request to MPI, which may use its memory for an unlimited
 * time, after an attempt to cancel a receive.  Returns false if there is none (0), or
 * if MPI has completed it. */
bool dl_mpi_comm_leave(dl_mpi_comm *comm, dl_mpi_handle request, bool is_receive);

/* The state of a wait that polls; zeroed at first. */
typedef struct dl_mpi_pace {
    int looks;
    int patience; /* additional polls before naps: see dl_mpi_patience() */
    int naps;     /* so far */
    int awaited;  /* the rank that is waited for, plus one; 0: any rank */
    bool is_late; /* the deadline has passed: not the reason of an abort */
    bool is_lost; /* the awaited rank has ended */
    /* When the first yield and the first nap come at the latest; 0: not known yet. */
    int64_t eager_until, naps_at;
    /* Until then neither the deadline nor a signal nor an abort ends the wait; 0: they
     * do so from the start. */
    int64_t bound_until;
} dl_mpi_pace;

/* Returns the patience for a message of so many bytes.  MPI moves a long message in
 * parts, few of them per poll, and a nap between two parts would cost more than a
 * part. */
int dl_mpi_patience(size_t bytes);

/* Pauses between two polls of a request.  DL_OK: poll again.  Fails with DL_TIMEOUT and
 * `is_late` (no text written), DL_INTERRUPTED, the reason of an abort, which may be a
 * timeout elsewhere, because MPI has been ended, or with DL_PEER_LOST and `is_lost` a
 * while after the awaited rank has ended, so that what it had sent is received. */
dl_status dl_mpi_pause(dl_mpi_comm *comm, dl_mpi_pace *pace, dl_deadline deadline);

/* Waits for a request in which all other ranks take part already, so that it completes
 * by itself: nothing else ends this wait. */
dl_status dl_mpi_finish(dl_mpi_comm *comm, dl_mpi_handle *request);

#endif
