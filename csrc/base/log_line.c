/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log_line.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"

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

void
dl_log_line_word(dl_log_line *self, dl_log_level level, int rank, const char *format,
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

void
dl_log_line_append(dl_log_line *self, const char *end)
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
dl_log_line_write(const dl_log_line *self)
{
    /* Nothing useful can be done if standard error is closed. */
    ssize_t written = write(STDERR_FILENO, self->bytes, self->size);
    (void)written;
}
