/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_backend.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/interface.h"
#include "pg/cpu/algorithms/limits.h"
#include "pg/cpu/cpu_state.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/shm/failure_check.h"
#include "pg/cpu/window/cpu_window.h"

/* Limit of the time for informing other ranks that this one cannot make a group. */
#define TELLING_PATIENCE (500 * DL_MILLISECOND)

/* The hosts that a log line lists; of more hosts only the number is given. */
#define TOLD_HOSTS 8

#define FAREWELL_TEXT ((int)(DL_ENDED_FAREWELL_SIZE - DL_HEAD_SIZE))

/* Answers ranks of other hosts that connect to this one for the group, now or later,
 * with `message`, cut to the size of an answer. */
static void
end_calls(dl_roster *roster, const char *group_name, const dl_error *message)
{
    uint8_t farewell[DL_FAILURE_NOTICE_SIZE];
    dl_error brief = {.status = message->status};

    snprintf(brief.text, sizeof brief.text, "%.*s", FAREWELL_TEXT, message->text);
    dl_listener_end(&roster->endpoint.calls, group_name,
                    (dl_bytes){farewell, dl_failure_notice_put(farewell, &brief)});
}

/* Informs the connected ranks first, then those whose connections were not taken yet,
 * and those that will connect. */
static void
leave_hosts(dl_cpu_backend *self, const dl_error *cause, const dl_error *message)
{
    dl_traffic_abort(&self->traffic, cause, message);
    end_calls(self->roster, self->group_name, message);
}

/* The message names this rank, because the boards of other hosts do not have it. */
static void
abort_hosts(dl_cpu_backend *self, const dl_error *cause)
{
    char peer[DL_PEER_TEXT_SIZE];
    dl_error message = {.status = DL_PEER_LOST};

    dl_peer_describe(&self->peers[self->rank], self->rank, peer);
    snprintf(message.text, sizeof message.text, "%s: %.1800s", peer, cause->text);
    leave_hosts(self, cause, &message);
}

void
dl_cpu_give_up(dl_cpu_backend *self, const dl_error *cause)
{
    dl_window_ends_set(self->windows, cause);
    dl_window_server_ring(atomic_load(&self->window_server));
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
    dl_window_ends_set(self->windows, &cause);
    dl_window_server_ring(atomic_load(&self->window_server));
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
        dl_arena_return(&self->roster->membership.arena, &self->loan);
    }
}

static void
free_backend(dl_backend *backend)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->fork_generation == dl_fork_generation()) {
        dl_end_unsubscribe(&self->ends);
    }
    if (atomic_load(&self->window_server) != NULL) {
        dl_window_server_stop(atomic_load(&self->window_server));
        dl_window_server_unref(atomic_load(&self->window_server));
    }
    dl_p2p_close(self->p2p);
    dl_hosts_fini(&self->hosts);
    dl_traffic_fini(&self->traffic);
    dl_news_fini(&self->news);
    dl_exchange_fini(&self->exchange);
    dl_board_fini(&self->board);
    dl_shared_views_fini(&self->views);
    if (self->roster != NULL) {
        return_loan(self);
        dl_backend_origin_unref(&self->roster->base);
    }
    dl_window_ends_unref(self->windows);
    dl_buffer_fini(&self->staging);
    dl_layout_fini(&self->layout);
    free(self->local_peers);
    free(self->local_processes);
    free(self->processes);
    free(self->peers);
    free(self->ways);
    free(self->origin_ranks);
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
    dl_news_hear(&self->news);
    DL_TRY(dl_news_watch(&self->news, rank));
    return dl_probes_look(&self->roster->probes, self->origin_ranks[rank], rank);
}

static dl_status
watch_rank(dl_backend *backend, int rank)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    if (self->size == 1) {
        return DL_OK;
    }
    if (self->layout.host_of[rank] != self->layout.host) {
        return watch_elsewhere(self, rank);
    }
    return dl_failure_check_watch(&self->board, self->layout.place_of[rank]);
}

static bool
has_left(const dl_cpu_backend *self, int place)
{
    return atomic_load(&self->board.members[place].farewell) == DL_LEFT;
}

static dl_status
rank_lost(dl_cpu_backend *self, int rank)
{
    int place = self->layout.place_of[rank];

    if (self->layout.host_of[rank] != self->layout.host) {
        return dl_news_watch(&self->news, rank);
    }
    return has_left(self, place) ? DL_OK : dl_failure_check_watch(&self->board, place);
}

