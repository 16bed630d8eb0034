/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A store in one append-only file, shared by processes on a file system with
 * flock(2).  The format is torch's, so both can use one file in one job; docs/wire.md
 * describes it. */
#ifndef DISTLITE_STORE_FILE_STORE_H
#define DISTLITE_STORE_FILE_STORE_H

#include "store/store.h"

/* Joins the store in the file at `path`, which is created if it does not exist.  The
 * last of `world_size` members to close the store removes the file; with a negative
 * `world_size` nobody does.  Fails at once if the folder does not exist.  Waits for the
 * file's lock like a call with the default timeout. */
dl_status dl_file_store_new(const char *path, int64_t world_size, dl_store **store);

/* Returns the path from the root on; valid as long as the store. */
const char *dl_file_store_path(const dl_store *store);

#endif
