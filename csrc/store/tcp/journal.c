/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "store/stats.h"
#include "store/tcp/journal_file.h"
#include "store/tcp/journal_recovery.h"

/* How long changes may be in the kernel's memory only, with DL_JOURNAL_INTERVAL. */
#define SYNC_INTERVAL DL_SECOND

/* Recorded changes of more bytes are written before the end of the turn. */
#define CHANGES_LARGE ((size_t)4 << 20)

/* Memory that the buffer keeps between two turns. */
#define CHANGES_KEPT ((size_t)1 << 20)

/* A file is replaced when it is larger than LEAST_REPLACED and than GROWTH times its
 * size when it was new: copying then costs a fraction of what the writing has cost. */
#define LEAST_REPLACED ((uint64_t)16 << 20)
#define GROWTH 3

/* Work of one turn on the new file: names, and bytes of values. */
#define STEP_NAMES 500
#define STEP_SIZE ((size_t)256 << 10)

/* A large value is recorded in pieces, each of which fits a frame. */
#define PIECE ((size_t)4 << 20)

/* More than the size, without keys and values, of the records of one request: a change,
 * and the state of a slot. */
#define RECORDS_SIZE 256

#define NEW_SUFFIX ".new"

struct dl_journal {
    char *path;
    char *new_path;
    dl_journal_sync sync;
    dl_journal_state state;
    int fd;
    uint64_t size;      /* of the file; what follows is not committed */
    uint64_t base_size; /* of the file when it was new */
    dl_buffer changes;  /* a frame: room for its head, then records */
    uint64_t written;   /* bytes of records that were written */
    bool is_unsynced;   /* written and not on the disk yet */
    int64_t unsynced_since;
    bool has_failed; /* `changes` could not be written: `failure` tells why */
    bool is_broken; /* and the disk's contents are unknown: it is never written again */
    dl_error failure;
    dl_log_limit log;
    /* The new file; -1: none. */
    int new_fd;
    uint64_t new_size;
    dl_table_cursor cursor;
    bool has_names; /* all values are in the new file */
    /* Counts. */
    uint64_t frames;
    uint64_t failures;
    uint64_t replaced;
};

dl_status
dl_journal_sync_read(const char *text, dl_journal_sync *sync)
{
    static const char *const names[] = {
        [DL_JOURNAL_NEVER] = "never",
        [DL_JOURNAL_INTERVAL] = "interval",
        [DL_JOURNAL_ALWAYS] = "always",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *sync = (dl_journal_sync)i;
            return DL_OK;
        }
    }
    return dl_fail(DL_INVALID,
                   "journal_sync=\"%.40s\": it must be \"never\", \"interval\" or "
                   "\"always\"",
                   text);
}

/* Leaves the buffer as an empty frame. */
static dl_status
clear_changes(dl_buffer *changes)
{
    static const uint8_t head[DL_JOURNAL_FRAME_HEAD];

    if (changes->capacity > CHANGES_KEPT) {
        dl_buffer_fini(changes);
    }
    dl_buffer_clear(changes);
    dl_buffer_put(changes, (dl_bytes){head, sizeof head});
    return dl_buffer_check(changes);
}

static bool
has_changes(const dl_journal *journal)
{
    return journal->changes.size > DL_JOURNAL_FRAME_HEAD || journal->changes.has_failed;
}

/* The new file. */

static void
drop_new_file(dl_journal *journal)
{
    dl_table_cursor_end(&journal->cursor);
    if (journal->new_fd >= 0) {
        dl_journal_file_close(&journal->new_fd);
        (void)unlink(journal->new_path);
    }
}

/* Keeps the old file, which is complete; the next attempt follows when it has grown
 * further. */
static void
give_up_new_file(dl_journal *journal, const char *what, int error)
{
    dl_log_limited(&journal->log, DL_LOG_WARNING,
                   "store server: the journal %s is not replaced by a shorter one: "
                   "%s: %s",
                   journal->path, what, strerror(error));
    drop_new_file(journal);
    journal->base_size = journal->size;
}

