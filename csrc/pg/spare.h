/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory to receive large arrays into, which is reused.  A fresh page costs a fault and
 * is filled with zeros, which takes longer than copying an array into it; the pages of
 * an array that the program has received and freed are mapped already.  The memory lies
 * in large pages where the system has them.
 *
 * Some of the freed memory is kept for its next use.  Meanwhile the system may take the
 * pages back when memory runs short, and supplies fresh ones then. */
#ifndef DISTLITE_PG_SPARE_H
#define DISTLITE_PG_SPARE_H

#include "pg/region.h"

/* The most bytes that are kept, in total. */
#define DL_SPARE_LIMIT ((size_t)256 << 20)

/* Allocates at least `size` bytes, which are not zeroed; dl_region_free() gives them
 * back.  May be called from any thread, and in a forked child. */
dl_status dl_spare_new(size_t size, dl_region **region);

/* Returns the kept memory to the system. */
void dl_spare_clear(void);

#endif
