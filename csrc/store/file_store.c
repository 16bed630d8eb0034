/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file_store.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/thread.h"
#include "store/execute.h"
#include "store/file_log.h"

/* How long an image is used without the lock if its file looks unchanged: a network file
 * system may cache a file's attributes for seconds unless the file is locked. */
#define TRUSTED (200 * DL_MILLISECOND)

/* The shortest and the longest pause between two checks of a call that waits. */
#define FIRST_PAUSE (DL_MILLISECOND / 20)
#define LAST_PAUSE (10 * DL_MILLISECOND)

#define CHANGES                                                                    \
    (DL_REQUEST(DL_OP_SET) | DL_REQUEST(DL_OP_ADD) | DL_REQUEST(DL_OP_COMPARE_SET) \
     | DL_REQUEST(DL_OP_APPEND) | DL_REQUEST(DL_OP_DELETE_KEY))
#define QUERIES                                                                    \
    (DL_REQUEST(DL_OP_GET) | DL_REQUEST(DL_OP_MULTI_GET) | DL_REQUEST(DL_OP_CHECK) \
     | DL_REQUEST(DL_OP_WAIT) | DL_REQUEST(DL_OP_NUM_KEYS)                         \
     | DL_REQUEST(DL_OP_LIST_KEYS))

/* Every call opens and locks the file, which excludes other processes and other threads
 * alike; then it takes the mutex, which guards the image in memory. */
typedef struct file_store {
    dl_store base;
    int64_t world_size; /* fixed after init */
    pthread_mutex_t lock;
    /* guarded by lock */
    dl_file_log log; /* its path is fixed after init */
    int64_t read_at; /* when the file was read last, by dl_now() */
} file_store;

static file_store *
file_store_of(dl_store *store)
{
    return (file_store *)store;
}

static void
unlock_image(file_store *self, int fd)
{
    pthread_mutex_unlock(&self->lock);
    dl_file_close(fd);
}

/* Locks the file and the image and updates the image.  After a success
 * unlock_image() unlocks both. */
static dl_status
lock_image(file_store *self, dl_file_access access, dl_deadline deadline, int *fd)
{
    int opened;

    DL_TRY(dl_file_open(self->log.path, access, deadline, &opened));
    pthread_mutex_lock(&self->lock);
    dl_status status = dl_file_log_read(&self->log, opened);
    if (status != DL_OK) {
        unlock_image(self, opened);
        return status;
    }
    self->read_at = dl_now();
    *fd = opened;
    return DL_OK;
}

/* Writes what the request has made of its key in the image. */
static dl_status
write_change(file_store *self, int fd, dl_bytes key)
{
    const dl_blob *value = dl_table_get(&self->log.table, key);

    return value == NULL
               ? dl_file_log_write(&self->log, fd, DL_FILE_DELETE, key, DL_LITERAL(""))
               : dl_file_log_write(&self->log, fd, DL_FILE_SET, key,
                                   dl_blob_bytes(value));
}

/* Executes a request that may modify the store, on the image, and appends a record.  If
 * that fails, the image is read again, so that nothing has changed. */
static dl_status
execute_change(file_store *self, const dl_store_request *request, dl_store_reply *reply,
               dl_deadline deadline)
{
    bool is_delete = request->op == DL_OP_DELETE_KEY;
    const dl_table *table = &self->log.table;
    dl_table_reply held = {0};
    int fd;

    DL_TRY(lock_image(self, is_delete ? DL_FILE_UPDATE : DL_FILE_WRITE, deadline, &fd));
    /* A value with another reference is replaced and not modified. */
    dl_blob *before = dl_table_get(table, request->key);
    if (before != NULL) {
        dl_blob_ref(before);
    }
    dl_status status = dl_table_execute(&self->log.table, request, &held);
    if (status == DL_OK && dl_table_get(table, request->key) != before) {
        status = write_change(self, fd, request->key);
    }
    if (status == DL_OK) {
        status = dl_table_hold(table, request, &held, reply);
    }
    unlock_image(self, fd);
    dl_blob_unref(before);
    DL_TRY(status);
    return dl_table_give(&held, request, reply);
}

/* A request that never modifies the store, and its result: DL_NOT_FOUND while keys that
 * it waits for are absent. */
typedef struct query {
    const dl_store_request *request;
    dl_store_reply *reply;
    dl_table_reply held;
    dl_status status;
} query;

static void
query_locked(file_store *self, query *wanted)
{
    wanted->held = (dl_table_reply){0};
    wanted->status = dl_table_execute(&self->log.table, wanted->request, &wanted->held);
    if (wanted->status == DL_OK) {
        wanted->status = dl_table_hold(&self->log.table, wanted->request, &wanted->held,
                                       wanted->reply);
    }
    if (wanted->request->op == DL_OP_NUM_KEYS) {
        /* torch counts the counters of members, too. */
        wanted->held.number += self->log.has_references + self->log.has_cleanups;
    }
}

static dl_status
read_and_query(file_store *self, query *wanted, dl_deadline deadline)
{
    int fd;

    DL_TRY(lock_image(self, DL_FILE_READ, deadline, &fd));
    query_locked(self, wanted);
    unlock_image(self, fd);
    return DL_OK;
}

/* Checks once for a call that waits.  Between checks it holds nothing and delays no
 * other call, and it locks the file only if that seems to have changed: the lock is not
 * fair, and many calls that share it again and again would starve writers. */
