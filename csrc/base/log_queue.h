/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lines of the log on their way to a reader that is slow, or has to wait for a lock, such
 * as Python's logging.  Whoever logs may hold any lock and never waits: the lines go
 * through a queue of fixed size, from which a thread of this file lets the reader take
 * them.
 *
 *     dl_log() -> put -> [ lines ] -> thread: reader -> take
 *                            |
 *                            +------> standard error: the reader does not begin in
 *                                     time, or the queue is closed
 *
 * A forked child begins with an empty queue, and threads of its own. */
#ifndef DISTLITE_BASE_LOG_QUEUE_H
#define DISTLITE_BASE_LOG_QUEUE_H

#include <stdbool.h>

#include "base/deadline.h"
#include "base/log_line.h"

typedef struct dl_log_reader {
    /* Whether lines are for the reader at this moment.  On any thread, with any locks
     * held: it takes none. */
    bool (*is_wanted)(void);
    /* Begins, and takes lines until there are none.  On a thread of the queue that gets no
     * signals.  False: it cannot, and the lines go to standard error. */
    bool (*read)(void);
    /* A reader that has not begun when a line has waited for so long gets none: what it
     * waits for may be kept by a call that hangs, which is when the log is needed. */
    int64_t limit;
} dl_log_reader;

/* Once per process, before there are other threads of the library. */
void dl_log_queue_open(const dl_log_reader *reader);

/* Takes a copy.  False: the line is not for the reader, or cannot reach it.  A line that
 * finds the queue full is counted, and the count is told in its place. */
bool dl_log_queue_put(const dl_log_line *line);

/* For the reader: from here on it waits for nothing that others keep. */
void dl_log_queue_begin(void);

/* For the reader: moves the oldest line out of the queue.  False: there is none. */
bool dl_log_queue_take(dl_log_line *line);

/* Waits until the reader has finished with all lines; returns at once on its own
 * thread. */
void dl_log_queue_flush(dl_deadline deadline);

/* Whether there is nothing to wait for: cheap. */
bool dl_log_queue_is_idle(void);

/* Writes what is left to standard error; from then on nothing is put. */
void dl_log_queue_close(void);

#endif
