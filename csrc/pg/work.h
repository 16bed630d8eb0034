/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An asynchronous operation: reference-counted, done once, and kept with its result as
 * long as there is a reference.  Its maker drives it, as a lane's job or by matching
 * messages.  A caller may drop its last reference at any time: the maker holds one
 * until the work is done. */
#ifndef DISTLITE_PG_WORK_H
#define DISTLITE_PG_WORK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"
#include "pg/fingerprint.h"
#include "pg/record/recorder.h"

typedef struct dl_work dl_work;

typedef struct dl_work_ops {
    /* Waits for the end, and runs the work on the calling thread where that is
     * possible.  DL_TIMEOUT (no text written) and DL_INTERRUPTED: the work has not
     * ended. */
    dl_status (*wait)(dl_work *work, dl_deadline deadline);
    /* Withdraws the work if that is still possible, with the thread's last error as the
     * reason, so that it is done soon.  NULL if it never is. */
    void (*withdraw)(dl_work *work);
    /* Called when the last reference is dropped. */
    void (*free)(dl_work *work);
    /* For work on a device, otherwise NULL: `poll` checks whether the work has ended;
     * `order` makes a stream of the device wait for it, without blocking the caller. */
    void (*poll)(dl_work *work);
    dl_status (*order)(dl_work *work, void *stream);
    /* Orders the streams of the work's arrays, as given when it began,
     * after the work. */
    dl_status (*order_arrays)(dl_work *work);
    /* Makes the work go on at once without a thread that waits for it.  NULL if it does
     * in any case. */
    void (*expedite)(dl_work *work);
} dl_work_ops;

/* A callback for the end of a work, embedded in a struct of the caller.  It is called
 * once, without locks, on the thread that ends the work, or at once if the work has
 * ended. */
typedef struct dl_work_notice {
    struct dl_work_notice *next;
    void (*call)(struct dl_work_notice *notice);
} dl_work_notice;

/* Embedded first in every kind of work. */
struct dl_work {
    const dl_work_ops *ops; /* fixed after init, like op */
    dl_op_type op;
    int creator; /* pid of the process that began it */
    /* Its wait calls dl_blocking_begin() before it takes long, so a waiting caller may
     * keep locks that other threads want until then.  Set right after init. */
    bool is_brief;
    /* On a device: it uses memory that may be reused as soon as the caller releases it,
     * so a caller that does not keep the arrays has to wait for the end. */
    bool ignores_streams;
    bool is_queued; /* waits for its turn, and gets a sequence number with it */
    atomic_uint references;
    /* The notices, the latest first; DL_WORK_DONE once the work is done. */
    _Atomic(dl_work_notice *) notices;
    _Atomic(dl_record *) record; /* completed with the work; may be NULL */
    /* The operation's number in its group, from 1; 0 before it begins, and
     * for a message. */
    _Atomic uint64_t sequence;
    /* fixed once done */
    int64_t ended_at; /* dl_now() at the end, for durations */
    dl_status status;
    dl_error *error; /* set after a failure; NULL if there was no memory */
    /* The arrays are still in use although the work has ended, and must stay
     * until the process ends: something that the maker could not stop still reads
     * or writes them. */
    bool keeps_memory;
    /* rank in the group that the received message came from; otherwise -1 */
    int source;
};

#define DL_WORK_DONE ((dl_work_notice *)1)

/* Initialises a work with two references, the caller's and the maker's. */
void dl_work_init(dl_work *work, const dl_work_ops *ops, dl_op_type op);
void dl_work_unref(dl_work *work); /* NULL does nothing */

/* Returns a work of an operation that has ended well, with one reference; NULL if there
 * is no memory.  The second form initialises one in memory of the caller, which has no
 * use for references. */
dl_work *dl_work_new_ended(dl_op_type op, int source);
void dl_work_init_ended(dl_work *work, dl_op_type op, int source, int64_t now);

/* For makers: ends the work with `status`, and with the thread's last error if that is
 * not DL_OK.  The maker's reference is not dropped. */
void dl_work_finish(dl_work *work, dl_status status);
void dl_work_finish_at(dl_work *work, dl_status status, int64_t now);

/* Completes `record` when the work ends, or at once if it has ended. */
void dl_work_attach(dl_work *work, dl_record *record);

/* For makers: frees what dl_work_init() and dl_work_finish() allocated. */
void dl_work_fini(dl_work *work);

static inline bool
dl_work_is_done(const dl_work *work)
{
    return atomic_load_explicit(&work->notices, memory_order_acquire) == DL_WORK_DONE;
}

/* Waits for the end and returns what the work ended with; may be called repeatedly.
 * DL_CLOSED: this is a forked child, in which no thread runs the work.  DL_TIMEOUT and
 * DL_INTERRUPTED may also mean that the work has not ended, which dl_work_is_done()
 * distinguishes. */
dl_status dl_work_wait(dl_work *work, dl_deadline deadline);

/* Tells that the caller will not wait for the work but wants to be notified: a queued
 * operation is then not left to a thread that waits. */
void dl_work_expedite(dl_work *work);

/* Returns the result of a work that is done; after a failure its error becomes the
 * thread's last one. */
dl_status dl_work_result(const dl_work *work);

/* Returns true if the work runs on a device by itself, so that most callers need only
 * order streams after it. */
static inline bool
dl_work_is_on_device(const dl_work *work)
{
    return work->ops->order != NULL;
}

/* For work on a device: orders what `stream` does from now on after the work.  Fails
 * with the work's error, as far as that is known by now. */
static inline dl_status
dl_work_order(dl_work *work, void *stream)
{
    return work->ops->order(work, stream);
}

/* The same for all streams of the work's arrays, as given when it began. */
static inline dl_status
dl_work_order_arrays(dl_work *work)
{
    return work->ops->order_arrays(work);
}

/* Registers a notice, which stays in place until it is called. */
void dl_work_notify(dl_work *work, dl_work_notice *notice);

#endif
