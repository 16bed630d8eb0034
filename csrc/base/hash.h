/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A hash of bytes that come from strangers: SipHash-1-3 with a random seed per process.
 * Not for anything that leaves the process. */
#ifndef DISTLITE_BASE_HASH_H
#define DISTLITE_BASE_HASH_H

#include "base/bytes.h"

uint64_t dl_hash(dl_bytes bytes);

/* The function itself, for a given seed: known answers can be checked. */
uint64_t dl_hash_seeded(dl_bytes bytes, const uint64_t seed[2]);

#endif
