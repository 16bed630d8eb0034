/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"

#include <stdatomic.h>
#include <stddef.h>

/* Of a wait that nothing but its deadline or its event can end. */
#define LONGEST_SLICE (500 * DL_MILLISECOND)

static _Atomic(dl_interrupt_fn) installed;

static _Thread_local dl_interrupt_own own;

dl_interrupt_own
dl_interrupt_set_own(dl_interrupt_own next)
{
    dl_interrupt_own before = own;

    own = next;
    return before;
}

void
dl_interrupt_install(dl_interrupt_fn check)
{
    atomic_store(&installed, check);
}

_Thread_local dl_slice_hook *dl_slice_current;

static void
note_slice(void)
{
    dl_slice_hook *hook = dl_slice_current;

    if (hook != NULL && hook->passed != NULL) {
        void (*passed)(dl_slice_hook *) = hook->passed;
        hook->passed = NULL;
        passed(hook);
    }
}

dl_status
dl_interrupt_check(void)
{
    dl_interrupt_fn check = atomic_load_explicit(&installed, memory_order_acquire);

    note_slice();
    if (own.check != NULL && own.check(own.context)) {
        return dl_fail(DL_INTERRUPTED, "a wait was interrupted");
    }
    return check == NULL ? DL_OK : check();
}

int64_t
dl_interrupt_slice(void)
{
    bool is_own = own.check != NULL;

    if (atomic_load(&installed) != NULL || (is_own && own.pause == 0)) {
        return DL_WAIT_SLICE;
    }
    return is_own ? own.pause : LONGEST_SLICE;
}

static _Thread_local dl_blocking_fn hook;
static _Thread_local void *hook_context;

void
dl_blocking_set_hook(dl_blocking_fn begin, void *context)
{
    hook = begin;
    hook_context = context;
}

void
dl_blocking_begin(void)
{
    dl_blocking_fn begin = hook;

    if (begin != NULL) {
        hook = NULL;
        begin(hook_context);
    }
}
