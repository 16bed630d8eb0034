/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The watch of a group: its communicators and the works in progress on its device.  One
 * thread of the process watches all groups.  It finishes works whose event has
 * completed, and starts a group's teardown at its first failure: an operation past its
 * deadline, an error of a communicator, or a rank that the group's side for the CPU
 * knows to be lost.  The teardown runs on a thread of its own, since NCCL may hang in
 * it.  It first aborts the communicators and then fails the works with one cause,
 * because until the abort the device may still write to their arrays; if NCCL hangs, the
 * works fail after a grace period nevertheless.  An orderly end waits for the works
 * first.  No call waits longer than one grace period for the works and one for NCCL.
 *
 * A work is watched from before its launch: a launch that connects blocks until the
 * other ranks have come, and its deadline counts meanwhile. */
#ifndef DISTLITE_PG_NCCL_NCCL_WATCH_H
#define DISTLITE_PG_NCCL_NCCL_WATCH_H

#include "base/list.h"
#include "pg/device/cuda_table.h"
#include "pg/lane.h"
#include "pg/nccl/nccl_table.h"
#include "pg/work.h"

/* One communicator and the stream that its operations run on. */
typedef struct dl_nccl_comm {
    atomic_uint references;
    dl_list node;    /* guarded by the watch's lock once watched */
    bool is_waiting; /* NCCL may still store `handle`, which must not be used yet */
    dl_lane turn;    /* of the only thread that may be inside the communicator */
    void *handle;
    void *stream;
    int device;
    int rank; /* in the communicator, like `size` */
    int size;
} dl_nccl_comm;

typedef struct dl_nccl_watch {
    atomic_uint references; /* of backend, watching thread, teardown, each work */
    /* fixed after init */
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    char *label; /* "group 0, rank 1 of 2" */
    /* guarded by the lock that all watches of the process share */
    dl_list node;
    dl_list works;
    dl_list comms;
    bool has_cause;
    dl_error cause; /* fixed once has_cause */
    bool is_leaving;
    int64_t leave_by;
    bool is_suspended; /* events are ignored: NCCL is about to abort the operations */
    bool has_graphs;   /* a graph holds operations of a communicator */
    bool is_torn;      /* the teardown has begun */
    int64_t fail_by;   /* when works fail even if the teardown still hangs */
    bool is_over;      /* the teardown is complete */
    dl_list expected;  /* ranks that a thread waits for without a work */
    dl_status (*lost)(void *context, int rank); /* as dl_backend_ops.lost, or NULL */
    void *context;
    bool is_checking_lost; /* `lost` is being called */
    int64_t check_lost_after;
    int64_t lost_since; /* since when an awaited rank is known to be lost; 0: none is */
    dl_error lost_error;
} dl_nccl_watch;

/* An entry of a thread that waits for other ranks without a work. */
typedef struct dl_nccl_expected {
    dl_list node;
    int peer; /* -1: any */
} dl_nccl_expected;

/* An operation, or a batch of them, whose end an event reports.  One that is captured
 * into a graph is done at once: the graph may run it any number of times. */
typedef struct dl_nccl_work {
    dl_work work;
    dl_list node;              /* guarded by the watch's lock, like the next three */
    bool is_watched;           /* in the watch's list */
    bool is_launched;          /* the event has been recorded */
    struct dl_nccl_work *next; /* of those that the watching thread looks at */
    dl_nccl_watch *watch;
    void *event;
    void **streams; /* the streams of its arrays, each once; fixed once begun */
    size_t stream_count;
    int device;
    bool is_captured;
    int peer; /* the other rank of a single message; -1: all ranks take part */
    dl_deadline deadline;
} dl_nccl_work;

/* Makes a watch and takes `label`, also on failure; a NULL label is DL_NO_MEMORY. */
dl_status dl_nccl_watch_new(const dl_nccl_table *nccl, const dl_cuda_table *cuda,
                            char *label, dl_nccl_watch **watch);

/* Sets the function that reports whether ranks are lost; to be called before the first
 * work.  The group fails a moment after it has reported a rank that a work waits for.
 * `lost` is not called after dl_nccl_watch_free(). */
