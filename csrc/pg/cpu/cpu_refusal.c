/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/cpu_refusal.h"

#include <stdio.h>
#include <stdlib.h>

#include "pg/cpu/cpu_backend.h"
#include "pg/cpu/join_fault.h"

/* Limit of the time for telling other ranks: the failure must not be held up. */
#define PATIENCE (500 * DL_MILLISECOND)

#define FAREWELL_TEXT ((int)(DL_ENDED_FAREWELL_SIZE - DL_HEAD_SIZE))

/* The members of the group, as far as a refusal needs them.  They are computed anew,
 * because this rank's backend may be incomplete. */
typedef struct refusal {
    const dl_backend_options *options;
    dl_roster *roster;
    dl_layout layout;
    dl_peer *peers; /* by rank */
    dl_way *ways;   /* by rank */
    int *origins;   /* by rank: rank in the roster */
} refusal;

dl_status
dl_cpu_borrower_init(dl_borrower *borrower, const dl_roster *roster,
                     const dl_layout *layout, const int *origin_ranks, const char *name,
                     int **places)
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
refusal_init(refusal *self)
{
    const dl_endpoint *endpoint = &self->roster->endpoint;
    int size = self->options->size;
    size_t count = (size_t)size;
    int *hosts = malloc(count * sizeof *hosts);

    self->origins = malloc(count * sizeof *self->origins);
    self->peers = malloc(count * sizeof *self->peers);
    self->ways = malloc(count * sizeof *self->ways);
    if (hosts == NULL || self->origins == NULL || self->peers == NULL
        || self->ways == NULL) {
        free(hosts);
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < size; rank++) {
        const int *origins = self->options->origin_ranks;
        int origin = self->options->origin == NULL ? rank : origins[rank];
        self->origins[rank] = origin;
        self->peers[rank] = endpoint->peers[origin];
        self->ways[rank] = endpoint->ways[origin];
        hosts[rank] = endpoint->layout.host_of[origin];
    }
    dl_status status = dl_layout_init(&self->layout, self->options->rank, size, hosts);
    free(hosts);
    return status;
}

static void
refusal_fini(refusal *self)
{
    dl_layout_fini(&self->layout);
    free(self->origins);
    free(self->peers);
    free(self->ways);
}

/* Tells the ranks of this host.  `segment` is this rank's memory of the group, if it
 * has any. */
static void
tell_host(refusal *self, const dl_segment *segment, const char *reason)
{
    const dl_layout *layout = &self->layout;
    int place = layout->place_of[layout->rank];
    dl_borrower borrower;
    int *places = NULL;

    if (segment->memory != NULL) {
        dl_board_refuse(segment->memory, dl_layout_count(layout, layout->host), place,
                        reason);
    } else if (self->options->origin != NULL
               && dl_cpu_borrower_init(&borrower, self->roster, layout, self->origins,
                                       self->options->group_name, &places)
                      == DL_OK) {
        (void)dl_arena_refuse(&self->roster->membership.arena, &borrower, place, reason,
                              dl_deadline_after(PATIENCE));
    }
    free(places);
}

void
dl_cpu_end_calls(dl_roster *roster, const char *group_name, const dl_error *message)
{
    uint8_t farewell[DL_FAILURE_NOTICE_SIZE];
    dl_error brief = {.status = message->status};

    snprintf(brief.text, sizeof brief.text, "%.*s", FAREWELL_TEXT, message->text);
    dl_listener_end(&roster->endpoint.calls, group_name,
                    (dl_bytes){farewell, dl_failure_notice_put(farewell, &brief)});
}

/* Tells the ranks of other hosts: those that have made the group by news, and those
 * that will by an answer to their calls. */
static void
tell_hosts(refusal *self, const char *reason)
{
    const dl_layout *layout = &self->layout;
    dl_error message = {.status = DL_PEER_LOST};
    char peer[DL_PEER_TEXT_SIZE];
    dl_news news;
    dl_news_options options = {
        .group_name = self->options->group_name,
        .layout = layout,
        .peers = self->peers,
        .ways = self->ways,
        .listener = &self->roster->endpoint.calls,
    };

    dl_peer_describe(&self->peers[layout->rank], layout->rank, peer);
    snprintf(message.text, sizeof message.text, "%s: %.1800s", peer, reason);
    dl_cpu_end_calls(self->roster, self->options->group_name, &message);
    if (layout->host_count > 1 && dl_news_init(&news, &options) == DL_OK) {
        dl_news_tell(&news, &message, 1, dl_deadline_after(PATIENCE));
        dl_news_fini(&news);
    }
}

static void
refuse(const dl_backend_options *options, dl_roster *roster, const dl_segment *segment)
{
    refusal self = {.options = options, .roster = roster};
    dl_error cause = dl_error_for_others();
    dl_error error = *dl_last_error();
    char reason[DL_ERROR_TEXT_SIZE];

    snprintf(reason, sizeof reason, "could not make the group: %.1800s", cause.text);
    if (refusal_init(&self) == DL_OK) {
        /* Other hosts are told first: ranks of this host leave when they hear of the
         * failure, and other hosts must not take their end for the cause. */
        tell_hosts(&self, reason);
        tell_host(&self, segment, reason);
    }
    refusal_fini(&self);
    (void)dl_fail_again(&error);
}

void
dl_cpu_refuse(dl_cpu_backend *self, const dl_backend_options *options)
{
    if (self->roster == NULL) {
        dl_cpu_backend_refuse(options);
    } else {
        refuse(options, self->roster,
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
        refuse(options, (dl_roster *)(void *)options->origin, &(dl_segment){0});
    }
}
