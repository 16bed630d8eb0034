/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shows in the recording what the calling thread waits for outside of the operations of
 * groups: a store, a probe, the other ranks of a group that is made.  Operations have
 * records of their own (pg/record/recorder.h).
 *
 * The call sets one variable of its thread.  Only once it has waited for a slice is the
 * text made and the row written, by the check between the slices (base/interrupt.h). */
#ifndef DISTLITE_PG_RECORD_WAITING_H
#define DISTLITE_PG_RECORD_WAITING_H

#include "base/deadline.h"
#include "base/interrupt.h"
#include "pg/record/recorder.h"

/* Writes what is waited for; runs on the waiting thread. */
typedef void (*dl_waiting_fn)(const void *subject, char text[DL_WAIT_ROW_TEXT]);

/* One for a subject that is a string. */
void dl_waiting_copy(const void *subject, char text[DL_WAIT_ROW_TEXT]);

/* A call that may wait, on the stack of its caller. */
typedef struct dl_waiting {
    dl_slice_hook hook; /* the first member, from which the hook finds the rest */
    dl_waiting_fn describe;
    const void *subject;
    dl_deadline deadline;
    dl_recorded_wait *row;
} dl_waiting;

/* Begin before the call and end after it, on one thread.  A call within another one is
 * not shown.  `subject` is borrowed until the end.  A zeroed one may be ended. */
void dl_waiting_begin(dl_waiting *self, dl_waiting_fn describe, const void *subject,
                      dl_deadline deadline);
void dl_waiting_end(dl_waiting *self);

/* Shows the call at once: for one that consists of several short waits. */
void dl_waiting_show(dl_waiting *self);

#endif
