/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where recordings lie: one file per process in a folder that belongs to the user alone,
 * in memory where the system has a file system for that.  A file, rather than memory that
 * goes with its process, because what a killed rank did last is what one wants to know.
 * It is taken away by an orderly exit without a failure, and after any other by the next process that makes
 * one.  Names are "<pid namespace>-<pid>-<start>", so that nobody has to look inside to
 * see whether its process lives. */
#ifndef DISTLITE_PG_RECORDING_FILE_H
#define DISTLITE_PG_RECORDING_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "pg/recording.h"

/* The `number`-th folder that may hold recordings, best first: $DISTLITE_RUNTIME_DIR
 * alone where that is set, else below /dev/shm, $XDG_RUNTIME_DIR and /tmp.  False: there
 * are no more. */
bool dl_recording_folder(int number, char path[PATH_MAX]);

/* Fills in which process this is. */
void dl_recording_identify(dl_recording_header *header);

/* Zeroed memory of `size` bytes in a file named after `header`, or, where no folder can
 * be used, in no file: then `path` is empty.  NULL: there is no memory. */
void *dl_recording_create(const dl_recording_header *header, size_t size,
                          char path[PATH_MAX]);

#endif
