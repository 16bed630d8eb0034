/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define QUEUE_LIMIT 256

static atomic_int own_rank = -1;
static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static dl_log_level threshold;
static atomic_int debug_level;

/* The variable is torch's, so that one setting serves a program that uses both.  It is
 * read once, since getenv(3) is not safe beside another thread's setenv(3). */
static void
read_threshold(void)
{
    const char *name = getenv("TORCH_CPP_LOG_LEVEL");

    threshold = DL_LOG_WARNING;
    if (name != NULL && strcasecmp(name, "INFO") == 0) {
        threshold = DL_LOG_INFO;
    }
    if (name != NULL && strcasecmp(name, "ERROR") == 0) {
        threshold = DL_LOG_ERROR;
    }
}

dl_debug_level
dl_debug_level_get(void)
{
    return (dl_debug_level)atomic_load_explicit(&debug_level, memory_order_relaxed);
}

void
dl_debug_level_set(dl_debug_level level)
{
    atomic_store_explicit(&debug_level, (int)level, memory_order_relaxed);
}

/* The debug level may change at any time; the threshold does not. */
bool
dl_log_is_on(dl_log_level level)
{
    pthread_once(&level_once, read_threshold);
    int lowest = (int)threshold;

    if (threshold == DL_LOG_INFO) {
        lowest -= (int)dl_debug_level_get();
    }
    return (int)level >= lowest;
}

void
dl_log_set_rank(int rank)
{
    atomic_store_explicit(&own_rank, rank, memory_order_relaxed);
}

static size_t
put_head(dl_log_line *self)
{
    static const char *const marks[] = {" - trace", " - debug", "", "", ""};
    struct timespec now;
    struct tm date;
    char day[32];
    char prefix[32] = "";

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &date);
    strftime(day, sizeof day, "%m%d %H:%M:%S", &date);
    if (self->rank >= 0) {
        snprintf(prefix, sizeof prefix, "[rank%d]:", self->rank);
    }
    self->time = now.tv_sec * DL_SECOND + now.tv_nsec;
    self->since = dl_now();
    return (size_t)snprintf(self->bytes, sizeof self->bytes,
                            "%s[%c%s.%06ld distlite%s] ", prefix, "IIIWE"[self->level],
                            day, now.tv_nsec / 1000, marks[self->level]);
}

__attribute__((format(printf, 4, 0))) static void
format_line(dl_log_line *self, dl_log_level level, int rank, const char *format,
            va_list arguments)
{
    size_t limit = sizeof self->bytes - 1;

    self->level = level;
    self->rank = rank;
    self->head = put_head(self);
    size_t size = self->head
                  + (size_t)vsnprintf(self->bytes + self->head, limit - self->head,
                                      format, arguments);
    /* One byte is reserved for the line feed, which a text that was cut gets as
     * well. */
    if (size > limit - 1) {
        size = limit - 1;
    }
    self->bytes[size++] = '\n';
    self->size = size;
}

/* Inserts `end` before the line feed; the text before it is cut if there is no room. */
static void
append_to_line(dl_log_line *self, const char *end)
{
    size_t added = strlen(end);
    size_t size = self->size - 1;

    if (size + added + 1 > sizeof self->bytes) {
        size = sizeof self->bytes - added - 1;
    }
    memcpy(self->bytes + size, end, added);
    self->bytes[size + added] = '\n';
    self->size = size + added + 1;
}

/* Writes the line to standard error in one write(2).  Changes errno. */
static void
write_line(const dl_log_line *self)
{
    /* Nothing useful can be done if standard error is closed. */
    ssize_t written = write(STDERR_FILENO, self->bytes, self->size);
    (void)written;
}

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
    dl_log_line lines[QUEUE_LIMIT];
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
format_dropped_count(dl_log_line *line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    format_line(line, DL_LOG_WARNING, queue.rank, format, arguments);
    va_end(arguments);
}

static void
put_dropped_count_locked(dl_log_line *line)
{
    format_dropped_count(
        line, "%" PRIu64 " more lines were dropped: the log's handlers cannot keep up",
        queue.left_out);
    queue.left_out = 0;
}

