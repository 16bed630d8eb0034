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

#include "base/deadline.h"

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

static int
put_head(char *line, dl_log_level level)
{
    static const char *const marks[] = {" - trace", " - debug", "", "", ""};
    int rank = atomic_load_explicit(&own_rank, memory_order_relaxed);
    struct timespec now;
    struct tm date;
    char day[32];
    char prefix[32] = "";

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &date);
    strftime(day, sizeof day, "%m%d %H:%M:%S", &date);
    if (rank >= 0) {
        snprintf(prefix, sizeof prefix, "[rank%d]:", rank);
    }
    return snprintf(line, DL_LOG_LINE_SIZE, "%s[%c%s.%06ld distlite%s] ", prefix,
                    "IIIWE"[level], day, now.tv_nsec / 1000, marks[level]);
}

/* Returns the line's size.  A text that is too long is cut, but not `end`. */
__attribute__((format(printf, 3, 0))) static size_t
format_line(char *line, dl_log_level level, const char *format, va_list arguments,
            const char *end)
{
    size_t limit = DL_LOG_LINE_SIZE - strlen(end) - 1; /* for the line feed */
    size_t size = (size_t)put_head(line, level);

    size += (size_t)vsnprintf(line + size, limit - size, format, arguments);
    if (size >= limit) {
        size = limit - 1;
    }
    return size + (size_t)snprintf(line + size, DL_LOG_LINE_SIZE - size, "%s\n", end);
}

static _Atomic(dl_log_fn) receiver;

void
dl_log_install(dl_log_fn wanted)
{
    atomic_store(&receiver, wanted);
}

static bool
is_received(const char *line, size_t size)
{
    dl_log_fn receive = atomic_load_explicit(&receiver, memory_order_acquire);

    return receive != NULL && receive(line, size);
}

void
dl_log(dl_log_level level, const char *format, ...)
{
    char line[DL_LOG_LINE_SIZE];
    va_list arguments;
    int saved = errno;

    if (!dl_log_is_on(level)) {
        return;
    }
    va_start(arguments, format);
    size_t size = format_line(line, level, format, arguments, "");
    va_end(arguments);
    if (!is_received(line, size)) {
        /* Nothing useful can be done if standard error is closed. */
        ssize_t written = write(STDERR_FILENO, line, size);
        (void)written;
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
            /* There may be no descriptor left.  A pipe that polls writable has room for
             * a page, which is more than a line. */
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
    char line[DL_LOG_LINE_SIZE];
    char more[80] = "";

    if (limit->left_out > 0) {
        snprintf(more, sizeof more,
                 " (%" PRIu64 " similar lines were suppressed before this one)",
                 limit->left_out);
    }
    size_t size = format_line(line, level, format, arguments, more);
    bool is_written = is_received(line, size) || write_at_once(line, size);
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
