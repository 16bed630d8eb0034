/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes down what this process's groups do (pg/recording.h), for `distlite ps` and
 * `distlite trace` and for the table that follows a failure.  On every operation's way:
 * no lock, no allocation, no system call; a row that is taken at the beginning, filled,
 * and completed at the end.  The rows are a ring; one whose operation has not ended is
 * passed over, so that the one that hangs is never lost behind those that do not.
 *
 * TORCH_FR_BUFFER_SIZE says how many operations are kept (default 512); 0 turns the
 * recorder off. */
#ifndef DISTLITE_PG_RECORDER_H
#define DISTLITE_PG_RECORDER_H

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"
#include "pg/fingerprint.h"
#include "pg/recording_file.h"

/* A group's place in the recording.  Zeroed: it has none, and nothing is recorded. */
typedef struct dl_seat {
    dl_recorded_group *row;
    uint64_t serial;
} dl_seat;

/* Where the calling thread's program calls from; the binding sets it before it calls. */
extern _Thread_local uint32_t dl_recorder_site;

/* The first one of a process, or of a forked child, makes the recording. */
void dl_recorder_join(dl_seat *seat, const char *name, const char *backend,
                      uint64_t rank_and_size);
/* The group is closed: its row may be another's.  What still runs may end. */
void dl_recorder_leave(const dl_seat *seat);

/* NULL: not recorded, which all functions take. */
dl_record *dl_recorder_queue(const dl_seat *seat, const dl_fingerprint *what,
                             dl_deadline deadline);

/* It runs from now on; takes a row unless it was queued. */
dl_record *dl_recorder_start(const dl_seat *seat, dl_record *queued,
                             const dl_fingerprint *what, uint64_t sequence,
                             dl_deadline deadline);

/* A message begins; what->root is the peer. */
dl_record *dl_recorder_post(const dl_seat *seat, const dl_fingerprint *what,
                            int64_t tag, dl_deadline deadline);

/* Once for each row taken; from any thread. */
void dl_recorder_end(dl_record *record, dl_status status);

/* The same, of a collective that was the group's last and ended at `now`. */
void dl_recorder_end_in(const dl_seat *seat, dl_record *record, dl_status status,
                        int64_t now);

/* Whether an operation has timed out or lost its peer since this was last asked. */
bool dl_recorder_take_failure(void);

/* Which rank of which job this process is; said before it joins the default group, so that
 * one which waits there is seen.  Makes the recording, too. */
void dl_recorder_identify(const char *job, int rank, int size);

/* Ranks notice one failure within about a second of each other, and a failure makes more of
 * them: in this time a job's ranks on a host write one table. */
#define DL_RECORDER_QUIET (10 * DL_SECOND)

/* Whether this process is to write the table of its job: at most one of the job's processes
 * on this host is.  Waits for none of them. */
bool dl_recorder_claim_table(void);

/* It has written it. */
void dl_recorder_end_table(void);

/* Snapshots of the job's other processes on this host. */
void dl_recorder_visit_job(dl_recording_visit_fn visit, void *context);

/* The number of a call site, the same for the same; 0: there is no room, or the recorder
 * is off.  Not for every call. */
uint32_t dl_recorder_add_site(const char *file, const char *function, int line);

bool dl_recorder_is_on(void);

/* "": the recording is in no file, or there is none. */
const char *dl_recorder_path(void);

/* A snapshot; empty if there is none. */
dl_status dl_recorder_snapshot(dl_buffer *copy);

#endif
