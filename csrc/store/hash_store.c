/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/hash_store.h"

#include <limits.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "store/execute.h"

typedef struct hash_store {
    dl_store base;
    pthread_mutex_t lock;
    dl_table table;   /* guarded by lock */
    dl_list sleepers; /* guarded by lock */
} hash_store;

/* A waiting thread, on its own stack.  It has a condition of its own, so that a change
 * wakes only threads whose wait it has ended. */
typedef struct sleeper {
    dl_waiter waiter;
    dl_list node;
    pthread_cond_t condition;
    bool is_over; /* guarded by the store's lock */
} sleeper;

static hash_store *
lock_store(dl_store *store)
{
    hash_store *self = (hash_store *)store;

    if (pthread_mutex_trylock(&self->lock) != 0) {
        dl_blocking_begin();
        pthread_mutex_lock(&self->lock);
    }
    return self;
}

/* Unlocks, after waking the threads whose wait the last change has ended. */
static void
unlock_store(hash_store *self)
{
    dl_waiter *waiter;

    while ((waiter = dl_table_take_ready(&self->table)) != NULL) {
        sleeper *thread = DL_LIST_ENTRY(waiter, sleeper, waiter);
        thread->is_over = true;
        pthread_cond_signal(&thread->condition);
    }
    pthread_mutex_unlock(&self->lock);
}

/* Sleeps until the parked wait has ended.  Called with the lock held. */
static dl_status
sleep_until_over(hash_store *self, sleeper *thread, dl_deadline deadline)
{
    dl_status status = DL_OK;

    while (status == DL_OK && !thread->is_over) {
        if (atomic_load(&self->base.is_closed)) {
            status = dl_fail(DL_CLOSED, "this HashStore was closed during the wait");
            break;
        }
        /* A zero timeout must not cost the kernel's shortest sleep. */
        status = dl_deadline_passed(deadline)
                     ? DL_TIMEOUT
                     : dl_condition_wait(&thread->condition, &self->lock, deadline);
    }
    /* A wait that ended at the last moment counts.  But an interrupt must not be lost: an
     * exception is already set in Python. */
    return thread->is_over && status != DL_INTERRUPTED ? DL_OK : status;
}

/* Waits for what the request lacks, with the lock held. */
static dl_status
wait_locked(hash_store *self, const dl_store_request *request, dl_deadline deadline)
{
    sleeper thread = {0};
    size_t count;
    const dl_bytes *keys = dl_request_keys(request, &count);
    dl_wait_kind kind = request->op == DL_OP_WAIT        ? DL_WAIT_KEYS
                        : request->op == DL_OP_QUEUE_POP ? DL_WAIT_ITEMS
                                                         : DL_WAIT_VALUES;

    DL_TRY(dl_table_wait(&self->table, &thread.waiter, kind, keys, count));
    dl_status status = DL_OK;
    if (thread.waiter.is_parked) {
        dl_condition_init(&thread.condition);
        dl_list_append(&self->sleepers, &thread.node);
        status = sleep_until_over(self, &thread, deadline);
        dl_list_remove(&thread.node);
        dl_table_cancel(&self->table, &thread.waiter);
        pthread_cond_destroy(&thread.condition);
        if (status == DL_OK && thread.waiter.status != DL_OK) {
            return dl_fail_no_memory(); /* noticed by the thread that set a key */
        }
    }
    return status;
}

/* Executes the request, waiting as needed.  Called with the lock held. */
static dl_status
execute_locked(hash_store *self, const dl_store_request *request, dl_table_reply *held,
               dl_store_reply *reply, dl_deadline deadline)
{
    dl_status status = dl_table_execute(&self->table, request, held);
    if (status == DL_QUEUE_EMPTY && !request->is_blocking) {
        return status;
    }
    while (status == DL_NOT_FOUND || status == DL_QUEUE_EMPTY) {
        status = wait_locked(self, request, deadline);
        if (status != DL_OK || request->op == DL_OP_WAIT) {
            return status;
        }
        /* Waits again if a key was deleted, or another thread has taken the item, before
         * this thread ran. */
        status = dl_table_execute(&self->table, request, held);
    }
    return status == DL_OK ? dl_table_hold(&self->table, request, held, reply) : status;
}

/* Requests with less than this many keys or bytes take a few microseconds at most. */
#define BRIEF_COUNT 16
#define BRIEF_SIZE ((size_t)64 << 10)

/* Returns whether the request takes long even if it need not wait. */
static bool
takes_long(const dl_store_request *request)
{
    return request->count >= BRIEF_COUNT || request->value.size >= BRIEF_SIZE
           || request->expected.size >= BRIEF_SIZE || request->op == DL_OP_APPEND
           || request->op == DL_OP_NUM_KEYS || request->op == DL_OP_LIST_KEYS;
}

static dl_status
hash_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
             dl_deadline deadline)
{
    dl_table_reply held = {0};
    dl_store_request set;
    size_t count;
    const dl_bytes *keys = dl_request_keys(request, &count);

    if (takes_long(request)) {
        dl_blocking_begin();
        /* Copied before the lock is taken, so that a large value delays no other
         * call. */
        if (request->op == DL_OP_SET) {
            set = *request;
            set.blob = dl_blob_copy(request->value);
            if (set.blob == NULL) {
                return dl_fail_no_memory();
            }
            request = &set;
        }
    }
    hash_store *self = lock_store(store);
    dl_status status = execute_locked(self, request, &held, reply, deadline);
    unlock_store(self);
    /* Texts are written without the lock. */
    if (status == DL_TIMEOUT) {
        return dl_store_fail_without(store, "", keys, count, deadline);
    }
    DL_TRY(status == DL_QUEUE_EMPTY ? dl_fail(DL_QUEUE_EMPTY, "queue is empty")
                                    : status);
    if (held.value != NULL && dl_blob_bytes(held.value).size >= BRIEF_SIZE) {
        dl_blocking_begin();
    }
    return dl_table_give(&held, request, reply);
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
    hash_store *self = lock_store(store);

    for (dl_list *node = self->sleepers.next; node != &self->sleepers;
         node = node->next) {
        pthread_cond_signal(&DL_LIST_ENTRY(node, sleeper, node)->condition);
    }
    unlock_store(self);
}

static void
hash_free(dl_store *store)
{
    hash_store *self = (hash_store *)store;

    /* In a child, the fork may have interrupted a change by another thread: the table
     * is not touched. */
    if (!dl_store_is_inherited(store)) {
        dl_table_fini(&self->table);
        pthread_mutex_destroy(&self->lock);
    }
    free(self);
}

int64_t
dl_hash_store_try_count(dl_store *store)
{
    hash_store *self = (hash_store *)store;

    if (dl_store_is_inherited(store) || pthread_mutex_trylock(&self->lock) != 0) {
        return -1;
    }
    int64_t count = dl_table_num_keys(&self->table);
    pthread_mutex_unlock(&self->lock);
    return count;
}

/* BARRIER uses the generic version, which leaves the same keys as torch's HashStore. */
static const dl_store_ops hash_ops = {
    .kind = "HashStore",
    .requests = UINT32_MAX & ~DL_REQUEST(DL_OP_BARRIER),
    .has_extended_api = true,
    .is_brief = true,
    .execute = hash_execute,
    .clone = hash_clone,
    .close = hash_close,
    .free = hash_free,
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
