/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process is doing, as its recording (pg/recording.h) tells: in which operation it
 * is, or which one was its last.  Knows nothing of waits. */
#ifndef DISTLITE_PG_DOING_H
#define DISTLITE_PG_DOING_H

#include "base/bytes.h"
#include "pg/recording.h"

#define DL_DOING_SITE_SIZE 112

/* Zeroed: not known. */
typedef struct dl_doing {
    int64_t pid;
    int64_t span;     /* nanoseconds since the operation was called, or has ended */
    int64_t sequence; /* of a message its tag */
    uint64_t count;   /* these five as in a fingerprint */
    uint32_t root;
    uint8_t op;
    uint8_t dtype;
    uint8_t reduce_op;
    uint8_t state; /* of the operation, as in the recording; 0: there is none */
    char group[64];
    char host[64];
    char site[DL_DOING_SITE_SIZE];
} dl_doing;

/* `snapshot` is that of a process on this machine.  Of several operations that have not
 * ended the one that was called last is told.  False: it is no recording. */
bool dl_doing_read(dl_bytes snapshot, dl_doing *doing);

/* Whether the process has begun collective `sequence` of the group of that name. */
bool dl_doing_has_begun(dl_bytes snapshot, const char *group, uint64_t sequence);

/* "train.py:48 in step", or nothing where the row is empty. */
void dl_doing_describe_site(const dl_recorded_site *row, char text[DL_DOING_SITE_SIZE]);

#endif
