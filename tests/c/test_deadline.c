/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>

#include "base/deadline.h"
#include "check.h"

CHECK_CASE(an_unlimited_span_has_begun_now)
{
    int64_t before = dl_now();

    CHECK(dl_deadline_start(dl_deadline_after(-1)) >= before);
    CHECK(dl_deadline_start(dl_deadline_after(0)) >= before);
    CHECK(dl_deadline_start(dl_deadline_after(INT64_MAX)) >= before);
}

CHECK_CASE(the_clock_never_goes_back)
{
    int64_t before = dl_now();

    for (int i = 0; i < 1000; i++) {
        int64_t now = dl_now();
        CHECK(now >= before);
        before = now;
    }
}

CHECK_CASE(negative_is_never)
{
    dl_deadline never = dl_deadline_after(-5 * DL_SECOND);

    CHECK(!dl_deadline_passed(never));
    CHECK_EQUAL(dl_deadline_left(never), INT64_MAX);
    CHECK(never.limit < 0);
    CHECK_EQUAL(dl_deadline_poll(never, DL_WAIT_SLICE), 50);
}

CHECK_CASE(zero_has_passed_at_birth)
{
    dl_deadline now = dl_deadline_after(0);

    CHECK(dl_deadline_passed(now));
    CHECK_EQUAL(dl_deadline_left(now), 0);
    CHECK_EQUAL(dl_deadline_poll(now, DL_WAIT_SLICE), 0);
    CHECK_EQUAL(now.limit, 0);
}

CHECK_CASE(a_span_passes_when_it_is_over)
{
    int64_t start = dl_now();
    dl_deadline soon = dl_deadline_after(5 * DL_MILLISECOND);

    CHECK(dl_deadline_start(soon) >= start);
    CHECK(dl_deadline_start(soon) <= dl_now());
    CHECK_EQUAL(soon.limit, 5 * DL_MILLISECOND);
    CHECK(soon.at >= start + 5 * DL_MILLISECOND);
    while (!dl_deadline_passed(soon)) {
        CHECK(dl_deadline_left(soon) <= 5 * DL_MILLISECOND);
    }
    CHECK(dl_now() - start >= 5 * DL_MILLISECOND);
    CHECK_EQUAL(dl_deadline_left(soon), 0);
}

CHECK_CASE(an_absurd_span_is_never_rather_than_the_past)
{
    dl_deadline far = dl_deadline_after(INT64_MAX);

    CHECK(!dl_deadline_passed(far));
    CHECK_EQUAL(dl_deadline_left(far), INT64_MAX);
    CHECK_EQUAL(dl_deadline_poll(far, INT64_MAX), INT_MAX);
}

CHECK_CASE(poll_rounds_up_so_that_it_never_spins)
{
    dl_deadline deadline = {.at = dl_now() + DL_SECOND, .limit = DL_SECOND};

    CHECK_EQUAL(dl_deadline_poll(deadline, 1), 1);
    CHECK_EQUAL(dl_deadline_poll(deadline, DL_MILLISECOND), 1);
    CHECK_EQUAL(dl_deadline_poll(deadline, DL_MILLISECOND + 1), 2);
    CHECK(dl_deadline_poll(deadline, INT64_MAX) <= 1000);
}

CHECK_CASE(sooner_takes_the_earlier)
{
    dl_deadline never = dl_deadline_after(-1);
    dl_deadline passed = dl_deadline_after(0);

    CHECK(dl_deadline_left(dl_deadline_earlier(never, DL_SECOND)) <= DL_SECOND);
    CHECK_EQUAL(dl_deadline_earlier(passed, DL_SECOND).at, passed.at);
    CHECK_EQUAL(dl_deadline_earlier(passed, -1).at, passed.at);
    CHECK_EQUAL(dl_deadline_earlier(never, -1).at, INT64_MAX);
}
