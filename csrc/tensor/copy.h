/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copying blocks where memcpy(3) is far from the best. */
#ifndef DISTLITE_TENSOR_COPY_H
#define DISTLITE_TENSOR_COPY_H

#include <stddef.h>

/* Like memcpy(3), whose string instructions take twenty times as long on some processors
 * when the target lies a few bytes behind the source, by their addresses in a page: as
 * that of a large array from malloc(3) does to anything that begins on a page. */
void dl_copy(void *target, const void *source, size_t size);

/* For what is larger than the caches: past them, so that memory is written without being
 * read first, which takes a third of the time off. */
void dl_copy_past_caches(void *target, const void *source, size_t size);

#endif
