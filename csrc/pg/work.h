/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An operation that its caller did not wait for: counted references, done once, kept
 * with its result for as long as somebody asks.  What drives it on is its maker's
 * business: a lane's job, or the matching of messages.  Dropping the last reference of a
 * caller is harmless: the maker holds one until it is done. */
#ifndef DISTLITE_PG_WORK_H
#define DISTLITE_PG_WORK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"
#include "pg/fingerprint.h"
#include "pg/recorder.h"

typedef struct dl_work dl_work;

typedef struct dl_work_ops {
    /* Waits for the end, helping where it can.  DL_TIMEOUT (no text written) or
     * DL_INTERRUPTED: it has not come. */
    dl_status (*wait)(dl_work *work, dl_deadline deadline);
    /* Gives it up where that is possible; then it is done soon.  NULL: it is not. */
    void (*withdraw)(dl_work *work);
    /* With the last reference. */
    void (*free)(dl_work *work);
    /* Of work on a device, else NULL: looks whether it has ended; and makes a stream of
     * the device wait for it, without waiting itself. */
    void (*poll)(dl_work *work);
    dl_status (*order)(dl_work *work, void *stream);
    /* The same for the streams that its arrays were ordered by when it began. */
    dl_status (*order_arrays)(dl_work *work);
} dl_work_ops;

/* Whom to tell of the end; embedded in whoever wants to hear.  Called once, without
 * locks, on the thread that ends the work, or at once if it has ended. */
typedef struct dl_work_notice {
    struct dl_work_notice *next;
    void (*call)(struct dl_work_notice *notice);
} dl_work_notice;

/* Embedded first in every kind of work. */
struct dl_work {
    const dl_work_ops *ops; /* fixed after init, as op */
    dl_op_type op;
    int creator; /* number of the process that began it */
    /* Its wait calls dl_blocking_begin() before it takes long: worth holding on to what
     * others want.  Set right after init. */
    bool is_brief;
    bool is_queued; /* it has a turn to wait for, from which on it has a number */
    atomic_uint references;
    /* Those to be told, the last to ask first; once it is done, what is at no address. */
    _Atomic(dl_work_notice *) notices;
    _Atomic(dl_record *) record; /* to be completed with the work; may be NULL */
    /* Number of the operation in its group, from 1; 0: it has not begun, or is a message. */
    _Atomic uint64_t sequence;
    /* fixed once done */
    int64_t ended_at; /* dl_now(), for those who ask how long it took */
    dl_status status;
    dl_error *error; /* of a failure; NULL if there was no memory for it */
    /* Its arrays are in use although it has ended, and must stay until the process ends:
     * something that its maker could not stop still reads or writes them. */
    bool keeps_memory;
    int source; /* rank in the group whose message it received; -1: none */
};

#define DL_WORK_DONE ((dl_work_notice *)1)

/* Two references: the caller's and the maker's. */
void dl_work_init(dl_work *work, const dl_work_ops *ops, dl_op_type op);
dl_work *dl_work_ref(dl_work *work);
void dl_work_unref(dl_work *work); /* NULL does nothing */

/* For makers: what it ends with, the thread's last error if not DL_OK.  Does not drop
 * the maker's reference. */
void dl_work_finish(dl_work *work, dl_status status);
void dl_work_finish_at(dl_work *work, dl_status status, int64_t now);

/* Completes `record` with the work, or now if that has ended. */
void dl_work_attach(dl_work *work, dl_record *record);

/* For makers: frees what dl_work_init() and dl_work_finish() made. */
void dl_work_fini(dl_work *work);

static inline bool
dl_work_is_done(const dl_work *work)
{
    return atomic_load_explicit(&work->notices, memory_order_acquire) == DL_WORK_DONE;
}

/* Waits, and then gives what it ended with, as often as it is called.  DL_CLOSED: this is a
 * forked child, in which nobody carries it on.  DL_TIMEOUT and
 * DL_INTERRUPTED may also mean that it has not ended: dl_work_is_done() tells. */
dl_status dl_work_wait(dl_work *work, dl_deadline deadline);

/* Of a work that is done: DL_OK, or its error as the thread's last one. */
dl_status dl_work_result(const dl_work *work);

/* Whether it goes on by itself on a device, so that the order of streams is enough for
 * most. */
static inline bool
dl_work_is_on_device(const dl_work *work)
{
    return work->ops->order != NULL;
}

/* Of work on a device: what `stream` does from now on comes after it.  Fails with what it
 * failed with, as far as that is known by now. */
static inline dl_status
dl_work_order(dl_work *work, void *stream)
{
    return work->ops->order(work, stream);
}

/* The same for all streams that its arrays were ordered by when it began. */
static inline dl_status
dl_work_order_arrays(dl_work *work)
{
    return work->ops->order_arrays(work);
}

/* The notice stays in place until it is called. */
void dl_work_notify(dl_work *work, dl_work_notice *notice);

#endif
