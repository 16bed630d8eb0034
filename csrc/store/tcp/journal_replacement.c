/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/journal_replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "store/tcp/journal_file.h"

/* Work of one turn: records, and bytes of them.  A value is copied as a whole, however
 * large it has become. */
#define STEP_RECORDS 500
#define STEP_SIZE ((size_t)256 << 10)

/* A large value is recorded in pieces, each of which fits a frame. */
#define PIECE ((size_t)4 << 20)

#define SUFFIX ".new"

dl_status
dl_replacement_init(dl_replacement *replacement, const char *path)
{
    size_t room = strlen(path) + sizeof SUFFIX;

    *replacement = (dl_replacement){.fd = -1, .path = malloc(room)};
    if (replacement->path == NULL) {
        return dl_fail_no_memory();
    }
    snprintf(replacement->path, room, "%s%s", path, SUFFIX);
    (void)unlink(replacement->path);
    return DL_OK;
}

void
dl_replacement_fini(dl_replacement *replacement)
{
    dl_replacement_drop(replacement);
    free(replacement->path);
    replacement->path = NULL;
}

int
dl_replacement_begin(dl_replacement *replacement, const dl_journal_state *state)
{
    (void)unlink(replacement->path);
    replacement->fd = dl_journal_file_open(replacement->path, O_CREAT | O_EXCL);
    if (replacement->fd < 0 || flock(replacement->fd, LOCK_EX | LOCK_NB) != 0) {
        return errno;
    }
    replacement->stage = DL_REPLACEMENT_VALUES;
    dl_table_cursor_begin(state->table, &replacement->cursor);
    return dl_journal_file_begin(replacement->fd, state->identity, &replacement->size);
}

int
dl_replacement_put(dl_replacement *replacement, dl_buffer *frame)
{
    dl_journal_seal_frame(frame, replacement->size);
    int error = dl_write_at(replacement->fd, dl_buffer_bytes(frame), replacement->size);
    replacement->size += frame->size;
    return error;
}

/* The work of one turn. */
typedef struct copier {
    dl_replacement *to;
    const dl_journal_state *from;
    dl_buffer frame;
    size_t written;
    int error;
} copier;

static void
begin_frame(copier *copy)
{
    static const uint8_t head[DL_JOURNAL_FRAME_HEAD];

    dl_buffer_clear(&copy->frame);
    dl_buffer_put(&copy->frame, (dl_bytes){head, sizeof head});
}

/* Writes the frame if it has at least `least` bytes. */
static void
flush(copier *copy, size_t least)
{
    if (copy->frame.has_failed) {
        copy->error = ENOMEM;
    }
    if (copy->error == 0 && copy->frame.size > DL_JOURNAL_FRAME_HEAD
        && copy->frame.size >= least) {
        copy->written += copy->frame.size;
        copy->error = dl_replacement_put(copy->to, &copy->frame);
        begin_frame(copy);
    }
}

static void
put_value(copier *copy, dl_bytes key, dl_bytes value)
{
    dl_change_kind kind = DL_CHANGE_SET;

    do {
        size_t size = value.size < PIECE ? value.size : PIECE;
        dl_change_put(
            &copy->frame,
            (dl_change){.kind = kind, .key = key, .value = {value.data, size}});
        flush(copy, STEP_SIZE);
        kind = DL_CHANGE_APPEND;
        value.data += size;
        value.size -= size;
    } while (value.size > 0);
}

/* These copy one more value, item or slot; they return false if there are no more. */

static bool
copy_value(copier *copy)
{
    dl_bytes name;

    if (!dl_table_cursor_next(&copy->to->cursor, &name)) {
        return false;
    }
    put_value(copy, name, dl_blob_bytes(dl_table_get(copy->from->table, name)));
    return true;
}

static bool
copy_item(copier *copy)
{
    dl_change change = {.kind = DL_CHANGE_PUT_BACK};

    if (!dl_table_cursor_next_item(&copy->to->cursor, &change.key, &change.value,
                                   &change.number)) {
        return false;
    }
    dl_change_put(&copy->frame, change);
    return true;
}

static bool
copy_slot(copier *copy)
{
    if (copy->to->slots_left == 0) {
        return false;
    }
    copy->to->slots_left--;
    dl_replies_put_next(copy->from->replies, &copy->frame);
    return true;
}

static void
end_stage(copier *copy)
{
    dl_replacement *to = copy->to;

    switch (to->stage) {
    case DL_REPLACEMENT_VALUES:
        dl_table_cursor_end(&to->cursor);
        dl_table_cursor_begin_queues(copy->from->table, &to->cursor);
        to->stage = DL_REPLACEMENT_ITEMS;
        break;
    case DL_REPLACEMENT_ITEMS:
        dl_table_cursor_end(&to->cursor);
        to->slots_left = copy->from->replies->slots.count;
        to->stage = DL_REPLACEMENT_SLOTS;
        break;
    case DL_REPLACEMENT_SLOTS:
        flush(copy, 0);
        dl_journal_sync_begin(&to->sync, to->fd, NULL);
        to->stage = DL_REPLACEMENT_SYNC;
        break;
    case DL_REPLACEMENT_SYNC:
        break;
    }
}

int
dl_replacement_step(dl_replacement *replacement, const dl_journal_state *state)
{
    static bool (*const copy_one[])(copier *) = {
        [DL_REPLACEMENT_VALUES] = copy_value,
        [DL_REPLACEMENT_ITEMS] = copy_item,
        [DL_REPLACEMENT_SLOTS] = copy_slot,
    };
    copier copy = {.to = replacement, .from = state};

    begin_frame(&copy);
    for (int left = STEP_RECORDS;
         left > 0 && copy.written < STEP_SIZE && copy.error == 0
         && replacement->stage != DL_REPLACEMENT_SYNC;
         left--) {
        if (!copy_one[replacement->stage](&copy)) {
            end_stage(&copy);
        }
        flush(&copy, STEP_SIZE);
    }
    flush(&copy, 0);
    dl_buffer_fini(&copy.frame);
    return copy.error;
}

int
dl_replacement_adopt(dl_replacement *replacement, const char *path, bool is_synced)
{
    int error = dl_journal_sync_end(&replacement->sync);

    if (error == 0 && is_synced) {
        error = dl_journal_sync_now(replacement->fd, NULL);
    }
    return error == 0 && rename(replacement->path, path) != 0 ? errno : error;
}

void
dl_replacement_drop(dl_replacement *replacement)
{
    (void)dl_journal_sync_end(&replacement->sync);
    dl_table_cursor_end(&replacement->cursor);
    if (replacement->fd >= 0) {
        dl_journal_file_close(&replacement->fd);
        (void)unlink(replacement->path);
    }
}
