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
#include <unistd.h>

#include "base/deadline.h"
#include "base/debug_level.h"
#include "base/log_queue.h"

static atomic_int own_rank = -1;
static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static dl_log_level threshold;

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

void
dl_log_set_rank(int rank)
{
    atomic_store_explicit(&own_rank, rank, memory_order_relaxed);
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

__attribute__((format(printf, 3, 0))) static void
word(dl_log_line *line, dl_log_level level, const char *format, va_list arguments)
{
    int rank = atomic_load_explicit(&own_rank, memory_order_relaxed);

    dl_log_line_word(line, level, rank, format, arguments);
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
    word(&line, level, format, arguments);
    va_end(arguments);
    if (!dl_log_queue_put(&line)) {
        dl_log_line_write(&line);
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

void
dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
{
    dl_log_line line;
    char more[64];
    va_list arguments;
    int saved = errno;

    if (!dl_log_is_on(level) || !may_write(limit)) {
        return;
    }
    va_start(arguments, format);
    word(&line, level, format, arguments);
    va_end(arguments);
    if (limit->left_out > 0) {
        snprintf(more, sizeof more, " (%" PRIu64 " more before this)", limit->left_out);
        dl_log_line_append(&line, more);
    }
    bool is_told = dl_log_queue_put(&line) || write_at_once(line.bytes, line.size);
    limit->left_out = is_told ? 0 : limit->left_out + 1;
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
