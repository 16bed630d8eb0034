/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes of a journal file: a head, and frames of records (store/change.h).  Pure
 * functions; docs/wire.md describes the format.
 *
 *     head:  magic | u32 version | identity | u32 checksum of these
 *     frame: u32 size | u32 checksum of offset and size | u32 checksum of records |
 *            records
 *
 * The offset of a frame in the file is part of both checksums, so that bytes from
 * another place or another file are not mistaken for it.  A frame is what one write(2)
 * appends: all of it counts, or nothing. */
#ifndef DISTLITE_STORE_TCP_JOURNAL_FORMAT_H
#define DISTLITE_STORE_TCP_JOURNAL_FORMAT_H

#include "base/status.h"
#include "store/change.h"

#define DL_JOURNAL_VERSION 1u
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
void dl_journal_seal_frame(dl_buffer *frame, uint64_t offset);

typedef struct dl_journal_contents {
    uint8_t identity[DL_JOURNAL_IDENTITY_SIZE];
    uint64_t size; /* bytes up to the end of the last whole frame; 0: no head */
    uint64_t changes;
    bool is_torn; /* a writer was killed while it appended what follows `size` */
} dl_journal_contents;

/* Reads a whole file and calls `apply` for each record in order; its first failure is
 * returned.  Fails with DL_BACKEND, naming the offset, if the file is not a journal, is
 * of a newer version, or is damaged.
 *
 * A frame that is cut off at the end of the file, or has lost a block there because the
 * host has crashed, is no damage: `is_torn` is set.  An invalid frame that is followed
 * by a valid one, or of which nothing is missing, is. */
dl_status dl_journal_read(dl_bytes file,
                          dl_status (*apply)(void *context, const dl_change *change),
                          void *context, dl_journal_contents *contents);

#endif
