/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/hash_store.h"

#include <stdlib.h>

#include "base/thread.h"
#include "store/key_list.h"
#include "store/table.h"

typedef struct hash_store {
    dl_store base;
    pthread_mutex_t lock;
    dl_table table;   /* guarded by lock */
    dl_list sleepers; /* guarded by lock */
} hash_store;

/* A thread that waits, on its own stack.  It has a condition of its own, so that a
 * change wakes those whose wait it ended and nobody else. */
typedef struct sleeper {
    dl_waiter waiter;
    dl_list node;
    pthread_cond_t condition;
    bool is_over; /* guarded by the store's lock */
} sleeper;

static hash_store *
lock(dl_store *store)
{
    hash_store *self = (hash_store *)store;

    pthread_mutex_lock(&self->lock);
    return self;
}

/* Wakes those whose wait the change just made has ended. */
static void
unlock(hash_store *self)
{
    dl_waiter *waiter;

    while ((waiter = dl_table_take_ready(&self->table)) != NULL) {
        sleeper *thread = DL_LIST_ENTRY(waiter, sleeper, waiter);
        thread->is_over = true;
        pthread_cond_signal(&thread->condition);
    }
    pthread_mutex_unlock(&self->lock);
}

/* Sleeps until the parked wait is over; with the lock held. */
static dl_status
sleep_until_over(hash_store *self, sleeper *thread, dl_deadline deadline)
{
    dl_status status = DL_OK;

    while (status == DL_OK && !thread->is_over) {
        if (atomic_load(&self->base.is_closed)) {
            status = dl_fail(DL_CLOSED, "this HashStore was closed during the wait");
            break;
        }
        /* Looking once must not cost the kernel's shortest sleep. */
        status = dl_deadline_passed(deadline)
                     ? DL_TIMEOUT
                     : dl_condition_wait(&thread->condition, &self->lock, deadline);
    }
    /* What came at the last moment counts: an item taken from a queue must not vanish. */
    return thread->is_over ? DL_OK : status;
}

/* What a call waits for. */
typedef struct goal {
    dl_wait_kind kind;
    const dl_bytes *keys;
    size_t count;
    dl_blob *item; /* of DL_WAIT_ITEM, once over: the caller's reference */
} goal;

/* With the lock held. */
static dl_status
wait_locked(hash_store *self, goal *wanted, dl_deadline deadline)
{
    sleeper thread = {0};

    DL_TRY(dl_table_wait(&self->table, &thread.waiter, wanted->kind, wanted->keys,
                         wanted->count));
    dl_status status = DL_OK;
    if (thread.waiter.is_parked) {
        dl_condition_init(&thread.condition);
        dl_list_append(&self->sleepers, &thread.node);
        status = sleep_until_over(self, &thread, deadline);
        dl_list_remove(&thread.node);
        dl_table_cancel(&self->table, &thread.waiter);
        pthread_cond_destroy(&thread.condition);
    }
    wanted->item = thread.waiter.item;
    return status;
}

/* Only here the text of a timeout is written: with the lock given back. */
static dl_status
worded(dl_status status, const goal *wanted, dl_deadline deadline)
{
    return status == DL_TIMEOUT
               ? dl_store_fail_timeout("", wanted->keys, wanted->count, deadline)
               : status;
}

/* Ends the caller's reference. */
static dl_status
copy_out(dl_blob *blob, dl_buffer *value)
{
    dl_status status = dl_buffer_set(value, dl_blob_bytes(blob));

    dl_blob_unref(blob);
    return status;
}

static dl_status
hash_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    /* Copied before the lock is taken. */
    dl_blob *blob = dl_blob_copy(value);

    (void)deadline;
    if (blob == NULL) {
        return dl_fail_no_memory();
    }
    hash_store *self = lock(store);
    dl_status status = dl_table_set_blob(&self->table, key, blob);
    unlock(self);
    return status;
}

static dl_status
hash_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    goal wanted = {.kind = DL_WAIT_VALUES, .keys = &key, .count = 1};
    hash_store *self = lock(store);
    dl_blob *blob = dl_table_get(&self->table, key);
    dl_status status = DL_OK;

    /* More than once if it is deleted before this thread comes to run. */
    while (blob == NULL && status == DL_OK) {
        status = wait_locked(self, &wanted, deadline);
        blob = dl_table_get(&self->table, key);
    }
    /* Referenced under the lock, copied without it: large values delay nobody. */
    if (blob != NULL) {
        dl_blob_ref(blob);
    }
    unlock(self);
    return blob != NULL ? copy_out(blob, value) : worded(status, &wanted, deadline);
}

static dl_status
hash_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
         dl_deadline deadline)
{
    hash_store *self = lock(store);
    dl_status status = dl_table_add(&self->table, key, delta, sum);

    (void)deadline;
    unlock(self);
    return status;
}

static dl_status
hash_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                 dl_buffer *held, dl_deadline deadline)
{
    dl_blob *now = NULL;
    hash_store *self = lock(store);
    dl_status status = dl_table_compare_set(&self->table, key, expected, desired, &now);

    (void)deadline;
    if (now != NULL) {
        dl_blob_ref(now);
    }
    unlock(self);
    DL_TRY(status);
    return now == NULL ? dl_buffer_set(held, expected) : copy_out(now, held);
}

