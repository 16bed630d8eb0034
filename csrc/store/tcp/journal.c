/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "store/stats.h"

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

/* The lock of a server that was killed lasts until the processes that it was just
 * starting have executed their programs. */
#define LOCK_TRIES 20
#define LOCK_PAUSE (10 * DL_MILLISECOND)

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

static dl_status
fail_system(const dl_journal *journal, const char *what, int error)
{
    return dl_fail(DL_BACKEND, "the store's journal %s: %s: %s", journal->path, what,
                   strerror(error));
}

/* Writes all bytes at `offset`; returns 0 or an errno.  Does not use O_APPEND, so that
 * the next try overwrites what a failed one has written. */
static int
write_at(int fd, dl_bytes bytes, uint64_t offset)
{
    while (bytes.size > 0) {
        ssize_t size = pwrite(fd, bytes.data, bytes.size, (off_t)offset);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size <= 0) {
            return size < 0 ? errno : ENOSPC;
        }
        bytes.data += size;
        bytes.size -= (size_t)size;
        offset += (uint64_t)size;
    }
    return 0;
}

static void
close_file(int *fd)
{
    if (*fd >= 0) {
        /* A process that another thread is about to start may have the file open until
         * it executes its program, and the lock with it. */
        (void)flock(*fd, LOCK_UN);
        dl_fork_release(*fd);
        close(*fd);
        *fd = -1;
    }
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
        close_file(&journal->new_fd);
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
        error = write_at(journal->new_fd, dl_buffer_bytes(frame), journal->new_size);
        journal->new_size += frame->size;
    }
    return error == 0 && clear_changes(frame) != DL_OK ? ENOMEM : error;
}

/* Opens a file that only this user may use, without following a symbolic link. */
static int
open_own(const char *path, int flags)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

    if (fd >= 0) {
        dl_fork_guard(fd);
    }
    return fd;
}

