/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

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

void
dl_log(dl_log_level level, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list arguments;
    int saved = errno;

    if (!dl_log_is_on(level)) {
        return;
    }
    int size = put_head(line, sizeof line - 1, level);
    va_start(arguments, format);
    size += vsnprintf(line + size, sizeof line - 1 - (size_t)size, format, arguments);
    va_end(arguments);
    /* One byte was kept for the line feed, which a text cut short gets as well. */
    if (size > (int)sizeof line - 2) {
        size = (int)sizeof line - 2;
    }
    line[size++] = '\n';
    /* Nothing sensible can be done about a closed standard error. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)size);
    (void)written;
    errno = saved;
}
