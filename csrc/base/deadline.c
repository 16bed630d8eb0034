/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/deadline.h"

#include <limits.h>
#include <time.h>

/* Ranks that call an operation at most this far apart name the same missing rank in
 * their timeout errors.  For timeouts under a second, half of the timeout is used
 * instead. */
#define NEAR (500 * DL_MILLISECOND)

static int64_t
read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * DL_SECOND + now.tv_nsec;
}

/* Not the wall clock, which may be set back in the middle of a wait.  thread.c sleeps
 * by the same clock. */
int64_t
dl_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t
dl_wall_clock(void)
{
    return read_clock(CLOCK_REALTIME);
}

dl_deadline
dl_deadline_after(int64_t limit)
{
    if (limit < 0) {
        return (dl_deadline){.at = INT64_MAX, .limit = -1};
    }
    int64_t now = dl_now();
    /* A timeout that ends beyond the clock's range never passes, but keeps its length
     * for error texts. */
    int64_t at = limit > INT64_MAX - now ? INT64_MAX : now + limit;
    return (dl_deadline){.at = at, .limit = limit};
}

int64_t
dl_deadline_start(dl_deadline deadline)
{
    return deadline.limit > 0 && deadline.at != INT64_MAX ? deadline.at - deadline.limit
                                                          : dl_now();
}

bool
dl_deadline_passed(dl_deadline deadline)
{
    return deadline.at != INT64_MAX && dl_now() >= deadline.at;
}

int64_t
dl_deadline_left(dl_deadline deadline)
{
    if (deadline.at == INT64_MAX) {
        return INT64_MAX;
    }
    int64_t now = dl_now();
    return now >= deadline.at ? 0 : deadline.at - now;
}

int64_t
dl_deadline_slice(dl_deadline deadline)
{
    int64_t left = dl_deadline_left(deadline);

    return left < DL_WAIT_SLICE ? left : DL_WAIT_SLICE;
}

int
dl_deadline_poll(dl_deadline deadline, int64_t slice)
{
    int64_t left = dl_deadline_left(deadline);
    int64_t span = left < slice ? left : slice;
    /* Rounding down would spend the last fraction of a millisecond on repeated polls of
     * 0 ms. */
    int64_t rounded_up = span / DL_MILLISECOND + (span % DL_MILLISECOND != 0);

    return rounded_up > INT_MAX ? INT_MAX : (int)rounded_up;
}

static int64_t
near_span(dl_deadline deadline)
{
    int64_t half = deadline.limit / 2;

    return half < NEAR ? half : NEAR;
}

bool
dl_deadline_is_near(dl_deadline deadline)
{
    return deadline.limit >= 0 && dl_deadline_left(deadline) <= near_span(deadline);
}

dl_deadline
dl_deadline_with_grace(dl_deadline deadline)
{
    if (deadline.limit >= 0) {
        deadline.at += near_span(deadline);
    }
    return deadline;
}

dl_deadline
dl_deadline_earlier(dl_deadline deadline, int64_t limit)
{
    dl_deadline other = dl_deadline_after(limit);

    return other.at < deadline.at ? other : deadline;
}
