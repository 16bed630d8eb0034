/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A hash of bytes from untrusted peers: SipHash-1-3 with a random seed per process.
 * Not for anything that leaves the process. */
#ifndef DISTLITE_BASE_HASH_H
#define DISTLITE_BASE_HASH_H

#include "base/bytes.h"

uint64_t dl_hash(dl_bytes bytes);

/* The same function for a given seed, so that it can be checked against test
 * vectors. */
uint64_t dl_hash_seeded(dl_bytes bytes, const uint64_t seed[2]);

#endif
