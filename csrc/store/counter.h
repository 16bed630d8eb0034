/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters of stores: ordinary values that hold a number as decimal text. */
#ifndef DISTLITE_STORE_COUNTER_H
#define DISTLITE_STORE_COUNTER_H

#include "base/bytes.h"
#include "base/status.h"

/* The longest decimal text of an int64. */
#define DL_COUNTER_TEXT_SIZE 20

/* Parses a number as strtoll(3) does in base 10: leading blanks, a sign, and anything
 * after the number are accepted.  Returns false if there is no number, if it does not
 * fit into 64 bits, or if it does not end within the first 64 bytes. */
bool dl_counter_parse(dl_bytes text, int64_t *number);

/* Formats `number`; the result points into `text`. */
dl_bytes dl_counter_format(int64_t number, char text[DL_COUNTER_TEXT_SIZE + 1]);

/* Computes `*sum` as the number in `held`, the value of `key`, plus `delta`; wraps on
 * overflow.  DL_INVALID, with the key in the text, if `held` is not a number. */
dl_status dl_counter_add(dl_bytes key, dl_bytes held, int64_t delta, int64_t *sum);

#endif
