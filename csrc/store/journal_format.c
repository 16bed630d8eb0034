/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/journal_format.h"

#include <inttypes.h>

#include "base/crc32c.h"

/* The unit that a disk writes as a whole: after a crash of the host a file may have its
 * new size, and zeros where a sector was not written. */
#define SECTOR 512

static void
set_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t
get_u32(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16
           | (uint32_t)from[3] << 24;
}

void
dl_journal_put_head(dl_buffer *out, const uint8_t identity[DL_JOURNAL_IDENTITY_SIZE])
{
    size_t start = out->size;

    dl_buffer_put(out, DL_LITERAL(DL_JOURNAL_MAGIC));
    dl_put_u32(out, DL_JOURNAL_VERSION);
    dl_buffer_put(out, (dl_bytes){identity, DL_JOURNAL_IDENTITY_SIZE});
    if (dl_buffer_check(out) == DL_OK) {
        dl_bytes head = {out->data + start, out->size - start};
        dl_put_u32(out, dl_crc32c(0, head));
    }
}

/* The checksum of the first two fields of a frame. */
static uint32_t
head_checksum(uint64_t offset, uint32_t size)
{
    uint8_t bytes[12];

    set_u32(bytes, (uint32_t)offset);
    set_u32(bytes + 4, (uint32_t)(offset >> 32));
    set_u32(bytes + 8, size);
    return dl_crc32c(0, (dl_bytes){bytes, sizeof bytes});
}

void
dl_journal_checksum_frame(dl_buffer *frame, uint64_t offset)
{
    dl_bytes records = {frame->data + DL_JOURNAL_FRAME_HEAD,
                        frame->size - DL_JOURNAL_FRAME_HEAD};
    uint32_t head = head_checksum(offset, (uint32_t)records.size);

    set_u32(frame->data, (uint32_t)records.size);
    set_u32(frame->data + 4, head);
    set_u32(frame->data + 8, dl_crc32c(head, records));
}

dl_status
dl_change_reserve(dl_buffer *changes, size_t size)
{
    if (changes == NULL || dl_buffer_reserve(changes, size + DL_CHANGE_ROOM) == DL_OK) {
        return DL_OK;
    }
    changes->has_failed = false; /* nothing is missing in it */
    return DL_NO_MEMORY;
}

static bool
has_number(dl_change_kind kind)
{
    return kind == DL_CHANGE_PUT_BACK || kind == DL_CHANGE_POP;
}

static bool
has_value(dl_change_kind kind)
{
    return kind == DL_CHANGE_SET || kind == DL_CHANGE_APPEND || kind == DL_CHANGE_PUSH
           || kind == DL_CHANGE_PUT_BACK || kind == DL_CHANGE_REPLY;
}

void
dl_change_put(dl_buffer *out, dl_change change)
{
    dl_put_u8(out, (uint8_t)change.kind);
    dl_put_bytes(out, change.key);
    if (has_number(change.kind)) {
        dl_put_i64(out, change.number);
    }
    if (has_value(change.kind)) {
        dl_put_bytes(out, change.value);
    }
}

/* Takes the next record, which points into the reader's bytes.  Returns 1, 0 at the
 * end, and -1 if the bytes are no record. */
static int
take_change(dl_reader *reader, dl_change *change)
{
    uint8_t kind;

    *change = (dl_change){0};
    if (!dl_take_u8(reader, &kind)) {
        return 0;
    }
    if (kind < DL_CHANGE_SET || kind > DL_CHANGE_LAST) {
        return -1;
    }
    change->kind = (dl_change_kind)kind;
    /* The map counts the bytes of a key in 32 bits. */
    if (dl_take_bytes(reader, UINT32_MAX, &change->key) != 1
        || (has_number(change->kind) && !dl_take_i64(reader, &change->number))
        || (has_value(change->kind)
            && dl_take_bytes(reader, SIZE_MAX, &change->value) != 1)) {
        return -1;
    }
    return 1;
}

typedef enum frame_state {
    FRAME_VALID,
    FRAME_CUT, /* it ends behind the end of the file */
    FRAME_BAD,
} frame_state;