static dl_status
hash_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    hash_store *self = lock(store);

    (void)deadline;
    *existed = dl_table_delete(&self->table, key);
    unlock(self);
    return DL_OK;
}

static dl_status
hash_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
           dl_deadline deadline)
{
    hash_store *self = lock(store);

    (void)deadline;
    *exist = dl_table_check(&self->table, keys, count);
    unlock(self);
    return DL_OK;
}

static dl_status
hash_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    goal wanted = {.kind = DL_WAIT_KEYS, .keys = keys, .count = count};
    hash_store *self = lock(store);
    dl_status status = wait_locked(self, &wanted, deadline);

    unlock(self);
    return worded(status, &wanted, deadline);
}

static dl_status
hash_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    hash_store *self = lock(store);

    (void)deadline;
    *count = dl_table_num_keys(&self->table);
    unlock(self);
    return DL_OK;
}

static dl_status
hash_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
               dl_deadline deadline)
{
    dl_buffer names = {0};
    hash_store *self = lock(store);
    dl_status status = dl_key_list_copy(&self->table, &names);

    (void)deadline;
    unlock(self);
    if (status == DL_OK) {
        status = dl_key_list_visit(&names, visit, context);
    }
    dl_buffer_fini(&names);
    return status;
}

static dl_status
hash_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    hash_store *self = lock(store);
    dl_status status = dl_table_append(&self->table, key, value);

    (void)deadline;
    unlock(self);
    return status;
}

static dl_status
hash_multi_get(dl_store *store, const dl_bytes *keys, size_t count, dl_buffer *values,
               dl_deadline deadline)
{
    goal wanted = {.kind = DL_WAIT_VALUES, .keys = keys, .count = count};
    hash_store *self = lock(store);
    dl_status status = wait_locked(self, &wanted, deadline);

    unlock(self);
    DL_TRY(worded(status, &wanted, deadline));
    /* One by one: a key deleted since is waited for again. */
    for (size_t i = 0; i < count; i++) {
        DL_TRY(hash_get(store, keys[i], &values[i], deadline));
    }
    return DL_OK;
}

static dl_status
hash_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
               size_t count, dl_deadline deadline)
{
    hash_store *self = lock(store);
    dl_status status = DL_OK;

    (void)deadline;
    /* Under one lock, so that others see all of them or none. */
    for (size_t i = 0; i < count && status == DL_OK; i++) {
        status = dl_table_set(&self->table, keys[i], values[i]);
    }
    unlock(self);
    return status;
}

static dl_status
hash_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    hash_store *self = lock(store);
    dl_status status = dl_table_queue_push(&self->table, key, value);

    (void)deadline;
    unlock(self);
    return status;
}

static dl_status
hash_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
               dl_deadline deadline)
{
    goal wanted = {.kind = DL_WAIT_ITEM, .keys = &key, .count = 1};
    dl_status status = DL_OK;
    hash_store *self = lock(store);

    if (is_blocking) {
        status = wait_locked(self, &wanted, deadline);
    } else if (dl_table_queue_pop(&self->table, key, &wanted.item) == 0) {
        status = dl_fail(DL_QUEUE_EMPTY, "queue is empty");
    }
    unlock(self);
    return status == DL_OK ? copy_out(wanted.item, value)
                           : worded(status, &wanted, deadline);
}

static dl_status
hash_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    hash_store *self = lock(store);

    (void)deadline;
    *count = dl_table_queue_size(&self->table, key);
    unlock(self);
    return DL_OK;
}

static dl_status
hash_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    (void)deadline;
    *clone = dl_store_ref(store);
    return DL_OK;
}

static void
hash_close(dl_store *store)
{
    hash_store *self = lock(store);

    for (dl_list *node = self->sleepers.next; node != &self->sleepers;
         node = node->next) {
        pthread_cond_signal(&DL_LIST_ENTRY(node, sleeper, node)->condition);
    }
    unlock(self);
}

static void
hash_free(dl_store *store)
{
    hash_store *self = (hash_store *)store;

    /* The fork may have come in the middle of a change by another thread: a child leaves
     * the table alone. */
    if (!dl_store_is_inherited(store)) {
        dl_table_fini(&self->table);
        pthread_mutex_destroy(&self->lock);
    }
    free(self);
}

/* No barrier of its own: the generic one leaves the keys that torch's HashStore does. */
static const dl_store_ops hash_ops = {
    .kind = "HashStore",
    .set = hash_set,
    .get = hash_get,
    .add = hash_add,
    .compare_set = hash_compare_set,
    .delete_key = hash_delete_key,
    .check = hash_check,
    .wait = hash_wait,
    .num_keys = hash_num_keys,
    .list_keys = hash_list_keys,
    .append = hash_append,
    .multi_get = hash_multi_get,
    .multi_set = hash_multi_set,
    .queue_push = hash_queue_push,
    .queue_pop = hash_queue_pop,
    .queue_len = hash_queue_len,
    .clone = hash_clone,
    .close = hash_close,
    .free = hash_free,
    .has_extended_api = true,
};

dl_status
dl_hash_store_new(dl_store **store)
{
    hash_store *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_store_init(&self->base, &hash_ops);
    pthread_mutex_init(&self->lock, NULL);
    dl_table_init(&self->table);
    dl_list_init(&self->sleepers);
    *store = &self->base;
    return DL_OK;
}
