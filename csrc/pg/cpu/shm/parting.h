/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two ranks that the system has put on one core while another would do: each meeting
 * costs them a switch, ten times as much as the meeting itself, and as both are always
 * about to sleep, the system may see no need to change that.  A rank that waits shows on
 * which core; one that keeps finding those it waits for waiting on its own core, moves
 * itself to another one. */
#ifndef DISTLITE_PG_CPU_SHM_PARTING_H
#define DISTLITE_PG_CPU_SHM_PARTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Shared: the core on which a rank waits, and one; 0: it does not wait. */
typedef _Atomic uint32_t dl_berth;

/* A rank's own count.  Zeroed memory is valid. */
typedef struct dl_parting {
    int streak;
    int64_t next; /* time of the next move at the earliest */
} dl_parting;

/* Before the wait for a rank with the berth `other`, and after it.  `may_move` is true on
 * one of each two ranks. */
void dl_parting_begin(dl_parting *parting, dl_berth *own, const dl_berth *other,
                      bool may_move);
void dl_parting_end(dl_berth *own);

#endif
