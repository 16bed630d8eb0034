/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/probes.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

dl_status
dl_probes_init(dl_probes *probes, const dl_probes *options)
{
    *probes = *options;
    probes->fork_generation = dl_fork_generation();
    probes->links = calloc((size_t)probes->size, sizeof *probes->links);
    if (probes->links == NULL) {
        *probes = (dl_probes){0};
        return dl_fail_no_memory();
    }
    pthread_mutex_init(&probes->lock, NULL);
    return DL_OK;
}

void
dl_probes_fini(dl_probes *probes)
{
    bool is_own = probes->fork_generation == dl_fork_generation();

    if (probes->links == NULL) {
        return;
    }
    for (int rank = 0; rank < probes->size; rank++) {
        if (probes->links[rank] != NULL && is_own) {
            dl_link_fini(probes->links[rank]);
        }
        free(probes->links[rank]);
    }
    free(probes->links);
    pthread_mutex_destroy(&probes->lock);
    *probes = (dl_probes){0};
}

/* NULL: none is left, or no memory; nothing will be known of the rank then. */
static dl_link *
link_to_locked(dl_probes *self, int rank)
{
    dl_link_options options = {.group = "",
                               .there = &self->peers[rank],
                               .address = self->ways[rank].addresses[0],
                               .rank = self->rank};

    if (self->links[rank] == NULL && self->count < DL_PROBES_LIMIT) {
        self->links[rank] = calloc(1, sizeof **self->links);
        if (self->links[rank] != NULL) {
            memcpy(options.token, self->ways[rank].token, sizeof options.token);
            dl_link_init(self->links[rank], &options);
            self->count++;
        }
    }
    return self->links[rank];
}

/* After a failure the next look is a new attempt: a network may come back. */
static dl_status
look_locked(dl_probes *self, int rank, int name)
{
    dl_link *link = link_to_locked(self, rank);

    if (link == NULL) {
        return DL_OK;
    }
    link->options.peer = name;
    dl_status status = dl_link_look(link);
    if (status != DL_OK) {
        dl_link_fini(link);
        link->is_looking = false;
    }
    return status == DL_PEER_LOST ? status : DL_OK;
}

dl_status
dl_probes_look(dl_probes *probes, int rank, int name)
{
    if (probes->links == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&probes->lock);
    dl_status status = look_locked(probes, rank, name);
    pthread_mutex_unlock(&probes->lock);
    return status;
}
