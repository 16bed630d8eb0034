/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The process's one recorder: for recorder.c, on the way of every operation, and
 * recorder_tables.c, which does what is rare. */
#ifndef DISTLITE_PG_RECORDER_STATE_H
#define DISTLITE_PG_RECORDER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "pg/recorder.h"

typedef struct dl_recorder {
    dl_recording tables; /* fixed once a seat was given, as mask */
    uint32_t mask;
    atomic_uint next; /* where to look for a row first; a hint */
    atomic_ulong dropped;
} dl_recorder;

/* For whoever has a seat. */
dl_recorder *dl_recorder_self(void);

/* There was no row. */
void dl_recorder_drop(dl_recorder *recorder);

#endif
