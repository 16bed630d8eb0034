/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>

#include "base/status.h"
#include "check.h"

CHECK_CASE(fail_returns_its_status_and_keeps_the_text)
{
    CHECK_EQUAL(dl_fail(DL_NETWORK, "connecting to %s: %d", "here", 7), DL_NETWORK);
    CHECK_EQUAL(dl_last_error()->status, DL_NETWORK);
    CHECK_TEXT(dl_last_error()->text, "connecting to here: 7");
}

CHECK_CASE(fail_while_prefixes_and_keeps_the_status)
{
    dl_fail(DL_CLOSED, "gone");
    CHECK_EQUAL(dl_fail_while("joining group %d", 3), DL_CLOSED);
    CHECK_TEXT(dl_last_error()->text, "joining group 3: gone");
    CHECK_EQUAL(dl_last_error()->status, DL_CLOSED);
}

CHECK_CASE(fail_may_quote_the_last_text)
{
    dl_fail(DL_INVALID, "inner");
    dl_fail(DL_PROTOCOL, "outer (%s)", dl_last_error()->text);
    CHECK_TEXT(dl_last_error()->text, "outer (inner)");
}

CHECK_CASE(an_interrupt_is_a_cancellation_for_the_other_ranks)
{
    dl_fail(DL_INTERRUPTED, "interrupted by a signal");
    dl_error told = dl_error_for_others();
    CHECK_EQUAL(told.status, DL_CANCELLED);
    CHECK_TEXT(told.text, "interrupted by a signal");
    CHECK_EQUAL(dl_last_error()->status, DL_INTERRUPTED);
    dl_fail(DL_TIMEOUT, "late");
    CHECK_EQUAL(dl_error_for_others().status, DL_TIMEOUT);
}

CHECK_CASE(a_long_text_is_cut_not_overrun)
{
    char text[2 * DL_ERROR_TEXT_SIZE];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    dl_fail(DL_INTERNAL, "%s", text);
    CHECK_EQUAL(strlen(dl_last_error()->text), DL_ERROR_TEXT_SIZE - 1);
    dl_fail_while("%s", text);
    CHECK_EQUAL(strlen(dl_last_error()->text), DL_ERROR_TEXT_SIZE - 1);
    CHECK_EQUAL(dl_last_error()->status, DL_INTERNAL);
}

static void *
fail_elsewhere(void *copy)
{
    dl_fail(DL_PEER_LOST, "rank 2 left");
    *(dl_error *)copy = *dl_last_error();
    return NULL;
}

CHECK_CASE(threads_have_errors_of_their_own_and_hand_them_over_by_value)
{
    dl_error carried;
    pthread_t thread;

    dl_fail(DL_TIMEOUT, "mine");
    CHECK(pthread_create(&thread, NULL, fail_elsewhere, &carried) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_TEXT(dl_last_error()->text, "mine");
    CHECK_EQUAL(dl_rethrow(&carried), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "rank 2 left");
    CHECK_EQUAL(dl_last_error()->status, DL_PEER_LOST);
}

CHECK_CASE(no_memory_is_worded)
{
    CHECK_STATUS(dl_fail_no_memory(), DL_NO_MEMORY);
    CHECK_TEXT(dl_last_error()->text, "out of memory");
}

CHECK_CASE(every_status_has_a_name_of_its_own)
{
    for (int left = DL_OK; left <= DL_INTERNAL; left++) {
        CHECK(dl_status_name((dl_status)left)[0] != '\0');
        for (int right = DL_OK; right < left; right++) {
            CHECK(strcmp(dl_status_name((dl_status)left),
                         dl_status_name((dl_status)right))
                  != 0);
        }
    }
    CHECK_TEXT(dl_status_name((dl_status)99), "unknown");
    CHECK_TEXT(dl_status_name((dl_status)-1), "unknown");
}

static dl_status
pass_on(dl_status status, int *reached)
{
    DL_TRY(status);
    *reached += 1;
    return DL_OK;
}

CHECK_CASE(try_returns_only_failures)
{
    int reached = 0;

    CHECK_STATUS(pass_on(DL_OK, &reached), DL_OK);
    CHECK_EQUAL(reached, 1);
    CHECK_EQUAL(pass_on(DL_CANCELLED, &reached), DL_CANCELLED);
    CHECK_EQUAL(reached, 1);
}
