/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/blocked_threads.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/deadline.h"
#include "base/list.h"
#include "base/thread.h"

typedef struct entry {
    dl_list node; /* guarded by lock, as neighbours write to it */
    dl_blocked_thread thread;
    bool is_listed; /* read by its own thread only */
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static dl_list entries;
static uint64_t last_id;

static pthread_key_t key; /* removes the entry of a thread that ends */
static bool has_key;

static _Atomic(dl_blocked_fn) watcher;
static _Atomic int64_t watcher_span;

/* Static rather than allocated: the first long wait may come when memory has run
 * out. */
static _Thread_local entry self;
static _Thread_local uint32_t looks; /* in the current wait */
static _Thread_local bool is_own;

static void
forget_entry(void *argument)
{
    entry *ended = argument;

    pthread_mutex_lock(&lock);
    dl_list_remove(&ended->node);
    pthread_mutex_unlock(&lock);
    ended->is_listed = false;
}

static void
reset_threads(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dl_list_init(&entries);
    looks = 0;
    self = (entry){.is_listed = false};
}

__attribute__((constructor)) static void
init_threads(void)
{
    has_key = pthread_key_create(&key, forget_entry) == 0;
    dl_reset_at_fork(reset_threads);
}

/* Returns the calling thread's entry, and lists it first if necessary.  Returns
 * NULL if the end of the thread could not be noticed; the thread then counts as one
 * that never waits. */
static entry *
own_entry(void)
{
    if (!self.is_listed) {
        if (!has_key || pthread_setspecific(key, &self) != 0) {
            return NULL;
        }
        self.is_listed = true;
        self.thread.is_own = is_own;
        self.thread.is_main = dl_is_main_thread();
        pthread_mutex_lock(&lock);
        dl_list_append(&entries, &self.node);
        pthread_mutex_unlock(&lock);
    }
    return &self;
}

static void
note_slice(const dl_record *record, const void *lane, const dl_awaited *awaited)
{
    entry *own = own_entry();

    /* Most waits end within their first slice and are not worth a lock. */
    if (own == NULL || looks++ == 0) {
        return;
    }
    int64_t now = dl_now();
    dl_blocked_thread *thread = &own->thread;
    pthread_mutex_lock(&lock);
    if (thread->id == 0 || thread->record != record || thread->lane != lane) {
        thread->id = ++last_id;
        thread->since = now;
        thread->record = record;
        thread->lane = lane;
    }
    thread->awaited = awaited != NULL ? *awaited : (dl_awaited){.count = 0};
    int64_t span = now - thread->since;
    pthread_mutex_unlock(&lock);
    dl_blocked_fn call = atomic_load_explicit(&watcher, memory_order_acquire);
    if (call != NULL && !thread->is_own
        && span >= atomic_load_explicit(&watcher_span, memory_order_relaxed)) {
        call();
    }
}

void
dl_blocked_check(const dl_record *record, const dl_awaited *awaited)
{
    note_slice(record, NULL, awaited);
}

void
dl_blocked_check_lane(const void *lane)
{
    note_slice(NULL, lane, NULL);
}

void
dl_blocked_end(void)
{
    if (looks > 1) {
        pthread_mutex_lock(&lock);
        self.thread.id = 0;
        pthread_mutex_unlock(&lock);
    }
    looks = 0;
}

const dl_awaited *
dl_blocked_awaited(const dl_record *record, int64_t started)
{
    /* The row may have been that of another operation before. */
    return self.thread.record == record && self.thread.since >= started
               ? &self.thread.awaited
               : NULL;
}

void
dl_blocked_mark_internal(void)
{
    is_own = true;
}

bool
dl_blocked_list(dl_blocked_thread *threads, int room, int *count)
{
    bool fits = true;

    *count = 0;
    pthread_mutex_lock(&lock);
    for (dl_list *node = entries.next; node != &entries; node = node->next) {
        if (*count == room) {
            fits = false;
            break;
        }
        threads[(*count)++] = DL_LIST_ENTRY(node, entry, node)->thread;
    }
    pthread_mutex_unlock(&lock);
    return fits;
}

void
dl_blocked_watch(dl_blocked_fn call, int64_t span)
{
    atomic_store_explicit(&watcher_span, span, memory_order_relaxed);
    atomic_store_explicit(&watcher, call, memory_order_release);
}
