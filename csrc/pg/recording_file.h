/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where recordings lie: one file per process in the folder of its job (pg/job_folder.h),
 * below a runtime folder that belongs to the user alone, in memory where the system has a
 * file system for that.  A file, rather than memory that goes with its process, because
 * what a killed rank did last is what one wants to know.  An orderly exit removes it; what
 * killed ranks leave goes with the job's folder when the job ends.  Files are named
 * "<pid namespace>-<pid>-<start>". */
#ifndef DISTLITE_PG_RECORDING_FILE_H
#define DISTLITE_PG_RECORDING_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "pg/job_folder.h"
#include "pg/recording.h"

/* The `number`-th runtime folder, best first: $DISTLITE_RUNTIME_DIR alone where that is
 * set, else below /dev/shm, $XDG_RUNTIME_DIR and /tmp.  False: there are no more. */
bool dl_recording_folder(int number, char path[PATH_MAX]);

/* Fills in which process this is. */
void dl_recording_identify(dl_recording_header *header);

/* Zeroed memory of `size` bytes in a file named after `header`, in the folder of the
 * header's job, which is joined; or, where no folder can be used, in no file: then
 * `folder` stays zeroed.  NULL: there is no memory. */
void *dl_recording_create(const dl_recording_header *header, size_t size,
                          dl_job_folder *folder);

/* False: the recording is in no file, and `path` is empty. */
bool dl_recording_path(const dl_job_folder *folder, const dl_recording_header *header,
                       char path[PATH_MAX]);

/* To the folder of the job that the header names now; stays where that fails. */
void dl_recording_move(const dl_recording_header *header, dl_job_folder *folder);

/* Removes the file and leaves the folder. */
void dl_recording_remove(const dl_recording_header *header, dl_job_folder *folder);

/* Removes what dead jobs of this user left. */
void dl_recordings_sweep(void);

#define DL_NO_RECORDING (-1)

/* A snapshot of a file that a process may be writing to.  0, errno's value, or
 * DL_NO_RECORDING: the file is none. */
int dl_recording_read(const char *path, dl_buffer *copy);

/* False: no more of them. */
typedef bool (*dl_recording_visit_fn)(void *context, const char *path,
                                      dl_bytes snapshot);

/* Snapshots of the other processes of the header's job on this host.  Opens no file of any
 * other job. */
void dl_recordings_of_job(const dl_recording_header *header,
                          dl_recording_visit_fn visit, void *context);

#endif
