/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The debug level, which TORCH_DISTRIBUTED_DEBUG sets: how much is checked and logged.
 * INFO and DETAIL add lines to the log if TORCH_CPP_LOG_LEVEL is INFO (base/log.h);
 * DETAIL also wraps each group that is made afterwards (pg/wrapper).  One per process;
 * any thread. */
#ifndef DISTLITE_BASE_DEBUG_LEVEL_H
#define DISTLITE_BASE_DEBUG_LEVEL_H

#include "base/status.h"

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

#endif
