/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic(dl_interrupt_fn) installed;

void
dl_interrupt_install(dl_interrupt_fn check)
{
    atomic_store(&installed, check);
}

dl_status
dl_interrupt_check(void)
{
    dl_interrupt_fn check = atomic_load_explicit(&installed, memory_order_acquire);

    return check == NULL ? DL_OK : check();
}
