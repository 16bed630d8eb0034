/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_members.h"

#include <stdlib.h>

/* Chooses the members, and lays them out. */
static dl_status
choose_members(dl_cpu_members *self, const dl_layout *all,
               const dl_backend_options *options)
{
    size_t count = (size_t)options->size;
    int *hosts = malloc(count * sizeof *hosts);

    self->origins = malloc(count * sizeof *self->origins);
    if (hosts == NULL || self->origins == NULL) {
        free(hosts);
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < options->size; rank++) {
        self->origins[rank] = options->origin_ranks[rank];
        hosts[rank] = all->host_of[self->origins[rank]];
    }
    dl_status status =
        dl_layout_init(&self->layout, options->rank, options->size, hosts);
    free(hosts);
    return status;
}

dl_status
dl_cpu_members_init(dl_cpu_members *self, dl_bootstrap *bootstrap,
                    const dl_backend_options *options)
{
    dl_endpoint *endpoint = &bootstrap->endpoint;

    *self = (dl_cpu_members){
        .layout = endpoint->layout,
        .peers = endpoint->peers,
        .tcp_contacts = dl_endpoint_tcp_contacts(endpoint),
        .processes = dl_endpoint_processes(endpoint),
    };
    self->layout.memory = NULL;
    if (options->origin == NULL || options->origin_ranks == NULL) {
        return DL_OK;
    }
    DL_TRY(choose_members(self, &endpoint->layout, options));
    self->peers.ranks = self->origins;
    self->tcp_contacts.ranks = self->origins;
    self->processes.ranks = self->origins;
    return DL_OK;
}

void
dl_cpu_members_fini(dl_cpu_members *self)
{
    dl_layout_fini(&self->layout);
    free(self->origins);
}

dl_status
dl_cpu_borrower_init(dl_borrower *borrower, const dl_bootstrap *bootstrap,
                     const dl_cpu_members *members, const char *name, int **local_ranks)
{
    const dl_endpoint *endpoint = &bootstrap->endpoint;
    const int *ranks = dl_layout_ranks(&members->layout, members->layout.host);
    int count = dl_layout_count(&members->layout, members->layout.host);

    *local_ranks = malloc((size_t)count * sizeof **local_ranks);
    if (*local_ranks == NULL) {
        return dl_fail_no_memory();
    }
    for (int i = 0; i < count; i++) {
        int origin = dl_cpu_members_origin(members, ranks[i]);
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
