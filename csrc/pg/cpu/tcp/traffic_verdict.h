/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decides when a wait of the traffic cannot end, and which rank is the cause: the
 * checks between slices of sleep, and the error text for each way to fail.  It is to
 * the traffic what shm/verdict.h is to the board. */
#ifndef DISTLITE_PG_CPU_TCP_TRAFFIC_VERDICT_H
#define DISTLITE_PG_CPU_TCP_TRAFFIC_VERDICT_H

#include "pg/cpu/tcp/traffic.h"

/* Checks, in this order: an end of this rank, the option `check`, an interrupt, the
 * deadline. */
dl_status dl_traffic_check(dl_traffic *traffic);

/* Returns DL_OK, or fails with the cause that was given to dl_traffic_abort(). */
dl_status dl_traffic_check_end(dl_traffic *traffic);

/* Returns the thread's last error, with the current operation in its text unless the
 * text names one already, which may be another one on the other rank.  `route` is where
 * the error occurred, or NULL. */
dl_status dl_traffic_fail(const dl_traffic *traffic, const dl_route *route);

/* Returns `error` in words that are true for other ranks. */
dl_error dl_traffic_message(const dl_traffic *traffic, const dl_error *error);

#endif