/* Appends records as a frame to the new file, and empties the buffer. */
static int
put_new_frame(dl_journal *journal, dl_buffer *frame)
{
    int error = 0;

    if (frame->has_failed) {
        return ENOMEM;
    }
    if (frame->size > DL_JOURNAL_FRAME_HEAD) {
        dl_journal_seal_frame(frame, journal->new_size);
        error = dl_journal_file_write(journal->new_fd, dl_buffer_bytes(frame), journal->new_size);
        journal->new_size += frame->size;
    }
    return error == 0 && clear_changes(frame) != DL_OK ? ENOMEM : error;
}

static void
begin_new_file(dl_journal *journal)
{
    (void)unlink(journal->new_path);
    journal->new_fd = dl_journal_file_open(journal->new_path, O_CREAT | O_EXCL);
    if (journal->new_fd < 0 || flock(journal->new_fd, LOCK_EX | LOCK_NB) != 0) {
        give_up_new_file(journal, "opening a new file", errno);
        return;
    }
    dl_table_cursor_begin(journal->state.table, &journal->cursor);
    journal->has_names = false;
    int error = dl_journal_file_begin(journal->new_fd, journal->state.identity,
                                      &journal->new_size);
    if (error != 0) {
        give_up_new_file(journal, "writing a new file", error);
    }
}

typedef struct frame_writer {
    dl_journal *journal;
    dl_buffer frame;
    size_t written;
    int error;
} frame_writer;

static void
flush_frame(frame_writer *writer, size_t least)
{
    if (writer->error == 0 && writer->frame.size >= least) {
        writer->written += writer->frame.size;
        writer->error = put_new_frame(writer->journal, &writer->frame);
    }
}

static void
flush_large(void *context)
{
    flush_frame(context, STEP_SIZE);
}

static void
put_value_record(frame_writer *writer, dl_bytes key, dl_bytes value)
{
    dl_change_kind kind = DL_CHANGE_SET;

    do {
        size_t size = value.size < PIECE ? value.size : PIECE;
        dl_change_put(&writer->frame, kind, key, (dl_bytes){value.data, size});
        flush_frame(writer, STEP_SIZE);
        kind = DL_CHANGE_APPEND;
        value.data += size;
        value.size -= size;
    } while (value.size > 0);
}

static void
put_end_record(frame_writer *writer, dl_bytes key)
{
    int64_t end = dl_table_end_of(writer->journal->state.table, key);

    if (end != INT64_MAX) {
        dl_change_put_end(&writer->frame, key, end);
    }
}

static void
put_item_record(void *context, dl_bytes key, dl_bytes item, bool is_first)
{
    frame_writer *writer = context;

    if (is_first) {
        dl_change_put(&writer->frame, DL_CHANGE_EMPTY, key, (dl_bytes){0});
    }
    dl_change_put(&writer->frame, DL_CHANGE_PUSH, key, item);
    flush_frame(writer, STEP_SIZE);
}

/* Copies the values of some more names.  A value that changes later is recorded again
 * behind its copy, since commits go to both files; what changed earlier is overwritten
 * by the copy.  New names come to the end of the list. */
static void
copy_names(frame_writer *writer)
{
    dl_journal *journal = writer->journal;
    dl_bytes name;

    for (int left = STEP_NAMES; left > 0 && writer->written < STEP_SIZE; left--) {
        if (!dl_table_cursor_next(&journal->cursor, &name)) {
            journal->has_names = true;
            return;
        }
        const dl_blob *value = dl_table_get(journal->state.table, name);
        if (value != NULL) { /* it has not ended meanwhile */
            put_value_record(writer, name, dl_blob_bytes(value));
            put_end_record(writer, name);
        }
    }
}

/* Gives the new file the name of the journal. */
static int
adopt_new_file(dl_journal *journal)
{
    if (journal->sync != DL_JOURNAL_NEVER && fdatasync(journal->new_fd) != 0) {
        return errno;
    }
    return rename(journal->new_path, journal->path) != 0 ? errno : 0;
}

