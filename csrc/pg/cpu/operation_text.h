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

/* Writes "all_reduce #5 in group 0"; `op` is a dl_op_type. */
#define DL_OPERATION_TEXT_SIZE 160
void dl_operation_describe(uint8_t op, uint64_t sequence, const char *group,
                           char text[DL_OPERATION_TEXT_SIZE]);

/* Writes " (last seen in #4)", or `never` if `seen` is 0. */
#define DL_LAST_SEEN_SIZE 64
void dl_operation_describe_last_seen(uint64_t seen, const char *never,
                                     char text[DL_LAST_SEEN_SIZE]);

/* Returns the thread's last error with `operation` before its text and `suffix` behind
 * it, or as it is if the text names an operation of the group already, which may be
 * another one on another rank. */
dl_status dl_operation_fail(const char *operation, const char *suffix);

/* Returns `error` as it is true on other ranks: an interrupt concerns this one only. */
dl_error dl_operation_error_for_others(const dl_error *error, const char *operation);

#endif
