/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/table_expiry.h"

#include <stdlib.h>

#include "base/deadline.h"

/* A longer time to live counts as this one, of more than seventy years, so that no sum
 * overflows. */
#define TTL_MAX (INT64_MAX / 4 / DL_MILLISECOND)

/* The heap of ends.  No end is before the one at half its place. */

static void
place_end(dl_table *table, size_t place, dl_table_end end)
{
    table->ends[place - 1] = end;
    end.entry->end_place = place;
}

static void
raise_end(dl_table *table, size_t place, dl_table_end end)
{
    while (place > 1 && table->ends[place / 2 - 1].at > end.at) {
        place_end(table, place, table->ends[place / 2 - 1]);
        place /= 2;
    }
    place_end(table, place, end);
}

static void
sink_end(dl_table *table, size_t place, dl_table_end end)
{
    for (size_t child; (child = 2 * place) <= table->end_count; place = child) {
        child += child < table->end_count
                 && table->ends[child].at < table->ends[child - 1].at;
        if (table->ends[child - 1].at >= end.at) {
            break;
        }
        place_end(table, place, table->ends[child - 1]);
    }
    place_end(table, place, end);
}

static void
move_end(dl_table *table, size_t place, dl_table_end end)
{
    if (place > 1 && table->ends[place / 2 - 1].at > end.at) {
        raise_end(table, place, end);
    } else {
        sink_end(table, place, end);
    }
}

dl_status
dl_expiry_need(dl_table *table)
{
    size_t capacity = table->end_capacity == 0 ? 8 : 2 * table->end_capacity;
    size_t more = (capacity - table->end_capacity) * sizeof *table->ends;

    if (table->end_count < table->end_capacity) {
        return DL_OK;
    }
    DL_TRY(dl_table_need_room(table, more));
    dl_table_end *ends = realloc(table->ends, capacity * sizeof *ends);
    if (ends == NULL) {
        return dl_fail_no_memory();
    }
    table->ends = ends;
    table->end_capacity = capacity;
    table->size += more;
    return DL_OK;
}

void
dl_expiry_put(dl_table *table, dl_table_entry *entry, int64_t at)
{
    const dl_table_end end = {at, entry};

    if (entry->end_place != 0) {
        move_end(table, entry->end_place, end);
    } else {
        raise_end(table, ++table->end_count, end);
    }
}

void
dl_expiry_drop(dl_table *table, dl_table_entry *entry)
{
    size_t place = entry->end_place;

    if (place == 0) {
        return;
    }
    dl_table_end last = table->ends[--table->end_count];
    entry->end_place = 0;
    if (last.entry != entry) {
        move_end(table, place, last);
    }
    if (table->end_count == 0) {
        table->size -= table->end_capacity * sizeof *table->ends;
        free(table->ends);
        table->ends = NULL;
        table->end_capacity = 0;
    }
}

void
dl_table_advance(dl_table *table, int64_t now)
{
    table->now = now > table->now ? now : table->now;
}

int64_t
dl_table_end_after(const dl_table *table, int64_t ttl)
{
    return table->now + (ttl < TTL_MAX ? ttl : TTL_MAX) * DL_MILLISECOND;
}

int64_t
dl_table_end_of(const dl_table *table, dl_bytes key)
{
    const dl_table_entry *entry = dl_entry_find(table, key);

    return entry == NULL || entry->end_place == 0
               ? INT64_MAX
               : table->ends[entry->end_place - 1].at;
}