static frame_state
check_frame(dl_bytes file, uint64_t offset, dl_bytes *records)
{
    const uint8_t *head = file.data + offset;
    uint64_t left = file.size - offset;

    if (left < DL_JOURNAL_FRAME_HEAD) {
        return FRAME_CUT;
    }
    uint32_t size = get_u32(head);
    uint32_t checksum = head_checksum(offset, size);
    if (checksum != get_u32(head + 4) || size == 0 || size > DL_JOURNAL_FRAME_LIMIT) {
        return FRAME_BAD;
    }
    if (size > left - DL_JOURNAL_FRAME_HEAD) {
        return FRAME_CUT;
    }
    *records = (dl_bytes){head + DL_JOURNAL_FRAME_HEAD, size};
    return dl_crc32c(checksum, *records) == get_u32(head + 8) ? FRAME_VALID : FRAME_BAD;
}

static bool
is_zero(const uint8_t *bytes, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Returns whether one of the sectors behind `offset`, where a frame that is not valid
 * begins, consists of zeros from there on.  A few zeros count, too: to start without what
 * follows, and with a copy of the file, is better than not to start. */
static bool
lacks_a_sector(dl_bytes file, uint64_t offset)
{
    uint64_t next;

    for (uint64_t at = offset; at < file.size; at = next) {
        next = (at / SECTOR + 1) * SECTOR;
        uint64_t end = next < file.size ? next : file.size;
        if (is_zero(file.data + at, end - at)) {
            return true;
        }
    }
    return false;
}

static dl_status
fail_damaged(uint64_t offset, const char *what)
{
    return dl_fail(DL_BACKEND,
                   "it is damaged at byte %" PRIu64
                   ": %s; restore it from a copy, or move it away to begin with an "
                   "empty store",
                   offset, what);
}

/* Reads the head.  A file that was just made may have none, or a part of one. */
static dl_status
read_head(dl_bytes file, dl_journal_contents *contents)
{
    dl_bytes magic = DL_LITERAL(DL_JOURNAL_MAGIC);
    size_t known = file.size < magic.size ? file.size : magic.size;

    if (known > 0 && memcmp(file.data, magic.data, known) != 0) {
        return dl_fail(
            DL_BACKEND,
            "it is not a journal of a store, or is damaged at byte 0: restore "
            "it from a copy, or move it away to begin with an empty store");
    }
    if (file.size < DL_JOURNAL_HEAD_SIZE) {
        contents->is_torn = file.size > 0;
        return DL_OK;
    }
    uint32_t version = get_u32(file.data + magic.size);
    uint32_t checksum = get_u32(file.data + DL_JOURNAL_HEAD_SIZE - 4);
    if (dl_crc32c(0, (dl_bytes){file.data, DL_JOURNAL_HEAD_SIZE - 4}) != checksum) {
        return fail_damaged(0, "the checksum of its head is wrong");
    }
    if (version != DL_JOURNAL_VERSION) {
        return dl_fail(DL_BACKEND,
                       "its format has version %" PRIu32
                       ", and this version of distlite reads %u",
                       version, DL_JOURNAL_VERSION);
    }
    memcpy(contents->identity, file.data + magic.size + 4, DL_JOURNAL_IDENTITY_SIZE);
    contents->size = DL_JOURNAL_HEAD_SIZE;
    return DL_OK;
}

static dl_status
read_records(dl_bytes records, uint64_t offset,
             dl_status (*apply)(void *, const dl_change *), void *context,
             dl_journal_contents *contents)
{
    dl_reader reader = dl_reader_of(records);
    dl_change change;
    int taken;

    while ((taken = take_change(&reader, &change)) == 1) {
        DL_TRY(apply(context, &change));
        contents->changes++;
    }
    return taken == 0 ? DL_OK : fail_damaged(offset, "a record is malformed");
}

dl_status
dl_journal_read(dl_bytes file, dl_status (*apply)(void *, const dl_change *),
                void *context, dl_journal_contents *contents)
{
    *contents = (dl_journal_contents){0};
    DL_TRY(read_head(file, contents));
    if (contents->size == 0) {
        return DL_OK;
    }
    while (contents->size < file.size) {
        uint64_t offset = contents->size;
        dl_bytes records;
        frame_state state = check_frame(file, offset, &records);
        if (state == FRAME_BAD && !lacks_a_sector(file, offset)) {
            return fail_damaged(offset, "a checksum is wrong");
        }
        if (state != FRAME_VALID) {
            contents->is_torn = state == FRAME_CUT;
            contents->has_hole = state == FRAME_BAD;
            return DL_OK;
        }
        DL_TRY(read_records(records, offset, apply, context, contents));
        contents->size += DL_JOURNAL_FRAME_HEAD + records.size;
    }
    return DL_OK;
}
