/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One line on standard error, in one write(2) so that lines of many processes do not
 * mix: "[W1121 08:30:01.123456 distlite] text".  TORCH_CPP_LOG_LEVEL (INFO, WARNING,
 * ERROR; default WARNING) says from which level on.  Leaves errno as it was. */
#ifndef DISTLITE_BASE_LOG_H
#define DISTLITE_BASE_LOG_H

typedef enum dl_log_level {
    DL_LOG_INFO = 0,
    DL_LOG_WARNING = 1,
    DL_LOG_ERROR = 2,
} dl_log_level;

void dl_log(dl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Put before the text of every later line, as "[rank3]:"; NULL takes it away. */
void dl_log_set_prefix(const char *prefix);

#endif
