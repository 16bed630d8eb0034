/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The folder of one job below a runtime folder (pg/recording_file.h).  It holds the
 * recordings of the job's processes on this host, and a file with two words that they
 * share.
 *
 * Each process keeps its job's folder open under a shared flock(2), which the kernel
 * drops however the process ends.  A process that gets the exclusive lock therefore
 * knows that no process of the job is left, in whatever pid namespace, and removes the
 * folder with all that killed ranks left in it.  No process has to read another job's
 * files for that. */
#ifndef DISTLITE_PG_JOB_FOLDER_H
#define DISTLITE_PG_JOB_FOLDER_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"

#define DL_JOB_FOLDER_NAME_SIZE 96

/* A zeroed struct is in no folder.  A forked child leaves its parent's folder by
 * zeroing the struct; the descriptor is closed in the child. */
typedef struct dl_job_folder {
    char path[PATH_MAX];
    int fd;      /* valid where `path` is not empty */
    bool is_new; /* this process made the folder */
    /* When the job's last failure table was claimed, and, in the next word, when it was
     * written; or NULL. */
    _Atomic int64_t *claimed;
} dl_job_folder;

/* Joins the folder `name` below `runtime`, which is made if necessary.  Returns false
 * with errno set if it could not be opened. */
bool dl_job_folder_enter(dl_job_folder *self, const char *runtime, const char *name);

/* Leaves the folder, and removes it with everything in it if this was
 * the last process. */
void dl_job_folder_leave(dl_job_folder *self);

/* Returns true if the caller is to write the job's failure table at `now`; this is so
 * for one of all processes of the job within `quiet` nanoseconds. */
bool dl_job_folder_claim(dl_job_folder *self, int64_t now, int64_t quiet);

/* Notes that the claimed table is written, which a launcher
 * waits for (launch/last_words.py). */
void dl_job_folder_end_claim(dl_job_folder *self, int64_t now);

/* Removes the folders of dead jobs, as many as it can by the deadline. */
void dl_job_folders_sweep(const char *runtime, dl_deadline deadline);

/* Returns true if a file or folder of this name may be a job's. */
bool dl_job_folder_is_name(const char *name);

#endif
