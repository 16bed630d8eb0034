/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/survey.h"

#include <stdlib.h>

#include "base/map.h"

size_t
dl_survey_size(int size)
{
    return sizeof(dl_survey) + dl_layout_count_ints(size) * sizeof(int);
}

/* Sets the host of each rank to the lowest rank on it.  Both texts have to be equal: a
 * hint can only separate ranks. */
static dl_status
compare_hosts(const dl_contact_entry *entries, int size, int *hosts)
{
    dl_map_entry *lowest = calloc((size_t)size, sizeof *lowest); /* by rank */
    dl_map map = {0};

    if (lowest == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < size; rank++) {
        const dl_host_id *host = &entries[rank].host;
        dl_bytes key = {(const uint8_t *)host, sizeof *host};
        /* Most ranks follow one of their host. */
        if (rank > 0 && dl_host_id_equal(host, &entries[rank - 1].host)) {
            hosts[rank] = hosts[rank - 1];
            continue;
        }
        dl_map_entry *found = dl_map_find(&map, key);
        if (found == NULL) {
            found = &lowest[rank];
            dl_map_insert(&map, found, key);
        }
        hosts[rank] = (int)(found - lowest);
    }
    dl_map_fini(&map);
    free(lowest);
    return DL_OK;
}

bool
dl_survey_can_link(const dl_contact_entry *left, const dl_contact_entry *right)
{
    bool has_stacks = left->host.stack != right->host.stack;

    return left->has_address && right->has_address && left->tls_mode == right->tls_mode
           && !(has_stacks && (left->has_loopback || right->has_loopback));
}

/* Sets a rank that was not found yet. */
static void
find_first(int *first, int rank, bool is_true)
{
    if (*first < 0 && is_true) {
        *first = rank;
    }
}

dl_status
dl_survey_make(dl_survey *survey, const dl_contact_entry *entries, int size)
{
    int *hosts = malloc((size_t)size * sizeof *hosts);

    *survey = (dl_survey){
        .refused = -1, .other_mode = -1, .unaddressed = -1, .is_whole = true};
    if (hosts == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < size; rank++) {
        const dl_contact_entry *entry = &entries[rank];
        find_first(&survey->refused, rank, entry->is_refused);
        find_first(&survey->other_mode, rank, entry->tls_mode != entries[0].tls_mode);
        find_first(&survey->unaddressed, rank, !entry->has_address);
        survey->has_loopback |= entry->has_loopback;
        survey->has_stacks |= entry->host.stack != entries[0].host.stack;
        survey->is_whole &=
            rank == 0 || dl_survey_can_link(&entries[(rank - 1) / 2], entry);
    }
    dl_status status = compare_hosts(entries, size, hosts);
    if (status == DL_OK) {
        status = dl_layout_write(survey->layout, size, hosts, &survey->host_count);
    }
    free(hosts);
    return status;
}

dl_layout
dl_survey_layout(const dl_survey *survey, int size, int rank)
{
    return dl_layout_of(survey->layout, survey->host_count, size, rank);
}
