/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file_store.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "store/counter.h"
#include "store/file_log.h"
#include "store/file_watch.h"
#include "store/key_list.h"

/* So long a picture is trusted whose file looks unchanged: a network's file system may
 * keep what it knows of a file for seconds, unless it is locked. */
#define TRUSTED (200 * DL_MILLISECOND)

/* Every call opens the file anew and locks it, which keeps out other processes and other
 * threads alike; only then it takes the mutex, for the picture in memory. */
typedef struct file_store {
    dl_store base;
    int64_t world_size; /* fixed after init */
    pthread_mutex_t lock;
    /* guarded by lock */
    dl_file_log log; /* its path is fixed after init */
    int64_t read_at; /* dl_now() */
    bool is_reading; /* a waiting call is about to read the file */
    pthread_cond_t has_read;
} file_store;

static file_store *
file_store_of(dl_store *store)
{
    return (file_store *)store;
}

static void
leave(file_store *self, int fd)
{
    pthread_mutex_unlock(&self->lock);
    dl_file_close(fd);
}

/* Locks file and picture and brings the picture up to date.  On success leave() ends
 * it. */
static dl_status
enter(file_store *self, dl_file_access access, dl_deadline deadline, int *fd)
{
    int opened;

    DL_TRY(dl_file_open(self->log.path, access, deadline, &opened));
    pthread_mutex_lock(&self->lock);
    dl_status status = dl_file_log_read(&self->log, opened);
    if (status != DL_OK) {
        leave(self, opened);
        return status;
    }
    self->read_at = dl_now();
    *fd = opened;
    return DL_OK;
}

static dl_status
file_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    int fd;

    DL_TRY(enter(self, DL_FILE_WRITE, deadline, &fd));
    dl_status status = dl_file_log_write(&self->log, fd, DL_FILE_SET, key, value);
    leave(self, fd);
    return status;
}

static dl_status
file_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
         dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    char text[DL_COUNTER_TEXT_SIZE + 1];
    int64_t total = delta;
    int fd;

    DL_TRY(enter(self, DL_FILE_WRITE, deadline, &fd));
    const dl_blob *held = dl_table_get(&self->log.table, key);
    dl_status status = DL_OK;
    if (held != NULL) {
        status = dl_counter_add(key, dl_blob_bytes(held), delta, &total);
    }
    if (status == DL_OK) {
        status = dl_file_log_write(&self->log, fd, DL_FILE_SET, key,
                                   dl_counter_format(total, text));
    }
    leave(self, fd);
    DL_TRY(status);
    *sum = total;
    return DL_OK;
}

static dl_status
file_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                 dl_buffer *held, dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    int fd;

    DL_TRY(enter(self, DL_FILE_WRITE, deadline, &fd));
    const dl_blob *now = dl_table_get(&self->log.table, key);
    /* An absent key answers what was expected, as torch's stores do. */
    dl_bytes current = now == NULL ? expected : dl_blob_bytes(now);
    bool is_match =
        now == NULL ? expected.size == 0 : dl_bytes_equal(current, expected);
    dl_status status = dl_buffer_set(held, is_match ? desired : current);
    if (status == DL_OK && is_match) {
        status = dl_file_log_write(&self->log, fd, DL_FILE_SET, key, desired);
    }
    leave(self, fd);
    return status;
}

/* Not by the generic loop of compare_set: under the lock no append can be lost. */
static dl_status
file_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    dl_buffer longer = {0};
    int fd;

    DL_TRY(enter(self, DL_FILE_WRITE, deadline, &fd));
    const dl_blob *held = dl_table_get(&self->log.table, key);
    if (held != NULL) {
        dl_buffer_put(&longer, dl_blob_bytes(held));
    }
    dl_buffer_put(&longer, value);
    dl_status status = dl_buffer_check(&longer);
    if (status == DL_OK) {
        status = dl_file_log_write(&self->log, fd, DL_FILE_SET, key,
                                   dl_buffer_bytes(&longer));
    }
    leave(self, fd);
    dl_buffer_fini(&longer);
    return status;
}

static dl_status
file_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    int fd;

    DL_TRY(enter(self, DL_FILE_UPDATE, deadline, &fd));
    bool exists = dl_table_get(&self->log.table, key) != NULL;
    dl_status status = DL_OK;
    if (exists) {
        status = dl_file_log_write(&self->log, fd, DL_FILE_DELETE, key, DL_LITERAL(""));
    }
    leave(self, fd);
    DL_TRY(status);
    *existed = exists;
    return DL_OK;
}

