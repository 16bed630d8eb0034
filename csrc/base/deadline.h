/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Points in time at which blocking calls give up.  Only functions with a deadline in
 * their signature may block.  A timeout becomes a deadline once, where a call enters
 * the core; the deadline keeps the timeout's length so that errors can state it. */
#ifndef DISTLITE_BASE_DEADLINE_H
#define DISTLITE_BASE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#define DL_MILLISECOND INT64_C(1000000)
#define DL_SECOND INT64_C(1000000000)

/* Every sleeping wait wakes this often to check for signals and lost peers, unless it needs
 * neither (base/interrupt.h).  It is half of the 100 ms within which Ctrl-C is promised to
 * take effect. */
#define DL_WAIT_SLICE (50 * DL_MILLISECOND)

typedef struct dl_deadline {
    int64_t at;    /* nanoseconds on dl_now()'s clock; INT64_MAX: never */
    int64_t limit; /* the timeout it was made from, in nanoseconds; negative: none */
} dl_deadline;

/* Returns the monotonic clock's time in nanoseconds. */
int64_t dl_now(void);

/* Returns the time in nanoseconds since 1970, for what is read on other hosts. */
int64_t dl_wall_clock(void);

/* Returns the deadline `limit` nanoseconds from now.  A negative limit never passes; 0
 * has passed already, so that a call checks once and does not wait. */
dl_deadline dl_deadline_after(int64_t limit);

/* Returns when the deadline was made, without reading the clock; or the current time,
 * for a limit of 0 and for a deadline that never passes. */
int64_t dl_deadline_start(dl_deadline deadline);

bool dl_deadline_passed(dl_deadline deadline);

/* Returns the nanoseconds left: 0 once passed, INT64_MAX for never. */
int64_t dl_deadline_left(dl_deadline deadline);

/* Returns the nanoseconds left, at most a slice. */
int64_t dl_deadline_slice(dl_deadline deadline);

/* Returns the time left, at most `slice`, in milliseconds for poll(2), rounded up. */
int dl_deadline_poll(dl_deadline deadline, int64_t slice);

/* Returns whether at most half a second is left, or half of the timeout if that is
 * less.  That is the time in which a call finds out what its timeout error will say. */
bool dl_deadline_is_near(dl_deadline deadline);

/* Returns a deadline that is later by that time. */
dl_deadline dl_deadline_with_grace(dl_deadline deadline);

/* Returns the earlier of `deadline` and `limit` nanoseconds from now. */
dl_deadline dl_deadline_earlier(dl_deadline deadline, int64_t limit);

#endif
