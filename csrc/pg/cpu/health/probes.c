/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/probes.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "base/thread.h"

/* An entry; made with all others when the first is needed. */
typedef struct dl_probe {
    const dl_probes *probes;
    dl_link *link;   /* NULL: not looked at yet */
    uint64_t looked; /* number of its last look */
    bool is_broken;  /* it was open, and ended without a notice */
} dl_probe;

/* Returns the number of the entries. */
static int
entry_count(const dl_probes *self)
{
    return 2 * self->size;
}

dl_status
dl_probes_init(dl_probes *probes, const dl_probes *options)
{
    DL_TRY(dl_dial_configure());
    *probes = *options;
    probes->fork_generation = dl_fork_generation();
    pthread_mutex_init(&probes->lock, NULL);
    return DL_OK;
}

void
dl_probes_fini(dl_probes *probes)
{
    bool is_own = probes->fork_generation == dl_fork_generation();

    if (probes->size == 0) {
        return;
    }
    for (int i = 0; probes->entries != NULL && i < entry_count(probes); i++) {
        if (probes->entries[i].link != NULL && is_own) {
            dl_link_fini(probes->entries[i].link);
        }
        free(probes->entries[i].link);
    }
    free(probes->entries);
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
        const dl_probe *oldest = NULL;
        for (int i = 0; i < entry_count(self); i++) {
            const dl_probe *each = &self->entries[i];
            if (each->link != NULL && is_open(each->link)
                && (oldest == NULL || each->looked < oldest->looked)) {
                oldest = each;
            }
        }
        close_probe(self, oldest->link);
    }
}

/* The peer of a probe, by whatever name the group that has asked for it knows it. */
static dl_peer
find_peer(const void *context, int name)
{
    const dl_probe *probe = context;
    const dl_probes *probes = probe->probes;

    (void)name;
    return dl_peers_find(&probes->peers, (int)(probe - probes->entries) % probes->size);
}

static dl_link *
make_link(dl_probes *self, dl_probe *probe, int index)
{
    dl_link *made = calloc(1, sizeof *made);
    dl_link_options options = {.group = "",
                               .peers = {.find = find_peer, .context = probe},
                               .rank = self->rank};
    dl_tcp_contact tcp;

    if (made == NULL) {
        return NULL;
    }
    probe->probes = self;
    dl_tcp_contacts_find(&self->tcp_contacts, index % self->size, &tcp);
    dl_link_options_aim(&options, &tcp, 0);
    if (index >= self->size) {
        options.address.socket.ip4.sin_port = htons(tcp.life_port);
    }
    dl_link_init(made, &options);
    return made;
}

/* Returns the entry with its link, or NULL when there is no memory; the rank then counts
 * as alive. */
static dl_probe *
find_probe_locked(dl_probes *self, int index)
{
    if (self->entries == NULL) {
        self->entries = calloc((size_t)entry_count(self), sizeof *self->entries);
    }
    if (self->entries == NULL) {
        return NULL;
    }
    dl_probe *probe = &self->entries[index];
    if (probe->link == NULL) {
        probe->link = make_link(self, probe, index);
    }
    return probe->link == NULL ? NULL : probe;
}

/* Returns DL_CLOSED if the process has said that it leaves.  A failed probe is closed,
 * so that the next check tries again: the network may have recovered. */
static dl_status
check_locked(dl_probes *self, int index, int name)
{
    dl_probe *probe = find_probe_locked(self, index);

    self->is_silent = false;
    if (probe == NULL) {
        return DL_OK;
    }
    dl_link *link = probe->link;
    if (!is_open(link)) {
        close_oldest(self);
        self->open++;
    }
    probe->looked = ++self->look;
    link->options.peer = name;
    bool was_open = link->probe.stage == DL_DIAL_OPEN;
    dl_status status = dl_link_probe(link);
    if (link->probe.stage == DL_DIAL_OPEN && status != DL_PEER_LOST) {
        probe->is_broken = false;
    } else if (was_open && status == DL_PEER_LOST) {
        probe->is_broken = true;
    }
    self->is_silent = status == DL_PEER_LOST && dl_dial_is_host_lost(&link->probe);
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
    if (probes->size == 0) {
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

    if (probes->size == 0) {
        return DL_OK;
    }
    pthread_mutex_lock(&probes->lock);
    (void)check_locked(probes, rank, name);
    if (probes->entries != NULL && probes->entries[rank].is_broken) {
        status = dl_dial_fail_lost(&probes->entries[rank].link->options,
                                   "exited or was killed, or cannot be reached");
    }
    pthread_mutex_unlock(&probes->lock);
    return status;
}

/* A process that lives may be silent at its life port, where connections wait that
 * nobody accepts; one that has ended refuses them. */
bool
dl_probes_has_ended(dl_probes *probes, int rank)
{
    dl_tcp_contact tcp;

    if (probes->size == 0) {
        return false;
    }
    pthread_mutex_lock(&probes->lock);
    bool has_ended = check_locked(probes, rank, rank) != DL_OK;
    dl_tcp_contacts_find(&probes->tcp_contacts, rank, &tcp);
    if (has_ended && !probes->is_silent && tcp.life_port != 0) {
        has_ended = check_locked(probes, probes->size + rank, rank) != DL_OK
                    && !probes->is_silent;
    }
    pthread_mutex_unlock(&probes->lock);
    return has_ended;
}
