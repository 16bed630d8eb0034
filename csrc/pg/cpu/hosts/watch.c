/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rank checks while it waits, and what it then tells other hosts. */
#include "pg/cpu/hosts/leaders.h"
#include "pg/cpu/shm/failure_check.h"

/* Interval at which a waiting rank checks other hosts: without probes a check costs
 * less than one system call per millisecond. */
#define LOOK_EVERY (40 * DL_MILLISECOND)

/* When more ranks are on other hosts than probes may be open, they are probed in turns
 * of this length, in which a distant host can answer. */
#define PROBE_TURN DL_SECOND

/* Limit of the time for informing other hosts. */
#define TELLING_PATIENCE (500 * DL_MILLISECOND)

/* The same for each host, for a rank that has not failed yet, and that cannot do
 * anything else meanwhile. */
#define ANNOUNCING_PATIENCE (4 * DL_MILLISECOND)

/* What is left of the time when a head that waits for another head announces its
 * timeout, unless it has heard of a cause: that one waits for its group, or is late
 * itself. */
#define HEADS_ANNOUNCE_AT (250 * DL_MILLISECOND)

static bool
has_come(const dl_hosts *hosts, int host)
{
    int leader = dl_layout_leader(hosts->layout, host);
    uint64_t operation = dl_hosts_operation(hosts);

    return hosts->come[host] >= operation
           || dl_traffic_last_seen(hosts->traffic, leader) >= operation;
}

/* Returns whether a host of the group of `host`, which is its head, has not come. */
static bool
is_group_late(const dl_hosts *hosts, int host)
{
    int end = host + hosts->step;

    for (int member = host + 1; member < end && member < hosts->layout->host_count;
         member++) {
        if (!has_come(hosts, member)) {
            return true;
        }
    }
    return false;
}

static bool
is_head(const dl_hosts *hosts, int host)
{
    return hosts->first_source != 0 && host % hosts->step == 0;
}

static bool
sees_late(const dl_hosts *hosts, int host)
{
    return is_head(hosts, host)
           && (!has_come(hosts, dl_hosts_ring_behind(hosts, host, hosts->first_source))
               || is_group_late(hosts, host));
}

static bool
is_first_to_see(const dl_hosts *hosts)
{
    int host = hosts->layout->host;

    return hosts->step == 1 ? sees_late(hosts, host)
                            : is_head(hosts, host) && is_group_late(hosts, host);
}

bool
dl_hosts_others_know(void *context)
{
    const dl_hosts *hosts = context;

    return hosts->is_below || (hosts->first_source != 0 && !is_first_to_see(hosts));
}

static bool
is_time_to_check(dl_hosts *hosts)
{
    int64_t now = dl_now();

    if (now < hosts->look_after) {
        return false;
    }
    hosts->look_after = now + LOOK_EVERY;
    return true;
}

void
dl_hosts_wake(dl_hosts *hosts)
{
    atomic_store(&hosts->is_woken, true);
}

static dl_status
check_notices(dl_hosts *hosts)
{
    dl_status status = dl_notices_check(hosts->notices, dl_hosts_operation(hosts));

    hosts->is_told |= status != DL_OK;
    return status;
}

static dl_status
check_told(const dl_hosts *hosts, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    if (!dl_processes_has_ended(&hosts->notices->options.processes, rank)) {
        return DL_OK;
    }
    dl_peers_describe(&hosts->notices->options.peers, rank, peer);
    return dl_fail(DL_PEER_LOST, "%s exited or was killed", peer);
}

/* Returns whether it is the turn of the rank that is the `at`th of `count` ranks on
 * other hosts.  Each rank of this host begins with other ranks, so that together they
 * probe all of them soon. */
static bool
is_turn_of(const dl_hosts *hosts, int at, int count)
{
    const dl_layout *layout = hosts->layout;
    int64_t turn = dl_now() / PROBE_TURN + layout->local_rank_of[layout->rank];
    int64_t first = turn * DL_PROBES_OPEN % count;

    return count <= DL_PROBES_OPEN || (at - first + count) % count < DL_PROBES_OPEN;
}