static dl_status
probe_rank(dl_cpu_backend *self, int rank)
{
    return dl_probes_lost(&self->roster->probes, self->origin_ranks[rank], rank);
}

/* Probes one rank of each other host, the leader, which tells all about the others of
 * its host; those of the hosts that follow this one, as far as probes may be open. */
static dl_status
probe_leaders(dl_cpu_backend *self)
{
    const dl_layout *layout = &self->layout;

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

    dl_news_hear(&self->news);
    for (int other = first; other <= last; other++) {
        if (other != self->rank) {
            DL_TRY(rank_lost(self, other));
        }
    }
    if (rank < 0) {
        return probe_leaders(self);
    }
    return self->layout.host_of[rank] == self->layout.host ? DL_OK
                                                           : probe_rank(self, rank);
}

/* The join accepts only processes of this user (net/local.h), and links only those that
 * have proved the token or have a certificate of the job's authority. */
static bool
is_proved(dl_backend *backend, int rank)
{
    const dl_cpu_backend *self = dl_cpu_self(backend);

    return rank == self->rank || self->layout.host_of[rank] == self->layout.host
           || self->roster->endpoint.secret != NULL
           || self->roster->endpoint.tls != NULL;
}

static dl_status
share_memory(dl_backend *backend, size_t size, dl_region **region)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return self->size == 1
               ? dl_region_new(size, region)
               : dl_shared_new(&self->roster->membership.arena, size, region);
}

/* Returns the server of this rank's windows, which the first of them starts.  Called
 * with the group's lock held. */
static dl_status
server_of_windows(dl_cpu_backend *self, dl_window_server **server)
{
    dl_window_server_options options = {
        .group_name = self->group_name,
        .rank = self->rank,
        .size = self->size,
        .listener = &self->roster->endpoint.calls,
        .ends = self->windows,
    };

    *server = atomic_load(&self->window_server);
    if (*server == NULL) {
        DL_TRY(dl_window_server_new(&options, server));
        atomic_store(&self->window_server, *server);
    }
    return DL_OK;
}

