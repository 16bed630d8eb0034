/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/stats.h"

#include <inttypes.h>
#include <stdio.h>

void
dl_stats_put_word(dl_buffer *text, const char *name, const char *word)
{
    dl_buffer_put(text, dl_bytes_of(name));
    dl_buffer_put(text, DL_LITERAL(" "));
    dl_buffer_put(text, dl_bytes_of(word));
    dl_buffer_put(text, DL_LITERAL("\n"));
}

void
dl_stats_put(dl_buffer *text, const char *name, uint64_t value)
{
    char word[24];

    snprintf(word, sizeof word, "%" PRIu64, value);
    dl_stats_put_word(text, name, word);
}

void
dl_stats_put_table(dl_buffer *text, const dl_table *table)
{
    dl_stats_put(text, "keys", (uint64_t)dl_table_num_keys(table));
    dl_stats_put(text, "names", table->entries.count);
    dl_stats_put(text, "bytes", table->size);
    dl_stats_put(text, "waiters", table->waiter_count);
}