static dl_status
check_all_told(const dl_hosts *hosts)
{
    const dl_layout *layout = hosts->layout;

    for (int rank = 0; rank < layout->size; rank++) {
        if (layout->host_of[rank] != layout->host) {
            DL_TRY(check_told(hosts, rank));
        }
    }
    return DL_OK;
}

static dl_status
probe_hosts(const dl_hosts *hosts)
{
    const dl_layout *layout = hosts->layout;
    int count = layout->size - dl_layout_count(layout, layout->host);
    int at = 0;

    for (int rank = 0; rank < layout->size; rank++) {
        bool is_elsewhere = layout->host_of[rank] != layout->host;
        if (is_elsewhere && is_turn_of(hosts, at++, count)) {
            int origin = hosts->origin_ranks == NULL ? rank : hosts->origin_ranks[rank];
            DL_TRY(dl_probes_poll(hosts->probes, origin, rank));
        }
    }
    return DL_OK;
}

/* A leader that waits for its links does not read the board otherwise, and a rank of
 * its host may have given up. */
dl_status
dl_hosts_check(void *context)
{
    dl_hosts *hosts = context;

    if (hosts->board != NULL) {
        DL_TRY(dl_failure_check_broken(hosts->board));
    }
    bool is_woken = atomic_exchange(&hosts->is_woken, false);
    return is_woken || is_time_to_check(hosts) ? check_notices(hosts) : DL_OK;
}

/* Returns whether this host's leader is still in the operation's first phase.  Until
 * it has left that, no rank of another host can have finished its part of the
 * operation, so one that has ended never will, unless data goes one way.  Afterwards it
 * may have finished before it ended, which the leader's links show. */
static bool
is_early(const dl_hosts *hosts)
{
    uint64_t phase = hosts->phase.sequence;
    bool is_first = phase % DL_HOSTS_PHASES != 0;
    uint64_t first = is_first ? phase : phase - 1;

    if (hosts->traffic->is_one_way) {
        return false;
    }
    return dl_layout_leads(hosts->layout)
               ? is_first
               : dl_failure_check_last_seen(hosts->board, 0) < first;
}

/* A probe shows that a rank has ended, and not why: it may have been told of a failure,
 * of which this rank will be told by another one later.  A rank that cannot make a
 * group tells other hosts before its own. */
static dl_status
probe_for_lost(dl_hosts *hosts)
{
    int64_t now = dl_now();

    if (probe_hosts(hosts) == DL_OK) {
        return DL_OK;
    }
    hosts->lost_since = hosts->lost_since == 0 ? now : hosts->lost_since;
    return now - hosts->lost_since < TELLING_PATIENCE ? DL_OK : dl_last_error()->status;
}

/* Only waits that have lasted a while use probes: from the second check in a phase
 * on. */
static dl_status
check_for_lost(dl_hosts *hosts)
{
    uint64_t phase = hosts->phase.sequence;
    bool has_waited = hosts->looked_in == phase;

    if (!has_waited) {
        hosts->looked_in = phase;
        hosts->lost_since = 0;
    }
    DL_TRY(check_all_told(hosts));
    return has_waited ? probe_for_lost(hosts) : DL_OK;
}

/* The search comes before is_early() is called again, because the leader may have left
 * the first phase meanwhile. */
static dl_status
find_lost(dl_hosts *hosts, bool is_time)
{
    if (!is_early(hosts)
        || (is_time ? check_for_lost(hosts) : check_all_told(hosts)) == DL_OK) {
        return DL_OK;
    }
    dl_error lost = *dl_last_error();
    /* The rank may have sent its reason before it ended. */
    DL_TRY(check_notices(hosts));
    return is_early(hosts) ? dl_rethrow(&lost) : DL_OK;
}

