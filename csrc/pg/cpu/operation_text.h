/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the error texts of waits on the board and on links name the operation and the
 * ranks that it waits for. */
#ifndef DISTLITE_PG_CPU_OPERATION_TEXT_H
#define DISTLITE_PG_CPU_OPERATION_TEXT_H

#include <stdint.h>

#include "base/status.h"

/* Error texts name at most so many late ranks, and count the others. */
#define DL_NAMED_RANKS 6

#define DL_OPERATION_TEXT_SIZE 160
#define DL_LAST_SEEN_SIZE 64

typedef struct dl_operation_text {
    char text[DL_OPERATION_TEXT_SIZE];
} dl_operation_text;

typedef struct dl_last_seen {
    char text[DL_LAST_SEEN_SIZE];
} dl_last_seen;

/* Returns "all_reduce #5 in group 0"; `op` is a dl_op_type. */
dl_operation_text dl_operation_describe(uint8_t op, uint64_t sequence,
                                        const char *group);

/* Returns " (last seen in #4)", or `never` if `seen` is 0. */
dl_last_seen dl_operation_last_seen(uint64_t seen, const char *never);

/* Returns the thread's last error with `operation` before its text and `suffix` behind
 * it, or as it is if the text names an operation of the group already, which may be
 * another one on another rank. */
dl_status dl_operation_fail(const char *operation, const char *suffix);

/* Returns `error` as it is true on other ranks: an interrupt concerns this one only. */
dl_error dl_operation_error_for_others(const dl_error *error, const char *operation);

#endif
