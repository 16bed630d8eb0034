/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory to receive large arrays into, which is used again.  A fresh page costs a fault
 * and is filled with zeros, which takes longer than to copy an array into it; what a
 * program received and has thrown away is there already.  It lies in large pages where
 * the system has them.
 *
 * Some of what was given back waits for its next use; meanwhile the system may take the
 * pages, if it runs short, and hand out others then. */
#ifndef DISTLITE_PG_SPARE_H
#define DISTLITE_PG_SPARE_H

#include "pg/region.h"

/* Bytes that wait at most, all together. */
#define DL_SPARE_LIMIT ((size_t)256 << 20)

/* At least `size` bytes of anything, not zeros; dl_region_free() gives it back.  From any
 * thread, also in a forked child. */
dl_status dl_spare_new(size_t size, dl_region **region);

/* Bytes that wait. */
size_t dl_spare_size(void);

/* Gives the system what waits. */
void dl_spare_clear(void);

#endif
