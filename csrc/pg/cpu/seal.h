/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A seal shows that a record in the store was written by a process that knows the job's
 * token, for this group and under this key: an HMAC in front of the record.  Without a
 * token a record is stored as it is.  Knows nothing of the contents of records. */
#ifndef DISTLITE_PG_CPU_SEAL_H
#define DISTLITE_PG_CPU_SEAL_H

#include "base/buffer.h"
#include "base/secret.h"

/* What a record is about; borrowed. */
typedef struct dl_seal {
    const dl_secret *secret; /* NULL: records have no seals */
    const char *group;       /* its name */
    dl_bytes key;            /* without the store's prefixes */
} dl_seal;

/* Appends the record with its seal. */
dl_status dl_seal_put(dl_buffer *buffer, const dl_seal *seal, dl_bytes record);

/* Returns the record in `bytes`, which it points into.  DL_DENIED: it has no seal, or
 * not this one, or it has one and this process has no token.  The text continues the
 * name of the rank whose record it should be. */
dl_status dl_seal_take(dl_bytes bytes, const dl_seal *seal, dl_bytes *record);

#endif