void dl_nccl_watch_set_lost(dl_nccl_watch *watch,
                            dl_status (*lost)(void *context, int rank), void *context);

/* Between the two calls the group also fails when the rank of `expected` is lost,
 * although no work waits for it yet. */
void dl_nccl_watch_expect(dl_nccl_watch *watch, dl_nccl_expected *expected);
void dl_nccl_watch_unexpect(dl_nccl_expected *expected);

/* Returns DL_OK while operations may begin; otherwise the cause of the group's failure,
 * or DL_CLOSED if it is being closed. */
dl_status dl_nccl_watch_admit(dl_nccl_watch *watch);

/* Returns the cause of the group's failure, or DL_OK if there is none, also while the
 * group is being closed. */
dl_status dl_nccl_watch_cause(dl_nccl_watch *watch);

/* Waits until no work is in progress.  Fails if the group fails, or is being closed. */
dl_status dl_nccl_watch_drain(dl_nccl_watch *watch, dl_deadline deadline);

/* Watches the communicator, with a reference of its own.  Fails if the group has. */
dl_status dl_nccl_watch_comm(dl_nccl_watch *watch, dl_nccl_comm *comm);

/* Takes a communicator that NCCL may still be making from another one of this watch.
 * It is freed after that one, since NCCL may store its handle as long as the other
 * exists. */
void dl_nccl_watch_adopt(dl_nccl_watch *watch, dl_nccl_comm *comm);

/* From now on no work succeeds: the communicator is about to be aborted, which
 * completes the events of unfinished operations.  dl_nccl_watch_fail() must follow. */
void dl_nccl_watch_suspend(dl_nccl_watch *watch);

/* Notes that a graph holds operations of the group's communicators. */
void dl_nccl_watch_graph(dl_nccl_watch *watch);

/* Makes a work that is not watched yet.  The caller owns two references, of which
 * dl_nccl_watch_begin() takes one. */
dl_status dl_nccl_work_new(dl_nccl_watch *watch, dl_op_type op, int device,
                           dl_nccl_work **work);
dl_status dl_nccl_work_add_stream(dl_nccl_work *work, void *stream);
void dl_nccl_work_drop(dl_nccl_work *work); /* drops both references */

/* Watches the work, to be called before its launch: the deadline counts from now on.
 * On failure both references stay the caller's. */
dl_status dl_nccl_watch_begin(dl_nccl_work *work);

/* To be called after the launch, when the work's event has been recorded. */
void dl_nccl_watch_launched(dl_nccl_work *work);

/* Ends the watching of a work that was not launched, or was captured.  Returns true
 * when both references are the caller's again, and false when the work has been failed
 * meanwhile and only one is. */
bool dl_nccl_watch_retract(dl_nccl_work *work);

/* Writes "all_reduce #7 on cuda:0". */
#define DL_NCCL_WORK_TEXT_SIZE 80
void dl_nccl_work_describe(const dl_nccl_work *work, char *text, size_t size);

/* Fails the group and all its works with `cause`.  Idempotent; does not block; any
 * thread.  Does nothing while the group is being closed. */
void dl_nccl_watch_fail(dl_nccl_watch *watch, const dl_error *cause);

/* Begins the orderly end: no more works are admitted, and those in progress get a grace
 * period in which to end. */
void dl_nccl_watch_leave(dl_nccl_watch *watch);

/* Drops the backend's reference, after waiting for the works and for the end of the
 * teardown, for at most a grace period each.  If a graph holds operations, it does not
 * wait for the communicators: NCCL keeps these until the graph is destroyed, and the
 * teardown goes on by itself. */
void dl_nccl_watch_free(dl_nccl_watch *watch);

/* Returns 1 if the work has ended, 0 if not yet, and -1 if it has failed or timed out;
 * the thread's last error tells why. */
int dl_nccl_work_poll(const dl_nccl_work *work, bool is_launched);

/* Finishes the work if its event has completed. */
void dl_nccl_watch_reap(dl_nccl_work *work);

void dl_nccl_watch_unref(dl_nccl_watch *watch);

#endif
