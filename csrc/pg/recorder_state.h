/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The recorder of the process.  Shared by recorder.c, which is on the path of every
 * operation, recorder_tables.c, which does what is rare, and own_waits.c, which reads
 * the records. */
#ifndef DISTLITE_PG_RECORDER_STATE_H
#define DISTLITE_PG_RECORDER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "pg/recorder.h"

typedef struct dl_recorder {
    dl_recording tables; /* fixed once a seat was given, like mask */
    uint32_t mask;
    atomic_uint next; /* where the search for a row begins; a hint */
    atomic_ulong dropped;
} dl_recorder;

/* Returns the recorder; valid for callers that have a seat. */
dl_recorder *dl_recorder_self(void);

/* Counts an operation for which there was no row. */
void dl_recorder_drop(dl_recorder *recorder);

#endif
