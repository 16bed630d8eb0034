/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waiting for many descriptors at once: epoll(7), level-triggered, so that whoever does
 * not finish is told again.  The cost of a wait depends on the descriptors that have
 * something to say, not on how many there are. */
#ifndef DISTLITE_NET_POLLER_H
#define DISTLITE_NET_POLLER_H

#include <stdint.h>
#include <sys/epoll.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct dl_poller {
    int fd; /* fixed after init */
} dl_poller;

dl_status dl_poller_init(dl_poller *poller);

/* Not in a forked child, where the descriptor is closed already. */
void dl_poller_fini(dl_poller *poller);

/* `events`: EPOLLIN, EPOLLOUT, both or 0; errors and hang-ups come unasked.  `tag` comes
 * back as data.ptr. */
dl_status dl_poller_add(dl_poller *poller, int fd, uint32_t events, void *tag);
dl_status dl_poller_change(dl_poller *poller, int fd, uint32_t events, void *tag);

/* Before closing `fd`: a child that is just being forked may keep it open a little
 * longer, and the poller would still tell of it. */
void dl_poller_remove(dl_poller *poller, int fd);

/* How many of `events` (`room` of them) were filled in: 0 when the deadline passed, or
 * a signal came. */
int dl_poller_wait(dl_poller *poller, struct epoll_event *events, int room,
                   dl_deadline deadline);

#endif
