/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/cpu_refusal.h"
#include "pg/cpu/cpu_state.h"
#include "pg/cpu/shm/failure_check.h"
#include "pg/cpu/window/cpu_window.h"

/* How long a rank that leaves a group passes notices on that it was asked to. */
#define PASSING_PATIENCE (200 * DL_MILLISECOND)

/* Informs the connected ranks first, then those whose connections were not taken yet,
 * and those that will connect. */
static void
leave_hosts(dl_cpu_backend *self, const dl_error *cause, const dl_error *message)
{
    dl_notices_pass_on(&self->notices, dl_deadline_after(PASSING_PATIENCE));
    dl_traffic_abort(&self->traffic, cause, message);
    dl_cpu_end_calls(self->bootstrap, self->group_name, message);
}

/* The message names this rank, because the boards of other hosts do not have it. */
static void
abort_hosts(dl_cpu_backend *self, const dl_error *cause)
{
    char peer[DL_PEER_TEXT_SIZE];
    dl_error message = {.status = DL_PEER_LOST};

    dl_peers_describe(&self->members.peers, self->rank, peer);
    snprintf(message.text, sizeof message.text, "%s: %.1800s", peer, cause->text);
    leave_hosts(self, cause, &message);
}

void
dl_cpu_give_up(dl_cpu_backend *self, const dl_error *cause)
{
    dl_window_server_end(self->windows, cause);
    if (self->size > 1) {
        dl_board_abort(&self->board, cause);
        dl_p2p_abort(self->p2p, cause);
    }
    if (dl_cpu_has_hosts(self)) {
        abort_hosts(self, cause);
    }
}

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    dl_cpu_give_up(dl_cpu_self(backend), cause);
}

static void
leave_backend(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);
    dl_error cause = {.status = DL_CLOSED};

    snprintf(cause.text, sizeof cause.text, "group %.200s was closed",
             self->group_name);
    dl_window_server_end(self->windows, &cause);
    if (self->size > 1) {
        dl_p2p_leave(self->p2p);
        dl_board_leave(&self->board);
    }
    if (dl_cpu_has_hosts(self)) {
        leave_hosts(self, &cause, &cause);
    }
}

/* In a forked child the memory is on loan to the parent. */
static void
return_loan(dl_cpu_backend *self)
{
    if (self->fork_generation == dl_fork_generation()) {
        dl_arena_return(&self->bootstrap->membership.arena, &self->loan);
    }
}

static void
free_backend(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->fork_generation == dl_fork_generation()) {
        dl_end_unsubscribe(&self->ends);
    }
    dl_window_server_close(self->windows);
    dl_p2p_close(self->p2p);
    dl_hosts_fini(&self->hosts);
    dl_traffic_fini(&self->traffic);
    dl_notices_fini(&self->notices);
    dl_exchange_fini(&self->exchange);
    dl_board_fini(&self->board);
    dl_shared_views_fini(&self->views);
    if (self->bootstrap != NULL) {
        return_loan(self);
        dl_backend_origin_unref(&self->bootstrap->base);
    }
    dl_buffer_fini(&self->staging);
    dl_cpu_members_fini(&self->members);
    free(self->local_peers);
    free(self->local_processes);
    free(self->group_name);
    free(self);
}

static dl_status
post_message(dl_backend *backend, const dl_call *call, dl_deadline deadline,
             dl_work **work)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return dl_p2p_post(self->p2p, call, deadline, work);
}

static dl_status
post_messages(dl_backend *backend, const dl_call *calls, int count,
              dl_deadline deadline, dl_work **works, int *posted)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return dl_p2p_post_all(self->p2p, calls, count, deadline, works, posted);
}

static dl_status
watch_elsewhere(dl_cpu_backend *self, int rank)
{
    dl_notices_poll(&self->notices);
    DL_TRY(dl_notices_watch(&self->notices, rank));
    return dl_probes_poll(&self->bootstrap->probes,
                          dl_cpu_members_origin(&self->members, rank), rank);
}

