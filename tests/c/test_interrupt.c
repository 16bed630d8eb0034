/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"
#include "check.h"

static int calls;

static dl_status
refuse(void)
{
    calls++;
    return dl_fail(DL_INTERRUPTED, "asked to stop");
}

CHECK_CASE(without_a_check_nothing_is_interrupted)
{
    CHECK_OK(dl_interrupt_check());
}

CHECK_CASE(the_installed_check_decides)
{
    dl_interrupt_install(refuse);
    CHECK_STATUS(dl_interrupt_check(), DL_INTERRUPTED);
    CHECK_EQUAL(calls, 1);
    dl_interrupt_install(NULL);
    CHECK_OK(dl_interrupt_check());
    CHECK_EQUAL(calls, 1);
}

static bool
is_wanted(void *context)
{
    (void)context;
    return false;
}

CHECK_CASE(waits_that_nothing_interrupts_sleep_longer)
{
    int64_t alone = dl_interrupt_slice();

    CHECK(alone > DL_WAIT_SLICE);
    (void)dl_interrupt_set_own((dl_interrupt_own){.check = is_wanted});
    CHECK_EQUAL(dl_interrupt_slice(), DL_WAIT_SLICE);
    (void)dl_interrupt_set_own(
        (dl_interrupt_own){.check = is_wanted, .pause = 2 * DL_WAIT_SLICE});
    CHECK_EQUAL(dl_interrupt_slice(), 2 * DL_WAIT_SLICE);
    dl_interrupt_install(refuse);
    CHECK_EQUAL(dl_interrupt_slice(), DL_WAIT_SLICE);
    dl_interrupt_install(NULL);
    (void)dl_interrupt_set_own((dl_interrupt_own){.check = NULL});
    CHECK_EQUAL(dl_interrupt_slice(), alone);
}
