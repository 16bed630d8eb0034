/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that a process records its operations in while others read it: a header
 * and four tables of fixed size, made of 64-bit words.  Each row begins with a version
 * that is odd while the row is being written.  So readers take no lock, and a writer
 * that is stopped or killed half-way spoils one row only.  A snapshot of the memory is
 * also the format of a dump.  Knows nothing of groups, files or processes;
 * tools/recording.py reads it. */
#ifndef DISTLITE_PG_RECORD_RECORDING_H
#define DISTLITE_PG_RECORD_RECORDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

/* As long as the field, which has no room for a terminating NUL. */
#define DL_RECORDING_MAGIC "distlite record4"

typedef struct dl_recording_header {
    uint64_t version;
    char magic[16];
    /* rows of the four tables, in their order; the first is a power of two */
    uint64_t record_count;
    uint64_t group_count;
    uint64_t site_count;
    uint64_t wait_count;
    int64_t pid;
    uint64_t process_start; /* as in /proc/<pid>/stat; distinguishes reused pids */
    uint64_t pid_namespace; /* namespace of `pid`; 0 if unknown */
    /* nanoseconds on the monotonic clock, like all times here */
    int64_t created;
    int64_t to_wall_clock; /* added to a time, gives nanoseconds since 1970 */
    int64_t taken;         /* of a snapshot: when it was taken */
    uint64_t dropped;      /* operations for which there was no row */
    int64_t rank;          /* in the job; -1 if not known */
    int64_t size;
    char job[48];
    char host[64];
    char command[144];
} dl_recording_header;

/* Empty rows have state 0. */
enum {
    DL_RECORD_QUEUED = 1,
    DL_RECORD_RUNNING = 2,
    DL_RECORD_ENDED = 3,
};

/* One operation; as large as a cache line. */
typedef struct dl_record {
    _Atomic uint64_t version;
    _Atomic int64_t queued; /* 0 if it was not queued */
    _Atomic int64_t started;
    _Atomic int64_t ended;
    _Atomic int64_t sequence; /* of a message: its tag */
    _Atomic uint64_t count;   /* elements */
    _Atomic uint64_t place;   /* group's serial, call site << 32 */
    /* op, dtype << 8, reduce op << 16, state << 24, status << 26, root or peer << 32 */
    _Atomic uint64_t what;
} dl_record;

/* The parts of `what`. */
#define DL_RECORD_STATE_SHIFT 24
#define DL_RECORD_STATUS_SHIFT 26
#define DL_RECORD_STATE_MASK UINT64_C(0x3)
#define DL_RECORD_STATUS_MASK UINT64_C(0x3f)

_Static_assert(DL_STATUS_LAST <= DL_RECORD_STATUS_MASK, "room for each status");

static inline uint8_t
dl_record_state(uint64_t what)
{
    return (uint8_t)(what >> DL_RECORD_STATE_SHIFT & DL_RECORD_STATE_MASK);
}

static inline dl_status
dl_record_status(uint64_t what)
{
    return (dl_status)(what >> DL_RECORD_STATUS_SHIFT & DL_RECORD_STATUS_MASK);
}

static inline uint8_t
dl_record_op(uint64_t what)
{
    return (uint8_t)what;
}

static inline uint8_t
dl_record_dtype(uint64_t what)
{
    return (uint8_t)(what >> 8);
}

static inline uint8_t
dl_record_reduce_op(uint64_t what)
{
    return (uint8_t)(what >> 16);
}

static inline uint32_t
dl_record_root(uint64_t what)
{
    return (uint32_t)(what >> 32);
}

typedef struct dl_recorded_group {
    _Atomic uint64_t version;
    /* counts this process's groups from 1; 0: an empty row */
    _Atomic uint64_t serial;
    /* sequence number of the last collective; unversioned */
    _Atomic uint64_t begun;
    _Atomic int64_t last_ended; /* unversioned */
    _Atomic uint64_t members;   /* rank, size << 32 */
    _Atomic uint64_t is_open;
    _Atomic uint64_t backend[2]; /* text */
    _Atomic uint64_t name[8];
} dl_recorded_group;

