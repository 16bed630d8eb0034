/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_refusal.h"

#include <stdio.h>
#include <stdlib.h>

#include "pg/cpu/cpu_members.h"
#include "pg/cpu/health/notices.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/shm/board.h"

/* Limit of the time for informing other ranks that this one cannot make a group. */
#define TELLING_PATIENCE (500 * DL_MILLISECOND)

#define NOTICE_TEXT ((int)(DL_ENDED_NOTICE_SIZE - DL_HEAD_SIZE))

void
dl_cpu_end_calls(dl_bootstrap *bootstrap, const char *group_name,
                 const dl_error *message)
{
    uint8_t notice[DL_FAILURE_NOTICE_SIZE];
    dl_error brief = {.status = message->status};

    snprintf(brief.text, sizeof brief.text, "%.*s", NOTICE_TEXT, message->text);
    dl_listener_end(&bootstrap->endpoint.calls, group_name,
                    (dl_bytes){notice, dl_failure_notice_put(notice, &brief)});
}

/* A refusal informs the other ranks of a group that this one cannot make its backend.
 * Before the rendezvous they wait in the store.  After it, and in groups made out of
 * another one, which do not meet, they wait at the board and at links, where they find
 * that this rank has aborted.  The members are computed anew, because this rank's
 * backend may be incomplete. */
typedef struct refusal {
    const dl_backend_options *options;
    dl_bootstrap *bootstrap;
    dl_cpu_members members;
} refusal;

/* Informs the ranks of this host.  `segment` is this rank's memory of the group, if it
 * has any. */
static void
notify_host(refusal *self, const dl_segment *segment, const char *reason)
{
    const dl_layout *layout = &self->members.layout;
    int local_rank = layout->local_rank_of[layout->rank];
    dl_borrower borrower;
    int *local_ranks = NULL;

    if (segment->memory != NULL) {
        dl_board_refuse(segment->memory, local_rank, reason);
    } else if (self->options->origin != NULL
               && dl_cpu_borrower_init(&borrower, self->bootstrap, &self->members,
                                       self->options->group_name, &local_ranks)
                      == DL_OK) {
        (void)dl_arena_refuse(&self->bootstrap->membership.arena, &borrower, local_rank,
                              reason, dl_deadline_after(TELLING_PATIENCE));
    }
    free(local_ranks);
}

/* Informs the ranks of other hosts: those that have made the group, by notices, and
 * those that will make it, by an answer to their connections. */
static void
notify_hosts(refusal *self, const char *reason)
{
    const dl_layout *layout = &self->members.layout;
    dl_error message = {.status = DL_PEER_LOST};
    char peer[DL_PEER_TEXT_SIZE];
    dl_notices notices;
    dl_notices_options options = {
        .group_name = self->options->group_name,
        .layout = layout,
        .peers = self->members.peers,
        .tcp_contacts = self->members.tcp_contacts,
        .listener = &self->bootstrap->endpoint.calls,
    };

    dl_peers_describe(&self->members.peers, layout->rank, peer);
    snprintf(message.text, sizeof message.text, "%s: %.1800s", peer, reason);
    dl_cpu_end_calls(self->bootstrap, self->options->group_name, &message);
    if (layout->host_count > 1 && dl_notices_init(&notices, &options) == DL_OK) {
        dl_notices_notify(&notices, &message, 1, dl_deadline_after(TELLING_PATIENCE));
        dl_notices_fini(&notices);
    }
}

static void
send_refusal(const dl_backend_options *options, dl_bootstrap *bootstrap,
             const dl_segment *segment)
{
    refusal self = {.options = options, .bootstrap = bootstrap};
    dl_error cause = dl_error_for_others();
    dl_error error = *dl_last_error();
    char reason[DL_ERROR_TEXT_SIZE];

    snprintf(reason, sizeof reason, "could not make the group: %.1800s", cause.text);
    if (dl_cpu_members_init(&self.members, bootstrap, options) == DL_OK) {
        /* Other hosts first: ranks of this host leave when they learn of the failure,
         * and other hosts must not take their end for the cause. */
        notify_hosts(&self, reason);
        notify_host(&self, segment, reason);
    }
    dl_cpu_members_fini(&self.members);
    (void)dl_rethrow(&error);
}

void
dl_cpu_refuse(const dl_backend_options *options, dl_bootstrap *bootstrap,
              const dl_segment *segment)
{
    if (options->size == 1) {
        return;
    }
    if (bootstrap == NULL && options->origin == NULL) {
        dl_join_fault_publish(options->store, options->rank);
    } else {
        send_refusal(options,
                     bootstrap == NULL ? (dl_bootstrap *)(void *)options->origin
                                       : bootstrap,
                     segment);
    }
}