static void
begin_new_file(dl_journal *journal)
{
    dl_buffer head = {0};

    (void)unlink(journal->new_path);
    journal->new_fd = open_own(journal->new_path, O_CREAT | O_EXCL);
    if (journal->new_fd < 0 || flock(journal->new_fd, LOCK_EX | LOCK_NB) != 0) {
        give_up_new_file(journal, "opening a new file", errno);
        return;
    }
    dl_table_cursor_begin(journal->state.table, &journal->cursor);
    journal->has_names = false;
    dl_journal_put_head(&head, journal->state.identity);
    int error =
        head.has_failed ? ENOMEM : write_at(journal->new_fd, dl_buffer_bytes(&head), 0);
    journal->new_size = head.size;
    dl_buffer_fini(&head);
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

/* Makes the rename lasting. */
static void
sync_folder(const dl_journal *journal)
{
    char *folder = strdup(journal->path);
    char *slash = folder == NULL ? NULL : strrchr(folder, '/');

    if (slash != NULL) {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    const char *name = slash == NULL ? "." : folder;
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
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
        sync_folder(journal);
    }
    dl_table_cursor_end(&journal->cursor);
    close_file(&journal->fd);
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
    dl_status status = fail_system(journal, what, error);

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
    int error = write_at(journal->fd, dl_buffer_bytes(changes), journal->size);
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

/* Opening. */

/* Takes the lock.  The file may have been replaced since it was opened, by a server that
 * has ended meanwhile: `*is_current` tells whether it still has its name. */
static dl_status
lock_file(const dl_journal *journal, bool *is_current)
{
    struct stat opened, named;

    int tries = LOCK_TRIES;
    while (flock(journal->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && --tries > 0) {
            DL_TRY(dl_sleep_until(dl_deadline_after(LOCK_PAUSE)));
            continue;
        }
        return errno == EWOULDBLOCK
                   ? dl_fail(DL_INVALID,
                             "the store's journal %s is in use by another server; end "
                             "that, or give each server a file of its own",
                             journal->path)
                   : fail_system(journal, "flock", errno);
    }
    if (fstat(journal->fd, &opened) != 0) {
        return fail_system(journal, "fstat", errno);
    }
    *is_current = lstat(journal->path, &named) == 0 && named.st_ino == opened.st_ino
                  && named.st_dev == opened.st_dev;
    return DL_OK;
}

static dl_status
check_file(const dl_journal *journal, uint64_t *size)
{
    struct stat file;

    if (fstat(journal->fd, &file) != 0) {
        return fail_system(journal, "fstat", errno);
    }
    if (!S_ISREG(file.st_mode)) {
        return dl_fail(DL_INVALID, "the store's journal %s is not a regular file",
                       journal->path);
    }
    if (file.st_uid != geteuid() || (file.st_mode & 077) != 0) {
        return dl_fail(DL_INVALID,
                       "the store's journal %s is open to others (mode %03o, user %d); "
                       "it must belong to this user and have mode 600: chmod 600 %s",
                       journal->path, (unsigned)file.st_mode & 0777, (int)file.st_uid,
                       journal->path);
    }
    *size = (uint64_t)file.st_size;
    return DL_OK;
}

static dl_status
open_file(dl_journal *journal, uint64_t *size)
{
    bool is_current = false;

    while (!is_current) {
        close_file(&journal->fd);
        journal->fd = open_own(journal->path, O_CREAT);
        if (journal->fd < 0) {
            return errno == ELOOP
                       ? dl_fail(DL_INVALID,
                                 "the store's journal %s is a symbolic link, which is "
                                 "not followed; give the path of the file itself",
                                 journal->path)
                       : fail_system(journal, "opening it", errno);
        }
        DL_TRY(check_file(journal, size));
        DL_TRY(lock_file(journal, &is_current));
    }
    return check_file(journal, size);
}

/* A value that has ended already is not removed before all records are applied, because
 * the following records were made while it existed. */
static dl_status
apply_end(dl_table *table, const dl_change *change)
{
    int64_t at = dl_change_end(change);

    if (at < 0) {
        return dl_fail(DL_BACKEND, "the end of a value is malformed");
    }
    return dl_table_end_at(table, change->key, at);
}

static dl_status
apply(void *context, const dl_change *change)
{
    const dl_journal_state *state = context;

    if (change->kind == DL_CHANGE_END) {
        return apply_end(state->table, change);
    }
    return change->kind == DL_CHANGE_REPLY || change->kind == DL_CHANGE_FORGET
               ? dl_replies_apply(state->replies, state->table, change)
               : dl_table_apply(state->table, change);
}

/* Applies the file's contents.  It is mapped and not read, since it may be as large as
 * the store. */
static dl_status
read_file(dl_journal *journal, uint64_t size, dl_journal_contents *contents)
{
    if (size == 0) {
        *contents = (dl_journal_contents){0};
        return DL_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, journal->fd, 0);
    if (data == MAP_FAILED) {
        return fail_system(journal, "mapping it", errno);
    }
    dl_status status =
        dl_journal_read((dl_bytes){data, size}, apply, &journal->state, contents);
    munmap(data, size);
    return status == DL_OK ? DL_OK
                           : dl_fail_while("the store's journal %s", journal->path);
}

/* Reads the file as it was written: what was within the limits of the table then may
 * exceed them while values that have ended are still there, and must not be refused
 * in a server with lower limits either. */
static dl_status
read_within_no_limits(dl_journal *journal, uint64_t size, dl_journal_contents *contents)
{
    dl_table *table = journal->state.table;
    const uint64_t key_limit = table->key_limit, size_limit = table->size_limit;
    int work = INT_MAX;

    table->key_limit = 0;
    table->size_limit = 0;
    dl_status status = read_file(journal, size, contents);
    table->key_limit = key_limit;
    table->size_limit = size_limit;
    dl_table_advance(table, dl_now());
    (void)dl_table_expire(table, table->now, &work);
    return status;
}

/* Writes the head of a new file. */
static dl_status
make_head(dl_journal *journal)
{
    dl_buffer head = {0};

    dl_journal_put_head(&head, journal->state.identity);
    int error =
        head.has_failed ? ENOMEM : write_at(journal->fd, dl_buffer_bytes(&head), 0);
    journal->size = head.size;
    dl_buffer_fini(&head);
    if (error == 0 && journal->sync != DL_JOURNAL_NEVER
        && fdatasync(journal->fd) != 0) {
        error = errno;
    }
    if (error != 0) {
        return fail_system(journal, "writing its head", error);
    }
    if (journal->sync != DL_JOURNAL_NEVER) {
        sync_folder(journal);
    }
    return DL_OK;
}

static dl_status
recover(dl_journal *journal)
{
    dl_journal_contents contents;
    uint64_t size;

    DL_TRY(open_file(journal, &size));
    DL_TRY(read_within_no_limits(journal, size, &contents));
    if (contents.is_torn) {
        dl_log(DL_LOG_WARNING,
               "store server: the journal %s ends in the middle of a write: its last "
               "%" PRIu64 " bytes, of which no client had a reply, are dropped",
               journal->path, size - contents.size);
        if (ftruncate(journal->fd, (off_t)contents.size) != 0) {
            return fail_system(journal, "truncating it", errno);
        }
    }
    if (contents.size == 0) {
        return make_head(journal);
    }
    memcpy(journal->state.identity, contents.identity, DL_JOURNAL_IDENTITY_SIZE);
    journal->size = contents.size;
    /* About the size of a new file. */
    size_t held = journal->state.table->size;
    journal->base_size = held < journal->size ? held : journal->size;
    return DL_OK;
}

static void
free_journal(dl_journal *journal)
{
    drop_new_file(journal);
    close_file(&journal->fd);
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
    dl_status status = recover(made);
    if (status != DL_OK) {
        free_journal(made);
        return status;
    }
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
