/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sleeping until a file may have changed: by inotify(7) if it works, otherwise by
 * pauses that grow.  Wake-ups may be spurious; changes by other hosts are noticed at
 * the next slice. */
#ifndef DISTLITE_STORE_FILE_WATCH_H
#define DISTLITE_STORE_FILE_WATCH_H

#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct dl_file_watch {
    const char *path;
    int fd; /* -1: inotify is not available */
    bool is_armed;
    int64_t pause;
} dl_file_watch;

/* Cannot fail: without inotify the watch uses pauses.  `path` must outlive
 * the watch. */
void dl_file_watch_init(dl_file_watch *watch, const char *path);
void dl_file_watch_fini(dl_file_watch *watch);

/* Call it before each check of the file, so that no change is missed between the check
 * and the sleep.  Also finds the file again after it was replaced. */
void dl_file_watch_arm(dl_file_watch *watch);

/* Sleeps until a change, for one slice at most.  DL_OK: check the file again.
 * DL_INTERRUPTED: stop waiting. */
dl_status dl_file_watch_wait(dl_file_watch *watch, dl_deadline deadline);

#endif
