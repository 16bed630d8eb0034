/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/journal_sync.h"

#include <errno.h>
#include <unistd.h>

#include "base/thread.h"

static void *
sync_in_thread(void *argument)
{
    dl_journal_sync_run *run = argument;

    run->error = fdatasync(run->fd) == 0 ? 0 : errno;
    atomic_store_explicit(&run->is_over, true, memory_order_release);
    return NULL;
}

void
dl_journal_sync_begin(dl_journal_sync_run *run, int fd)
{
    run->fd = fd;
    atomic_store_explicit(&run->is_over, false, memory_order_relaxed);
    run->is_begun = true;
    if (dl_thread_start(&run->thread, sync_in_thread, run) != DL_OK) {
        (void)sync_in_thread(run);
        run->is_begun = false;
    }
}

bool
dl_journal_sync_is_over(const dl_journal_sync_run *run)
{
    return atomic_load_explicit(&run->is_over, memory_order_acquire);
}

int
dl_journal_sync_end(dl_journal_sync_run *run)
{
    if (run->is_begun) {
        pthread_join(run->thread, NULL);
    }
    const int error = run->error;

    *run = (dl_journal_sync_run){0};
    return error;
}
