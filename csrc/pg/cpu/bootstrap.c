/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/bootstrap.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/thread.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/tcp/traffic.h"

static void
free_bootstrap(dl_backend_origin *origin)
{
    dl_bootstrap *self = (dl_bootstrap *)(void *)origin;

    if (self->fork_generation != dl_fork_generation()) {
        dl_membership_forget(&self->membership);
    }
    dl_call_source_remove(&self->calls);
    dl_membership_fini(&self->membership);
    dl_probes_fini(&self->probes);
    dl_endpoint_fini(&self->endpoint);
    free(self->local_processes);
    free(self);
}

/* A bootstrap while it is being made. */
typedef struct making {
    dl_bootstrap *bootstrap;
    const dl_backend_options *options;
    dl_deadline deadline;
    dl_records_digest own; /* that is sent with greetings */
    dl_records_digest theirs[sizeof(int) * CHAR_BIT];
} making;

/* Returns the leader of the host that is `distance` hosts behind this one; before it,
 * if negative. */
static int
leader_at(const dl_layout *layout, int distance)
{
    int count = layout->host_count;

    return dl_layout_leader(layout, (layout->host + distance + count) % count);
}

/* A barrier in log2(hosts) rounds, with one message each way in a round.  Up to five
 * hosts all leaders exchange one.  Leaders with other records than the one before them
 * fail, and nobody passes the barrier after this one. */
static dl_status
pass_greetings(making *self)
{
    const dl_endpoint *endpoint = &self->bootstrap->endpoint;
    dl_traffic *traffic = &self->bootstrap->endpoint.traffic;
    const dl_layout *layout = &endpoint->layout;
    const size_t size = sizeof self->own;
    uint32_t round = 0;

    self->own = dl_contacts_digest(&endpoint->contacts);
    for (int distance = 1; distance < layout->host_count; distance *= 2) {
        DL_TRY(dl_traffic_expect(traffic, leader_at(layout, -distance),
                                 &self->theirs[round], size, round));
        round++;
    }
    round = 0;
    for (int distance = 1; distance < layout->host_count; distance *= 2) {
        DL_TRY(dl_traffic_send(traffic, leader_at(layout, distance), &self->own, size));
        DL_TRY(dl_traffic_wait(traffic, dl_traffic_next(traffic)));
        DL_TRY(dl_endpoint_compare(endpoint, &self->theirs[round++]));
    }
    return DL_OK;
}

/* Informs all leaders that this one exchanges messages with, also those that have not
 * connected yet: they wait for others, too. */
static void
break_greetings(making *self)
{
    const dl_layout *layout = &self->bootstrap->endpoint.layout;
    int others[2 * sizeof(int) * CHAR_BIT];
    int count = 0;

    for (int distance = 1; distance < layout->host_count; distance *= 2) {
        others[count++] = leader_at(layout, distance);
        others[count++] = leader_at(layout, -distance);
    }
    dl_traffic_break(&self->bootstrap->endpoint.traffic, others, count);
}

/* A leader that times out names the one that it waits for or, if that waits as well, whom
 * it waits for. */
static dl_status
exchange_greetings(making *self, bool is_first)
{
    dl_op_context op = {.sequence = is_first ? 2 : 3,
                        .fingerprint = {.op = DL_BARRIER},
                        .deadline = self->deadline};

    dl_traffic_begin(&self->bootstrap->endpoint.traffic, &op);
    dl_status status = pass_greetings(self);
    if (status == DL_TIMEOUT
        && dl_join_fault_check_late(self->options->store) != DL_OK) {
        status = DL_PEER_LOST;
    }
    if (status != DL_OK) {
        break_greetings(self);
    }
    dl_traffic_end(&self->bootstrap->endpoint.traffic);
    return status;
}

/* A leader that has closed its link may have stored the reason.  A rank whose socket
 * could not be reached may have ended, or have no address that works. */
static dl_status
fail_lost(const making *self)
{
    const dl_endpoint *endpoint = &self->bootstrap->endpoint;
    dl_error error = *dl_last_error();

    DL_TRY(dl_join_fault_check_lost(self->options->store));
    if (endpoint->apart[0] == '\0') {
        return error.status;
    }
    return dl_fail(error.status,
                   "%.1200s; some ranks of one machine cannot reach each other's Unix "
                   "sockets (%s)",
                   error.text, endpoint->apart);
}

