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

/* A frame is written when it has so many bytes. */
#define FRAME_SIZE ((size_t)256 << 10)

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
dl_replacement_put(dl_replacement *replacement, dl_buffer *frame)
{
    dl_journal_checksum_frame(frame, replacement->size);
    int error = dl_write_at(replacement->fd, dl_buffer_bytes(frame), replacement->size);
    replacement->size += frame->size;
    return error;
}

typedef struct copier {
    dl_replacement *to;
    const dl_table *table;
    dl_buffer frame;
    int error;
} copier;

static void
begin_frame(copier *copy)
{
    static const uint8_t head[DL_JOURNAL_FRAME_HEAD];

    dl_buffer_clear(&copy->frame);
    dl_buffer_put(&copy->frame, (dl_bytes){head, sizeof head});
}

/* Writes the frame if it has at least `least` bytes.  A failure ends the visit of the
 * contents; `error` tells which. */
static dl_status
flush(copier *copy, size_t least)
{
    if (copy->frame.has_failed) {
        copy->error = ENOMEM;
    }
    if (copy->error == 0 && copy->frame.size > DL_JOURNAL_FRAME_HEAD
        && copy->frame.size >= least) {
        copy->error = dl_replacement_put(copy->to, &copy->frame);
        begin_frame(copy);
    }
    return copy->error == 0 ? DL_OK : DL_BACKEND;
}

static dl_status
copy_value(void *context, dl_bytes name)
{
    copier *copy = context;
    dl_bytes value = dl_blob_bytes(dl_table_get(copy->table, name));
    dl_change_kind kind = DL_CHANGE_SET;

    do {
        size_t size = value.size < PIECE ? value.size : PIECE;
        dl_change_put(
            &copy->frame,
            (dl_change){.kind = kind, .key = name, .value = {value.data, size}});
        DL_TRY(flush(copy, FRAME_SIZE));
        kind = DL_CHANGE_APPEND;
        value.data += size;
        value.size -= size;
    } while (value.size > 0);
    return DL_OK;
}

static dl_status
copy_item(void *context, dl_bytes key, dl_bytes item)
{
    copier *copy = context;

    dl_change_put(&copy->frame,
                  (dl_change){.kind = DL_CHANGE_PUSH, .key = key, .value = item});
    return flush(copy, FRAME_SIZE);
}

static dl_status
copy_slots(copier *copy, const dl_map *slots)
{
    for (dl_map_entry *node = dl_map_first(slots); node != NULL;
         node = dl_map_next(slots, node)) {
        dl_replies_put(&copy->frame, DL_MAP_ENTRY(node, dl_reply_slot, node));
        DL_TRY(flush(copy, FRAME_SIZE));
    }
    return flush(copy, 0);
}

static int
copy_contents(dl_replacement *replacement, const dl_journal_state *state)
{
    copier copy = {.to = replacement, .table = state->table};

    begin_frame(&copy);
    if (dl_table_list(copy.table, copy_value, &copy) == DL_OK
        && dl_table_list_items(copy.table, copy_item, &copy) == DL_OK) {
        (void)copy_slots(&copy, &state->replies->slots);
    }
    dl_buffer_fini(&copy.frame);
    return copy.error;
}

int
dl_replacement_begin(dl_replacement *replacement, const dl_journal_state *state)
{
    (void)unlink(replacement->path);
    replacement->fd = dl_journal_file_open(replacement->path, O_CREAT | O_EXCL);
    if (replacement->fd < 0 || flock(replacement->fd, LOCK_EX | LOCK_NB) != 0) {
        return errno;
    }
    int error =
        dl_journal_file_begin(replacement->fd, state->identity, &replacement->size);
    if (error == 0) {
        error = copy_contents(replacement, state);
    }
    if (error == 0) {
        dl_journal_sync_begin(&replacement->sync, replacement->fd, NULL);
    }
    return error;
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
    if (replacement->fd >= 0) {
        dl_journal_file_close(&replacement->fd);
        (void)unlink(replacement->path);
    }
}
