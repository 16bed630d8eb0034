/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logging: one line on standard error, in one write(2) so that lines of several
 * processes do not mix: "[W1121 08:30:01.123456 distlite] text".  If the program has
 * handlers for Python's logging, the line goes to these instead (base/log_queue.h).
 * Any thread may log, with any locks held.  TORCH_CPP_LOG_LEVEL (INFO, WARNING or
 * ERROR; default WARNING) is the lowest level that is written; INFO also writes lines
 * marked "debug" if the debug level (base/debug_level.h) is INFO, and those marked
 * "trace" if it is DETAIL.  Logging leaves errno and the thread's last error
 * unchanged. */
#ifndef DISTLITE_BASE_LOG_H
#define DISTLITE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log_line.h"

void dl_log(dl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A rate limit for lines that untrusted peers can cause, on threads that must not
 * block: at most one line a second, which states how many were dropped before it.  A
 * line that standard error does not accept at once is dropped as well.  Zeroed memory
 * is a new limit; a limit is not shared between threads. */
typedef struct dl_log_limit {
    int64_t not_before;
    uint64_t left_out;
} dl_log_limit;

void dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs how many lines were dropped, if any, and resets the limit: for when no more
 * lines will come. */
void dl_log_limit_end(dl_log_limit *limit, dl_log_level level, const char *what);

/* Returns whether a line of this level would be written; saves the work of composing
 * it. */
bool dl_log_is_on(dl_log_level level);

/* Marks every later line with the rank, as in "[rank3]:[W..."; -1 removes the mark. */
void dl_log_set_rank(int rank);

#endif
