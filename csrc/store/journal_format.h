/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes of a journal file: a head, and frames of records, each of which is a change
 * of a table.  Pure functions; docs/wire.md describes the format.
 *
 *     head:  magic | u32 version | identity | u32 checksum of these
 *     frame: u32 size | u32 checksum of offset and size | u32 checksum of records |
 *            records
 *
 * The offset of a frame in the file is part of both checksums, so that bytes from
 * another place or another file are not mistaken for it.  A frame is what one write(2)
 * appends: all of it counts, or nothing.
 *
 * The records say what the contents have become and not what was asked for, so that they
 * can be applied in order without the requests that caused them. */
#ifndef DISTLITE_STORE_JOURNAL_FORMAT_H
#define DISTLITE_STORE_JOURNAL_FORMAT_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/reader.h"
#include "base/status.h"

#define DL_JOURNAL_VERSION 2u
#define DL_JOURNAL_MAGIC "dlstore\n"
#define DL_JOURNAL_IDENTITY_SIZE 16
#define DL_JOURNAL_HEAD_SIZE (8 + 4 + DL_JOURNAL_IDENTITY_SIZE + 4)
#define DL_JOURNAL_FRAME_HEAD 12

/* Largest size of the records of one frame.  Writers stay far below: they begin a new
 * frame after a few MiB, and no record is larger than a request. */
#define DL_JOURNAL_FRAME_LIMIT (64u << 20)

/* Appends the head of a file. */
void dl_journal_put_head(dl_buffer *out,
                         const uint8_t identity[DL_JOURNAL_IDENTITY_SIZE]);

/* Makes a frame of `frame`, whose first DL_JOURNAL_FRAME_HEAD bytes are free and are
 * followed by records.  It will be written at `offset` in the file. */
void dl_journal_checksum_frame(dl_buffer *frame, uint64_t offset);

/* The numbers are those in the file. */
typedef enum dl_change_kind {
    DL_CHANGE_SET = 1,
    DL_CHANGE_APPEND = 2,
    DL_CHANGE_DELETE = 3, /* the value of the key, if there is one */
    DL_CHANGE_PUSH = 4,
    /* An item as the oldest one, which makes `number` items; nothing if the queue does
     * not have one less before. */
    DL_CHANGE_PUT_BACK = 5,
    DL_CHANGE_POP = 6, /* the oldest items, until at most `number` are left */
    /* Not of the table, but of what a server remembers (store/tcp/replies.h); the key
     * is the id of a slot. */
    DL_CHANGE_REPLY = 7,
    DL_CHANGE_FORGET = 8,
    DL_CHANGE_LAST = DL_CHANGE_FORGET,
} dl_change_kind;

typedef struct dl_change {
    dl_change_kind kind;
    dl_bytes key;
    int64_t number; /* 0 for kinds without one */
    dl_bytes value; /* empty for kinds without one */
} dl_change;

/* At most the bytes of a record besides those of its key and value. */
#define DL_CHANGE_OVERHEAD 25

/* Room for one more record that dl_change_reserve() leaves behind a change: for what the
 * server remembers of the request. */
#define DL_CHANGE_ROOM 128

/* Provides the memory for records of `size` bytes and of DL_CHANGE_ROOM more, so that
 * recording them does not fail.  After DL_NO_MEMORY the buffer is as before; NULL does
 * nothing. */
dl_status dl_change_reserve(dl_buffer *changes, size_t size);

void dl_change_put(dl_buffer *out, dl_change change);

typedef struct dl_journal_contents {
    uint8_t identity[DL_JOURNAL_IDENTITY_SIZE];
    uint64_t size; /* bytes up to the end of the last whole frame; 0: no head */
    uint64_t changes;
    bool is_torn;  /* a writer was killed while it appended what follows `size` */
    bool has_hole; /* what follows `size` was lost in a crash of the host, in part */
} dl_journal_contents;

/* Reads a whole file and calls `apply` for each record in order; its first failure is
 * returned.  Fails with DL_BACKEND, naming the offset, if the file is not a journal, is
 * of a newer version, or is damaged.
 *
 * A frame that is cut off at the end of the file is no damage: `is_torn` is set.  One of
 * which the host has not written a sector before it crashed is none either, whatever
 * follows: `has_hole` is set.  An invalid frame of which nothing is missing is. */
dl_status dl_journal_read(dl_bytes file,
                          dl_status (*apply)(void *context, const dl_change *change),
                          void *context, dl_journal_contents *contents);

#endif
