/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void
dl_text_append(char *text, size_t room, size_t *size, const char *format, ...)
{
    size_t left = room - *size;
    va_list arguments;

    va_start(arguments, format);
    int wanted = vsnprintf(text + *size, left, format, arguments);
    va_end(arguments);
    *size += wanted < 0 ? 0 : (size_t)wanted < left ? (size_t)wanted : left - 1;
}
