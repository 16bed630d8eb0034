/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/blocking.h"

#include <stddef.h>

static _Thread_local dl_blocking_fn watcher;
static _Thread_local void *watcher_context;

void
dl_blocking_set_hook(dl_blocking_fn begin, void *context)
{
    watcher = begin;
    watcher_context = context;
}

void
dl_blocking_begin(void)
{
    dl_blocking_fn begin = watcher;

    if (begin != NULL) {
        watcher = NULL;
        begin(watcher_context);
    }
}
