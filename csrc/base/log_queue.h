/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A queue of log lines for a reader that is slow or has to wait for a lock, such as
 * Python's logging.  A thread that logs may hold any lock and never waits for the
 * reader: the queue has a fixed size, and a thread of this file calls the reader.
 *
 *     dl_log() -> put -> [ lines ] -> thread: reader -> take
 *                            |
 *                            +------> standard error: the reader does not begin in
 *                                     time, or the queue is closed
 *
 * A forked child starts with an empty queue and starts threads of its own. */
#ifndef DISTLITE_BASE_LOG_QUEUE_H
#define DISTLITE_BASE_LOG_QUEUE_H

#include <stdbool.h>

#include "base/deadline.h"
#include "base/log_line.h"

typedef struct dl_log_reader {
    /* Returns whether lines shall go to the reader at this moment.  Called on any
     * thread, with any locks held: it must take none. */
    bool (*is_wanted)(void);
    /* Calls dl_log_queue_begin(), then takes lines until none is left.  Called on a
     * thread of the queue, which receives no signals.  False: the reader is unable to
     * read, and the lines go to standard error. */
    bool (*read)(void);
    /* How long a line may wait for the reader to begin, in nanoseconds.  Then it goes
     * to standard error: the lock that the reader waits for may be held by a call that
     * hangs, which is when the log is needed most. */
    int64_t limit;
} dl_log_reader;

/* Installs the reader.  Called once per process, before the library has other
 * threads. */
void dl_log_queue_open(const dl_log_reader *reader);

/* Queues a copy of the line.  False: the reader does not want it or cannot be reached,
 * so the caller writes it.  A line that finds the queue full is dropped and counted,
 * and a line with the count takes its place. */
bool dl_log_queue_put(const dl_log_line *line);

/* For the reader: states that it holds its locks and will take lines without
 * waiting. */
void dl_log_queue_begin(void);

/* For the reader: moves the oldest line out of the queue.  False: the queue is
 * empty. */
bool dl_log_queue_take(dl_log_line *line);

/* Waits until the queue is empty and the reader has returned, or until the deadline.
 * Returns at once on a thread of the queue. */
void dl_log_queue_flush(dl_deadline deadline);

/* Returns whether dl_log_queue_flush() would return at once; takes no lock. */
bool dl_log_queue_is_idle(void);

/* Writes the queued lines to standard error and closes the queue: later puts return
 * false. */
void dl_log_queue_close(void);

#endif
