/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logging: one line on standard error, in one write(2) so that lines of several
 * processes do not mix: "[W1121 08:30:01.123456 distlite] text".  Any thread may log,
 * with any locks held.  TORCH_CPP_LOG_LEVEL (INFO, WARNING or ERROR; default WARNING) is
 * the lowest level that is written.  Logging leaves errno and the thread's last error
 * unchanged. */
#ifndef DISTLITE_BASE_LOG_H
#define DISTLITE_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dl_log_level {
    DL_LOG_INFO = 0,
    DL_LOG_WARNING = 1,
    DL_LOG_ERROR = 2,
} dl_log_level;

#define dl_log(level, ...) dl_log_limited(NULL, level, __VA_ARGS__)

/* A rate limit for lines that untrusted peers can cause, on threads that must not
 * block: one line a second at most, and none while standard error has no room, as far as
 * poll(2) can tell.  Zeroed memory is a new limit; a limit is not shared between threads.
 * NULL: the line is written in any case. */
typedef struct dl_log_limit {
    int64_t not_before;
} dl_log_limit;

void dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns whether a line of this level would be written; saves the work of composing
 * it. */
bool dl_log_is_on(dl_log_level level);

/* Marks every later line with the rank, as in "[rank3]:[W..."; -1 removes the mark. */
void dl_log_set_rank(int rank);

/* The debug level, which TORCH_DISTRIBUTED_DEBUG sets: how much is checked and logged.
 * At DETAIL the ranks of groups that are made afterwards compare their calls
 * (pg/agree/agreement.h).  One per process; any thread. */
typedef enum dl_debug_level {
    DL_DEBUG_OFF = 0,
    DL_DEBUG_INFO = 1,
    DL_DEBUG_DETAIL = 2,
} dl_debug_level;

dl_debug_level dl_debug_level_get(void);
void dl_debug_level_set(dl_debug_level level);

/* Sets the level that `text` names, in any case; NULL is OFF.  DL_INVALID has torch's
 * error text and leaves the level unchanged. */
dl_status dl_debug_level_read(const char *text);

/* Installs what is given each line first, with its line feed; it returns false if the
 * line is to go to standard error.  Called on any thread, with any locks held: it must
 * not wait. */
typedef bool (*dl_log_fn)(const char *line, size_t size);
void dl_log_install(dl_log_fn receiver);

#endif
