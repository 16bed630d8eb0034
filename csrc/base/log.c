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
#include "base/debug_level.h"

#define PREFIX_SIZE 32
#define LINE_SIZE 2304 /* a whole error text and the head of the line */

static pthread_mutex_t prefix_lock = PTHREAD_MUTEX_INITIALIZER;
static char line_prefix[PREFIX_SIZE]; /* guarded by prefix_lock */
static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static dl_log_level threshold;

/* Torch's variable, so that one setting serves a program that uses both.  Read once:
 * getenv(3) beside another thread's setenv(3) is not safe. */
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

void
dl_log_set_prefix(const char *prefix)
{
    pthread_mutex_lock(&prefix_lock);
    snprintf(line_prefix, sizeof line_prefix, "%s", prefix == NULL ? "" : prefix);
    pthread_mutex_unlock(&prefix_lock);
}

static int
put_head(char *line, size_t size, dl_log_level level)
{
    static const char *const marks[] = {" - trace", " - debug", "", "", ""};
    struct timespec now;
    struct tm date;
    char day[32];
    char prefix[PREFIX_SIZE];

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &date);
    strftime(day, sizeof day, "%m%d %H:%M:%S", &date);
    pthread_mutex_lock(&prefix_lock);
    snprintf(prefix, sizeof prefix, "%s", line_prefix);
    pthread_mutex_unlock(&prefix_lock);
    return snprintf(line, size, "%s[%c%s.%06ld distlite%s] ", prefix, "IIIWE"[level],
                    day, now.tv_nsec / 1000, marks[level]);
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

/* A whole line, with its line feed; returns its size. */
__attribute__((format(printf, 3, 0))) static size_t
put_line(char line[LINE_SIZE], dl_log_level level, const char *format,
         va_list arguments)
{
    int size = put_head(line, LINE_SIZE - 1, level);

    size += vsnprintf(line + size, LINE_SIZE - 1 - (size_t)size, format, arguments);
    /* One byte was kept for the line feed, which a text cut short gets as well. */
    if (size > LINE_SIZE - 2) {
        size = LINE_SIZE - 2;
    }
    line[size++] = '\n';
    return (size_t)size;
}

void
dl_log(dl_log_level level, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list arguments;
    int saved = errno;

    if (!dl_log_is_on(level)) {
        return;
    }
    va_start(arguments, format);
    size_t size = put_line(line, level, format, arguments);
    va_end(arguments);
    /* Nothing sensible can be done about a closed standard error. */
    ssize_t written = write(STDERR_FILENO, line, size);
    (void)written;
    errno = saved;
}

/* Standard error is shared with programs that want it to block, so the descriptor stays as
 * it is: a socket is asked not to block for this line, and a pipe is opened once more. */
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
            /* A pipe that is ready has room for a page, which is more than a line. */
            written = write(STDERR_FILENO, line, size);
        }
    }
    return written >= 0;
}

/* Whether a line may be written now. */
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

void
dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
{
    char line[LINE_SIZE];
    char more[64];
    va_list arguments;
    int saved = errno;

    if (!dl_log_is_on(level) || !may_write(limit)) {
        return;
    }
    va_start(arguments, format);
    size_t size = put_line(line, level, format, arguments);
    va_end(arguments);
    if (limit->left_out > 0) {
        int added = snprintf(more, sizeof more, " (%" PRIu64 " more before this)\n",
                             limit->left_out);
        size_t end = size - 1;
        if (end + (size_t)added > sizeof line) {
            end = sizeof line - (size_t)added;
        }
        memcpy(line + end, more, (size_t)added);
        size = end + (size_t)added;
    }
    limit->left_out = write_at_once(line, size) ? 0 : limit->left_out + 1;
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
