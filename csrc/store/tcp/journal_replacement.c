/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "store/tcp/journal_state.h"

/* A frame is written when it has so many bytes. */
#define FRAME_SIZE ((size_t)256 << 10)

/* A large value is recorded in pieces, each of which fits a frame. */
#define PIECE ((size_t)4 << 20)

/* Returns the name of the new file, which the caller frees; NULL without memory. */
static char *
new_path(const char *path)
{
    size_t room = strlen(path) + sizeof ".new";
    char *made = malloc(room);

    if (made != NULL) {
        snprintf(made, room, "%s.new", path);
    }
    return made;
}

void
dl_journal_replace_not(const char *path)
{
    char *name = new_path(path);

    if (name != NULL) {
        (void)unlink(name);
        free(name);
    }
}

typedef struct copier {
    int fd;
    uint64_t size; /* of the file */
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
flush_frame(copier *copy, size_t least)
{
    if (copy->frame.has_failed) {
        copy->error = ENOMEM;
    }
    if (copy->error == 0 && copy->frame.size > DL_JOURNAL_FRAME_HEAD
        && copy->frame.size >= least) {
        dl_journal_checksum_frame(&copy->frame, copy->size);
        copy->error = dl_write_at(copy->fd, dl_buffer_bytes(&copy->frame), copy->size);
        copy->size += copy->frame.size;
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
        DL_TRY(flush_frame(copy, FRAME_SIZE));
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
    return flush_frame(copy, FRAME_SIZE);
}

static dl_status
copy_slots(copier *copy, const dl_map *slots)
{
    for (dl_map_entry *node = dl_map_first(slots); node != NULL;
         node = dl_map_next(slots, node)) {
        dl_replies_put(&copy->frame, DL_MAP_ENTRY(node, dl_reply_slot, node), true);
        DL_TRY(flush_frame(copy, FRAME_SIZE));
    }
    return flush_frame(copy, 0);
}

static int
copy_contents(int fd, const dl_journal_state *state, uint64_t *size)
{
    copier copy = {.fd = fd, .table = state->table};

    copy.error = dl_journal_file_begin(fd, state->identity, &copy.size);
    begin_frame(&copy);
    if (copy.error == 0 && dl_table_list(copy.table, copy_value, &copy) == DL_OK
        && dl_table_list_items(copy.table, copy_item, &copy) == DL_OK) {
        (void)copy_slots(&copy, &state->replies->slots);
    }
    dl_buffer_fini(&copy.frame);
    *size = copy.size;
    return copy.error;
}

int
dl_journal_replace(const char *path, const dl_journal_state *state, int *fd,
                   uint64_t *size)
{
    char *name = new_path(path);

    if (name == NULL) {
        return ENOMEM;
    }
    (void)unlink(name);
    int made = dl_journal_file_open(name, O_CREAT | O_EXCL);
    int error = made < 0 || flock(made, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    uint64_t written = 0;
    int folder = -1;
    if (error == 0) {
        error = copy_contents(made, state, &written);
    }
    /* Afterwards it could be too late: changes would be confirmed that a crash loses,
     * because the disk has the old file under the name. */
    if (error == 0) {
        error = dl_journal_file_open_folder(path, &folder);
    }
    if (error == 0 && (fdatasync(made) != 0 || rename(name, path) != 0)) {
        error = errno;
    }
    dl_journal_file_sync_folder(folder);
    if (error == 0) {
        *fd = made;
        *size = written;
    } else {
        dl_file_close(made);
        (void)unlink(name);
    }
    free(name);
    return error;
}