static dl_status
file_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
           dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    int fd;

    DL_TRY(enter(self, DL_FILE_READ, deadline, &fd));
    *exist = dl_table_check(&self->log.table, keys, count);
    leave(self, fd);
    return DL_OK;
}

/* What a waiting call looks for. */
typedef struct wanted {
    const dl_bytes *keys;
    size_t count;
    dl_blob **value; /* if not NULL: of the one key, referenced */
    bool is_there;
} wanted;

static void
look_locked(file_store *self, wanted *goal)
{
    goal->is_there = dl_table_check(&self->log.table, goal->keys, goal->count);
    if (goal->is_there && goal->value != NULL) {
        *goal->value = dl_blob_ref(dl_table_get(&self->log.table, goal->keys[0]));
    }
}

static bool
is_current_locked(const file_store *self)
{
    return dl_now() - self->read_at < TRUSTED && dl_file_log_is_current(&self->log);
}

/* Until the picture is up to date, or up to this call to make it so. */
static dl_status
await_reader_locked(file_store *self, dl_deadline deadline, bool *is_reader)
{
    bool is_short = dl_deadline_left(deadline) < DL_FILE_LOCK_PATIENCE;
    dl_deadline last = is_short ? dl_deadline_after(DL_FILE_LOCK_PATIENCE) : deadline;

    *is_reader = false;
    while (!is_current_locked(self)) {
        if (!self->is_reading) {
            self->is_reading = true;
            *is_reader = true;
            return DL_OK;
        }
        dl_status status = dl_condition_wait(&self->has_read, &self->lock, last);
        if (status == DL_TIMEOUT) {
            return dl_file_fail_locked(self->log.path);
        }
        DL_TRY(status);
    }
    return DL_OK;
}

static dl_status
read_and_look(file_store *self, wanted *goal, dl_deadline deadline)
{
    int fd;

    DL_TRY(enter(self, DL_FILE_READ, deadline, &fd));
    look_locked(self, goal);
    leave(self, fd);
    return DL_OK;
}

/* One look of a call that waits.  Between looks nothing is held, so that it delays nobody.
 * Of all waiting calls one at a time locks the file, and only if it has changed: the lock
 * is not fair, and many that share it again and again would keep out who wants to write. */
static dl_status
look_again(file_store *self, wanted *goal, dl_deadline deadline)
{
    bool is_reader;

    if (atomic_load(&self->base.is_closed)) {
        return dl_fail(DL_CLOSED, "this FileStore was closed during the wait");
    }
    pthread_mutex_lock(&self->lock);
    dl_status status = await_reader_locked(self, deadline, &is_reader);
    if (status == DL_OK && !is_reader) {
        look_locked(self, goal);
    }
    pthread_mutex_unlock(&self->lock);
    if (status != DL_OK || !is_reader) {
        return status;
    }
    status = read_and_look(self, goal, deadline);
    pthread_mutex_lock(&self->lock);
    self->is_reading = false;
    pthread_cond_broadcast(&self->has_read);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static dl_status
watch_for(file_store *self, wanted *goal, dl_deadline deadline)
{
    dl_file_watch watch;
    dl_status status = DL_OK;

    dl_file_watch_init(&watch, self->log.path);
    while (status == DL_OK) {
        /* Asked before the look, so that the last look comes after the deadline. */
        bool has_passed = dl_deadline_passed(deadline);
        dl_file_watch_arm(&watch);
        status = look_again(self, goal, deadline);
        if (status == DL_OK && goal->is_there) {
            break;
        }
        if (status == DL_OK) {
            status = has_passed
                         ? dl_store_fail_timeout("", goal->keys, goal->count, deadline)
                         : dl_file_watch_wait(&watch, deadline);
        }
    }
    dl_file_watch_fini(&watch);
    return status;
}

/* The first look goes without a watch: mostly the key is there already. */
static dl_status
wait_for(file_store *self, wanted *goal, dl_deadline deadline)
{
    DL_TRY(read_and_look(self, goal, deadline));
    if (goal->is_there) {
        return DL_OK;
    }
    return dl_deadline_passed(deadline)
               ? dl_store_fail_timeout("", goal->keys, goal->count, deadline)
               : watch_for(self, goal, deadline);
}

static dl_status
file_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    wanted goal = {.keys = keys, .count = count};

    return wait_for(file_store_of(store), &goal, deadline);
}

