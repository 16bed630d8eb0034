/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/probes.h"

#include <stdlib.h>

#include "base/thread.h"

dl_status
dl_probes_init(dl_probes *probes, const dl_probes *options)
{
    DL_TRY(dl_dial_configure());
    *probes = *options;
    probes->fork_generation = dl_fork_generation();
    probes->links = calloc((size_t)probes->size, sizeof *probes->links);
    probes->looked = calloc((size_t)probes->size, sizeof *probes->looked);
    probes->is_broken = calloc((size_t)probes->size, sizeof *probes->is_broken);
    if (probes->links == NULL || probes->looked == NULL || probes->is_broken == NULL) {
        free(probes->links);
        free(probes->looked);
        free(probes->is_broken);
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
    free(probes->looked);
    free(probes->is_broken);
    pthread_mutex_destroy(&probes->lock);
    *probes = (dl_probes){0};
}

static bool
is_open(const dl_link *link)
{
    return link->probe.stage != DL_DIAL_NONE;
}

static void
close_probe(dl_probes *self, dl_link *link)
{
    self->open -= is_open(link);
    dl_link_fini(link);
}

/* Closes least recently used probes until one more may be opened. */
static void
close_oldest(dl_probes *self)
{
    while (self->open >= DL_PROBES_OPEN) {
        int oldest = -1;
        for (int rank = 0; rank < self->size; rank++) {
            bool has_probe = self->links[rank] != NULL && is_open(self->links[rank]);
            if (has_probe
                && (oldest < 0 || self->looked[rank] < self->looked[oldest])) {
                oldest = rank;
            }
        }
        close_probe(self, self->links[oldest]);
    }
}

/* Returns NULL when there is no memory; the rank then counts as alive. */
static dl_link *
link_to_locked(dl_probes *self, int rank)
{
    dl_link_options options = {
        .group = "", .there = &self->peers[rank], .rank = self->rank};

    if (self->links[rank] == NULL) {
        self->links[rank] = calloc(1, sizeof **self->links);
        if (self->links[rank] != NULL) {
            dl_link_options_aim(&options, self->ways[rank], 0);
            dl_link_init(self->links[rank], &options);
        }
    }
    return self->links[rank];
}

/* Returns DL_CLOSED if the process has said that it leaves.  A failed probe is closed, so
 * that the next check tries again: the network may have recovered. */
static dl_status
check_locked(dl_probes *self, int rank, int name)
{
    dl_link *link = link_to_locked(self, rank);

    if (link == NULL) {
        return DL_OK;
    }
    if (!is_open(link)) {
        close_oldest(self);
        self->open++;
    }
    self->looked[rank] = ++self->look;
    link->options.peer = name;
    bool was_open = link->probe.stage == DL_DIAL_OPEN;
    dl_status status = dl_link_probe(link);
    if (link->probe.stage == DL_DIAL_OPEN && status != DL_PEER_LOST) {
        self->is_broken[rank] = false;
    } else if (was_open && status == DL_PEER_LOST) {
        self->is_broken[rank] = true;
    }
    if (!is_open(link)) {
        self->open--;
    } else if (status != DL_OK) {
        close_probe(self, link);
    }
    return status == DL_PEER_LOST || status == DL_CLOSED ? status : DL_OK;
}

dl_status
dl_probes_poll(dl_probes *probes, int rank, int name)
{
    if (probes->links == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&probes->lock);
    dl_status status = check_locked(probes, rank, name);
    pthread_mutex_unlock(&probes->lock);
    return status == DL_CLOSED ? dl_fail(DL_PEER_LOST, "%s", dl_last_error()->text)
                               : status;
}

dl_status
dl_probes_lost(dl_probes *probes, int rank, int name)
{
    dl_status status = DL_OK;

    if (probes->links == NULL) {
        return DL_OK;
    }
    pthread_mutex_lock(&probes->lock);
    (void)check_locked(probes, rank, name);
    if (probes->is_broken[rank]) {
        status = dl_dial_fail_lost(&probes->links[rank]->options,
                                   "exited or was killed, or cannot be reached");
    }
    pthread_mutex_unlock(&probes->lock);
    return status;
}
