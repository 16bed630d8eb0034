/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/layout.h"

#include <stdint.h>
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

/* Where the parts of the memory begin. */
typedef struct parts {
    int *host_of;
    int *local_rank_of;
    int *ranks;
    int *first;
} parts;

static parts
parts_of(int *memory, int size)
{
    return (parts){.host_of = memory,
                   .local_rank_of = memory + size,
                   .ranks = memory + 2 * (size_t)size,
                   .first = memory + 3 * (size_t)size};
}

/* Numbers the hosts in the order of their lowest ranks, and counts the ranks of each in
 * `first`. */
static dl_status
number_hosts(const parts *layout, int size, const int *hosts, int *host_count)
{
    /* By entry: the host's number and one, or 0. */
    int *numbers = calloc((size_t)largest_of(hosts, size) + 1, sizeof *numbers);

    if (numbers == NULL) {
        return dl_fail_no_memory();
    }
    *host_count = 0;
    for (int rank = 0; rank < size; rank++) {
        int *number = &numbers[hosts[rank]];
        if (*number == 0) {
            *number = ++*host_count;
            layout->first[*number - 1] = 0;
        }
        layout->host_of[rank] = *number - 1;
        layout->local_rank_of[rank] = layout->first[*number - 1]++;
    }
    free(numbers);
    return DL_OK;
}

/* Puts the index of each host's first rank in place of its count. */
static void
list_ranks(const parts *layout, int size, int host_count)
{
    int at = 0;

    for (int host = 0; host < host_count; host++) {
        int count = layout->first[host];
        layout->first[host] = at;
        at += count;
    }
    layout->first[host_count] = at;
    for (int rank = 0; rank < size; rank++) {
        int first = layout->first[layout->host_of[rank]];
        layout->ranks[first + layout->local_rank_of[rank]] = rank;
    }
}

/* `first` has one entry more than there are ranks, for the end. */
size_t
dl_layout_count_ints(int size)
{
    return 4 * (size_t)size + 1;
}

dl_status
dl_layout_write(int *memory, int size, const int *hosts, int *host_count)
{
    parts layout = parts_of(memory, size);

    DL_TRY(number_hosts(&layout, size, hosts, host_count));
    list_ranks(&layout, size, *host_count);
    return DL_OK;
}

dl_layout
dl_layout_of(const int *memory, int host_count, int size, int rank)
{
    /* Nothing is written through them. */
    parts layout = parts_of((int *)(uintptr_t)memory, size);

    return (dl_layout){
        .rank = rank,
        .size = size,
        .host = layout.host_of[rank],
        .host_count = host_count,
        .host_of = layout.host_of,
        .local_rank_of = layout.local_rank_of,
        .ranks = layout.ranks,
        .first = layout.first,
    };
}

dl_status
dl_layout_init(dl_layout *layout, int rank, int size, const int *hosts)
{
    int *memory = malloc(dl_layout_count_ints(size) * sizeof *memory);
    int host_count;

    *layout = (dl_layout){0};
    if (memory == NULL) {
        return dl_fail_no_memory();
    }
    if (dl_layout_write(memory, size, hosts, &host_count) != DL_OK) {
        free(memory);
        return DL_NO_MEMORY;
    }
    *layout = dl_layout_of(memory, host_count, size, rank);
    layout->memory = memory;
    return DL_OK;
}

void
dl_layout_fini(dl_layout *layout)
{
    free(layout->memory);
    *layout = (dl_layout){0};
}