static dl_status
file_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    dl_blob *blob = NULL;
    wanted goal = {.keys = &key, .count = 1, .value = &blob};

    DL_TRY(wait_for(file_store_of(store), &goal, deadline));
    dl_status status = dl_buffer_set(value, dl_blob_bytes(blob));
    dl_blob_unref(blob);
    return status;
}

static dl_status
file_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    int fd;

    DL_TRY(enter(self, DL_FILE_READ, deadline, &fd));
    *count = dl_table_num_keys(&self->log.table);
    leave(self, fd);
    return DL_OK;
}

static dl_status
file_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
               dl_deadline deadline)
{
    file_store *self = file_store_of(store);
    dl_buffer names = {0};
    int fd;

    DL_TRY(enter(self, DL_FILE_READ, deadline, &fd));
    dl_status status = dl_key_list_copy(&self->log.table, &names);
    leave(self, fd);
    if (status == DL_OK) {
        status = dl_key_list_visit(&names, visit, context);
    }
    dl_buffer_fini(&names);
    return status;
}

/* Members are counted in the file itself, so that the last one knows that it is. */
static dl_status
count_in(file_store *self, int fd, const char *counter, int64_t number)
{
    char text[DL_COUNTER_TEXT_SIZE + 1];

    return dl_file_log_write(&self->log, fd, counter, DL_LITERAL(""),
                             dl_counter_format(number, text));
}

static void
file_close(dl_store *store)
{
    file_store *self = file_store_of(store);
    int fd;

    /* Nobody can be told of failures; the file is then merely left behind. */
    if (enter(self, DL_FILE_UPDATE, dl_deadline_after(0), &fd) != DL_OK) {
        return;
    }
    if (fd >= 0) {
        int64_t cleanups = self->log.cleanup_count + 1;
        int64_t references = self->log.reference_count - 1;
        dl_status status = count_in(self, fd, DL_FILE_CLEANUPS, cleanups);
        if (status == DL_OK) {
            status = count_in(self, fd, DL_FILE_REFERENCES, references);
        }
        if (status == DL_OK && references == 0 && self->world_size >= 0
            && cleanups >= self->world_size) {
            unlink(self->log.path);
        }
    }
    leave(self, fd);
}

static void
file_free(dl_store *store)
{
    file_store *self = file_store_of(store);

    /* The fork may have come in the middle of a change by another thread. */
    if (!dl_store_is_inherited(store)) {
        dl_file_log_fini(&self->log);
        pthread_cond_destroy(&self->has_read);
        pthread_mutex_destroy(&self->lock);
    }
    free(self);
}

static dl_status
file_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    file_store *self = file_store_of(store);

    (void)deadline;
    DL_TRY(dl_file_store_new(self->log.path, self->world_size, clone));
    dl_store_set_timeout(*clone, dl_store_timeout(store));
    return DL_OK;
}

/* multi_get, multi_set and barrier are the generic ones, which leave in the file what
 * torch leaves; its format has no queues. */
static const dl_store_ops file_ops = {
    .kind = "FileStore",
    .set = file_set,
    .get = file_get,
    .add = file_add,
    .compare_set = file_compare_set,
    .delete_key = file_delete_key,
    .check = file_check,
    .wait = file_wait,
    .num_keys = file_num_keys,
    .list_keys = file_list_keys,
    .append = file_append,
    .clone = file_clone,
    .close = file_close,
    .free = file_free,
};

static dl_status
register_member(file_store *self)
{
    int fd;

    DL_TRY(enter(self, DL_FILE_WRITE, dl_store_deadline(&self->base), &fd));
    dl_status status =
        count_in(self, fd, DL_FILE_REFERENCES, self->log.reference_count + 1);
    leave(self, fd);
    return status;
}

dl_status
dl_file_store_new(const char *path, int64_t world_size, dl_store **store)
{
    file_store *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_store_init(&self->base, &file_ops);
    pthread_mutex_init(&self->lock, NULL);
    dl_condition_init(&self->has_read);
    self->world_size = world_size;
    dl_status status = dl_file_log_init(&self->log, path);
    if (status == DL_OK) {
        status = register_member(self);
    }
    if (status != DL_OK) {
        file_free(&self->base);
        return status;
    }
    *store = &self->base;
    return DL_OK;
}

const char *
dl_file_store_path(const dl_store *store)
{
    return ((const file_store *)store)->log.path;
}
