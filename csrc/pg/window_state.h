/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The fields of a window, for the two files that implement it: window.c makes it and
 * locks; window_access.c checks accesses and carries them out. */
#ifndef DISTLITE_PG_WINDOW_STATE_H
#define DISTLITE_PG_WINDOW_STATE_H

#include <stdatomic.h>

#include "pg/record/waiting.h"
#include "pg/window.h"

struct dl_window {
    dl_group *group;
    dl_window_part *part;
    dl_dtype dtype;
    uint32_t opaque_code;
    size_t item_size;
    uint64_t *counts; /* by rank */
    atomic_bool is_closed;
};

/* What a method waits for; a rank of -1 is every rank. */
typedef struct dl_window_wait {
    const char *what;
    int rank;
} dl_window_wait;

/* Describes a dl_window_wait, for dl_waiting_begin(). */
void dl_window_wait_describe(const void *subject, char text[DL_WAIT_ROW_TEXT]);

/* Fails unless the window is open, and the rank is one of the group. */
dl_status dl_window_check_usable(dl_window *window, const char *what, int rank);

#endif
