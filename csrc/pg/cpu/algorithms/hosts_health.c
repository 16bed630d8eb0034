/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/hosts.h"

#include "pg/cpu/shm/verdict.h"

/* A rank that waits looks at other hosts so often: less than a system call in a thousand
 * microseconds. */
#define LOOK_EVERY (40 * DL_MILLISECOND)

/* Of many ranks, as many as there may be connections are probed for so long: long enough
 * for an answer from far away. */
#define PROBE_TURN DL_SECOND

/* What telling other hosts may take. */
#define TELLING_PATIENCE (500 * DL_MILLISECOND)

/* The same of who has yet to fail, and can do nothing else meanwhile. */
#define FORETELLING_PATIENCE (20 * DL_MILLISECOND)

static bool
is_time_to_look(dl_hosts *hosts)
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

static uint64_t
operation_of(const dl_hosts *hosts)
{
    return (hosts->meeting.sequence + DL_HOSTS_MEETINGS - 1) / DL_HOSTS_MEETINGS;
}

static dl_status
hear_news(dl_hosts *hosts)
{
    dl_status status = dl_news_check(hosts->news, operation_of(hosts));

    hosts->is_told |= status != DL_OK;
    return status;
}

static dl_status
check_told(const dl_hosts *hosts, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    if (hosts->processes == NULL || !dl_process_has_ended(hosts->processes[rank])) {
        return DL_OK;
    }
    dl_peer_describe(&hosts->news->options.peers[rank], rank, peer);
    return dl_fail(DL_PEER_LOST, "%s exited or was killed", peer);
}

/* Whether it is the turn of another host's rank, the `at`th of `count`.  Each rank of this
 * host begins with others, so that all are soon looked at, and none by everybody. */
static bool
is_turn_of(const dl_hosts *hosts, int at, int count)
{
    const dl_layout *layout = hosts->layout;
    int64_t turn = dl_now() / PROBE_TURN + layout->place_of[layout->rank];
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
            DL_TRY(dl_probes_look(hosts->probes, origin, rank));
        }
    }
    return DL_OK;
}

/* A leader in the middle of its links would not look at the board otherwise, where a rank
 * of its host may have given up. */
dl_status
dl_hosts_check(void *context)
{
    dl_hosts *hosts = context;

    if (hosts->board != NULL) {
        DL_TRY(dl_verdict_broken(hosts->board));
    }
    bool is_woken = atomic_exchange(&hosts->is_woken, false);
    return is_woken || is_time_to_look(hosts) ? hear_news(hosts) : DL_OK;
}

/* As long as this host's leader has not come out of the operation's first meeting, no rank
 * of another host can have done its part of it, and one that has ended never will.
 * Afterwards it may have, and be gone for good: then the leader is told by its links. */
static bool
is_early(const dl_hosts *hosts)
{
    uint64_t meeting = hosts->meeting.sequence;
    bool is_first = meeting % DL_HOSTS_MEETINGS != 0;
    uint64_t first = is_first ? meeting : meeting - 1;

    return dl_layout_leads(hosts->layout)
               ? is_first
               : dl_verdict_last_seen(hosts->board, 0) < first;
}

/* Probes are for waits that have lasted a while: another look in the same meeting. */
static dl_status
look_for_lost(dl_hosts *hosts)
{
    uint64_t meeting = hosts->meeting.sequence;
    bool has_waited = hosts->looked_in == meeting;

    hosts->looked_in = meeting;
    DL_TRY(check_all_told(hosts));
    return has_waited ? probe_hosts(hosts) : DL_OK;
}

/* First the look, then whether it was in time. */
static dl_status
find_lost(dl_hosts *hosts, bool is_time)
{
    if (!is_early(hosts)
        || (is_time ? look_for_lost(hosts) : check_all_told(hosts)) == DL_OK) {
        return DL_OK;
    }
    dl_error lost = *dl_last_error();
    /* It may have said why before it ended. */
    DL_TRY(hear_news(hosts));
    return is_early(hosts) ? dl_fail_again(&lost) : DL_OK;
}

dl_status
dl_hosts_check_others(void *context)
{
    dl_hosts *hosts = context;
    bool is_woken = atomic_exchange(&hosts->is_woken, false);
    bool is_time = is_time_to_look(hosts);

    if (!is_woken && !is_time) {
        return DL_OK;
    }
    DL_TRY(hear_news(hosts));
    return find_lost(hosts, is_time);
}

void
dl_hosts_foretell_others(void *context, const dl_error *error)
{
    dl_hosts *hosts = context;
    uint64_t operation = operation_of(hosts);

    if (hosts->foretold != operation) {
        hosts->foretold = operation;
        dl_news_foretell(hosts->news, error, operation,
                         dl_deadline_after(FORETELLING_PATIENCE));
    }
}