static void
finish_new_file(dl_journal *journal)
{
    int error = adopt_new_file(journal);

    if (error != 0) {
        give_up_new_file(journal, "completing a new file", error);
        return;
    }
    if (journal->sync != DL_JOURNAL_NEVER) {
        dl_journal_file_sync_folder(journal->path);
    }
    dl_table_cursor_end(&journal->cursor);
    dl_journal_file_close(&journal->fd);
    journal->fd = journal->new_fd;
    journal->new_fd = -1;
    journal->size = journal->new_size;
    journal->base_size = journal->size;
    journal->is_unsynced = false;
    journal->replaced++;
}

/* One turn's work on the new file.  All changes are committed when it begins. */
static void
step_new_file(dl_journal *journal)
{
    frame_writer writer = {.journal = journal};

    if (clear_changes(&writer.frame) != DL_OK) {
        writer.error = ENOMEM;
    } else if (!journal->has_names) {
        copy_names(&writer);
    } else {
        /* All at once: items and slots are few. */
        dl_table_visit_items(journal->state.table, put_item_record, &writer);
        dl_replies_put_all(journal->state.replies, &writer.frame, flush_large, &writer);
    }
    flush_frame(&writer, 0);
    dl_buffer_fini(&writer.frame);
    if (writer.error != 0) {
        give_up_new_file(journal, "writing a new file", writer.error);
    }
}

static void
work_on_new_file(dl_journal *journal)
{
    bool had_names = journal->has_names;

    if (journal->new_fd < 0) {
        bool is_large = journal->size > LEAST_REPLACED
                        && journal->size > GROWTH * journal->base_size;
        if (is_large) {
            begin_new_file(journal);
        }
        return;
    }
    step_new_file(journal);
    if (journal->new_fd >= 0 && had_names) {
        finish_new_file(journal);
    }
}

/* Writing. */

static dl_status
fail_now(dl_journal *journal, const char *what, int error)
{
    dl_status status = dl_journal_file_fail(journal->path, what, error);

    dl_log_limited(&journal->log, DL_LOG_ERROR, "store server: %s",
                   dl_last_error()->text);
    journal->has_failed = true;
    journal->failures++;
    /* Changes are refused from here on; slots are not, and their records would have no
     * bound. */
    journal->state.replies->changes = NULL;
    journal->failure = *dl_last_error();
    return status;
}

static dl_status
sync_file(dl_journal *journal)
{
    if (!journal->is_unsynced) {
        return DL_OK;
    }
    if (fdatasync(journal->fd) != 0) {
        /* The kernel may have dropped the changes, and would report success next time. */
        journal->is_broken = true;
        return fail_now(
            journal, "fdatasync, after which changes may be lost; restart the server",
            errno);
    }
    journal->is_unsynced = false;
    return DL_OK;
}

static dl_status
write_changes(dl_journal *journal)
{
    dl_buffer *changes = &journal->changes;

    if (journal->is_broken) {
        return dl_fail_again(&journal->failure);
    }
    if (changes->has_failed) {
        journal->is_broken = true;
        return fail_now(journal, "recording a change", ENOMEM);
    }
    if (!has_changes(journal)) {
        return DL_OK;
    }
    dl_journal_seal_frame(changes, journal->size);
    int error = dl_journal_file_write(journal->fd, dl_buffer_bytes(changes), journal->size);
    if (error != 0) {
        (void)ftruncate(journal->fd, (off_t)journal->size);
        return fail_now(journal, "writing", error);
    }
    journal->has_failed = false;
    journal->state.replies->changes = changes;
    journal->size += changes->size;
    journal->written += changes->size - DL_JOURNAL_FRAME_HEAD;
    journal->frames++;
    if (!journal->is_unsynced) {
        journal->is_unsynced = true;
        journal->unsynced_since = dl_now();
    }
    if (journal->new_fd < 0) {
        return clear_changes(changes);
    }
    error = put_new_frame(journal, changes);
    if (error != 0) {
        give_up_new_file(journal, "writing a new file", error);
        return clear_changes(changes);
    }
    return DL_OK;
}

dl_status
dl_journal_prepare(dl_journal *journal, dl_bytes key)
{
    if (journal->has_failed) {
        DL_TRY(write_changes(journal));
    }
    /* The table provides the memory for values, before it changes anything. */
    return dl_buffer_reserve(&journal->changes, 2 * key.size + RECORDS_SIZE);
}

