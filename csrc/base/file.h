/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Paths that keep their meaning, writes that are complete, and locks that end. */
#ifndef DISTLITE_BASE_FILE_H
#define DISTLITE_BASE_FILE_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

/* `*whole` is the path from the root on, which the caller frees: a relative one would
 * lead elsewhere once the program changes its folder.  DL_NOT_FOUND: there is no current
 * folder. */
dl_status dl_absolute_path(const char *path, char **whole);

/* Writes all bytes at `offset`; returns 0 or an errno.  Does not use O_APPEND, so that
 * the rest of a short write follows it, and the next try overwrites a failed one. */
int dl_write_at(int fd, dl_bytes bytes, uint64_t offset);

/* Unlocks and closes a file that was guarded (dl_fork_guard()); -1 does nothing.  A child
 * that is forked meanwhile keeps neither the file nor the lock. */
void dl_file_close(int fd);

#endif
