/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Points in time that a blocking call keeps to.  A deadline in a signature is the
 * licence to block: a core function without one never does.  A timeout becomes a
 * deadline once, at the edge; it remembers its span so that errors can name it. */
#ifndef DISTLITE_BASE_DEADLINE_H
#define DISTLITE_BASE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#define DL_MILLISECOND INT64_C(1000000)
#define DL_SECOND INT64_C(1000000000)

/* Every sleeping wait wakes this often to look for signals and lost peers: half of
 * what a person at the keyboard is promised. */
#define DL_WAIT_SLICE (50 * DL_MILLISECOND)

typedef struct dl_deadline {
    int64_t at;    /* nanoseconds on dl_now()'s clock; INT64_MAX is never */
    int64_t limit; /* the span it was made from, in nanoseconds; negative is never */
} dl_deadline;

/* Monotonic clock, nanoseconds. */
int64_t dl_now(void);

/* Negative: never passes.  Zero: has passed already, so a call looks once. */
dl_deadline dl_deadline_after(int64_t limit);

/* When it was made, which costs no look at the clock; now, if it does not tell. */
int64_t dl_deadline_beginning(dl_deadline deadline);

bool dl_deadline_passed(dl_deadline deadline);

/* Nanoseconds left: 0 once passed, INT64_MAX for never. */
int64_t dl_deadline_left(dl_deadline deadline);

/* What is left, at most `slice`, in poll(2)'s milliseconds, rounded up. */
int dl_deadline_poll(dl_deadline deadline, int64_t slice);

/* Whether it comes within half a second, or within half of its span where that is less:
 * time to find out what will be told when it has passed. */
bool dl_deadline_is_near(dl_deadline deadline);

/* The earlier of `deadline` and `limit` nanoseconds from now. */
dl_deadline dl_deadline_sooner(dl_deadline deadline, int64_t limit);

#endif
