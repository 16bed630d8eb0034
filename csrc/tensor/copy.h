/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copying blocks in cases in which memcpy(3) is slow. */
#ifndef DISTLITE_TENSOR_COPY_H
#define DISTLITE_TENSOR_COPY_H

#include <stddef.h>

/* Copies like memcpy(3); an empty array may be NULL.  On some processors the string
 * instructions of memcpy(3) are twenty times slower if the target lies a few bytes behind
 * the source, modulo the page size; a large array from malloc(3) lies so relative to
 * anything that begins on a page. */
void dl_copy(void *target, const void *source, size_t size);

/* Copies with non-temporal stores, for blocks larger than the caches: memory is written
 * without being read first, which saves a third of the time. */
void dl_copy_streaming(void *target, const void *source, size_t size);

/* Returns how many bytes the arrays of an operation, those of all ranks of a host
 * together, may have before what is written of them should go past the caches.  With
 * fewer, the copy would take less time, but the program that reads the result more. */
size_t dl_copy_cached_limit(void);

#endif
