/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The files of recordings: one per process in the folder of its job, below a runtime
 * folder that belongs to the user alone, in memory if the system has a file system for
 * that.  A recording is a file, rather than memory that ends with its process, because
 * the last operations of a killed rank are those of interest.  An orderly exit removes
 * the file; the files of killed ranks are removed with the job's folder when the job
 * ends.  Files are named "<pid namespace>-<pid>-<start>".
 *
 * Each process keeps its job's folder open under a shared flock(2), which the kernel
 * drops however the process ends.  A process that gets the exclusive lock therefore
 * knows that no process of the job is left, in whatever pid namespace, and removes the
 * folder with all that killed ranks left in it.  No process has to read another job's
 * files for that.  The folder also holds a file with two words that the processes
 * share. */
#ifndef DISTLITE_PG_RECORD_RECORDING_FILE_H
#define DISTLITE_PG_RECORD_RECORDING_FILE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "pg/record/recording.h"

/* A zeroed struct is in no folder.  A forked child leaves its parent's folder by
 * zeroing the struct; the descriptor is closed in the child. */
typedef struct dl_job_folder {
    char path[PATH_MAX];
    int fd;      /* valid where `path` is not empty */
    bool is_new; /* this process made the folder, and has not swept since */
    /* When the job's last failure table was claimed, and, in the next word, when it was
     * written; mapped by the first claim, as most processes make none; or NULL. */
    _Atomic int64_t *claimed;
} dl_job_folder;

/* Writes the path of runtime folder `number`, best first: $DISTLITE_RUNTIME_DIR alone
 * if that is set, otherwise a folder below /dev/shm and one below /tmp.
 * Returns false if there is no folder of that number. */
bool dl_recording_folder(int number, char path[PATH_MAX]);

/* Sets the members that identify this process. */
void dl_recording_identify(dl_recording_header *header);

/* Allocates `size` bytes of zeroed memory in a file named after `header`, in the folder
 * of the header's job, which is joined.  If no folder can be used, the memory is in no
 * file and `folder` stays zeroed.  Returns NULL if there is no memory. */
void *dl_recording_create(const dl_recording_header *header, size_t size,
                          dl_job_folder *folder);

/* Writes the path of the recording.  Returns false, with an empty path, if it is
 * in no file. */
bool dl_recording_path(const dl_job_folder *folder, const dl_recording_header *header,
                       char path[PATH_MAX]);

/* Moves the file to the folder of the job that the header names now.  It stays where it
 * is if that fails. */
void dl_recording_move(const dl_recording_header *header, dl_job_folder *folder);

/* Removes the file and leaves the folder. */
void dl_recording_remove(const dl_recording_header *header, dl_job_folder *folder);

/* Joins the folder `name` below `runtime`, which is made if necessary.  Returns false
 * with errno set if it could not be opened. */
bool dl_job_folder_enter(dl_job_folder *self, const char *runtime, const char *name);

/* Leaves the folder, and removes it with everything in it if this was
 * the last process. */
void dl_job_folder_leave(dl_job_folder *self);

/* Returns true if the caller is to write the job's failure table at `now`; this is so
 * for one of all processes of the job within `quiet` nanoseconds. */
bool dl_job_folder_claim(dl_job_folder *folder, int64_t now, int64_t quiet);

/* Notes that the claimed table is written, which a launcher
 * waits for (launch/errors.py). */
void dl_job_folder_end_claim(dl_job_folder *folder, int64_t now);

/* Removes the folders that dead jobs have left beside this one, as many as it can in a
 * few milliseconds; if this process has made the folder, so that one process of each
 * job does that, and once. */
void dl_job_folder_sweep(dl_job_folder *folder);

/* Removes the folders that dead jobs of this user left. */
void dl_recordings_sweep(void);

#define DL_NO_RECORDING (-1)

/* Takes a snapshot of a file that a process may be writing to.  Returns 0, an errno
 * value, or DL_NO_RECORDING if the file is no recording. */
int dl_recording_read(const char *path, dl_buffer *copy);

/* Called with a snapshot, which it may take away; returns false to end the visit. */
typedef bool (*dl_recording_visit_fn)(void *context, const char *path,
                                      dl_buffer *snapshot);

/* Visits snapshots of the other processes of the header's job on this host.  Opens no
 * file of any other job. */
void dl_recordings_of_job(const dl_recording_header *header,
                          dl_recording_visit_fn visit, void *context);

#endif
