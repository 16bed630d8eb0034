/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where a job has several hosts, ranks of another host cannot read a rank's recording.  So
 * a thread of each rank tells the job's store what the rank does once that has lasted for a
 * while, and takes it back when the rank goes on: two requests for a pause of some seconds,
 * and none for a rank that is never idle for so long. */
#ifndef DISTLITE_PG_DOING_PUBLISHER_H
#define DISTLITE_PG_DOING_PUBLISHER_H

#include <stdint.h>

#include "pg/doing.h"
#include "store/store.h"

/* A note, as the store has it. */
typedef struct dl_doing_note {
    int64_t written; /* by the clock on the wall, in nanoseconds */
    dl_doing doing;
} dl_doing_note;

/* Begins to publish for the rank of the job whose store it is, which is borrowed until this
 * is called again; NULL: for none.  What has lasted for `after` nanoseconds, or for a
 * quarter of the shortest timeout of a group, is published. */
void dl_doing_publisher_set(dl_store *store, int rank, int64_t after);

/* A group was made. */
void dl_doing_publisher_wake(void);

/* The note of `rank`; false: there is none, or the store does not answer. */
bool dl_doing_note_get(dl_store *store, int rank, dl_doing_note *note);

/* For notes, and for what is compared with them. */
int64_t dl_wall_clock(void);

#endif
