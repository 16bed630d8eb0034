/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that a process writes its operations to while others read it: a header and
 * three tables of fixed size, made of 64-bit words.  Each row begins with a version that
 * is odd while the row is being written, so that a reader takes no lock and a writer that
 * is stopped or killed half-way spoils one row.  A snapshot of it is also the format of a
 * dump.  Knows nothing of groups, files or processes; tools/recording.py reads it. */
#ifndef DISTLITE_PG_RECORDING_H
#define DISTLITE_PG_RECORDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As long as the field, which has no room for the NUL. */
#define DL_RECORDING_MAGIC "distlite record2"

typedef struct dl_recording_header {
    uint64_t version;
    char magic[16];
    uint64_t
        record_count; /* rows of the three tables, in their order; a power of two */
    uint64_t group_count;
    uint64_t site_count;
    int64_t pid;
    uint64_t process_start; /* as /proc/<pid>/stat has it; tells reused pids apart */
    uint64_t pid_namespace; /* in which `pid` means something; 0: unknown */
    int64_t created;        /* nanoseconds on the monotonic clock, as all times here */
    int64_t to_wall_clock;  /* what to add for nanoseconds since 1970 */
    int64_t taken;          /* of a snapshot: when */
    uint64_t dropped;       /* operations for which there was no row */
    int64_t rank;           /* in the job; -1: not known */
    int64_t size;
    char job[48];
    char host[64];
    char command[152];
} dl_recording_header;

/* Empty rows have state 0. */
enum {
    DL_RECORD_QUEUED = 1,
    DL_RECORD_RUNNING = 2,
    DL_RECORD_ENDED = 3,
};

/* One operation: a cache line. */
typedef struct dl_record {
    _Atomic uint64_t version;
    _Atomic int64_t queued; /* 0: it never was */
    _Atomic int64_t started;
    _Atomic int64_t ended;
    _Atomic int64_t sequence; /* of a message its tag */
    _Atomic uint64_t count;   /* elements */
    _Atomic uint64_t place;   /* group's serial, call site << 32 */
    /* op, dtype << 8, reduce op << 16, state << 24, status << 28, root or peer << 32 */
    _Atomic uint64_t what;
} dl_record;

typedef struct dl_recorded_group {
    _Atomic uint64_t version;
    _Atomic uint64_t serial;    /* of this process's groups, from 1; 0: an empty row */
    _Atomic uint64_t begun;     /* the last collective's sequence number; unversioned */
    _Atomic int64_t last_ended; /* unversioned */
    _Atomic uint64_t members;   /* rank, size << 32 */
    _Atomic uint64_t is_open;
    _Atomic uint64_t backend[2]; /* text */
    _Atomic uint64_t name[8];
} dl_recorded_group;

#define DL_SITE_WORDS 32

/* Where a program calls; once written it stays. */
typedef struct dl_recorded_site {
    _Atomic uint64_t version;
    _Atomic uint64_t line;
    _Atomic uint64_t function[8];
    _Atomic uint64_t file[22];
} dl_recorded_site;

_Static_assert(sizeof(dl_recording_header) == 384, "a format");
_Static_assert(sizeof(dl_record) == 64, "a format");
_Static_assert(sizeof(dl_recorded_group) == 128, "a format");
_Static_assert(sizeof(dl_recorded_site) == 8 * DL_SITE_WORDS, "a format");

/* The same rows as values, which dl_row_read() fills and dl_row_write() takes. */
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

_Static_assert(sizeof(dl_plain_record) == sizeof(dl_record), "the same row");
_Static_assert(sizeof(dl_plain_group) == sizeof(dl_recorded_group), "the same row");
_Static_assert(sizeof(dl_plain_site) == sizeof(dl_recorded_site), "the same row");

/* What those two count. */
#define DL_ROW_WORDS(row) (sizeof(row) / sizeof(uint64_t))

/* Where the tables lie. */
typedef struct dl_recording {
    _Atomic uint64_t *header;
    dl_record *records;
    dl_recorded_group *groups;
    dl_recorded_site *sites;
} dl_recording;

/* Bytes of a recording whose header has these numbers of rows; 0: they are absurd. */
size_t dl_recording_size(const dl_recording_header *header);

dl_recording dl_recording_at(void *memory, const dl_recording_header *header);

/* One writer at a time per row: all words but the first, which is the version. */
void dl_row_write(_Atomic uint64_t *row, const void *words, size_t count);

/* False: it was being written at every look; then the copy is zeroes. */
bool dl_row_read(const _Atomic uint64_t *row, void *words, size_t count);

/* False: it is no recording, or of fewer bytes than it says.  Any bytes will do. */
bool dl_recording_check(const void *memory, size_t size, dl_recording_header *header);

/* Copies what another process may be writing; `copy` has room for its size. */
void dl_recording_snapshot(void *memory, const dl_recording_header *header, void *copy);

#endif
