/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/thread.h"

#define LIMIT 256

static const dl_log_reader *reader;
static atomic_bool is_open;
/* Lines are queued or with the reader.  Written under the lock, read without it. */
static atomic_bool is_busy;
/* Set on the queue's own threads. */
static _Thread_local bool is_reader;

/* Static: untouched pages cost no memory, and an allocation could fail. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t has_lines;
    pthread_cond_t is_idle;
    bool has_threads;
    bool is_with_reader; /* read() was called and has not returned */
    bool has_begun;      /* dl_log_queue_begin() was called since then */
    size_t first;
    size_t count;
    uint64_t left_out; /* lines dropped since the last line was queued */
    int rank;          /* of the first line dropped */
    dl_log_line lines[LIMIT];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
init_conditions(void)
{
    dl_condition_init(&queue.has_lines);
    dl_condition_init(&queue.is_idle);
}

/* Runs in a forked child: the parent writes its own lines, and the threads do not exist
 * here. */
static void
forget_parent(void)
{
    pthread_mutex_init(&queue.lock, NULL);
    init_conditions();
    queue.has_threads = queue.is_with_reader = queue.has_begun = false;
    queue.first = queue.count = 0;
    queue.left_out = 0;
    atomic_store(&is_busy, false);
    is_reader = false;
}

void
dl_log_queue_open(const dl_log_reader *wanted)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, init_conditions);
    if (reader == NULL) {
        pthread_atfork(NULL, NULL, forget_parent);
    }
    reader = wanted;
    atomic_store(&is_open, true);
}

__attribute__((format(printf, 2, 3))) static void
word_left_out(dl_log_line *line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    dl_log_line_word(line, DL_LOG_WARNING, queue.rank, format, arguments);
    va_end(arguments);
}

static void
tell_left_out_locked(dl_log_line *line)
{
    word_left_out(line,
                  "%" PRIu64 " more lines were left out: the log's handlers are slower "
                  "than it",
                  queue.left_out);
    queue.left_out = 0;
}

static bool
take_locked(dl_log_line *line)
{
    if (queue.count > 0) {
        *line = queue.lines[queue.first];
        queue.first = (queue.first + 1) % LIMIT;
        queue.count--;
        return true;
    }
    if (queue.left_out > 0) {
        tell_left_out_locked(line);
        return true;
    }
    return false;
}

static bool
has_lines_locked(void)
{
    return queue.count > 0 || queue.left_out > 0;
}

static void
note_state_locked(void)
{
    bool is_now = has_lines_locked() || queue.is_with_reader;

    atomic_store_explicit(&is_busy, is_now, memory_order_release);
    if (!is_now) {
        pthread_cond_broadcast(&queue.is_idle);
    }
}

/* Writes one line without the lock: standard error may be a pipe that nobody reads, and
 * threads that log must not wait for it. */
static void
write_one_locked(void)
{
    dl_log_line line;

    if (take_locked(&line)) {
        pthread_mutex_unlock(&queue.lock);
        dl_log_line_write(&line);
        pthread_mutex_lock(&queue.lock);
    }
}

static void *
run_reader(void *unused)
{
    (void)unused;
    is_reader = true;
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        while (!has_lines_locked()) {
            pthread_cond_wait(&queue.has_lines, &queue.lock);
        }
        queue.is_with_reader = true;
        pthread_mutex_unlock(&queue.lock);
        bool is_good = reader->read();
        pthread_mutex_lock(&queue.lock);
        while (!is_good && has_lines_locked()) {
            write_one_locked();
        }
        queue.is_with_reader = queue.has_begun = false;
        note_state_locked();
    }
    return NULL;
}

/* The watchdog: writes the lines that the reader has not taken within its limit. */
static void *
run_watch(void *unused)
{
    (void)unused;
    is_reader = true;
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        if (queue.count == 0) {
            pthread_cond_wait(&queue.has_lines, &queue.lock);
            continue;
        }
        int64_t since = queue.has_begun ? dl_now() : queue.lines[queue.first].since;
        if (since + reader->limit > dl_now()) {
            dl_condition_wait_until(&queue.has_lines, &queue.lock,
                                    since + reader->limit);
            continue;
        }
        write_one_locked();
        note_state_locked();
    }
    return NULL;
}

/* Restores the thread's last error after a failure: the line may be about that
 * error. */
static bool
start_locked(void)
{
    pthread_t thread;

    if (queue.has_threads) {
        return true;
    }
    dl_error error = *dl_last_error();
    if (dl_thread_start(&thread, run_reader, NULL) != DL_OK) {
        (void)dl_fail_again(&error);
        return false;
    }
    pthread_detach(thread);
    queue.has_threads = true;
    /* Without the watchdog the lines still reach the reader. */
    if (dl_thread_start(&thread, run_watch, NULL) == DL_OK) {
        pthread_detach(thread);
    } else {
        (void)dl_fail_again(&error);
    }
    return true;
}

static void
append_locked(const dl_log_line *line)
{
    /* The line that states the number of dropped lines needs room as well. */
    size_t needed = queue.left_out > 0 ? 2 : 1;

    if (queue.count + needed > LIMIT) {
        queue.rank = queue.left_out == 0 ? line->rank : queue.rank;
        queue.left_out++;
        return;
    }
    if (queue.left_out > 0) {
        tell_left_out_locked(&queue.lines[(queue.first + queue.count++) % LIMIT]);
    }
    queue.lines[(queue.first + queue.count++) % LIMIT] = *line;
}

bool
dl_log_queue_put(const dl_log_line *line)
{
    bool is_taken = false;

    /* Lines that the reader itself causes would never end. */
    if (is_reader || !atomic_load_explicit(&is_open, memory_order_acquire)
        || !reader->is_wanted()) {
        return false;
    }
    pthread_mutex_lock(&queue.lock);
    if (atomic_load(&is_open) && start_locked()) {
        append_locked(line);
        note_state_locked();
        pthread_cond_broadcast(&queue.has_lines);
        is_taken = true;
    }
    pthread_mutex_unlock(&queue.lock);
    return is_taken;
}

void
dl_log_queue_begin(void)
{
    pthread_mutex_lock(&queue.lock);
    queue.has_begun = true;
    pthread_mutex_unlock(&queue.lock);
}

bool
dl_log_queue_take(dl_log_line *line)
{
    pthread_mutex_lock(&queue.lock);
    bool is_there = take_locked(line);
    pthread_mutex_unlock(&queue.lock);
    return is_there;
}

void
dl_log_queue_flush(dl_deadline deadline)
{
    if (is_reader) {
        return;
    }
    pthread_mutex_lock(&queue.lock);
    while ((has_lines_locked() || queue.is_with_reader)
           && !dl_deadline_passed(deadline)) {
        dl_condition_wait_until(&queue.is_idle, &queue.lock, deadline.at);
    }
    pthread_mutex_unlock(&queue.lock);
}

bool
dl_log_queue_is_idle(void)
{
    return is_reader || !atomic_load_explicit(&is_busy, memory_order_acquire);
}

void
dl_log_queue_close(void)
{
    pthread_mutex_lock(&queue.lock);
    atomic_store(&is_open, false);
    while (has_lines_locked()) {
        write_one_locked();
    }
    note_state_locked();
    pthread_mutex_unlock(&queue.lock);
}
