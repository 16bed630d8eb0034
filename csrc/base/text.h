/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Text that is composed piece by piece in a buffer of a fixed size.  What does not fit
 * is cut off, and the text stays terminated, so that error texts need no allocation. */
#ifndef DISTLITE_BASE_TEXT_H
#define DISTLITE_BASE_TEXT_H

#include <stddef.h>

/* Appends to `text`, a buffer of `room` bytes including the terminator.  `*size` is the
 * length so far, without the terminator. */
__attribute__((format(printf, 4, 5))) void
dl_text_append(char *text, size_t room, size_t *size, const char *format, ...);

/* Appends bytes from an untrusted source.  Bytes that could end a line or be taken for
 * a terminal's control sequence are written as \x1b: those below a blank, 7f, the C1
 * controls (U+0080 to U+009F), and bytes that are not UTF-8. */
void dl_text_append_escaped(char *text, size_t room, size_t *size, const char *bytes,
                            size_t count);

#endif
