/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The format of a reply to STATS: text, a line for each fact, "keys 12\n".  A name with
 * a slash, "refusals/keys", belongs to a group of facts.  A value is a decimal number
 * or a word.  Readers must ignore names that they do not know, so that servers can tell
 * more without a new version of the protocol; dl_reply_take_fact() reads the lines. */
#ifndef DISTLITE_STORE_STATS_H
#define DISTLITE_STORE_STATS_H

#include "base/buffer.h"
#include "store/table.h"

/* Appends one line; `name` and `word` contain no blanks and no line feeds. */
void dl_stats_put(dl_buffer *text, const char *name, uint64_t value);
void dl_stats_put_word(dl_buffer *text, const char *name, const char *word);

/* Appends the counts of the table: keys, names, bytes, waiters. */
void dl_stats_put_table(dl_buffer *text, const dl_table *table);

#endif