uint64_t
dl_journal_position(const dl_journal *journal)
{
    return journal->written + journal->changes.size - DL_JOURNAL_FRAME_HEAD;
}

void
dl_journal_relieve(dl_journal *journal)
{
    if (journal->changes.size > CHANGES_LARGE && !journal->has_failed) {
        (void)write_changes(journal);
    }
}

dl_status
dl_journal_commit(dl_journal *journal)
{
    if (has_changes(journal) || journal->is_broken) {
        DL_TRY(write_changes(journal));
    }
    if (journal->sync == DL_JOURNAL_ALWAYS) {
        DL_TRY(sync_file(journal));
    }
    work_on_new_file(journal);
    return DL_OK;
}

bool
dl_journal_has_failed(const dl_journal *journal)
{
    return journal->has_failed;
}

dl_status
dl_journal_fail_again(const dl_journal *journal)
{
    return dl_fail_again(&journal->failure);
}

bool
dl_journal_is_busy(const dl_journal *journal)
{
    return journal->new_fd >= 0 && !journal->has_failed;
}

int64_t
dl_journal_next_wake(const dl_journal *journal)
{
    return journal->sync == DL_JOURNAL_INTERVAL && journal->is_unsynced
                   && !journal->is_broken
               ? journal->unsynced_since + SYNC_INTERVAL
               : INT64_MAX;
}

void
dl_journal_wake(dl_journal *journal, int64_t now)
{
    if (dl_journal_next_wake(journal) <= now) {
        (void)sync_file(journal);
    }
}

void
dl_journal_put_stats(const dl_journal *journal, dl_buffer *text)
{
    dl_stats_put(text, "journal/bytes", journal->size);
    dl_stats_put(text, "journal/writes", journal->frames);
    dl_stats_put(text, "journal/failures", journal->failures);
    dl_stats_put(text, "journal/replaced", journal->replaced);
}

static void
free_journal(dl_journal *journal)
{
    drop_new_file(journal);
    dl_journal_file_close(&journal->fd);
    dl_buffer_fini(&journal->changes);
    free(journal->path);
    free(journal->new_path);
    free(journal);
}

static dl_status
make_journal(const char *path, dl_journal **journal)
{
    dl_journal *made = calloc(1, sizeof *made);
    size_t room = strlen(path) + sizeof NEW_SUFFIX;

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->fd = -1;
    made->new_fd = -1;
    made->path = strdup(path);
    made->new_path = malloc(room);
    if (made->path == NULL || made->new_path == NULL
        || clear_changes(&made->changes) != DL_OK) {
        free_journal(made);
        return dl_fail_no_memory();
    }
    snprintf(made->new_path, room, "%s%s", path, NEW_SUFFIX);
    *journal = made;
    return DL_OK;
}

dl_status
dl_journal_open(const char *path, dl_journal_sync sync, const dl_journal_state *state,
                dl_journal **journal)
{
    dl_journal *made = NULL;

    if (path[0] == '\0') {
        return dl_fail(DL_INVALID, "journal=\"\": the path of a file is needed");
    }
    DL_TRY(make_journal(path, &made));
    made->sync = sync;
    made->state = *state;
    dl_status status = dl_journal_recover(path, state, &made->fd, &made->size);
    if (status != DL_OK) {
        free_journal(made);
        return status;
    }
    /* About the size of a new file. */
    made->base_size = state->table->size < made->size ? state->table->size : made->size;
    /* Left by a server that was killed while it wrote a new file. */
    (void)unlink(made->new_path);
    state->table->changes = &made->changes;
    state->replies->changes = &made->changes;
    *journal = made;
    return DL_OK;
}

void
dl_journal_close(dl_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    if (write_changes(journal) == DL_OK && journal->sync != DL_JOURNAL_NEVER) {
        (void)sync_file(journal);
    }
    dl_log_limit_end(&journal->log, DL_LOG_WARNING, "store server: its journal");
    journal->state.table->changes = NULL;
    journal->state.replies->changes = NULL;
    free_journal(journal);
}
