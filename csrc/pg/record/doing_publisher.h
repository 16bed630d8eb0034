/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Publishes in the job's store what this rank is doing, for ranks of other hosts, which
 * cannot read its recording.  A thread of each rank publishes an operation, or a pause
 * between operations, that has lasted for a while, and withdraws it when the rank goes
 * on: two requests for a pause of some seconds, and none for a rank that is never idle
 * for that long. */
#ifndef DISTLITE_PG_RECORD_DOING_PUBLISHER_H
#define DISTLITE_PG_RECORD_DOING_PUBLISHER_H

#include <stdint.h>

#include "pg/record/doing.h"
#include "store/store.h"

/* A note as it lies in the store. */
typedef struct dl_doing_note {
    int64_t written; /* in nanoseconds since 1970 */
    dl_doing doing;
} dl_doing_note;

/* Publishes for rank `rank` of the job, whose store is borrowed until this is called
 * again; NULL ends publishing.  What has lasted for `after` nanoseconds, or for a
 * quarter of the shortest timeout of a group, is published. */
void dl_doing_publisher_set(dl_store *store, int rank, int64_t after);

/* Notes that a group was made, whose timeout may be the shortest. */
void dl_doing_publisher_wake(void);

/* Reads the note of `rank`; returns false if there is none or the store
 * does not answer. */
bool dl_doing_note_get(dl_store *store, int rank, dl_doing_note *note);

#endif