dl_status
dl_hosts_check_others(void *context)
{
    dl_hosts *hosts = context;
    bool is_woken = atomic_exchange(&hosts->is_woken, false);
    bool is_time = is_time_to_check(hosts);

    if (!is_woken && !is_time) {
        return DL_OK;
    }
    DL_TRY(check_notices(hosts));
    return find_lost(hosts, is_time);
}

void
dl_hosts_announce_others_timeout(void *context, const dl_error *error)
{
    dl_hosts *hosts = context;
    uint64_t operation = dl_hosts_operation(hosts);

    if (hosts->announced != operation) {
        hosts->announced = operation;
        int64_t patience = hosts->layout->host_count * ANNOUNCING_PATIENCE;
        dl_notices_announce_timeout(
            hosts->notices, error, operation,
            dl_deadline_earlier(hosts->phase.deadline, patience));
    }
}

void
dl_hosts_announce_own_timeout(void *context, const dl_error *error)
{
    dl_hosts *hosts = context;
    dl_deadline deadline = hosts->phase.deadline;

    if (hosts->board != NULL && dl_layout_leads(hosts->layout)) {
        dl_failure_check_set_pending_timeout(hosts->board, dl_hosts_operation(hosts),
                                             error->text);
    }
    /* The first to see it comes first. */
    if (is_first_to_see(hosts)
        || (sees_late(hosts, hosts->layout->host)
            && dl_deadline_left(deadline) < HEADS_ANNOUNCE_AT
            && dl_deadline_left(deadline) < deadline.limit / 4)) {
        dl_hosts_announce_others_timeout(context, error);
    }
}

dl_status
dl_hosts_late(void *context)
{
    dl_hosts *hosts = context;
    uint64_t operation = dl_hosts_operation(hosts);
    int leader = 0;
    dl_status status = dl_notices_late(hosts->notices, operation, &leader);
    int host = hosts->layout->host_of[leader];

    return !has_come(hosts, host) || sees_late(hosts, host) ? status : DL_OK;
}

/* Returns whether the operation moves data one way, from or to a root: the root's host
 * may then continue without its other ranks. */
static bool
has_root(const dl_hosts *hosts)
{
    dl_op_type op = dl_hosts_called_in(&hosts->phase);

    return hosts->traffic->is_one_way || op == DL_BROADCAST || op == DL_GATHER
           || op == DL_SCATTER;
}

/* Returns whether the leader of `host` exchanges with other hosts only after all ranks
 * of its own have come.  That holds everywhere but on the root's host. */
static bool
comes_in_full(const dl_hosts *hosts, int host)
{
    return !has_root(hosts)
           || hosts->layout->host_of[hosts->phase.fingerprint.root] != host;
}

/* Adds the ranks of the hosts that have not come to this operation.  If `has_leaders`
 * is true, the traffic names those leaders that it waits for itself, and others may be
 * in the operation. */
static void
add_hosts(const dl_hosts *hosts, bool has_leaders, dl_awaited *awaited)
{
    const dl_layout *layout = hosts->layout;

    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        if (host == layout->host || has_come(hosts, host)) {
            continue;
        }
        if (has_leaders) {
            dl_awaited_add_unless_begun(awaited, leader);
        } else {
            dl_awaited_add(awaited, leader);
        }
        for (int local_rank = 1;
             comes_in_full(hosts, host) && local_rank < dl_layout_count(layout, host);
             local_rank++) {
            dl_awaited_add_unless_begun(awaited,
                                        dl_layout_ranks(layout, host)[local_rank]);
        }
    }
}

/* Without a root, no rank is done before all ranks have come, wherever they are.  A
 * rank may be in the last phase of its host before its leader is in the first, so
 * ranks count unless they have begun the operation.  With a root, some ranks are done
 * without the others. */
