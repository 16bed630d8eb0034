/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A hash of bytes that may come from untrusted peers: SipHash-1-3. */
#ifndef DISTLITE_BASE_HASH_H
#define DISTLITE_BASE_HASH_H

#include "base/bytes.h"

/* Hashes with a random seed of this process, so that peers cannot choose keys that
 * collide.  The result is meaningless in any other process. */
uint64_t dl_hash(dl_bytes bytes);

/* Hashes with a given seed: every process gets the same result. */
uint64_t dl_hash_seeded(dl_bytes bytes, const uint64_t seed[2]);

#endif
