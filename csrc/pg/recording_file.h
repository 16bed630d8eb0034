/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The files of recordings: one per process in the folder of its job (pg/job_folder.h),
 * below a runtime folder that belongs to the user alone, in memory if the system has a
 * file system for that.  A recording is a file, rather than memory that ends with its
 * process, because the last operations of a killed rank are those of interest.  An
 * orderly exit removes the file; the files of killed ranks are removed with the job's
 * folder when the job ends.  Files are named "<pid namespace>-<pid>-<start>". */
#ifndef DISTLITE_PG_RECORDING_FILE_H
#define DISTLITE_PG_RECORDING_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "pg/job_folder.h"
#include "pg/recording.h"

/* Writes the path of runtime folder `number`, best first: $DISTLITE_RUNTIME_DIR alone
 * if that is set, otherwise a folder below /dev/shm, /tmp and $XDG_RUNTIME_DIR.
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

/* Removes the folders that dead jobs of this user left. */
void dl_recordings_sweep(void);

#define DL_NO_RECORDING (-1)

/* Takes a snapshot of a file that a process may be writing to.  Returns 0, an errno
 * value, or DL_NO_RECORDING if the file is no recording. */
int dl_recording_read(const char *path, dl_buffer *copy);

/* Called with a snapshot; returns false to end the visit. */
typedef bool (*dl_recording_visit_fn)(void *context, const char *path,
                                      dl_bytes snapshot);

/* Visits snapshots of the other processes of the header's job on this host.  Opens no
 * file of any other job. */
void dl_recordings_of_job(const dl_recording_header *header,
                          dl_recording_visit_fn visit, void *context);

#endif
