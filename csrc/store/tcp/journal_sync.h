/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waits for a disk in a thread of its own, while the server goes on: fdatasync(2) of a
 * large file may take seconds.  Server thread only; zeroed memory is ready to begin. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_SYNC_H
#define DISTLITE_STORE_TCP_JOURNAL_SYNC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct dl_journal_sync_run {
    bool is_begun;
    pthread_t thread;
    int fd;
    int error; /* an errno, or 0, once `is_over` */
    atomic_bool is_over;
} dl_journal_sync_run;

/* Begins to wait, in a thread, until the disk has the file.  `fd` must stay until
 * dl_journal_sync_end(), which is to be called once. */
void dl_journal_sync_begin(dl_journal_sync_run *run, int fd);

/* Returns whether dl_journal_sync_end() would return at once. */
bool dl_journal_sync_is_over(const dl_journal_sync_run *run);

/* Waits for the end of the thread and returns 0 or an errno; 0 if nothing was begun. */
int dl_journal_sync_end(dl_journal_sync_run *run);

#endif
