/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/debug_level.h"

#include <stdatomic.h>
#include <stddef.h>
#include <strings.h>

#include "base/log.h"

static atomic_int current;

dl_debug_level
dl_debug_level_get(void)
{
    return (dl_debug_level)atomic_load_explicit(&current, memory_order_relaxed);
}

void
dl_debug_level_set(dl_debug_level level)
{
    atomic_store_explicit(&current, (int)level, memory_order_relaxed);
}

dl_status
dl_debug_level_read(const char *text)
{
    static const char *const names[] = {"OFF", "INFO", "DETAIL"};

    if (text == NULL) {
        dl_debug_level_set(DL_DEBUG_OFF);
        return DL_OK;
    }
    for (int level = 0; level < 3; level++) {
        if (strcasecmp(text, names[level]) == 0) {
            dl_debug_level_set((dl_debug_level)level);
            dl_log(DL_LOG_DEBUG, "The debug level is set to %s.", names[level]);
            return DL_OK;
        }
    }
    return dl_fail(
        DL_INVALID,
        "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.");
}
