/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_members.h"

#include <stdlib.h>

dl_status
dl_cpu_members_init(dl_cpu_members *self, const dl_bootstrap *bootstrap,
                    const dl_backend_options *options)
{
    const dl_endpoint *endpoint = &bootstrap->endpoint;
    size_t count = (size_t)options->size;
    int *hosts = malloc(count * sizeof *hosts);

    *self = (dl_cpu_members){
        .peers = malloc(count * sizeof *self->peers),
        .origins = malloc(count * sizeof *self->origins),
    };
    self->tcp_contacts = (dl_tcp_contacts){.find = dl_contacts_find_tcp,
                                           .context = &endpoint->contacts,
                                           .ranks = self->origins};
    if (hosts == NULL || self->origins == NULL || self->peers == NULL) {
        free(hosts);
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < options->size; rank++) {
        int origin = options->origin == NULL ? rank : options->origin_ranks[rank];
        self->origins[rank] = origin;
        self->peers[rank] = endpoint->peers[origin];
        hosts[rank] = endpoint->layout.host_of[origin];
    }
    dl_status status =
        dl_layout_init(&self->layout, options->rank, options->size, hosts);
    free(hosts);
    return status;
}

void
dl_cpu_members_fini(dl_cpu_members *self)
{
    dl_layout_fini(&self->layout);
    free(self->origins);
    free(self->peers);
}

dl_status
dl_cpu_borrower_init(dl_borrower *borrower, const dl_bootstrap *bootstrap,
                     const dl_layout *layout, const int *origin_ranks, const char *name,
                     int **local_ranks)
{
    const dl_endpoint *endpoint = &bootstrap->endpoint;
    int count = dl_layout_count(layout, layout->host);

    *local_ranks = malloc((size_t)count * sizeof **local_ranks);
    if (*local_ranks == NULL) {
        return dl_fail_no_memory();
    }
    for (int i = 0; i < count; i++) {
        int origin = origin_ranks[dl_layout_ranks(layout, layout->host)[i]];
        (*local_ranks)[i] = endpoint->layout.local_rank_of[origin];
    }
    *borrower = (dl_borrower){
        .rank = endpoint->layout.local_rank_of[endpoint->rank],
        .name = name,
        .ranks = *local_ranks,
        .count = count,
        .processes = bootstrap->local_processes,
        .size = dl_layout_count(&endpoint->layout, endpoint->layout.host),
    };
    return DL_OK;
}
