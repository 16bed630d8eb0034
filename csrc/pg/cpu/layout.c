/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/layout.h"

#include <stdlib.h>

/* Returns the lowest rank with the entry of `rank`. */
static int
lowest_of(const int *hosts, int rank)
{
    int lowest = 0;

    while (hosts[lowest] != hosts[rank]) {
        lowest++;
    }
    return lowest;
}

/* Numbers the hosts in the order of their lowest ranks. */
static void
number_hosts(dl_layout *layout, const int *hosts)
{
    for (int rank = 0; rank < layout->size; rank++) {
        int lowest = lowest_of(hosts, rank);
        layout->host_of[rank] =
            lowest == rank ? layout->host_count++ : layout->host_of[lowest];
    }
}

static void
list_ranks(dl_layout *layout)
{
    int at = 0;

    for (int host = 0; host < layout->host_count; host++) {
        layout->first[host] = at;
        for (int rank = 0; rank < layout->size; rank++) {
            if (layout->host_of[rank] == host) {
                layout->place_of[rank] = at - layout->first[host];
                layout->ranks[at++] = rank;
            }
        }
    }
    layout->first[layout->host_count] = at;
}

/* The four tables are one allocation; `first` has one entry more than there are ranks,
 * for the end. */
dl_status
dl_layout_init(dl_layout *layout, int rank, int size, const int *hosts)
{
    size_t count = (size_t)size;

    *layout = (dl_layout){.rank = rank, .size = size};
    layout->memory = calloc(4 * count + 1, sizeof(int));
    if (layout->memory == NULL) {
        return dl_fail_no_memory();
    }
    layout->host_of = layout->memory;
    layout->place_of = layout->host_of + count;
    layout->ranks = layout->place_of + count;
    layout->first = layout->ranks + count;
    number_hosts(layout, hosts);
    list_ranks(layout);
    layout->host = layout->host_of[rank];
    return DL_OK;
}

void
dl_layout_fini(dl_layout *layout)
{
    free(layout->memory);
    *layout = (dl_layout){0};
}
