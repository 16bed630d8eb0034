/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters as stores keep them: ordinary values that hold a number as decimal text. */
#ifndef DISTLITE_STORE_COUNTER_H
#define DISTLITE_STORE_COUNTER_H

#include "base/bytes.h"
#include "base/status.h"

/* The longest decimal text of an int64. */
#define DL_COUNTER_TEXT_SIZE 20

/* Reads as strtoll does in base 10: leading blanks, a sign, anything after the number.
 * False when there is no number, it does not fit, or does not end within 64 bytes. */
bool dl_counter_parse(dl_bytes text, int64_t *number);

/* The view is into `text`. */
dl_bytes dl_counter_format(int64_t number, char text[DL_COUNTER_TEXT_SIZE + 1]);

/* What `key` counts after adding `delta` to its value `held`; wraps.  DL_INVALID, with
 * a text naming key and value, when that is no number. */
dl_status dl_counter_add(dl_bytes key, dl_bytes held, int64_t delta, int64_t *sum);

#endif
