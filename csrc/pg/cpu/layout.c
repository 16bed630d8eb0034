/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/layout.h"

#include <stdlib.h>

static int
largest_of(const int *hosts, int size)
{
    int largest = 0;

    for (int rank = 0; rank < size; rank++) {
        largest = hosts[rank] > largest ? hosts[rank] : largest;
    }
    return largest;
}

/* Numbers the hosts in the order of their lowest ranks, and counts the ranks of each in
 * `first`. */
static dl_status
number_hosts(dl_layout *layout, const int *hosts)
{
    /* By entry: the host's number and one, or 0. */
    int *numbers = calloc((size_t)largest_of(hosts, layout->size) + 1, sizeof *numbers);

    if (numbers == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < layout->size; rank++) {
        int *number = &numbers[hosts[rank]];
        if (*number == 0) {
            *number = ++layout->host_count;
        }
        layout->host_of[rank] = *number - 1;
        layout->local_rank_of[rank] = layout->first[*number - 1]++;
    }
    free(numbers);
    return DL_OK;
}

/* Puts the index of each host's first rank in place of its count. */
static void
list_ranks(dl_layout *layout)
{
    int at = 0;

    for (int host = 0; host < layout->host_count; host++) {
        int count = layout->first[host];
        layout->first[host] = at;
        at += count;
    }
    layout->first[layout->host_count] = at;
    for (int rank = 0; rank < layout->size; rank++) {
        int first = layout->first[layout->host_of[rank]];
        layout->ranks[first + layout->local_rank_of[rank]] = rank;
    }
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
    layout->local_rank_of = layout->host_of + count;
    layout->ranks = layout->local_rank_of + count;
    layout->first = layout->ranks + count;
    if (number_hosts(layout, hosts) != DL_OK) {
        dl_layout_fini(layout);
        return DL_NO_MEMORY;
    }
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
