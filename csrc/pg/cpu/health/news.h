/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks of other hosts tell each rank when they give up a group, apart from all
 * links: a call of its own, a farewell, and the end.  A link brings a farewell only to
 * who is connected, and to him only when he comes to look at it, whereas he may be
 * waiting for a rank of his own host, or be one that has no links at all.  Whoever first
 * fails tells all; those who heard of it from others do not. */
#ifndef DISTLITE_PG_CPU_HEALTH_NEWS_H
#define DISTLITE_PG_CPU_HEALTH_NEWS_H

#include <pthread.h>

#include "pg/cpu/health/process_table.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/tcp/link.h"

/* Borrowed. */
typedef struct dl_news_options {
    const char *group_name;
    const dl_layout *layout;
    const dl_peer *peers;         /* by rank */
    const dl_way *ways;           /* by rank */
    dl_process *const *processes; /* by rank; marked when they have ended; NULL: none */
    dl_listener *listener;
} dl_news_options;

#define DL_NEWS_SIZE (DL_HEAD_SIZE + DL_ERROR_TEXT_SIZE)

/* Zeroed memory is valid, and hears nothing. */
typedef struct dl_news {
    dl_news_options options; /* fixed after init */
    uint32_t fork_generation;
    pthread_mutex_t lock;
    /* guarded by lock */
    bool *has_ended;   /* by rank: it gave up */
    int fd;            /* of one that is being heard; -1: none */
    size_t got;        /* bytes of it */
    uint64_t sequence; /* what ends with `error`, and all after it; 0: nothing has */
    dl_error error;
    uint64_t late_sequence; /* what another host's leader waits for its own ranks in */
    int late_rank;          /* that leader */
    dl_error late_error;    /* what it will give up with */
    uint8_t bytes[DL_NEWS_SIZE];
} dl_news;

dl_status dl_news_init(dl_news *news, const dl_news_options *options);
void dl_news_fini(dl_news *news);

/* Why operation `sequence` cannot end, if somebody has said so.  These two do not wait;
 * from any thread. */
dl_status dl_news_check(dl_news *news, uint64_t sequence);

/* As dl_news_check(), of what another host's leader is going to give up with at its deadline,
 * and who that is: for those whose deadline has come first. */
dl_status dl_news_late(dl_news *news, uint64_t sequence, int *leader);

/* Takes in what was said by now, without waiting; from any thread. */
void dl_news_hear(dl_news *news);

/* DL_PEER_LOST: `rank` has ended, or has said that it gave up, as far as was heard. */
dl_status dl_news_watch(dl_news *news, int rank);

/* To all ranks of other hosts: this one takes no part in operation `sequence` or any
 * later one.  Waits until it has gone, as long as the deadline allows. */
void dl_news_tell(dl_news *news, const dl_error *message, uint64_t sequence,
                  dl_deadline deadline);

/* To the leaders of the other hosts: what this one is going to give up `sequence` with. */
void dl_news_foretell(dl_news *news, const dl_error *message, uint64_t sequence,
                      dl_deadline deadline);

/* The same of `rank`, whose process has ended, as this host's kernel says. */
void dl_news_tell_ended(dl_news *news, int rank, const dl_error *message,
                        uint64_t sequence, dl_deadline deadline);

#endif
