/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process is doing according to its recording (pg/record/recording.h): the
 * operation that it is in, what else it waits for, or its last operation. */
#ifndef DISTLITE_PG_RECORD_DOING_H
#define DISTLITE_PG_RECORD_DOING_H

#include "base/bytes.h"
#include "pg/record/recording.h"

#define DL_DOING_SITE_SIZE 112

/* Zeroed if nothing is known. */
typedef struct dl_doing {
    int64_t pid;
    /* nanoseconds since the operation was called, or since it ended */
    int64_t span;
    int64_t sequence; /* of a message: its tag */
    uint64_t count;   /* the next five as in a fingerprint */
    uint32_t root;
    uint8_t op;
    uint8_t dtype;
    uint8_t reduce_op;
    uint8_t state; /* of the operation, as in the recording; 0 if there is none */
    char group[64];
    char host[64];
    char site[DL_DOING_SITE_SIZE];
    /* Of a wait that is no operation, as in the recording: only `state`, `span` and
     * `site` are set beside it. */
    char wait[DL_WAIT_ROW_TEXT];
} dl_doing;

/* Reads what the process of `snapshot`, which runs on this host, is doing.  If several
 * operations or waits have not ended, the one called last counts.  Returns false if the bytes
 * are no recording. */
bool dl_doing_read(dl_bytes snapshot, dl_doing *doing);

/* Sets the members that a record has. */
void dl_doing_take(dl_doing *doing, const dl_plain_record *record);

/* Returns true if the process has begun collective `sequence` of the group
 * of that name. */
bool dl_doing_has_begun(dl_bytes snapshot, const char *group, uint64_t sequence);

/* Writes a call site such as "train.py:48 in step"; empty if the row is. */
void dl_doing_describe_site(const dl_recorded_site *row, char text[DL_DOING_SITE_SIZE]);

#endif
