/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/request.h"

/* How long changes may be in the kernel's memory only, with DL_JOURNAL_INTERVAL. */
#define SYNC_INTERVAL DL_SECOND

/* How long after the end of a thread that waits for the disk the server notices it. */
#define SYNC_LOOK (10 * DL_MILLISECOND)

/* Recorded changes of more bytes are written before the end of the turn. */
#define CHANGES_LARGE ((size_t)4 << 20)

/* Memory that the buffer keeps between two turns. */
#define CHANGES_KEPT ((size_t)1 << 20)

/* A file is replaced when it is larger than dl_journal_least_replaced and than GROWTH
 * times its size when it was new: copying then costs a fraction of what the writing has
 * cost.  After a failure it is tried again when that least size more is written. */
#define GROWTH 3

uint64_t dl_journal_least_replaced = (uint64_t)16 << 20;

/* Waits for a disk in a thread of its own, while the server goes on: fdatasync(2) of a
 * large file may take seconds.  Zeroed memory is ready to begin. */
typedef struct sync_run {
    bool is_begun;
    pthread_t thread;
    int fd;
    int error; /* an errno, or 0, once `is_over` */
    atomic_bool is_over;
} sync_run;

struct dl_journal {
    char *path;
    dl_journal_sync sync;
    dl_journal_state state;
    int fd;
    uint64_t size;        /* of the file; what follows is not committed */
    uint64_t replaced_at; /* size at which it is replaced */
    dl_buffer changes;    /* a frame: room for its head, then records */
    uint64_t written;     /* bytes of records that were written */
    bool is_unsynced;     /* written and not on the disk yet, nor being synced */
    int64_t unsynced_since;
    sync_run syncing;
    int64_t look_at; /* while a thread runs */
    bool has_failed; /* `changes` could not be written: `failure` tells why */
    bool is_broken; /* and the disk's contents are unknown: it is never written again */
    dl_error failure;
    dl_log_limit log;
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

/* Leaves the buffer as an empty frame; does not fail once it has any memory. */
static dl_status
clear_changes(dl_buffer *changes)
{
    static const uint8_t head[DL_JOURNAL_FRAME_HEAD];

    if (changes->capacity > CHANGES_KEPT) {
        (void)dl_buffer_resize_capacity(changes, CHANGES_KEPT);
    }
    dl_buffer_clear(changes);
    dl_buffer_put(changes, (dl_bytes){head, sizeof head});
    return dl_buffer_check(changes);
}

static bool
has_changes(const dl_journal *journal)
{
    return journal->changes.size > DL_JOURNAL_FRAME_HEAD;
}

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

static uint64_t
size_to_replace(uint64_t size)
{
    const uint64_t least = dl_journal_least_replaced;

    return size > least / GROWTH ? GROWTH * size : least;
}

/* Replaces a file that has grown; all changes are written before.  If that fails the old
 * one is kept, which is complete. */
static void
replace_if_grown(dl_journal *journal)
{
    int fd;

    if (journal->size <= journal->replaced_at || journal->syncing.is_begun) {
        return;
    }
    int error = dl_journal_replace(journal->path, &journal->state, &fd, &journal->size);
    if (error != 0) {
        dl_log_limited(&journal->log, DL_LOG_WARNING,
                       "store server: the journal %s is not replaced by a shorter one: "
                       "%s.new: %s",
                       journal->path, journal->path, strerror(error));
        journal->replaced_at = journal->size + dl_journal_least_replaced;
        return;
    }
    dl_file_close(journal->fd);
    journal->fd = fd;
    journal->replaced_at = size_to_replace(journal->size);
    journal->is_unsynced = false;
    journal->replaced++;
}

static dl_status
fail_sync(dl_journal *journal, int error)
{
    /* The kernel may have dropped the changes, and would report success next time. */
    journal->is_broken = true;
    return fail_now(journal,
                    "fdatasync, after which changes may be lost; restart the server",
                    error);
}

static dl_status
sync_file(dl_journal *journal)
{
    if (!journal->is_unsynced) {
        return DL_OK;
    }
    if (fdatasync(journal->fd) != 0) {
        return fail_sync(journal, errno);
    }
    journal->is_unsynced = false;
    return DL_OK;
}

static void *
sync_in_thread(void *argument)
{
    sync_run *run = argument;

    run->error = fdatasync(run->fd) == 0 ? 0 : errno;
    atomic_store_explicit(&run->is_over, true, memory_order_release);
    return NULL;
}

static void
begin_sync(dl_journal *journal)
{
    sync_run *run = &journal->syncing;

    *run = (sync_run){.fd = journal->fd, .is_begun = true};
    journal->is_unsynced = false;
    if (dl_thread_start(&run->thread, sync_in_thread, run) != DL_OK) {
        (void)sync_in_thread(run);
        run->is_begun = false;
    }
}

/* Waits for the end of the thread, if there is one. */
static dl_status
end_sync(dl_journal *journal)
{
    sync_run *run = &journal->syncing;

    if (run->is_begun) {
        pthread_join(run->thread, NULL);
    }
    int error = run->error;
    *run = (sync_run){0};
    return error == 0 ? DL_OK : fail_sync(journal, error);
}

static dl_status
write_changes(dl_journal *journal)
{
    dl_buffer *changes = &journal->changes;

    if (journal->is_broken) {
        return dl_rethrow(&journal->failure);
    }
    if (!has_changes(journal)) {
        return DL_OK;
    }
    dl_journal_checksum_frame(changes, journal->size);
    int error = dl_write_at(journal->fd, dl_buffer_bytes(changes), journal->size);
    if (error != 0) {
        int rc = ftruncate(journal->fd, (off_t)journal->size);
        (void)rc; /* the sum of a half-written record is wrong anyway */
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
    return clear_changes(changes);
}

dl_status
dl_journal_prepare(dl_journal *journal, dl_bytes key)
{
    if (journal == NULL) {
        return DL_OK;
    }
    if (journal->has_failed) {
        DL_TRY(write_changes(journal));
    }
    /* The table provides the memory for values, before it changes anything. */
    return dl_change_reserve(&journal->changes, DL_CHANGE_OVERHEAD + key.size);
}

uint64_t
dl_journal_position(const dl_journal *journal)
{
    return journal == NULL
               ? 0
               : journal->written + journal->changes.size - DL_JOURNAL_FRAME_HEAD;
}

void
dl_journal_limit_recorded(dl_journal *journal)
{
    if (journal != NULL && journal->changes.size > CHANGES_LARGE
        && !journal->has_failed) {
        (void)write_changes(journal);
    }
}

dl_status
dl_journal_commit(dl_journal *journal)
{
    if (has_changes(journal) || journal->is_broken) {
        DL_TRY(write_changes(journal));
    }
    replace_if_grown(journal);
    return journal->sync == DL_JOURNAL_ALWAYS ? sync_file(journal) : DL_OK;
}

bool
dl_journal_has_failed(const dl_journal *journal)
{
    return journal != NULL && journal->has_failed;
}

dl_status
dl_journal_rethrow(const dl_journal *journal)
{
    return dl_rethrow(&journal->failure);
}

/* Returns when the next sync is due; INT64_MAX: not before the one that runs has ended,
 * or never. */
static int64_t
next_sync(const dl_journal *journal)
{
    return journal->sync == DL_JOURNAL_INTERVAL && journal->is_unsynced
                   && !journal->syncing.is_begun && !journal->is_broken
               ? journal->unsynced_since + SYNC_INTERVAL
               : INT64_MAX;
}

int64_t
dl_journal_next_wake(const dl_journal *journal)
{
    return journal->syncing.is_begun ? journal->look_at : next_sync(journal);
}

void
dl_journal_wake(dl_journal *journal, int64_t now)
{
    if (journal->look_at <= now) {
        journal->look_at = now + SYNC_LOOK;
    }
    if (atomic_load_explicit(&journal->syncing.is_over, memory_order_acquire)
        && end_sync(journal) == DL_OK && !journal->is_broken && !has_changes(journal)) {
        /* On a slow disk the next sync begins at once, so no commit finds none. */
        replace_if_grown(journal);
    }
    if (next_sync(journal) <= now) {
        begin_sync(journal);
    }
}

void
dl_journal_put_stats(const dl_journal *journal, dl_buffer *text)
{
    dl_reply_put_fact(text, "journal/bytes", journal->size);
    dl_reply_put_fact(text, "journal/writes", journal->frames);
    dl_reply_put_fact(text, "journal/failures", journal->failures);
    dl_reply_put_fact(text, "journal/replaced", journal->replaced);
}

static void
free_journal(dl_journal *journal)
{
    dl_file_close(journal->fd);
    dl_buffer_fini(&journal->changes);
    free(journal->path);
    free(journal);
}

static dl_status
open_journal(dl_journal *journal, const char *path)
{
    const dl_journal_state *state = &journal->state;

    DL_TRY(dl_absolute_path(path, &journal->path));
    if (clear_changes(&journal->changes) != DL_OK) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_journal_recover(journal->path, state, &journal->fd, &journal->size));
    dl_journal_replace_not(journal->path);
    /* A new file would have about the size of the table. */
    journal->replaced_at = size_to_replace(
        state->table->size < journal->size ? state->table->size : journal->size);
    return DL_OK;
}

dl_status
dl_journal_open(const char *path, dl_journal_sync sync, const dl_journal_state *state,
                dl_journal **journal)
{
    if (path[0] == '\0') {
        return dl_fail(DL_INVALID, "journal=\"\": the path of a file is needed");
    }
    dl_journal *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    *made = (dl_journal){
        .sync = sync,
        .state = *state,
        .fd = -1,
    };
    dl_status status = open_journal(made, path);
    if (status != DL_OK) {
        free_journal(made);
        return status;
    }
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
    (void)end_sync(journal);
    if (write_changes(journal) == DL_OK && journal->sync != DL_JOURNAL_NEVER) {
        (void)sync_file(journal);
    }
    journal->state.table->changes = NULL;
    journal->state.replies->changes = NULL;
    free_journal(journal);
}
