/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One line of the log as it is written to standard error, together with its parts, for
 * readers that pass it on to something else (base/log_queue.h). */
#ifndef DISTLITE_BASE_LOG_LINE_H
#define DISTLITE_BASE_LOG_LINE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define DL_LOG_LINE_SIZE 2304 /* a whole error text and the head of the line */

typedef enum dl_log_level {
    DL_LOG_TRACE = 0,
    DL_LOG_DEBUG = 1,
    DL_LOG_INFO = 2,
    DL_LOG_WARNING = 3,
    DL_LOG_ERROR = 4,
} dl_log_level;

typedef struct dl_log_line {
    dl_log_level level;
    int rank;      /* -1: unknown */
    int64_t time;  /* nanoseconds since 1970 */
    int64_t since; /* the same moment on dl_now()'s clock */
    size_t head;   /* the text begins here */
    size_t size;   /* with the line feed, which is the last byte */
    char bytes[DL_LOG_LINE_SIZE];
} dl_log_line;

/* Formats a line: "[rank3]:[W1121 08:30:01.123456 distlite] text".  A text that is too
 * long is cut off. */
void dl_log_line_word(dl_log_line *self, dl_log_level level, int rank,
                      const char *format, va_list arguments)
    __attribute__((format(printf, 4, 0)));

/* Inserts `end` before the line feed; the text before it is cut if there is no room. */
void dl_log_line_append(dl_log_line *self, const char *end);

/* Writes the line to standard error in one write(2).  Changes errno. */
void dl_log_line_write(const dl_log_line *self);

#endif
