/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Records the operations of this process's groups (pg/record/recording.h), for
 * `distlite ps`, `distlite trace` and the table that follows a failure.  It is on the
 * path of every operation and takes no lock, allocates no memory and makes no system
 * call there: a row is taken at the beginning, filled, and completed at the end.  The
 * rows are a ring.  A row whose operation has not ended is skipped, so an operation
 * that hangs is never overwritten.
 *
 * TORCH_FR_BUFFER_SIZE sets how many operations are kept (default 512); 0 turns the
 * recorder off. */
#ifndef DISTLITE_PG_RECORD_RECORDER_H
#define DISTLITE_PG_RECORD_RECORDER_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"
#include "pg/fingerprint.h"
#include "pg/record/doing.h"
#include "pg/record/recording_file.h"

/* A group's row in the recording.  Nothing is recorded for a zeroed seat. */
typedef struct dl_seat {
    dl_recorded_group *row;
    uint64_t serial;
} dl_seat;

/* The call site of the calling thread; the binding sets it before each call. */
extern _Thread_local uint32_t dl_recorder_site;

/* Gives the group a row.  The first call in a process, or in a forked child,
 * makes the recording. */
void dl_recorder_join(dl_seat *seat, const char *name, const char *backend, int rank,
                      int size);
/* Releases the row of a group that is closed.  Its operations may still end. */
void dl_recorder_leave(const dl_seat *seat);

/* Records an operation that is queued.  Returns NULL if it is not recorded; all
 * functions accept that. */
dl_record *dl_recorder_queue(const dl_seat *seat, const dl_fingerprint *what,
                             dl_deadline deadline);

/* Records that an operation runs from now on; takes a row unless it was queued. */
dl_record *dl_recorder_start(const dl_seat *seat, dl_record *queued,
                             const dl_fingerprint *what, uint64_t sequence,
                             dl_deadline deadline);

/* Records that a message begins; what->root is the peer.  The second form records one
 * that has ended well at `now`. */
dl_record *dl_recorder_post(const dl_seat *seat, const dl_fingerprint *what,
                            int64_t tag, dl_deadline deadline);
void dl_recorder_post_ended(const dl_seat *seat, const dl_fingerprint *what,
                            int64_t tag, dl_deadline deadline, int64_t now);

/* Completes a record; called once for each, from any thread. */
void dl_recorder_end(dl_record *record, dl_status status);
void dl_recorder_end_at(dl_record *record, dl_status status, int64_t now);

/* The same for a collective, which was the group's last one and ended at `now`. */
void dl_recorder_end_in(const dl_seat *seat, dl_record *record, dl_status status,
                        int64_t now);

/* Shows that the calling thread waits since `since`, and for what, at the line of
 * dl_recorder_site.  Returns NULL if there is no recording or no room.  Takes no lock.
 * The row is released by the thread that took it; NULL is accepted. */
dl_recorded_wait *dl_recorder_show_wait(int64_t since, const char *text);
void dl_recorder_hide_wait(dl_recorded_wait *row);

/* Completes the thread's last error, with which the operation of `record` has failed,
 * by what the detector of deadlocks knows (pg/agree/deadlock.h), which sets the function
 * for it.  Returns the code of the error. */
typedef dl_status (*dl_explain_fn)(const dl_record *record);
void dl_recorder_set_explain(dl_explain_fn explain);
dl_status dl_recorder_explain(const dl_record *record);

/* Returns true if, since the last call, an operation has timed out, lost its peer or
 * met a different call. */
bool dl_recorder_take_failure(void);

/* Sets which rank of which job this process is, and makes the recording.  Called before
 * the process joins the default group, so that a rank that waits there is visible. */
void dl_recorder_identify(const char *job, int rank, int size);

/* Ranks notice a failure within about a second of each other, and one failure causes
 * more.  Within this time the ranks of a job write one table per host. */
#define DL_RECORDER_QUIET (10 * DL_SECOND)

/* Returns true for at most one of the job's processes on this host, which then writes
 * the failure table.  Does not wait for the others. */
bool dl_recorder_claim_table(void);

/* Notes that the table is written. */
void dl_recorder_end_table(void);

/* Visits snapshots of the job's other processes on this host. */
void dl_recorder_visit_job(dl_recording_visit_fn visit, void *context);

/* Returns the number of a call site, the same for equal sites; 0 if there is no room or
 * the recorder is off.  Too slow for every call: callers cache the number. */
uint32_t dl_recorder_add_site(const char *file, const char *function, int line);

/* The same for a label that the user's program gives a line; a line has room for few. */
uint32_t dl_recorder_add_label(const char *file, const char *label, int line);

/* Writes the call site of a record with this `place`, such as "train.py:48 in step"; empty
 * if it is not known. */
void dl_recorder_describe_site(uint64_t place, char text[DL_DOING_SITE_SIZE]);

/* Makes the recording of the process, unless there is one. */
void dl_recorder_make(void);

/* Returns true once this process has made a recording. */
bool dl_recorder_is_on(void);

/* Writes the path of the recording, or "" if it is in no file or there is none. */
void dl_recorder_path(char path[PATH_MAX]);

/* Takes a snapshot; it is empty if there is no recording. */
dl_status dl_recorder_snapshot(dl_buffer *copy);

/* The recorder of the process. */
typedef struct dl_recorder {
    dl_recording tables; /* fixed once a seat was given, like mask */
    uint32_t mask;
    atomic_uint next; /* where the search for a row begins; a hint */
    atomic_ulong dropped;
} dl_recorder;

/* Returns the recorder, for those who read its records; valid for callers that have a
 * seat. */
const dl_recorder *dl_recorder_self(void);

#endif
