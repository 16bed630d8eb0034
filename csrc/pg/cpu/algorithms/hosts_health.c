/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/hosts.h"

#include "pg/cpu/shm/verdict.h"

/* A rank that waits looks at other hosts so often: less than a system call in a thousand
 * microseconds. */
#define LOOK_EVERY (40 * DL_MILLISECOND)

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

static dl_status
hear_news(dl_hosts *hosts)
{
    uint64_t meeting = hosts->meeting.sequence;
    dl_status status = dl_news_check(hosts->news, (meeting + DL_HOSTS_MEETINGS - 1)
                                                      / DL_HOSTS_MEETINGS);

    hosts->is_told |= status != DL_OK;
    return status;
}

/* All ranks of another host; of too many the one at this rank's place, so that its host's
 * leader is not asked by everybody. */
static dl_status
probe_host(const dl_hosts *hosts, int host)
{
    const dl_layout *layout = hosts->layout;
    bool is_few = layout->size <= DL_PROBES_LIMIT;
    int count = dl_layout_count(layout, host);
    int own = layout->place_of[layout->rank] % count;

    for (int place = is_few ? 0 : own; place < (is_few ? count : own + 1); place++) {
        int rank = dl_layout_ranks(layout, host)[place];
        int origin = hosts->origin_ranks == NULL ? rank : hosts->origin_ranks[rank];
        DL_TRY(dl_probes_look(hosts->probes, origin, rank));
    }
    return DL_OK;
}

static dl_status
probe_hosts(const dl_hosts *hosts)
{
    const dl_layout *layout = hosts->layout;

    for (int host = 0; host < layout->host_count; host++) {
        if (host != layout->host) {
            DL_TRY(probe_host(hosts, host));
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
    return is_time_to_look(hosts) ? hear_news(hosts) : DL_OK;
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

/* Probes are for waits that have lasted a while.  First the look, then whether it was in
 * time. */
static dl_status
find_lost(dl_hosts *hosts)
{
    uint64_t meeting = hosts->meeting.sequence;
    bool has_waited = hosts->looked_in == meeting;

    hosts->looked_in = meeting;
    if (!has_waited || !is_early(hosts) || probe_hosts(hosts) == DL_OK) {
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

    if (!is_time_to_look(hosts)) {
        return DL_OK;
    }
    DL_TRY(hear_news(hosts));
    return find_lost(hosts);
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
