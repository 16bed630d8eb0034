/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One line on standard error, in one write(2) so that lines of many processes do not
 * mix: "[W1121 08:30:01.123456 distlite] text".  Where the program has handlers for
 * Python's logging the line goes to these instead (base/log_queue.h).  Any thread, with
 * any locks held.  TORCH_CPP_LOG_LEVEL (INFO, WARNING, ERROR; default WARNING) says from
 * which level on; INFO shows also what is marked "debug" when the debug level
 * (base/debug_level.h) is INFO, and "trace" when it is DETAIL.  Leaves errno and the
 * thread's last error as they were. */
#ifndef DISTLITE_BASE_LOG_H
#define DISTLITE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log_line.h"

void dl_log(dl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For lines that strangers cause, on threads that must go on: at most one a second, which
 * says how many were left out before it, and never waits for who reads standard error: a
 * line that does not go at once is left out.  Zeroed memory begins; not shared between
 * threads. */
typedef struct dl_log_limit {
    int64_t not_before;
    uint64_t left_out;
} dl_log_limit;

void dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says how many were left out, if any were: when there will be no more. */
void dl_log_limit_end(dl_log_limit *limit, dl_log_level level, const char *what);

/* Whether a line of this level would be written: saves the work of wording it. */
bool dl_log_is_on(dl_log_level level);

/* Every later line is marked as this rank's, as in "[rank3]:[W..."; -1 ends that. */
void dl_log_set_rank(int rank);

#endif