void
dl_hosts_foretell_own(void *context, const dl_error *error)
{
    dl_hosts *hosts = context;

    if (hosts->board != NULL && dl_layout_leads(hosts->layout)) {
        dl_verdict_set_outlook(hosts->board, operation_of(hosts), error->text);
    }
}

dl_status
dl_hosts_late(void *context)
{
    dl_hosts *hosts = context;
    uint64_t operation = operation_of(hosts);
    int leader = 0;
    dl_status status = dl_news_late(hosts->news, operation, &leader);

    return dl_traffic_heard(hosts->traffic, leader) < operation ? status : DL_OK;
}

/* The root's host may go on as soon as the root has come, or without its other ranks: these
 * operations move data one way. */
static bool
has_root(const dl_hosts *hosts)
{
    uint8_t op = hosts->meeting.fingerprint.op;

    return op == DL_BROADCAST || op == DL_GATHER || op == DL_GATHER_V
           || op == DL_SCATTER || op == DL_SCATTER_V;
}

/* Everywhere else a leader turns to the other hosts when all ranks of its own have come. */
static bool
comes_in_full(const dl_hosts *hosts, int host)
{
    return !has_root(hosts)
           || hosts->layout->host_of[hosts->meeting.fingerprint.root] != host;
}

/* Of the hosts that have not been heard of in this operation. */
static void
add_hosts(const dl_hosts *hosts, bool has_leaders, dl_awaited *awaited)
{
    const dl_layout *layout = hosts->layout;
    uint64_t operation = operation_of(hosts);

    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        if (host == layout->host
            || dl_traffic_heard(hosts->traffic, leader) >= operation) {
            continue;
        }
        if (!has_leaders) {
            dl_awaited_add(awaited, leader);
        }
        for (int place = 1;
             comes_in_full(hosts, host) && place < dl_layout_count(layout, host);
             place++) {
            dl_awaited_add_unless_begun(awaited, dl_layout_ranks(layout, host)[place]);
        }
    }
}

/* Nobody is done before all ranks have come, wherever they are, and a rank may be in the
 * last meeting of its host before its leader is in the first.  Where the operation has a
 * root some are done without the others. */
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

    if (dl_layout_leads(hosts->layout)) {
        add_hosts(hosts, true, awaited);
    }
}

/* Who heard of it, from this host or another, leaves it to the first to tell. */
void
dl_hosts_tell(void *context, const dl_error *message, uint64_t sequence,
              dl_deadline deadline)
{
    dl_hosts *hosts = context;
    bool is_told = hosts->is_told || dl_traffic_is_told(hosts->traffic)
                   || (hosts->board != NULL && dl_verdict_is_told(hosts->board));

    if (message->status != DL_CLOSED && !is_told) {
        dl_news_tell(hosts->news, message, sequence, deadline);
    }
    hosts->is_told = true;
}

/* Whether it is this rank's to tell.  One that has claimed it may be stopped, or have ended,
 * before it was done: whoever finds it undone at the second look tells as well. */
static bool
claim(dl_hosts *hosts, int place)
{
    _Atomic uint32_t *teller = &hosts->board->members[place].end_teller;
    uint32_t nobody = 0;
    bool is_mine = atomic_compare_exchange_strong(
        teller, &nobody, (uint32_t)hosts->board->options.rank + 1);
    bool is_known = hosts->is_end_known[place];

    hosts->is_end_known[place] = true;
    return is_mine || is_known;
}

static bool
is_untold(const dl_hosts *hosts, int place)
{
    const dl_board_member *member = &hosts->board->members[place];

    return place != hosts->board->options.rank
           && dl_board_has_ended(hosts->board, place)
           && atomic_load(&member->farewell) == DL_STAYING
           && atomic_load(&member->end_teller) != DL_END_TOLD;
}

bool
dl_hosts_tell_ended(void *context)
{
    dl_hosts *hosts = context;
    bool is_pending = false;

    for (int place = 0; hosts->board != NULL && place < hosts->board->options.size;
         place++) {
        dl_error message;
        if (!is_untold(hosts, place)) {
            continue;
        }
        if (!claim(hosts, place)) {
            is_pending = true;
            continue;
        }
        uint64_t seen = dl_verdict_describe_ended(hosts->board, place, &message);
        dl_news_tell_ended(hosts->news, dl_verdict_name(hosts->board, place), &message,
                           seen + 1, dl_deadline_after(TELLING_PATIENCE));
        atomic_store(&hosts->board->members[place].end_teller, DL_END_TOLD);
    }
    return is_pending;
}