static dl_status
make_window(dl_backend *backend, const dl_window_options *options,
            dl_window_part **part)
{
    dl_cpu_backend *self = dl_cpu_self(backend);
    dl_cpu_window_group group = {.name = self->group_name, .ends = self->windows};

    if (self->size > 1) {
        group.layout = &self->layout;
        group.peers = self->peers;
        group.processes = self->processes;
        group.roster = self->roster;
        group.may_spin = self->board.header->cores_per_rank > 0;
    }
    if (dl_cpu_has_hosts(self)) {
        group.ways = self->ways;
        DL_TRY(server_of_windows(self, &group.server));
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
finish(dl_backend *backend, dl_deadline deadline)
{
    dl_cpu_backend *self = dl_cpu_self(backend);

    return self->size == 1 ? DL_OK : dl_p2p_finish(self->p2p, deadline);
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
    .is_proved = is_proved,
    .share = share_memory,
    .window = make_window,
    .abort = abort_backend,
    .verify_calls = verify_calls,
    .finish = finish,
    .leave = leave_backend,
    .free = free_backend,
};

/* Fills in the processes of all ranks, and the peers and processes of this host's
 * ranks. */
static dl_status
copy_locals(dl_cpu_backend *self)
{
    const dl_layout *layout = &self->layout;
    const int *ranks = dl_layout_ranks(layout, layout->host);
    int count = dl_layout_count(layout, layout->host);

    self->local_peers = malloc((size_t)count * sizeof *self->local_peers);
    self->local_processes = malloc((size_t)count * sizeof *self->local_processes);
    self->processes = malloc((size_t)self->size * sizeof *self->processes);
    if (self->local_peers == NULL || self->local_processes == NULL
        || self->processes == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < self->size; rank++) {
        self->processes[rank] =
            self->roster->endpoint.processes[self->origin_ranks[rank]];
    }
    for (int place = 0; place < count; place++) {
        self->local_peers[place] = self->peers[ranks[place]];
        self->local_processes[place] = self->processes[ranks[place]];
    }
    return DL_OK;
}

/* A rank that is alone on its host uses its board for shared arrays and messages
 * only. */
static dl_status
open_hosts(dl_cpu_backend *self)
{
    bool is_alone = dl_layout_count(&self->layout, self->layout.host) == 1;
    dl_traffic_options options = {
        .rank = self->rank,
        .size = self->size,
        .group_name = self->group_name,
        .peers = self->peers,
        .ways = self->ways,
        .listener = &self->roster->endpoint.calls,
        .may_spin = self->board.header->cores_per_rank > 0,
        .check = dl_hosts_check,
        .late = dl_hosts_late,
        .add_awaited = dl_hosts_add_remote,
        .announce_timeout = dl_hosts_announce_own_timeout,
        .others_know = dl_hosts_others_know,
        .tell = dl_hosts_tell,
        .context = &self->hosts,
    };
    dl_news_options news = {
        .group_name = self->group_name,
        .layout = &self->layout,
        .peers = self->peers,
        .ways = self->ways,
        .processes = self->processes,
        .listener = &self->roster->endpoint.calls,
    };

    dl_listener_forget_end(&self->roster->endpoint.calls, self->group_name);
    DL_TRY(dl_traffic_init(&self->traffic, &options));
    DL_TRY(dl_news_init(&self->news, &news));
    self->hosts.layout = &self->layout;
    self->hosts.traffic = &self->traffic;
    self->hosts.news = &self->news;
    self->hosts.probes = &self->roster->probes;
    self->hosts.origin_ranks = self->origin_ranks;
    self->hosts.processes = self->processes;
    self->hosts.board = is_alone ? NULL : &self->board;
    self->hosts.exchange = is_alone ? NULL : &self->exchange;
    return dl_hosts_init(&self->hosts);
}

/* Opens the board, the messages, whose memory follows it in the segment, and, with
 * several hosts, what is used between them. */
static dl_status
open_memory(dl_cpu_backend *self, const dl_segment *segment)
{
    const dl_layout *layout = &self->layout;

    DL_TRY(copy_locals(self));
    dl_board_options options = {
        .rank = layout->place_of[self->rank],
        .size = dl_layout_count(layout, layout->host),
        .group_name = self->group_name,
        .peers = self->local_peers,
        .processes = self->local_processes,
        .views = &self->views,
        .names = dl_layout_ranks(layout, layout->host),
        .meetings = dl_cpu_has_hosts(self) ? DL_HOSTS_MEETINGS : 1,
        .elsewhere = dl_cpu_has_hosts(self) ? dl_hosts_check_others : NULL,
        .announce_timeout = dl_cpu_has_hosts(self) && dl_layout_leads(layout)
                                ? dl_hosts_announce_others_timeout
                                : NULL,
        .add_awaited = dl_cpu_has_hosts(self) ? dl_hosts_add_unseen : NULL,
        .context = &self->hosts,
    };
    size_t offset = dl_board_memory(options.size, DL_BOARD_CHUNK);

    DL_TRY(dl_shared_views_init(&self->views, &self->roster->membership.arena,
                                options.size));
    DL_TRY(dl_board_init(&self->board, &options, segment->memory, segment->size));
    DL_TRY(dl_exchange_init(&self->exchange, &self->board));
    dl_p2p_options messages = {
        .group_name = self->group_name,
        .peers = self->peers,
        .layout = layout,
        .board = &self->board,
        .ways = self->ways,
        .listener = &self->roster->endpoint.calls,
        .news = &self->news,
    };
    DL_TRY(dl_p2p_new(&messages, (char *)segment->memory + offset, &self->p2p));
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
    dl_p2p_ring(self->p2p);
}

static bool
tell_ended(void *context)
{
    dl_cpu_backend *self = context;

    return dl_hosts_tell_ended(&self->hosts);
}

/* Subscribes to the ends of processes.  Called when everything that the callbacks use
 * is made. */
static void
watch_ends(dl_cpu_backend *self)
{
    self->ends = (dl_end_subscriber){
        .wake = wake_waits,
        .tell = dl_cpu_has_hosts(self) ? tell_ended : NULL,
        .context = self,
    };
    dl_end_subscribe(&self->ends);
}

/* The members of a group, by rank, copied from the roster. */
typedef struct members {
    dl_layout layout;
    dl_peer *peers;
    dl_way *ways;
    int *origins; /* ranks in the roster */
} members;

static dl_status
members_init(members *self, const dl_roster *roster, const dl_backend_options *options)
{
    const dl_endpoint *endpoint = &roster->endpoint;
    size_t count = (size_t)options->size;
    int *hosts = malloc(count * sizeof *hosts);

    *self = (members){
        .peers = malloc(count * sizeof *self->peers),
        .ways = malloc(count * sizeof *self->ways),
        .origins = malloc(count * sizeof *self->origins),
    };
    if (hosts == NULL || self->origins == NULL || self->peers == NULL
        || self->ways == NULL) {
        free(hosts);
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < options->size; rank++) {
        int origin = options->origin == NULL ? rank : options->origin_ranks[rank];
        self->origins[rank] = origin;
        self->peers[rank] = endpoint->peers[origin];
        self->ways[rank] = endpoint->ways[origin];
        hosts[rank] = endpoint->layout.host_of[origin];
    }
    dl_status status =
        dl_layout_init(&self->layout, options->rank, options->size, hosts);
    free(hosts);
    return status;
}

static void
members_fini(members *self)
{
    dl_layout_fini(&self->layout);
    free(self->origins);
    free(self->peers);
    free(self->ways);
}

static dl_status
take_members(dl_cpu_backend *self, const dl_backend_options *options)
{
    members all;
    dl_status status = members_init(&all, self->roster, options);

    self->base.origin = &self->roster->base;
    self->base.origin_ranks = all.origins;
    self->layout = all.layout;
    self->peers = all.peers;
    self->ways = all.ways;
    self->origin_ranks = all.origins;
    return status;
}

static dl_status
meet_ranks(dl_cpu_backend *self, const dl_backend_options *options,
           dl_deadline deadline)
{
    DL_TRY(dl_roster_new(options, deadline, &self->roster));
    DL_TRY(take_members(self, options));
    return open_memory(self, &self->roster->membership.arena.home);
}

/* Fills in the borrower of the memory for a group made out of the roster's.  The caller
 * frees `*places`, to which the borrower points. */
static dl_status
borrower_init(dl_borrower *borrower, const dl_roster *roster, const dl_layout *layout,
              const int *origin_ranks, const char *name, int **places)
{
    const dl_endpoint *endpoint = &roster->endpoint;
    int count = dl_layout_count(layout, layout->host);

    *places = malloc((size_t)count * sizeof **places);
    if (*places == NULL) {
        return dl_fail_no_memory();
    }
    for (int i = 0; i < count; i++) {
        int origin = origin_ranks[dl_layout_ranks(layout, layout->host)[i]];
        (*places)[i] = endpoint->layout.place_of[origin];
    }
    *borrower = (dl_borrower){
        .rank = endpoint->layout.place_of[endpoint->rank],
        .name = name,
        .ranks = *places,
        .count = count,
        .processes = roster->local_processes,
        .size = dl_layout_count(&endpoint->layout, endpoint->layout.host),
    };
    return DL_OK;
}

static dl_status
borrow(dl_cpu_backend *self, dl_deadline deadline)
{
    dl_borrower borrower;
    int *places;

    DL_TRY(borrower_init(&borrower, self->roster, &self->layout, self->origin_ranks,
                         self->group_name, &places));
    dl_status status = dl_arena_borrow(&self->roster->membership.arena, &borrower,
                                       deadline, &self->loan);
    free(places);
    return status;
}

/* Makes a group out of another one, without a meeting. */
static dl_status
make_from_origin(dl_cpu_backend *self, const dl_backend_options *options,
                 dl_deadline deadline)
{
    self->roster = (dl_roster *)(void *)dl_backend_origin_ref(options->origin);
    DL_TRY(take_members(self, options));
    DL_TRY(borrow(self, deadline));
    return open_memory(self, &self->loan.segment);
}

/* A refusal informs the other ranks of a group that this one cannot make its backend.
 * Before the meeting they wait in the store.  After it, and in groups made out of
 * another one, which do not meet, they wait at the board and at links, where they find
 * that this rank has aborted.  The members are computed anew, because this rank's
 * backend may be incomplete. */
typedef struct refusal {
    const dl_backend_options *options;
    dl_roster *roster;
    members members;
} refusal;

/* Informs the ranks of this host.  `segment` is this rank's memory of the group, if it
 * has any. */
static void
tell_host(refusal *self, const dl_segment *segment, const char *reason)
{
    const dl_layout *layout = &self->members.layout;
    int place = layout->place_of[layout->rank];
    dl_borrower borrower;
    int *places = NULL;

    if (segment->memory != NULL) {
        dl_board_refuse(segment->memory, place, reason);
    } else if (self->options->origin != NULL
               && borrower_init(&borrower, self->roster, layout, self->members.origins,
                                self->options->group_name, &places)
                      == DL_OK) {
        (void)dl_arena_refuse(&self->roster->membership.arena, &borrower, place, reason,
                              dl_deadline_after(TELLING_PATIENCE));
    }
    free(places);
}

/* Informs the ranks of other hosts: those that have made the group, by news, and those
 * that will make it, by an answer to their connections. */
static void
tell_hosts(refusal *self, const char *reason)
{
    const dl_layout *layout = &self->members.layout;
    dl_error message = {.status = DL_PEER_LOST};
    char peer[DL_PEER_TEXT_SIZE];
    dl_news news;
    dl_news_options options = {
        .group_name = self->options->group_name,
        .layout = layout,
        .peers = self->members.peers,
        .ways = self->members.ways,
        .listener = &self->roster->endpoint.calls,
    };

    dl_peer_describe(&self->members.peers[layout->rank], layout->rank, peer);
    snprintf(message.text, sizeof message.text, "%s: %.1800s", peer, reason);
    end_calls(self->roster, self->options->group_name, &message);
    if (layout->host_count > 1 && dl_news_init(&news, &options) == DL_OK) {
        dl_news_tell(&news, &message, 1, dl_deadline_after(TELLING_PATIENCE));
        dl_news_fini(&news);
    }
}

static void
send_refusal(const dl_backend_options *options, dl_roster *roster,
             const dl_segment *segment)
{
    refusal self = {.options = options, .roster = roster};
    dl_error cause = dl_error_for_others();
    dl_error error = *dl_last_error();
    char reason[DL_ERROR_TEXT_SIZE];

    snprintf(reason, sizeof reason, "could not make the group: %.1800s", cause.text);
    if (members_init(&self.members, roster, options) == DL_OK) {
        /* Other hosts first: ranks of this host leave when they learn of the failure,
         * and other hosts must not take their end for the cause. */
        tell_hosts(&self, reason);
        tell_host(&self, segment, reason);
    }
    members_fini(&self.members);
    (void)dl_fail_again(&error);
}

/* As dl_cpu_backend_refuse(); `self` may be incomplete. */
static void
refuse_incomplete(dl_cpu_backend *self, const dl_backend_options *options)
{
    if (self->roster == NULL) {
        dl_cpu_backend_refuse(options);
    } else {
        send_refusal(options, self->roster,
                     options->origin == NULL ? &self->roster->membership.arena.home
                                             : &self->loan.segment);
    }
}

void
dl_cpu_backend_refuse(const dl_backend_options *options)
{
    if (options->size == 1) {
        return;
    }
    if (options->origin == NULL) {
        dl_join_fault_tell(options->store, options->rank);
    } else {
        send_refusal(options, (dl_roster *)(void *)options->origin, &(dl_segment){0});
    }
}

static bool
is_first_of_host(const dl_peer *peers, int rank)
{
    for (int before = 0; before < rank; before++) {
        if (strcmp(peers[before].host, peers[rank].host) == 0) {
            return false;
        }
    }
    return true;
}

static int
ranks_of_host(const dl_peer *peers, int size, const char *host)
{
    int count = 0;

    for (int rank = 0; rank < size; rank++) {
        count += strcmp(peers[rank].host, host) == 0;
    }
    return count;
}

/* Writes "a (3), b (2)"; returns the number of hosts. */
static int
describe_hosts(const dl_peer *peers, int size, char *text, size_t room)
{
    size_t used = 0;
    int hosts = 0;

    text[0] = '\0';
    for (int rank = 0; rank < size; rank++) {
        if (!is_first_of_host(peers, rank) || ++hosts > TOLD_HOSTS) {
            continue;
        }
        used += (size_t)snprintf(text + used, room - used, "%s%s (%d)",
                                 hosts > 1 ? ", " : "", peers[rank].host,
                                 ranks_of_host(peers, size, peers[rank].host));
    }
    return hosts;
}

/* Writes the local address of the connection to the store, at which others can reach
 * this process. */
static void
describe_address(dl_store *store, char text[DL_ADDRESS_TEXT_SIZE])
{
    dl_address address;

    if (store != NULL && dl_store_local_address(store, &address)) {
        dl_address_text(&address, text);
    } else {
        snprintf(text, DL_ADDRESS_TEXT_SIZE, "none, the store has no connection");
    }
}

static const char *
transport_of(int hosts, int parts)
{
    if (parts > hosts) {
        return "shared memory between the ranks of a host that can share it, else TCP";
    }
    return parts > 1 ? "shared memory within a host, TCP between hosts"
                     : "shared memory";
}

/* Logs one line at INFO about a group that was joined, which shows where its ranks are
 * and how they reach each other.  `peers` is by rank, and NULL in a group of one;
 * `parts` is the number of sets of ranks that share memory. */
static void
announce_join(const dl_backend_options *options, const dl_peer *peers, int parts)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char hosts[TOLD_HOSTS * (DL_HOST_NAME_SIZE + 16)];
    dl_peer alone;

    if (!dl_log_is_on(DL_LOG_INFO)) {
        return;
    }
    dl_peer_own(&alone);
    const dl_peer *known = peers == NULL ? &alone : peers;
    const dl_peer *self = peers == NULL ? &alone : &peers[options->rank];
    int count =
        describe_hosts(known, peers == NULL ? 1 : options->size, hosts, sizeof hosts);
    describe_address(options->store, address);
    dl_log(DL_LOG_INFO,
           "group %s: backend cpu, rank %d of %d (pid %" PRId64
           " on host %s); %d host%s by number of ranks: %s; transport: %s; address: %s",
           options->group_name, options->rank, options->size, self->pid, self->host,
           count, count > 1 ? "s" : "", hosts, transport_of(count, parts), address);
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
    self->windows = dl_window_ends_new();
    dl_status status =
        self->group_name == NULL || self->windows == NULL ? dl_fail_no_memory() : DL_OK;
    if (status == DL_OK && options->size == 1 && options->origin == NULL) {
        status = dl_endpoint_check_settings();
    }
    if (status == DL_OK && options->size > 1) {
        status = options->origin == NULL ? meet_ranks(self, options, deadline)
                                         : make_from_origin(self, options, deadline);
    }
    if (status != DL_OK) {
        refuse_incomplete(self, options);
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
    announce_join(options, options->size > 1 ? self->peers : NULL,
                  options->size > 1 ? self->layout.host_count : 1);
    *backend = &self->base;
    return DL_OK;
}

int64_t
dl_cpu_last_end(void)
{
    return dl_process_last_end();
}

uint64_t
dl_cpu_memory_space(void)
{
    static const uint64_t seed[2] = {0, 0}; /* the same in all processes */
    dl_host host;

    if (dl_host_check_memory() != DL_OK) {
        return 0;
    }
    memset(&host, 0, sizeof host);
    dl_host_own(&host);
    return dl_hash_seeded((dl_bytes){(const uint8_t *)&host, sizeof host}, seed) | 1;
}

/* Appends "eth0 10.0.0.7\n", without the port, which has no meaning here. */
static void
append_address(dl_buffer *text, const char *name, const dl_address *address)
{
    char host[INET6_ADDRSTRLEN] = "";
    char line[IF_NAMESIZE + INET6_ADDRSTRLEN + 2];
    const void *bytes = address->socket.any.sa_family == AF_INET6
                            ? (const void *)&address->socket.ip6.sin6_addr
                            : (const void *)&address->socket.ip4.sin_addr;

    inet_ntop(address->socket.any.sa_family, bytes, host, sizeof host);
    snprintf(line, sizeof line, "%s %s\n", name, host);
    dl_buffer_put(text, dl_bytes_of(line));
}

static dl_status
put_interfaces(dl_buffer *text)
{
    dl_interface *interfaces;
    size_t count;

    DL_TRY(dl_interface_list(&interfaces, &count));
    for (size_t i = 0; i < count; i++) {
        append_address(text, interfaces[i].name, &interfaces[i].address);
    }
    free(interfaces);
    return dl_buffer_check(text);
}

dl_status
dl_cpu_addresses(const char *connected, dl_buffer *text)
{
    dl_address *local = NULL;
    dl_address chosen[DL_INTERFACES_LIMIT];
    size_t count;
    int chosen_count;

    dl_buffer_clear(text);
    if (connected != NULL) {
        /* A numeric address is parsed without a name server. */
        DL_TRY(dl_address_resolve(connected, 0, dl_deadline_after(DL_SECOND), &local,
                                  &count));
    }
    dl_status status = dl_interface_addresses(local, chosen, &chosen_count);
    free(local);
    DL_TRY(status);
    for (int i = 0; i < chosen_count; i++) {
        append_address(text, "chosen", &chosen[i]);
    }
    return put_interfaces(text);
}