void
dl_hosts_add_unseen(void *context, dl_awaited *awaited)
{
    const dl_hosts *hosts = context;
    const dl_layout *layout = hosts->layout;

    if (has_root(hosts)) {
        return;
    }
    if (dl_layout_leads(layout)) {
        add_hosts(hosts, false, awaited);
        return;
    }
    dl_awaited_add(awaited, dl_layout_leader(layout, layout->host));
    for (int rank = 0; rank < layout->size; rank++) {
        if (layout->host_of[rank] != layout->host) {
            dl_awaited_add_unless_begun(awaited, rank);
        }
    }
}

void
dl_hosts_add_remote(void *context, dl_awaited *awaited)
{
    const dl_hosts *hosts = context;

    if (dl_layout_leads(hosts->layout) && !hosts->traffic->is_one_way) {
        add_hosts(hosts, true, awaited);
    }
}

/* A rank that has learned of the failure from another one leaves the notices to that
 * one. */
void
dl_hosts_notify(void *context, const dl_error *message, uint64_t sequence,
                dl_deadline deadline)
{
    dl_hosts *hosts = context;
    bool is_told =
        hosts->is_told || dl_traffic_is_notified(hosts->traffic)
        || (hosts->board != NULL && dl_failure_check_is_notified(hosts->board));

    if (message->status != DL_CLOSED && !is_told) {
        dl_notices_notify(hosts->notices, message, sequence, deadline);
    }
    hosts->is_told = true;
}

/* Returns whether this rank is to report the end.  The rank that has claimed it may be
 * stopped, or end, before it has reported it: a rank that finds the end unreported at
 * its second check reports it as well. */
static bool
claim_report(dl_hosts *hosts, int local_rank)
{
    _Atomic uint32_t *notifier = &hosts->board->members[local_rank].end_notifier;
    uint32_t nobody = 0;
    bool is_mine = atomic_compare_exchange_strong(
        notifier, &nobody, (uint32_t)hosts->board->options.rank + 1);
    bool is_known = hosts->is_end_known[local_rank];

    hosts->is_end_known[local_rank] = true;
    return is_mine || is_known;
}

static bool
is_untold(const dl_hosts *hosts, int local_rank)
{
    const dl_board_member *member = &hosts->board->members[local_rank];

    return local_rank != hosts->board->options.rank
           && dl_board_has_ended(hosts->board, local_rank)
           && atomic_load(&member->state) == DL_STAYING
           && atomic_load(&member->end_notifier) != DL_END_TOLD;
}

static void
notify_of_end(dl_hosts *hosts, int local_rank, dl_deadline deadline)
{
    dl_error message;
    uint64_t seen = dl_failure_check_describe_ended(hosts->board, local_rank, &message);

    dl_notices_notify_ended(hosts->notices,
                            dl_failure_check_name(hosts->board, local_rank), &message,
                            seen + 1, deadline);
    atomic_store(&hosts->board->members[local_rank].end_notifier, DL_END_TOLD);
}

/* The end of this group waits for this: all ranks that have ended share the time, so
 * that it is no longer if a host does not answer. */
bool
dl_hosts_notify_ended(void *context)
{
    dl_hosts *hosts = context;
    int size = hosts->board == NULL ? 0 : hosts->board->options.size;
    bool is_pending = false;
    int untold = 0;

    /* Has a time of its own, so that nothing is left untold for it. */
    dl_notices_pass_on(hosts->notices, dl_deadline_after(TELLING_PATIENCE));
    dl_deadline deadline = dl_deadline_after(TELLING_PATIENCE);
    for (int local_rank = 0; local_rank < size; local_rank++) {
        untold += is_untold(hosts, local_rank);
    }
    for (int local_rank = 0; local_rank < size; local_rank++) {
        if (!is_untold(hosts, local_rank)) {
            continue;
        }
        int64_t share = dl_deadline_left(deadline) / (untold > 1 ? untold : 1);
        untold--;
        if (claim_report(hosts, local_rank)) {
            notify_of_end(hosts, local_rank, dl_deadline_earlier(deadline, share));
        } else {
            is_pending = true;
        }
    }
    return is_pending;
}
