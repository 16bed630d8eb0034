/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Marks in the streams of an operation's arrays, for operations on devices that run on
 * the host: recorded when the operation is called, and waited for before it touches the
 * arrays.  An operation whose marks have been reached ends on the host, so that nothing
 * has to be ordered after it. */
#ifndef DISTLITE_PG_DEVICE_STREAM_MARKS_H
#define DISTLITE_PG_DEVICE_STREAM_MARKS_H

#include "pg/device/cuda_table.h"
#include "pg/group_state.h"

typedef struct dl_stream_marks {
    const dl_cuda_table *cuda;
    int device;
    int count;
    void *events[];
} dl_stream_marks;

/* Records a mark in each stream of a checked call's arrays.  Does not block.  DL_INVALID
 * if a stream is being captured: an event of a capture never completes. */
dl_status dl_stream_marks_new(const dl_group *group, const dl_call *call,
                              dl_stream_marks **marks);
void dl_stream_marks_free(dl_stream_marks *marks); /* NULL does nothing */

/* The use of a device by one operation on the thread that runs it. */
typedef struct dl_device_stay {
    const dl_cuda_table *cuda;
    int device;
    int previous; /* the thread's device before */
    int mode;     /* its capture mode before */
} dl_device_stay;

/* Makes the device current and waits until the streams have reached the marks, the
 * deadline passes, or the group is aborted.  On success dl_stream_marks_leave() must
 * follow.  In between calls of the runtime invalidate no capture on other threads. */
dl_status dl_stream_marks_enter(const dl_stream_marks *marks, dl_group *group,
                                const dl_op_context *op, dl_device_stay *stay);
void dl_stream_marks_leave(const dl_device_stay *stay);

#endif