#define DL_SITE_WORDS 32

/* A call site of the program.  A row never changes once it is written. */
typedef struct dl_recorded_site {
    _Atomic uint64_t version;
    _Atomic uint64_t line;
    _Atomic uint64_t function[8];
    _Atomic uint64_t file[22];
} dl_recorded_site;

/* With the terminator; a longer text is cut off. */
#define DL_WAIT_ROW_TEXT 104

/* A wait of a thread outside of the operations of a group, such as one for a key of a
 * store.  The row is empty unless `since` is set. */
typedef struct dl_recorded_wait {
    _Atomic uint64_t version;
    _Atomic int64_t since;
    _Atomic uint64_t site;
    _Atomic uint64_t text[DL_WAIT_ROW_TEXT / 8];
} dl_recorded_wait;

_Static_assert(sizeof(dl_recording_header) == 384, "a format");
_Static_assert(sizeof(dl_record) == 64, "a format");
_Static_assert(sizeof(dl_recorded_group) == 128, "a format");
_Static_assert(sizeof(dl_recorded_site) == 8 * DL_SITE_WORDS, "a format");
_Static_assert(sizeof(dl_recorded_wait) == 128, "a format");

/* The same rows as plain values, for dl_row_read() and dl_row_write(). */
typedef struct dl_plain_record {
    uint64_t version;
    int64_t queued;
    int64_t started;
    int64_t ended;
    int64_t sequence;
    uint64_t count;
    uint64_t place;
    uint64_t what;
} dl_plain_record;

typedef struct dl_plain_group {
    uint64_t version;
    uint64_t serial;
    uint64_t begun;
    int64_t last_ended;
    uint64_t members;
    uint64_t is_open;
    char backend[16];
    char name[64];
} dl_plain_group;

typedef struct dl_plain_site {
    uint64_t version;
    uint64_t line;
    char function[64];
    char file[176];
} dl_plain_site;

typedef struct dl_plain_wait {
    uint64_t version;
    int64_t since;
    uint64_t site;
    char text[DL_WAIT_ROW_TEXT];
} dl_plain_wait;

_Static_assert(sizeof(dl_plain_record) == sizeof(dl_record), "the same row");
_Static_assert(sizeof(dl_plain_group) == sizeof(dl_recorded_group), "the same row");
_Static_assert(sizeof(dl_plain_site) == sizeof(dl_recorded_site), "the same row");
_Static_assert(sizeof(dl_plain_wait) == sizeof(dl_recorded_wait), "the same row");

/* The number of words of a row. */
#define DL_ROW_WORDS(row) (sizeof(row) / sizeof(uint64_t))

/* The addresses of the tables. */
typedef struct dl_recording {
    _Atomic uint64_t *header;
    dl_record *records;
    dl_recorded_group *groups;
    dl_recorded_site *sites;
    dl_recorded_wait *waits;
} dl_recording;

/* Returns the size in bytes of a recording whose header has these numbers of rows, or 0
 * if they are absurd. */
size_t dl_recording_size(const dl_recording_header *header);

/* Returns the addresses of the tables of a recording at `memory` with this header. */
dl_recording dl_recording_at(void *memory, const dl_recording_header *header);

/* Writes all words of a row but the first, which is the version.  One writer at a time
 * per row; one that was killed half-way leaves the version odd, and the next one makes
 * it even again. */
void dl_row_write(_Atomic uint64_t *row, const void *words, size_t count);

/* Reads a row.  Returns false if it was being written at every attempt; the copy is
 * zeroed then. */
bool dl_row_read(const _Atomic uint64_t *row, void *words, size_t count);

/* Returns false if the memory, which may hold any bytes, is not a recording or is
 * shorter than its header says. */
bool dl_recording_check(const void *memory, size_t size, dl_recording_header *header);

/* Copies a recording that another process may be writing, in place of what is in the
 * buffer.  Most rows are empty, and their pages are not touched. */
dl_status dl_recording_snapshot(void *memory, const dl_recording_header *header,
                                dl_buffer *copy);

#endif
