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