static dl_status
check_again(file_store *self, query *wanted, dl_deadline deadline)
{
    if (atomic_load(&self->base.is_closed)) {
        return dl_fail(DL_CLOSED, "this FileStore was closed during the wait");
    }
    pthread_mutex_lock(&self->lock);
    bool is_current =
        dl_now() - self->read_at < TRUSTED && dl_file_log_is_current(&self->log);
    if (is_current) {
        query_locked(self, wanted);
    }
    pthread_mutex_unlock(&self->lock);
    return is_current ? DL_OK : read_and_query(self, wanted, deadline);
}

static dl_status
fail_absent_keys(file_store *self, const query *wanted, dl_deadline deadline)
{
    size_t count;
    const dl_bytes *keys = dl_request_keys(wanted->request, &count);

    return dl_store_fail_without(&self->base, "", keys, count, deadline);
}

/* Sleeps before the next check: for an eighth of the time waited so far, so that a short
 * wait ends soon after its key is written and a long one costs little. */
static dl_status
pause_since(int64_t begin, dl_deadline deadline)
{
    int64_t pause = (dl_now() - begin) / 8;

    pause = pause < FIRST_PAUSE ? FIRST_PAUSE : pause > LAST_PAUSE ? LAST_PAUSE : pause;
    return dl_sleep_until(dl_deadline_earlier(deadline, pause));
}

/* Does not use inotify(7): closing an instance takes up to 20 ms, a user has 128 of them,
 * and changes by other hosts cause no event. */
static dl_status
check_until_found(file_store *self, query *wanted, dl_deadline deadline)
{
    int64_t begin = dl_now();

    for (;;) {
        /* Read before the check, so that the last check comes after the deadline. */
        bool has_passed = dl_deadline_passed(deadline);
        DL_TRY(check_again(self, wanted, deadline));
        if (wanted->status != DL_NOT_FOUND) {
            return DL_OK;
        }
        if (has_passed) {
            return fail_absent_keys(self, wanted, deadline);
        }
        DL_TRY(pause_since(begin, deadline));
    }
}

static dl_status
file_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
             dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    query wanted = {.request = request, .reply = reply};

    if ((CHANGES & DL_REQUEST(request->op)) != 0) {
        return execute_change(self, request, reply, deadline);
    }
    DL_TRY(read_and_query(self, &wanted, deadline));
    if (wanted.status == DL_NOT_FOUND) {
        DL_TRY(dl_deadline_passed(deadline)
                   ? fail_absent_keys(self, &wanted, deadline)
                   : check_until_found(self, &wanted, deadline));
    }
    DL_TRY(wanted.status);
    return dl_table_give(&wanted.held, request, reply);
}

/* Members are counted in the file itself, so that the last one can tell that it is. */
static void
file_close(dl_store *store)
{
    file_store *self = file_store_of(store);
    int fd;

    /* A failure cannot be reported; the file then merely stays behind. */
    if (lock_image(self, DL_FILE_UPDATE, dl_deadline_after(0), &fd) != DL_OK) {
        return;
    }
    if (fd >= 0) {
        int64_t cleanups = self->log.cleanup_count + 1;
        int64_t references = self->log.reference_count - 1;
        dl_status status =
            dl_file_log_count(&self->log, fd, DL_FILE_CLEANUPS, cleanups);
        if (status == DL_OK) {
            status = dl_file_log_count(&self->log, fd, DL_FILE_REFERENCES, references);
        }
        if (status == DL_OK && references == 0 && self->world_size >= 0
            && cleanups >= self->world_size) {
            unlink(self->log.path);
        }
    }
    unlock_image(self, fd);
}

static void
file_free(dl_store *store)
{
    file_store *self = file_store_of(store);

    /* In a child, the fork may have interrupted a change by another thread. */
    if (!dl_store_is_inherited(store)) {
        dl_file_log_fini(&self->log);
        pthread_mutex_destroy(&self->lock);
    }
    free(self);
}

static dl_status file_clone(dl_store *store, dl_store **clone, dl_deadline deadline);

/* multi_set and barrier use the generic versions, which leave the same records in the
 * file as torch does; the format has no queues. */
static const dl_store_ops file_ops = {
    .kind = "FileStore",
    .requests = CHANGES | QUERIES,
    .execute = file_execute,
    .clone = file_clone,
    .close = file_close,
    .free = file_free,
};

static dl_status
open_member(const char *path, int64_t world_size, dl_store **store,
            dl_deadline deadline)
{
    file_store *self = calloc(1, sizeof *self);
    int fd;

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_store_init(&self->base, &file_ops);
    pthread_mutex_init(&self->lock, NULL);
    self->world_size = world_size;
    dl_status status = dl_file_log_init(&self->log, path);
    if (status == DL_OK) {
        status = lock_image(self, DL_FILE_WRITE, deadline, &fd);
    }
    if (status == DL_OK) {
        status = dl_file_log_count(&self->log, fd, DL_FILE_REFERENCES,
                                   self->log.reference_count + 1);
        unlock_image(self, fd);
    }
    if (status != DL_OK) {
        file_free(&self->base);
        return status;
    }
    *store = &self->base;
    return DL_OK;
}

static dl_status
file_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    file_store *self = file_store_of(store);

    DL_TRY(open_member(self->log.path, self->world_size, clone, deadline));
    dl_store_set_timeout(*clone, dl_store_timeout(store));
    return DL_OK;
}

dl_status
dl_file_store_new(const char *path, int64_t world_size, dl_store **store)
{
    return open_member(path, world_size, store,
                       dl_deadline_after(DL_STORE_DEFAULT_TIMEOUT));
}

const char *
dl_file_store_path(const dl_store *store)
{
    return ((const file_store *)store)->log.path;
}
