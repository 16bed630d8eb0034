/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An interrupt check that reports an interruption from a given time on, as if a user
 * had pressed Ctrl-C. */
#ifndef DISTLITE_TESTS_FAKES_INTERRUPTS_H
#define DISTLITE_TESTS_FAKES_INTERRUPTS_H

#include <stdatomic.h>

#include "base/deadline.h"
#include "base/interrupt.h"
#include "check.h"

/* How long a blocked call may take to notice. */
#define FAKE_INTERRUPT_SLACK (100 * DL_MILLISECOND + CHECK_SLACK)

static _Atomic int64_t fake_interrupt_at = INT64_MAX;

static dl_status
fake_interrupt(void)
{
    return dl_now() >= atomic_load(&fake_interrupt_at)
               ? dl_fail(DL_INTERRUPTED, "interrupted")
               : DL_OK;
}

DL_CHECK_UNUSED static void
fake_interrupt_after(int64_t span)
{
    atomic_store(&fake_interrupt_at, dl_now() + span);
    dl_interrupt_install(fake_interrupt);
}

/* Checks that the call ended because of the interrupt, and soon after it. */
#define CHECK_INTERRUPTED(call)                                                   \
    do {                                                                          \
        CHECK_STATUS(call, DL_INTERRUPTED);                                       \
        CHECK(dl_now() - atomic_load(&fake_interrupt_at) < FAKE_INTERRUPT_SLACK); \
        CHECK(dl_now() >= atomic_load(&fake_interrupt_at));                       \
    } while (0)

#endif