static dl_status
watch_rank(dl_backend *backend, int rank)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->size == 1) {
        return DL_OK;
    }
    if (self->members.layout.host_of[rank] != self->members.layout.host) {
        return watch_elsewhere(self, rank);
    }
    return dl_failure_check_watch(&self->board,
                                  self->members.layout.local_rank_of[rank]);
}

static bool
has_left(const dl_cpu_backend *self, int local_rank)
{
    return atomic_load(&self->board.members[local_rank].state) == DL_LEFT;
}

static dl_status
rank_lost(dl_cpu_backend *self, int rank)
{
    int local_rank = self->members.layout.local_rank_of[rank];

    if (self->members.layout.host_of[rank] != self->members.layout.host) {
        return dl_notices_watch(&self->notices, rank);
    }
    return has_left(self, local_rank)
               ? DL_OK
               : dl_failure_check_watch(&self->board, local_rank);
}

static dl_status
probe_rank(dl_cpu_backend *self, int rank)
{
    return dl_probes_lost(&self->bootstrap->probes,
                          dl_cpu_members_origin(&self->members, rank), rank);
}

/* Probes one rank of each other host, the leader, which tells all about the others of
 * its host; those of the hosts that follow this one, as far as probes may be open. */
static dl_status
probe_leaders(dl_cpu_backend *self)
{
    const dl_layout *layout = &self->members.layout;

    for (int i = 1; i < layout->host_count && i <= DL_PROBES_OPEN; i++) {
        int host = (layout->host + i) % layout->host_count;
        DL_TRY(probe_rank(self, dl_layout_leader(layout, host)));
    }
    return DL_OK;
}

static dl_status
check_lost(dl_backend *backend, int rank)
{
    dl_cpu_backend *self = dl_cpu_self(backend);
    int first = rank < 0 ? 0 : rank;
    int last = rank < 0 ? self->size - 1 : rank;

    dl_notices_poll(&self->notices);
    for (int other = first; other <= last; other++) {
        if (other != self->rank) {
            DL_TRY(rank_lost(self, other));
        }
    }
    if (rank < 0) {
        return probe_leaders(self);
    }
    return self->members.layout.host_of[rank] == self->members.layout.host
               ? DL_OK
               : probe_rank(self, rank);
}

static bool
rank_has_ended(dl_backend *backend, int rank)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (rank == self->rank) {
        return false;
    }
    dl_process *process = dl_processes_find(&self->members.processes, rank);
    if (dl_process_is_gone(process)) {
        return true;
    }
    if (self->members.layout.host_of[rank] == self->members.layout.host) {
        return false;
    }
    dl_notices_poll(&self->notices);
    return dl_process_has_ended(process)
           || dl_probes_has_ended(&self->bootstrap->probes,
                                  dl_cpu_members_origin(&self->members, rank));
}

/* The join accepts only processes of this user (net/local.h), and links only those that
 * have proved the token or have a certificate of the job's authority. */
static bool
is_proved(dl_backend *backend, int rank)
{
    const dl_cpu_backend *self = dl_cpu_self(backend);

    return rank == self->rank
           || self->members.layout.host_of[rank] == self->members.layout.host
           || self->bootstrap->endpoint.secret != NULL
           || self->bootstrap->endpoint.tls != NULL;
}

static dl_status
share_memory(dl_backend *backend, size_t size, dl_region **region)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return self->size == 1
               ? dl_region_new(size, region)
               : dl_shared_new(&self->bootstrap->membership.arena, size, region);
}

