/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A store in one append-only file, shared by processes on a file system with flock(2);
 * the format is torch's, so both may use one file in one job.  docs/wire.md has the
 * layout. */
#ifndef DISTLITE_STORE_FILE_STORE_H
#define DISTLITE_STORE_FILE_STORE_H

#include "store/store.h"

/* A negative `world_size` never removes the file; otherwise the last of that many
 * members to close does.  A missing folder fails at once.  Waits for the file's lock, as
 * a call with the default timeout would. */
dl_status dl_file_store_new(const char *path, int64_t world_size, dl_store **store);

/* As given; lives as long as the store. */
const char *dl_file_store_path(const dl_store *store);

#endif
