/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The MAC in front of a record in the store shows that it was written by a process that
 * knows the job's token, for this group and under this key.  Without a
 * token a record is stored as it is.  Knows nothing of the contents of records. */
#ifndef DISTLITE_PG_CPU_RECORD_MAC_H
#define DISTLITE_PG_CPU_RECORD_MAC_H

#include "base/buffer.h"
#include "base/secret.h"

/* What a record is about; borrowed. */
typedef struct dl_record_mac {
    const dl_secret *secret; /* NULL: records have none */
    const char *group;       /* its name */
    dl_bytes key;            /* without the store's prefixes */
} dl_record_mac;

/* Appends the record behind its MAC. */
dl_status dl_record_mac_put(dl_buffer *buffer, const dl_record_mac *self,
                            dl_bytes record);

/* Returns the record in `bytes`, which it points into.  DL_DENIED: it has no MAC, or
 * not this one, or it has one and this process has no token.  The text continues the
 * name of the rank whose record it should be. */
dl_status dl_record_mac_take(dl_bytes bytes, const dl_record_mac *self,
                             dl_bytes *record);

#endif
