/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/doing_publisher.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/deadline.h"
#include "base/thread.h"
#include "pg/record/own_waits.h"
#include "pg/record/recorder.h"

/* The time that the store has for requests that it answers at once. */
#define ANSWER_LIMIT (5 * DL_SECOND)

#define KEY_SIZE 64

/* The shortest span, for groups with very short timeouts. */
#define LEAST_SPAN (100 * DL_MILLISECOND)

/* Two snapshots compute the beginning of one operation with less than this
 * difference. */
#define SAME_TIME DL_MILLISECOND

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t moved;
/* guarded by lock */
static dl_store *target; /* borrowed */
static uint64_t number;  /* counts the targets */
static int own_rank;
static int64_t after;
static bool is_running;
static bool has_news; /* a group was made */

/* The thread's state between two snapshots. */
typedef struct publisher {
    uint64_t number; /* of the target that the members below are about */
    bool has_note;
    int64_t since; /* beginning of what the note describes */
} publisher;

/* Runs in a forked child, which has none of the parent's threads; one of them may have
 * held the lock. */
static void
forget_parent(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dl_condition_init(&moved);
    target = NULL;
    is_running = false;
}

static void
init_once(void)
{
    dl_condition_init(&moved);
    pthread_atfork(NULL, NULL, forget_parent);
}

static dl_bytes
key_of(int rank, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "deadlock/doing/%d", rank);
    return dl_bytes_of(text);
}

static bool
read_own(dl_doing *doing)
{
    dl_buffer copy = {0};
    bool is_read = dl_recorder_snapshot(&copy) == DL_OK && copy.size > 0
                   && dl_doing_read(dl_buffer_bytes(&copy), doing);

    dl_buffer_fini(&copy);
    return is_read;
}

/* Publishes a note, or withdraws it. */
static void
update_note(publisher *self, dl_store *store, int rank, int64_t span)
{
    dl_doing_note note = {.written = dl_wall_clock()};
    dl_deadline deadline = dl_deadline_after(ANSWER_LIMIT);
    char key[KEY_SIZE];

    if (!read_own(&note.doing)) {
        return;
    }
    int64_t since = dl_now() - note.doing.span;
    int64_t moved_by = since > self->since ? since - self->since : self->since - since;
    bool is_same = self->has_note && moved_by < SAME_TIME;
    bool is_long = note.doing.state != 0 && note.doing.span >= span;
    if (is_same || (!is_long && !self->has_note)) {
        return;
    }
    dl_bytes value =
        is_long ? (dl_bytes){(const uint8_t *)&note, sizeof note} : DL_LITERAL("-");
    if (dl_store_set(store, key_of(rank, key), value, deadline) == DL_OK) {
        self->has_note = is_long;
        self->since = since;
    }
}

static int64_t
span_locked(void)
{
    int64_t quarter = dl_own_waits_shortest_timeout() / 4;
    int64_t span = quarter < after ? quarter : after;

    return span > LEAST_SPAN ? span : LEAST_SPAN;
}

/* Publishes to the target; returns false if there is none.  A reference to the store is
 * held only while it is used, because the program may close it at any time. */
static bool
publish_once(publisher *self, int64_t *span)
{
    pthread_mutex_lock(&lock);
    dl_store *store = target == NULL ? NULL : dl_store_ref(target);
    int rank = own_rank;
    *span = span_locked();
    if (self->number != number) {
        *self = (publisher){.number = number};
    }
    pthread_mutex_unlock(&lock);
    if (store != NULL) {
        update_note(self, store, rank, *span);
        dl_store_unref(store);
    }
    return store != NULL;
}

static void *
run_publisher(void *argument)
{
    publisher self = {0};
    int64_t span;

    (void)argument;
    for (;;) {
        bool is_wanted = publish_once(&self, &span);
        int64_t end = dl_now() + span / 2;
        pthread_mutex_lock(&lock);
        while (self.number == number && !has_news && dl_now() < end) {
            dl_condition_wait_until(&moved, &lock, end);
        }
        has_news = false;
        if (!is_wanted && target == NULL) {
            is_running = false;
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        pthread_mutex_unlock(&lock);
    }
}

void
dl_doing_publisher_set(dl_store *store, int rank, int64_t span)
{
    pthread_t thread;

    pthread_once(&once, init_once);
    pthread_mutex_lock(&lock);
    target = store;
    number++;
    own_rank = rank;
    after = span;
    if (store != NULL && !is_running
        && dl_thread_start(&thread, run_publisher, NULL) == DL_OK) {
        pthread_detach(thread);
        is_running = true;
    }
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

void
dl_doing_publisher_wake(void)
{
    pthread_once(&once, init_once);
    pthread_mutex_lock(&lock);
    has_news = true;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

bool
dl_doing_note_get(dl_store *store, int rank, dl_doing_note *note)
{
    dl_deadline deadline = dl_deadline_after(ANSWER_LIMIT);
    dl_buffer value = {0};
    char text[KEY_SIZE];
    dl_bytes key = key_of(rank, text);

    dl_status status = dl_store_get_if_set(store, key, &value, deadline);
    bool is_note = status == DL_OK && value.size == sizeof *note;
    if (is_note) {
        memcpy(note, value.data, sizeof *note);
        note->doing.group[sizeof note->doing.group - 1] = '\0';
        note->doing.host[sizeof note->doing.host - 1] = '\0';
        note->doing.site[sizeof note->doing.site - 1] = '\0';
    }
    dl_buffer_fini(&value);
    return is_note;
}