static bool
take_locked(dl_log_line *line)
{
    if (queue.count > 0) {
        *line = queue.lines[queue.first];
        queue.first = (queue.first + 1) % QUEUE_LIMIT;
        queue.count--;
        return true;
    }
    if (queue.left_out > 0) {
        put_dropped_count_locked(line);
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
        write_line(&line);
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

    if (queue.count + needed > QUEUE_LIMIT) {
        queue.rank = queue.left_out == 0 ? line->rank : queue.rank;
        queue.left_out++;
        return;
    }
    if (queue.left_out > 0) {
        put_dropped_count_locked(
            &queue.lines[(queue.first + queue.count++) % QUEUE_LIMIT]);
    }
    queue.lines[(queue.first + queue.count++) % QUEUE_LIMIT] = *line;
}

/* Queues a copy of the line.  False: the reader does not want it or cannot be reached,
 * so the caller writes it.  A line that finds the queue full is dropped and counted,
 * and a line with the count takes its place. */
static bool
queue_put(const dl_log_line *line)
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

__attribute__((format(printf, 3, 0))) static void
format_own_line(dl_log_line *line, dl_log_level level, const char *format,
                va_list arguments)
{
    int rank = atomic_load_explicit(&own_rank, memory_order_relaxed);

    format_line(line, level, rank, format, arguments);
}

void
dl_log(dl_log_level level, const char *format, ...)
{
    dl_log_line line;
    va_list arguments;
    int saved = errno;

    if (!dl_log_is_on(level)) {
        return;
    }
    va_start(arguments, format);
    format_own_line(&line, level, format, arguments);
    va_end(arguments);
    if (!queue_put(&line)) {
        write_line(&line);
    }
    errno = saved;
}

/* Writes a line without blocking; returns false if that fails.  Standard error is
 * shared with programs that expect it to block, so the descriptor's flags are not
 * changed: a socket is written with MSG_DONTWAIT, and anything else is opened again as
 * non-blocking. */
static bool
write_at_once(const char *line, size_t size)
{
    ssize_t written = send(STDERR_FILENO, line, size, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (written < 0 && errno == ENOTSOCK) {
        struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
        int fd = open("/proc/self/fd/2",
                      O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0) {
            written = write(fd, line, size);
            close(fd);
        } else if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0) {
            /* A pipe that polls writable has room for a page, which is more than a
             * line. */
            written = write(STDERR_FILENO, line, size);
        }
    }
    return written >= 0;
}

/* Returns whether a line may be written now; counts it as dropped if not. */
static bool
may_write(dl_log_limit *limit)
{
    int64_t now = dl_now();

    if (now < limit->not_before) {
        limit->left_out++;
        return false;
    }
    limit->not_before = now + DL_SECOND;
    return true;
}

/* Writes the line and how many were dropped before it, or counts it as dropped. */
__attribute__((format(printf, 3, 0))) static void
try_line(dl_log_limit *limit, dl_log_level level, const char *format, va_list arguments)
{
    dl_log_line line;
    char more[80];

    format_own_line(&line, level, format, arguments);
    if (limit->left_out > 0) {
        snprintf(more, sizeof more,
                 " (%" PRIu64 " similar lines were suppressed before this one)",
                 limit->left_out);
        append_to_line(&line, more);
    }
    bool is_written = queue_put(&line) || write_at_once(line.bytes, line.size);
    limit->left_out = is_written ? 0 : limit->left_out + 1;
}

void
dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
{
    va_list arguments;
    int saved = errno;

    if (dl_log_is_on(level) && may_write(limit)) {
        va_start(arguments, format);
        try_line(limit, level, format, arguments);
        va_end(arguments);
    }
    errno = saved;
}

void
dl_log_at_once(dl_log_limit *limit, dl_log_level level, const char *format, ...)
{
    va_list arguments;
    int saved = errno;

    if (dl_log_is_on(level)) {
        va_start(arguments, format);
        try_line(limit, level, format, arguments);
        va_end(arguments);
    }
    errno = saved;
}

void
dl_log_limit_end(dl_log_limit *limit, dl_log_level level, const char *what)
{
    uint64_t left_out = limit->left_out;

    *limit = (dl_log_limit){0};
    if (left_out > 0) {
        dl_log_limited(limit, level, "%s: %" PRIu64 " more", what, left_out);
    }
}

dl_status
dl_debug_level_read(const char *text)
{
    static const char *const names[] = {"OFF", "INFO", "DETAIL"};

    if (text == NULL) {
        dl_debug_level_set(DL_DEBUG_OFF);
        return DL_OK;
    }
    for (int level = 0; level < 3; level++) {
        if (strcasecmp(text, names[level]) == 0) {
            dl_debug_level_set((dl_debug_level)level);
            dl_log(DL_LOG_DEBUG, "The debug level is set to %s.", names[level]);
            return DL_OK;
        }
    }
    return dl_fail(
        DL_INVALID,
        "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.");
}
