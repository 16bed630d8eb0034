/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"

#define LINE_SIZE 2304 /* a whole error text and the head of the line */

static atomic_int own_rank = -1;
static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static dl_log_level threshold;
static atomic_int debug_level;
static _Atomic(dl_log_fn) receiver;

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

bool
dl_log_is_on(dl_log_level level)
{
    pthread_once(&level_once, read_threshold);
    return level >= threshold;
}

void
dl_log_set_rank(int rank)
{
    atomic_store_explicit(&own_rank, rank, memory_order_relaxed);
}

void
dl_log_install(dl_log_fn wanted)
{
    atomic_store(&receiver, wanted);
}

/* Returns the size of the head, as of "[rank3]:[W1121 08:30:01.123456 distlite] ". */
static size_t
put_head(char *line, size_t limit, dl_log_level level)
{
    int rank = atomic_load_explicit(&own_rank, memory_order_relaxed);
    struct timespec now;
    struct tm date;
    char day[32];
    int size = 0;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &date);
    strftime(day, sizeof day, "%m%d %H:%M:%S", &date);
    if (rank >= 0) {
        size = snprintf(line, limit, "[rank%d]:", rank);
    }
    size += snprintf(line + size, limit - (size_t)size, "[%c%s.%06ld distlite] ",
                     "IWE"[level], day, now.tv_nsec / 1000);
    return (size_t)size;
}

/* Returns whether standard error takes a line at once.  It may still have to wait if
 * another process fills the pipe meanwhile. */
static bool
has_room(void)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
}

/* A text that is too long is cut.  Nothing useful can be done where standard error is
 * closed. */
void
dl_log_limited(dl_log_limit *limit, dl_log_level level, const char *format, ...)
{
    char line[LINE_SIZE + 1]; /* and the line feed */
    va_list arguments;
    int saved = errno;
    int64_t now = dl_now();

    if (!dl_log_is_on(level) || (limit != NULL && now < limit->not_before)) {
        return;
    }
    if (limit != NULL) {
        limit->not_before = now + DL_SECOND;
    }
    size_t size = put_head(line, LINE_SIZE, level);
    va_start(arguments, format);
    size += (size_t)vsnprintf(line + size, LINE_SIZE - size, format, arguments);
    va_end(arguments);
    size = size < LINE_SIZE ? size : LINE_SIZE - 1;
    line[size++] = '\n';
    dl_log_fn receive = atomic_load_explicit(&receiver, memory_order_acquire);
    bool is_received = receive != NULL && receive(line, size);
    if (!is_received && (limit == NULL || has_room())) {
        (void)!write(STDERR_FILENO, line, size);
    }
    errno = saved;
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

dl_status
dl_debug_level_read(const char *text)
{
    static const char *const names[] = {"OFF", "INFO", "DETAIL"};

    for (int level = 0; level < 3; level++) {
        if (strcasecmp(text == NULL ? names[0] : text, names[level]) == 0) {
            dl_debug_level_set((dl_debug_level)level);
            return DL_OK;
        }
    }
    return dl_fail(
        DL_INVALID,
        "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.");
}
