/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Everything of one group that is under way on a device, and the process's one thread that
 * watches all groups: it ends works whose event has come, and at the first failure of a
 * group (an operation past its deadline, an error of a communicator, a rank that the group's
 * other side knows to be lost) it has the group torn down.  That happens on a thread of its own, since NCCL may hang in it: communicators are
 * aborted, and then the works fail with one cause, because until the abort the device may
 * still write to their arrays.  An orderly end waits for the works first.  Nobody waits
 * for a teardown longer than a grace.
 *
 * A work is watched from before its launch: a launch that connects blocks until the other
 * ranks have come, and its deadline counts meanwhile. */
#ifndef DISTLITE_PG_NCCL_NCCL_WATCH_H
#define DISTLITE_PG_NCCL_NCCL_WATCH_H

#include "base/list.h"
#include "pg/cuda_table.h"
#include "pg/lane.h"
#include "pg/nccl/nccl_table.h"
#include "pg/work.h"

/* Communicators that share NCCL's resources, which is one alone unless it was split with
 * split_share.  Only one thread at a time may be inside any of them, and aborting one
 * aborts them all. */
typedef struct dl_nccl_family {
    atomic_uint references;
    dl_lane turn;
} dl_nccl_family;

/* One communicator and the stream that its operations run on. */
typedef struct dl_nccl_comm {
    atomic_uint references;
    dl_list node;     /* guarded by the watch's lock once it is watched, as the next */
    bool is_reported; /* its error has been logged */
    bool is_waiting;  /* NCCL may still store `handle`: not to be used yet */
    dl_nccl_family *family;
    void *handle;
    void *stream;
    int device;
    int rank; /* in the communicator, as the size */
    int size;
} dl_nccl_comm;

typedef struct dl_nccl_watch {
    atomic_uint references; /* the backend's, the thread's, a teardown's, each work's */
    /* fixed after init */
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    char *label;     /* "group 0, rank 1 of 2" */
    bool is_lenient; /* failures are logged, and nothing is aborted */
    /* guarded by the lock that all watches of the process have in common */
    dl_list node;
    dl_list works;
    dl_list comms;
    bool has_cause;
    dl_error cause; /* fixed once has_cause */
    bool is_leaving;
    int64_t leave_by;
    bool is_suspended; /* events do not count: NCCL is about to abort the operations */
    bool has_graphs;   /* a graph holds operations of a communicator */
    bool is_torn;      /* the teardown has begun */
    int64_t fail_by;   /* when works fail though the teardown still hangs */
    bool is_over;      /* the teardown has let go of everything */
    dl_list expected;  /* ranks that somebody waits for outside of NCCL */
    dl_status (*lost)(void *context, int rank); /* as a dl_backend's; NULL: not known */
    void *context;
    bool is_asking; /* `lost` is being called */
    int64_t ask_after;
    int64_t lost_since; /* a rank that is waited for is lost; 0: none */
} dl_nccl_watch;

/* Of who waits for other ranks where there is no work yet. */
typedef struct dl_nccl_expected {
    dl_list node;
    int peer; /* -1: any */
} dl_nccl_expected;

/* An operation, or several in one, whose end an event tells.  One that was captured into
 * a graph is done at once: the graph has it, and may run it any number of times. */
typedef struct dl_nccl_work {
    dl_work work;
    dl_list node;     /* guarded by the watch's lock, as the next two */
    bool is_watched;  /* in the watch's list */
    bool is_launched; /* the event has been recorded */
    dl_nccl_watch *watch;
    void *event;
    void **streams; /* those its arrays are ordered by, each once; fixed once begun */
    size_t stream_count;
    int device;
    bool is_captured;
    int peer; /* the other rank of a message alone; -1: all take part */
    dl_deadline deadline;
} dl_nccl_work;

/* Takes `label`, also on failure. */
dl_status dl_nccl_watch_new(const dl_nccl_table *nccl, const dl_cuda_table *cuda,
                            char *label, dl_nccl_watch **watch);

/* Before the first work: whom to ask whether ranks are lost.  Works that wait for one that
 * is are failed after a moment.  Not called after dl_nccl_watch_free(). */
void dl_nccl_watch_ask(dl_nccl_watch *watch, dl_status (*lost)(void *context, int rank),
                       void *context);

/* Between the two, the same holds for who waits for `expected`, without a work. */
void dl_nccl_watch_expect(dl_nccl_watch *watch, dl_nccl_expected *expected);
void dl_nccl_watch_met(dl_nccl_expected *expected);

/* DL_OK, or the cause of the failure that ended it. */
dl_status dl_nccl_watch_admit(dl_nccl_watch *watch);

/* The same, but one that is being closed still works. */
dl_status dl_nccl_watch_cause(dl_nccl_watch *watch);

/* Watches the communicator, with a reference of its own.  On failure the communicator is
 * aborted, and the caller's reference gone. */
dl_status dl_nccl_watch_comm(dl_nccl_watch *watch, dl_nccl_comm *comm);

/* Takes one that NCCL may still be making out of another of this watch: it is freed after
 * that one, since NCCL stores the handle as long as the other lives. */
void dl_nccl_watch_orphan(dl_nccl_watch *watch, dl_nccl_comm *comm);

/* From now on no work ends well: the communicator is about to be aborted, which lets the
 * events of unfinished operations come.  dl_nccl_watch_fail() has to follow. */
void dl_nccl_watch_suspend(dl_nccl_watch *watch);

/* From now on a graph holds operations of its communicators. */
void dl_nccl_watch_graph(dl_nccl_watch *watch);

/* A work that nobody watches yet; two references, of which dl_nccl_watch_begin() takes
 * one. */
dl_status dl_nccl_work_new(dl_nccl_watch *watch, dl_op_type op, int device,
                           dl_nccl_work **work);
dl_status dl_nccl_work_add_stream(dl_nccl_work *work, void *stream);
void dl_nccl_work_drop(dl_nccl_work *work); /* both references */

/* Before its launch: the deadline counts from now on.  On failure both references are
 * still the caller's. */
dl_status dl_nccl_watch_begin(dl_nccl_work *work);

/* After its launch: its event is recorded. */
void dl_nccl_watch_launched(dl_nccl_work *work);

/* Instead: nobody watches it any more, and both references are the caller's again.
 * False: it has been failed meanwhile, and only one is. */
bool dl_nccl_watch_retract(dl_nccl_work *work);

/* "all_reduce #7 on cuda:0". */
#define DL_NCCL_WORK_TEXT_SIZE 80
void dl_nccl_work_describe(const dl_nccl_work *work, char *text, size_t size);

/* Fails everything; idempotent, without waiting, from any thread. */
void dl_nccl_watch_fail(dl_nccl_watch *watch, const dl_error *cause);

/* No more works come: those under way get a grace to end in. */
void dl_nccl_watch_leave(dl_nccl_watch *watch);

/* The backend's reference; waits for the teardown's end within the grace.  Where a graph
 * holds operations, NCCL keeps the communicator until the graph is destroyed, and the
 * teardown goes on by itself. */
void dl_nccl_watch_free(dl_nccl_watch *watch);

/* "ncclAllReduce: unhandled cuda error (result 1): ..." as a DL_BACKEND. */
dl_status dl_nccl_check(const dl_nccl_table *nccl, int result, const char *call);

/* Frees what is NCCL's and the device's of a communicator, and drops a reference; may hang
 * with NCCL. */
void dl_nccl_comm_free(dl_nccl_watch *watch, dl_nccl_comm *comm, bool is_aborted);

#endif
