/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The folder of one job below a runtime folder (pg/recording_file.h): it holds the
 * recordings of the job's processes on this host, and a word that they share.
 *
 * Each process keeps its job's folder open under a shared flock(2), which the kernel
 * drops however the process ends.  Whoever gets the exclusive lock therefore knows that
 * no process of the job is left, in whatever pid namespace, and removes the folder with
 * all that killed ranks left in it.  Nobody has to read another job's files for that. */
#ifndef DISTLITE_PG_JOB_FOLDER_H
#define DISTLITE_PG_JOB_FOLDER_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"

#define DL_JOB_FOLDER_NAME_SIZE 96

/* Zeroed: not in a job's folder.  A forked child forgets its parent's by zeroing it: the
 * descriptor is closed in the child. */
typedef struct dl_job_folder {
    char path[PATH_MAX];
    int fd;      /* valid where `path` is not empty */
    bool is_new; /* this process made the folder */
    /* When the last table of the job was claimed, and when it was written; or NULL. */
    _Atomic int64_t *claimed;
} dl_job_folder;

/* Joins the folder `name` below `runtime`, and makes it if it is not there.  False: it
 * could not be opened, and errno says why. */
bool dl_job_folder_enter(dl_job_folder *self, const char *runtime, const char *name);

/* Removes the folder and everything in it if this was the last process. */
void dl_job_folder_leave(dl_job_folder *self);

/* Whether the caller is the one that writes the job's table of what failed at `now`:
 * true for one of all processes of the job in `quiet` nanoseconds. */
bool dl_job_folder_claim(dl_job_folder *self, int64_t now, int64_t quiet);

/* The claimed table is written, which a launcher waits for (launch/last_words.py). */
void dl_job_folder_end_claim(dl_job_folder *self, int64_t now);

/* Removes the folders of dead jobs, as far as it comes. */
void dl_job_folders_sweep(const char *runtime, dl_deadline deadline);

/* Whether a file or folder of this name may be a job's. */
bool dl_job_folder_is_name(const char *name);

#endif