/* Logged once, by rank 0, whose log is the one that is usually read. */
static void
log_apart(const making *self)
{
    const dl_endpoint *endpoint = &self->bootstrap->endpoint;

    if (endpoint->apart[0] != '\0' && endpoint->rank == 0) {
        dl_log(DL_LOG_WARNING,
               "group %s: some ranks of one machine cannot reach each other's Unix "
               "sockets, and use TCP instead (%s)",
               self->options->group_name, endpoint->apart);
    }
}

/* Called by the join on the leader, while the members wait.  After the first greeting all
 * ranks have read all records, so they can be deleted; after the second they are, so that a
 * later group may use the same keys, and all hosts have joined. */
static dl_status
greet_hosts(void *context, bool is_first)
{
    making *self = context;
    dl_endpoint *endpoint = &self->bootstrap->endpoint;

    if (endpoint->layout.host_count == 1) {
        return DL_OK;
    }
    DL_TRY(dl_endpoint_open_traffic(endpoint, self->options->group_name));
    dl_status status = exchange_greetings(self, is_first);
    return status == DL_PEER_LOST ? fail_lost(self) : status;
}

static dl_status
open_probes(dl_bootstrap *self)
{
    const dl_endpoint *endpoint = &self->endpoint;
    dl_probes options = {.rank = endpoint->rank,
                         .size = endpoint->size,
                         .peers = endpoint->peers,
                         .tcp_contacts = dl_endpoint_tcp_contacts(endpoint)};

    return endpoint->layout.host_count == 1 ? DL_OK
                                            : dl_probes_init(&self->probes, &options);
}

static void
call_notifier(void *context)
{
    (void)context;
    dl_end_call_notifier();
}

/* If this fails, waits check for connections between their slices. */
static void
watch_calls(dl_bootstrap *self)
{
    dl_listener *listener = &self->endpoint.calls;

    if (listener->is_open) {
        self->calls = (dl_call_source){
            .fd = listener->fd, .read = dl_listener_poll, .context = listener};
        (void)dl_call_source_add(&self->calls);
        self->notices =
            (dl_listener_bell){.use = DL_FOR_NOTICES, .ring = call_notifier};
        dl_listener_add_bell(listener, &self->notices);
    }
}

static bool
leads_host(const dl_endpoint *endpoint)
{
    return dl_layout_leader(&endpoint->layout, endpoint->layout.host) == endpoint->rank;
}

static dl_status
join_ranks(making *self)
{
    dl_bootstrap *bootstrap = self->bootstrap;
    dl_endpoint local = {.listener = -1, .invited = -1, .table = -1};

    DL_TRY(dl_endpoint_open(&bootstrap->endpoint, self->options, self->deadline));
    /* Steps that may fail come before the others rely on this rank. */
    dl_status status = open_probes(bootstrap);
    if (status == DL_OK) {
        status = dl_endpoint_open_local(&bootstrap->endpoint, &local);
    }
    if (status == DL_OK) {
        dl_join work = {&local,      self->options, self->deadline,
                        greet_hosts, self,          &bootstrap->endpoint};
        status = dl_join_run(&work, &bootstrap->membership);
        bootstrap->local_processes = local.processes;
        local.processes = NULL;
    }
    if (status != DL_OK && leads_host(&bootstrap->endpoint)
        && bootstrap->endpoint.layout.host_count > 1) {
        /* The fault is stored before the links close, because ranks that see them close
         * read it. */
        dl_join_fault_pass_on(self->options->store, bootstrap->endpoint.rank);
    } else if (status != DL_OK) {
        dl_join_fault_publish(self->options->store, bootstrap->endpoint.rank);
    }
    dl_endpoint_drop_local(&local);
    dl_endpoint_close_local(&bootstrap->endpoint);
    DL_TRY(status);
    log_apart(self);
    watch_calls(bootstrap);
    return DL_OK;
}

dl_status
dl_bootstrap_new(const dl_backend_options *options, dl_deadline deadline,
                 dl_bootstrap **bootstrap)
{
    dl_bootstrap *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_backend_origin_init(&self->base, free_bootstrap);
    self->fork_generation = dl_fork_generation();
    making work = {.bootstrap = self, .options = options, .deadline = deadline};
    dl_status status = join_ranks(&work);
    if (status != DL_OK) {
        dl_backend_origin_unref(&self->base);
        return status;
    }
    *bootstrap = self;
    return DL_OK;
}
