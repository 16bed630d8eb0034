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
    return (size_t)snprintf(self->bytes, sizeof self->bytes,
                            "%s[%c%s.%06ld distlite%s] ", prefix, "IIIWE"[self->level],
                            day, now.tv_nsec / 1000, marks[self->level]);
}

__attribute__((format(printf, 3, 0))) static void
format_line(dl_log_line *self, dl_log_level level, const char *format,
            va_list arguments)
{
    size_t limit = sizeof self->bytes - 1;

    self->level = level;
    self->rank = atomic_load_explicit(&own_rank, memory_order_relaxed);
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

void
dl_log_write(const dl_log_line *line)
{
    /* Nothing useful can be done if standard error is closed. */
    ssize_t written = write(STDERR_FILENO, line->bytes, line->size);
    (void)written;
}

static _Atomic(dl_log_fn) receiver;

void
dl_log_install(dl_log_fn wanted)
{
    atomic_store(&receiver, wanted);
}

static bool
is_received(const dl_log_line *line)
{
    dl_log_fn receive = atomic_load_explicit(&receiver, memory_order_acquire);

    return receive != NULL && receive(line);
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
    format_line(&line, level, format, arguments);
    va_end(arguments);
    if (!is_received(&line)) {
        dl_log_write(&line);
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

    format_line(&line, level, format, arguments);
    if (limit->left_out > 0) {
        snprintf(more, sizeof more,
                 " (%" PRIu64 " similar lines were suppressed before this one)",
                 limit->left_out);
        append_to_line(&line, more);
    }
    bool is_written = is_received(&line) || write_at_once(line.bytes, line.size);
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
            return DL_OK;
        }
    }
    return dl_fail(
        DL_INVALID,
        "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.");
}
