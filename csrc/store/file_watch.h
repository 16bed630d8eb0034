/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sleeping until a file may have changed: inotify(7) where it works, and otherwise a
 * pause that grows.  Wake-ups may be false; changes made by other hosts are seen at the
 * next slice. */
#ifndef DISTLITE_STORE_FILE_WATCH_H
#define DISTLITE_STORE_FILE_WATCH_H

#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct dl_file_watch {
    const char *path;
    int fd; /* -1: no inotify */
    bool is_armed;
    int64_t pause;
} dl_file_watch;

/* Cannot fail: without inotify it watches with pauses.  `path` must outlive it. */
void dl_file_watch_init(dl_file_watch *watch, const char *path);
void dl_file_watch_fini(dl_file_watch *watch);

/* To be called before each look at the file, so that no change falls between the look
 * and the sleep; also finds the file again after it was replaced. */
void dl_file_watch_arm(dl_file_watch *watch);

/* Sleeps for one slice at most.  DL_OK: look again.  DL_INTERRUPTED. */
dl_status dl_file_watch_wait(dl_file_watch *watch, dl_deadline deadline);

#endif
