/* SPDX-License-Identifier: BSD-3-Clause
 *
 * When a wait of the traffic cannot end, and whose fault it is: the looks that it takes
 * between slices of sleep, and the words for each way to fail.  As shm/verdict.h is for
 * the board. */
#ifndef DISTLITE_PG_CPU_TCP_TRAFFIC_VERDICT_H
#define DISTLITE_PG_CPU_TCP_TRAFFIC_VERDICT_H

#include "pg/cpu/tcp/traffic.h"

/* In this order: ended here, what the caller's check knows, interrupted, out of time. */
dl_status dl_traffic_check(dl_traffic *traffic);

/* DL_OK, or why this rank's own end ends its waits. */
dl_status dl_traffic_check_end(dl_traffic *traffic);

/* The thread's last error came up on `route`, unless NULL: says in which operation, unless it
 * does, which may be another one there. */
dl_status dl_traffic_fail(const dl_traffic *traffic, const dl_route *route);

/* `error` in words for other ranks. */
dl_error dl_traffic_message(const dl_traffic *traffic, const dl_error *error);

#endif