static dl_status
make_window(dl_backend *backend, const dl_window_options *options,
            dl_window_part **part)
{
    dl_cpu_backend *self = dl_cpu_self(backend);
    dl_cpu_window_group group = {.server = self->windows};

    if (self->size > 1) {
        group.layout = &self->members.layout;
        group.peers = self->members.peers;
        group.processes = self->members.processes;
        group.bootstrap = self->bootstrap;
        group.tcp_contacts = self->members.tcp_contacts;
        group.may_spin = self->board.header->cores_per_rank > 0;
    }
    return dl_cpu_window_new(&group, options, part);
}

static dl_status
verify_calls(dl_backend *backend, dl_deadline deadline)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return self->size == 1 ? DL_OK : dl_board_verify_calls(&self->board, deadline);
}

static dl_status
finish_backend(dl_backend *backend, dl_deadline deadline)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->size == 1) {
        return DL_OK;
    }
    DL_TRY(dl_p2p_finish(self->p2p, deadline));
    return dl_cpu_has_hosts(self) ? dl_traffic_finish(&self->traffic, deadline) : DL_OK;
}

static const dl_backend_ops cpu_ops = {
    .name = "cpu",
    .collectives =
        {
            [DL_ALL_REDUCE] = dl_cpu_all_reduce,
            [DL_BROADCAST] = dl_cpu_broadcast,
            [DL_BARRIER] = dl_cpu_barrier,
            [DL_REDUCE] = dl_cpu_reduce,
            [DL_ALL_GATHER] = dl_cpu_all_gather,
            [DL_GATHER] = dl_cpu_gather,
            [DL_SCATTER] = dl_cpu_scatter,
            [DL_REDUCE_SCATTER] = dl_cpu_reduce_scatter,
            [DL_ALL_TO_ALL] = dl_cpu_all_to_all,
            [DL_SCAN] = dl_cpu_scan,
            [DL_EXSCAN] = dl_cpu_scan,
        },
    .post = post_message,
    .post_all = post_messages,
    .watch = watch_rank,
    .lost = check_lost,
    .has_ended = rank_has_ended,
    .is_proved = is_proved,
    .share = share_memory,
    .window = make_window,
    .abort = abort_backend,
    .verify_calls = verify_calls,
    .finish = finish_backend,
    .leave = leave_backend,
    .free = free_backend,
};

/* Fills in the peers and processes of this host's ranks. */
static dl_status
copy_locals(dl_cpu_backend *self)
{
    const dl_layout *layout = &self->members.layout;
    const int *ranks = dl_layout_ranks(layout, layout->host);
    int count = dl_layout_count(layout, layout->host);

    self->local_peers = malloc((size_t)count * sizeof *self->local_peers);
    self->local_processes = malloc((size_t)count * sizeof *self->local_processes);
    if (self->local_peers == NULL || self->local_processes == NULL) {
        return dl_fail_no_memory();
    }
    for (int local_rank = 0; local_rank < count; local_rank++) {
        self->local_peers[local_rank] =
            dl_peers_find(&self->members.peers, ranks[local_rank]);
        self->local_processes[local_rank] =
            dl_processes_find(&self->members.processes, ranks[local_rank]);
    }
    return DL_OK;
}

/* A rank that is alone on its host uses its board for shared arrays and messages
 * only. */
static dl_status
open_hosts(dl_cpu_backend *self)
{
    bool is_alone =
        dl_layout_count(&self->members.layout, self->members.layout.host) == 1;
    dl_traffic_options options = {
        .rank = self->rank,
        .size = self->size,
        .group_name = self->group_name,
        .peers = self->members.peers,
        .tcp_contacts = self->members.tcp_contacts,
        .listener = &self->bootstrap->endpoint.calls,
        .may_spin = self->board.header->cores_per_rank > 0,
        .check = dl_hosts_check,
        .late = dl_hosts_late,
        .add_awaited = dl_hosts_add_remote,
        .announce_timeout = dl_hosts_announce_own_timeout,
        .others_know = dl_hosts_others_know,
        .notify = dl_hosts_notify,
        .context = &self->hosts,
    };
    dl_notices_options notices = {
        .group_name = self->group_name,
        .layout = &self->members.layout,
        .peers = self->members.peers,
        .tcp_contacts = self->members.tcp_contacts,
        .processes = self->members.processes,
        .listener = &self->bootstrap->endpoint.calls,
    };

    dl_listener_forget_end(&self->bootstrap->endpoint.calls, self->group_name);
    DL_TRY(dl_traffic_init(&self->traffic, &options));
    DL_TRY(dl_notices_init(&self->notices, &notices));
    self->hosts.layout = &self->members.layout;
    self->hosts.traffic = &self->traffic;
    self->hosts.notices = &self->notices;
    self->hosts.probes = &self->bootstrap->probes;
    self->hosts.origin_ranks = self->members.origins;
    self->hosts.board = is_alone ? NULL : &self->board;
    self->hosts.exchange = is_alone ? NULL : &self->exchange;
    return dl_hosts_init(&self->hosts);
}

