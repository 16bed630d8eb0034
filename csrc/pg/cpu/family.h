/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A family is the groups that are made out of one group without a meeting of their
 * ranks.  A rank that will make no more of them announces this once for the whole
 * family, because it does not know which of them other ranks have made. */
#ifndef DISTLITE_PG_CPU_FAMILY_H
#define DISTLITE_PG_CPU_FAMILY_H

#include "base/hash.h"

/* Returns the number of the family of the groups made out of the group with that name;
 * the same on all ranks.  Returns 0, which is no family, for NULL only. */
static inline uint64_t
dl_family_of(const char *parent)
{
    static const uint64_t seed[2] = {1, 4};
    uint64_t family = parent == NULL ? 0 : dl_hash_seeded(dl_bytes_of(parent), seed);

    return parent != NULL && family == 0 ? 1 : family;
}

#endif
