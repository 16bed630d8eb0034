/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/recorder.h"

#include <pthread.h>
#include <stdatomic.h>

#include "pg/recorder_state.h"

/* Rows inspected for a free one before an operation is left unrecorded. */
#define LOOKS 256

_Thread_local uint32_t dl_recorder_site;

static atomic_bool has_failure;

/* The contents of a new row, besides the fingerprint. */
typedef struct entry {
    int64_t queued;
    int64_t started;
    int64_t sequence;
    uint64_t state;
} entry;

/* Takes a free row, which nobody else writes to then: its version is odd. */
static dl_record *
take_row(dl_recorder *self)
{
    uint32_t at = atomic_load_explicit(&self->next, memory_order_relaxed);

    for (uint32_t end = at + LOOKS; at != end; at++) {
        dl_record *record = &self->tables.records[at & self->mask];
        uint64_t version = atomic_load_explicit(&record->version, memory_order_acquire);
        uint8_t state =
            dl_record_state(atomic_load_explicit(&record->what, memory_order_relaxed));
        if (version % 2 == 1 || state == DL_RECORD_QUEUED
            || state == DL_RECORD_RUNNING) {
            continue;
        }
        if (atomic_compare_exchange_strong_explicit(&record->version, &version,
                                                    version + 1, memory_order_acquire,
                                                    memory_order_relaxed)) {
            atomic_store_explicit(&self->next, at + 1, memory_order_relaxed);
            return record;
        }
    }
    dl_recorder_drop(self);
    return NULL;
}

static void
open_row(dl_record *record)
{
    uint64_t version = atomic_load_explicit(&record->version, memory_order_relaxed);

    atomic_store_explicit(&record->version, version + 1, memory_order_relaxed);
}

/* After this, others may take the row if its operation has ended. */
static void
close_row(dl_record *record)
{
    uint64_t version = atomic_load_explicit(&record->version, memory_order_relaxed);

    atomic_store_explicit(&record->version, version + 1, memory_order_release);
}

static dl_record *
record_new(const dl_seat *seat, const dl_fingerprint *what, const entry *entry)
{
    dl_record *record = take_row(dl_recorder_self());

    if (record == NULL) {
        return NULL;
    }
    uint64_t packed = what->op | (uint64_t)what->dtype << 8
                      | (uint64_t)dl_fingerprint_reduce_op(what) << 16
                      | entry->state << DL_RECORD_STATE_SHIFT
                      | (uint64_t)what->root << 32;
    uint64_t place = (seat->serial & UINT32_MAX) | (uint64_t)dl_recorder_site << 32;
    atomic_store_explicit(&record->queued, entry->queued, memory_order_release);
    atomic_store_explicit(&record->started, entry->started, memory_order_release);
    atomic_store_explicit(&record->ended, 0, memory_order_release);
    atomic_store_explicit(&record->sequence, entry->sequence, memory_order_release);
    atomic_store_explicit(&record->count, dl_fingerprint_count(what),
                          memory_order_release);
    atomic_store_explicit(&record->place, place, memory_order_release);
    atomic_store_explicit(&record->what, packed, memory_order_release);
    close_row(record);
    return record;
}

/* Takes the time of the call from its deadline, because reading the clock again would
 * be half of the cost of recording.  Operations of one call share a deadline; so that
 * they do not overlap, none starts before the one before has ended. */
static int64_t
start_of(const dl_seat *seat, dl_deadline deadline)
{
    int64_t start = dl_deadline_start(deadline);
    int64_t last = atomic_load_explicit(&seat->row->last_ended, memory_order_relaxed);

    return start > last ? start : last;
}

dl_record *
dl_recorder_queue(const dl_seat *seat, const dl_fingerprint *what, dl_deadline deadline)
{
    if (seat->row == NULL) {
        return NULL;
    }
    entry entry = {.queued = dl_deadline_start(deadline), .state = DL_RECORD_QUEUED};
    return record_new(seat, what, &entry);
}

static void
start_queued(dl_record *record, uint64_t sequence)
{
    uint64_t what = atomic_load_explicit(&record->what, memory_order_relaxed);
    uint64_t state = DL_RECORD_STATE_MASK << DL_RECORD_STATE_SHIFT;

    what = (what & ~state) | (uint64_t)DL_RECORD_RUNNING << DL_RECORD_STATE_SHIFT;
    open_row(record);
    atomic_store_explicit(&record->started, dl_now(), memory_order_release);
    atomic_store_explicit(&record->sequence, (int64_t)sequence, memory_order_release);
    atomic_store_explicit(&record->what, what, memory_order_release);
    close_row(record);
}

dl_record *
dl_recorder_start(const dl_seat *seat, dl_record *queued, const dl_fingerprint *what,
                  uint64_t sequence, dl_deadline deadline)
{
    if (seat->row == NULL) {
        return NULL;
    }
    atomic_store_explicit(&seat->row->begun, sequence, memory_order_release);
    if (queued != NULL) {
        start_queued(queued, sequence);
        return queued;
    }
    entry entry = {.started = start_of(seat, deadline),
                   .sequence = (int64_t)sequence,
                   .state = DL_RECORD_RUNNING};
    return record_new(seat, what, &entry);
}

dl_record *
dl_recorder_post(const dl_seat *seat, const dl_fingerprint *what, int64_t tag,
                 dl_deadline deadline)
{
    if (seat->row == NULL) {
        return NULL;
    }
    entry entry = {.started = dl_deadline_start(deadline),
                   .sequence = tag,
                   .state = DL_RECORD_RUNNING};
    return record_new(seat, what, &entry);
}

static void
end_at(dl_record *record, dl_status status, int64_t now)
{
    uint64_t what = atomic_load_explicit(&record->what, memory_order_relaxed);

    what |= (uint64_t)DL_RECORD_ENDED << DL_RECORD_STATE_SHIFT;
    what |= ((uint64_t)status & DL_RECORD_STATE_MASK) << DL_RECORD_STATUS_SHIFT;
    open_row(record);
    atomic_store_explicit(&record->ended, now, memory_order_release);
    atomic_store_explicit(&record->what, what, memory_order_release);
    close_row(record);
    if (status == DL_TIMEOUT || status == DL_PEER_LOST) {
        atomic_store_explicit(&has_failure, true, memory_order_relaxed);
    }
}

void
dl_recorder_end(dl_record *record, dl_status status)
{
    if (record != NULL) {
        end_at(record, status, dl_now());
    }
}

void
dl_recorder_end_in(const dl_seat *seat, dl_record *record, dl_status status,
                   int64_t now)
{
    if (record != NULL) {
        atomic_store_explicit(&seat->row->last_ended, now, memory_order_relaxed);
        end_at(record, status, now);
    }
}

bool
dl_recorder_take_failure(void)
{
    return atomic_load_explicit(&has_failure, memory_order_relaxed)
           && atomic_exchange_explicit(&has_failure, false, memory_order_relaxed);
}