/* Opens the board, the messages, whose memory follows it in the segment, and, with
 * several hosts, what is used between them. */
static dl_status
open_memory(dl_cpu_backend *self, const dl_segment *segment)
{
    const dl_layout *layout = &self->members.layout;

    DL_TRY(copy_locals(self));
    dl_board_options options = {
        .rank = layout->local_rank_of[self->rank],
        .size = dl_layout_count(layout, layout->host),
        .group_name = self->group_name,
        .peers = self->local_peers,
        .processes = self->local_processes,
        .views = &self->views,
        .names = dl_layout_ranks(layout, layout->host),
        .phases = dl_cpu_has_hosts(self) ? DL_HOSTS_PHASES : 1,
        .elsewhere = dl_cpu_has_hosts(self) ? dl_hosts_check_others : NULL,
        .announce_timeout = dl_cpu_has_hosts(self) && dl_layout_leads(layout)
                                ? dl_hosts_announce_others_timeout
                                : NULL,
        .add_awaited = dl_cpu_has_hosts(self) ? dl_hosts_add_unseen : NULL,
        .context = &self->hosts,
    };
    size_t offset = dl_board_memory(options.size, DL_BOARD_CHUNK);

    DL_TRY(dl_shared_views_init(&self->views, &self->bootstrap->membership.arena,
                                options.size));
    DL_TRY(dl_board_init(&self->board, &options, segment->memory, segment->size));
    DL_TRY(dl_exchange_init(&self->exchange, &self->board));
    dl_p2p_options messages = {
        .group_name = self->group_name,
        .peers = self->members.peers,
        .layout = layout,
        .board = &self->board,
        .tcp_contacts = self->members.tcp_contacts,
        .listener = &self->bootstrap->endpoint.calls,
        .notices = &self->notices,
    };
    DL_TRY(dl_p2p_new(&messages, (char *)segment->memory + offset, &self->p2p));
    /* Programs make many groups out of this one, whose memory waits for its use. */
    if (segment == &self->bootstrap->membership.arena.home) {
        dl_board_populate(&self->board);
        dl_p2p_populate(self->p2p);
    }
    return dl_cpu_has_hosts(self) ? open_hosts(self) : DL_OK;
}

static void
wake_waits(void *context)
{
    dl_cpu_backend *self = context;

    if (dl_cpu_has_hosts(self)) {
        dl_hosts_wake(&self->hosts);
        dl_traffic_wake(&self->traffic);
    }
    dl_board_wake(&self->board);
    dl_p2p_wake(self->p2p);
}

static bool
notify_ended(void *context)
{
    dl_cpu_backend *self = context;

    return dl_hosts_notify_ended(&self->hosts);
}

/* Subscribes to the ends of processes.  Called when everything that the callbacks use
 * is made. */
static void
watch_ends(dl_cpu_backend *self)
{
    self->ends = (dl_end_subscriber){
        .wake = wake_waits,
        .notify = dl_cpu_has_hosts(self) ? notify_ended : NULL,
        .context = self,
    };
    dl_end_subscribe(&self->ends);
}

