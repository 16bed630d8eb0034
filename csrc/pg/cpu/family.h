/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups that are made out of one group without meeting are a family.  A rank that will
 * make no more of them says so once for all, because it does not know which of them other
 * ranks have made. */
#ifndef DISTLITE_PG_CPU_FAMILY_H
#define DISTLITE_PG_CPU_FAMILY_H

#include "base/hash.h"

/* Of the groups made out of the group of that name; the same number on all ranks.  Not 0,
 * which is no family; so is that of NULL. */
static inline uint64_t
dl_family_of(const char *parent)
{
    static const uint64_t seed[2] = {1, 4};
    uint64_t family = parent == NULL ? 0 : dl_hash_seeded(dl_bytes_of(parent), seed);

    return parent != NULL && family == 0 ? 1 : family;
}

#endif
