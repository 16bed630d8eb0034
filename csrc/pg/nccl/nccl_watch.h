/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Everything of one group that is under way on a device, and the thread that watches it:
 * it ends works whose event has come, and at the first failure (an operation past its
 * deadline, an error of a communicator) it fails all works with one cause and aborts all
 * communicators.  An orderly end goes the same way: works first, then communicators, on
 * that thread, since NCCL may hang in them; nobody waits for it longer than a grace. */
#ifndef DISTLITE_PG_NCCL_NCCL_WATCH_H
#define DISTLITE_PG_NCCL_NCCL_WATCH_H

#include "base/list.h"
#include "pg/cuda_table.h"
#include "pg/nccl/nccl_table.h"
#include "pg/work.h"

/* One communicator and the stream that its operations run on. */
typedef struct dl_nccl_comm {
    dl_list node;     /* guarded by the watch's lock once it is watched */
    bool is_reported; /* its error has been logged; guarded as well */
    void *handle;
    void *stream;
    int device;
    int rank; /* in the communicator, as the size */
    int size;
} dl_nccl_comm;

typedef struct dl_nccl_watch {
    atomic_uint references; /* the backend's, the thread's and each work's */
    /* fixed after init */
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    char *label;     /* "group 0, rank 1 of 2" */
    bool is_lenient; /* failures are logged, and nothing is aborted */
    /* Held while communicators are used; taken before the other. */
    pthread_mutex_t launching;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    dl_list works;
    dl_list comms;
    bool has_cause;
    dl_error cause; /* fixed once has_cause */
    bool is_leaving;
    int64_t leave_by;
    bool is_over; /* the thread has let go of everything */
} dl_nccl_watch;

/* An operation, or several in one, whose end an event tells.  One that was captured into
 * a graph is done at once: the graph has it, and may run it any number of times. */
typedef struct dl_nccl_work {
    dl_work work;
    dl_list node; /* guarded by the watch's lock; in no list once it has ended */
    dl_nccl_watch *watch;
    void *event;
    void **streams; /* those its arrays are ordered by, each once; fixed once begun */
    size_t stream_count;
    int device;
    bool is_captured;
    uint64_t sequence; /* 0: a message */
    dl_deadline deadline;
} dl_nccl_work;

/* Starts the thread; takes `label`, also on failure. */
dl_status dl_nccl_watch_new(const dl_nccl_table *nccl, const dl_cuda_table *cuda,
                            char *label, dl_nccl_watch **watch);

/* DL_OK, or the cause of the failure that ended it. */
dl_status dl_nccl_watch_admit(dl_nccl_watch *watch);

/* The same, but one that is being closed still works. */
dl_status dl_nccl_watch_cause(dl_nccl_watch *watch);

/* Takes the communicator, also on failure. */
dl_status dl_nccl_watch_comm(dl_nccl_watch *watch, dl_nccl_comm *comm);

/* A work whose event is not recorded yet; one reference is the caller's, the other is
 * dl_nccl_watch_work()'s, which begins to watch it. */
dl_status dl_nccl_work_new(dl_nccl_watch *watch, dl_op_type op, int device,
                           dl_nccl_work **work);
dl_status dl_nccl_work_add_stream(dl_nccl_work *work, void *stream);
void dl_nccl_watch_work(dl_nccl_work *work);
void dl_nccl_work_drop(dl_nccl_work *work); /* instead: both references */

/* "all_reduce #7 on cuda:0". */
#define DL_NCCL_WORK_TEXT_SIZE 80
void dl_nccl_work_describe(const dl_nccl_work *work, char *text, size_t size);

/* Fails everything; idempotent, bounded, from any thread. */
void dl_nccl_watch_fail(dl_nccl_watch *watch, const dl_error *cause);

/* No more works come: those under way get a grace to end in. */
void dl_nccl_watch_leave(dl_nccl_watch *watch);

/* The backend's reference; waits for the thread's end within the grace. */
void dl_nccl_watch_free(dl_nccl_watch *watch);

/* "ncclAllReduce: unhandled cuda error (result 1): ..." as a DL_BACKEND. */
dl_status dl_nccl_check(const dl_nccl_table *nccl, int result, const char *call);

/* Frees a communicator; may hang with NCCL. */
void dl_nccl_comm_free(dl_nccl_watch *watch, dl_nccl_comm *comm, bool is_aborted);

#endif