static dl_status
take_members(dl_cpu_backend *self, const dl_backend_options *options)
{
    dl_status status = dl_cpu_members_init(&self->members, self->bootstrap, options);

    self->base.origin = &self->bootstrap->base;
    self->base.origin_ranks = self->members.origins;
    return status;
}

static dl_status
make_bootstrap(dl_cpu_backend *self, const dl_backend_options *options,
               dl_deadline deadline)
{
    DL_TRY(dl_bootstrap_new(options, deadline, &self->bootstrap));
    DL_TRY(take_members(self, options));
    return open_memory(self, &self->bootstrap->membership.arena.home);
}

static dl_status
borrow_memory(dl_cpu_backend *self, dl_deadline deadline)
{
    dl_borrower borrower;
    int *local_ranks;

    DL_TRY(dl_cpu_borrower_init(&borrower, self->bootstrap, &self->members,
                                self->group_name, &local_ranks));
    dl_status status = dl_arena_borrow(&self->bootstrap->membership.arena, &borrower,
                                       deadline, &self->loan);
    free(local_ranks);
    return status;
}

/* Makes a group out of another one, without a rendezvous. */
static dl_status
make_from_origin(dl_cpu_backend *self, const dl_backend_options *options,
                 dl_deadline deadline)
{
    self->bootstrap = (dl_bootstrap *)(void *)dl_backend_origin_ref(options->origin);
    DL_TRY(take_members(self, options));
    DL_TRY(borrow_memory(self, deadline));
    return open_memory(self, &self->loan.segment);
}

/* Returns this rank's memory of the group; empty if there is none yet. */
static const dl_segment *
memory_of(const dl_cpu_backend *self, const dl_backend_options *options)
{
    return options->origin == NULL && self->bootstrap != NULL
               ? &self->bootstrap->membership.arena.home
               : &self->loan.segment;
}

void
dl_cpu_backend_refuse(const dl_backend_options *options)
{
    dl_cpu_refuse(options, NULL, &(dl_segment){0});
}

dl_status
dl_cpu_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    dl_cpu_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        dl_fail_no_memory();
        dl_cpu_backend_refuse(options);
        return DL_NO_MEMORY;
    }
    self->base.ops = &cpu_ops;
    self->rank = options->rank;
    self->size = options->size;
    self->fork_generation = dl_fork_generation();
    self->group_name = strdup(options->group_name);
    self->windows = dl_window_server_new(options->group_name);
    dl_status status =
        self->group_name == NULL || self->windows == NULL ? dl_fail_no_memory() : DL_OK;
    if (status == DL_OK && options->size == 1 && options->origin == NULL) {
        status = dl_endpoint_check_settings();
    }
    if (status == DL_OK && options->size > 1) {
        status = options->origin == NULL ? make_bootstrap(self, options, deadline)
                                         : make_from_origin(self, options, deadline);
    }
    if (status != DL_OK) {
        dl_cpu_refuse(options, self->bootstrap, memory_of(self, options));
        free_backend(&self->base);
        return status;
    }
    if (options->size > 1) {
        watch_ends(self);
    }
    self->base.spans_hosts = dl_cpu_has_hosts(self);
    self->base.has_brief_messages = true;
    self->base.brief =
        dl_cpu_has_hosts(self) ? 0 : DL_BRIEF_OF_ALL_RANKS / (size_t)self->size;
    dl_cpu_log_join(options, &self->members);
    *backend = &self->base;
    return DL_OK;
}

void
dl_cpu_watch_for_good(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);
    int count = self->size == 1
                    ? 0
                    : dl_layout_count(&self->members.layout, self->members.layout.host);

    for (int i = 0; i < count; i++) {
        dl_process_ref(self->local_processes[i]);
    }
}

bool
dl_cpu_any_has_ended(void)
{
    return dl_process_any_has_ended();
}
