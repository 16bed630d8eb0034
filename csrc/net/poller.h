/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waits for many descriptors at once: level-triggered epoll(7), so that an event which
 * is not handled completely is reported again.  The cost of a wait depends on the
 * number of ready descriptors, not on how many are registered. */
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

/* Must not be called in a forked child, where the descriptor is closed already. */
void dl_poller_fini(dl_poller *poller);

/* Registers `fd` for `events`: EPOLLIN, EPOLLOUT, both or 0; errors and hang-ups are
 * always reported.  `tag` is returned as data.ptr. */
dl_status dl_poller_add(dl_poller *poller, int fd, uint32_t events, void *tag);
dl_status dl_poller_change(dl_poller *poller, int fd, uint32_t events, void *tag);

/* Call it before closing `fd`: a child that is being forked may keep `fd` open for a
 * moment, and the poller would still report its events. */
void dl_poller_remove(dl_poller *poller, int fd);

/* Fills `events`, which has room for `room` of them, and returns how many were filled:
 * 0 if the deadline passed or a signal arrived. */
int dl_poller_wait(dl_poller *poller, struct epoll_event *events, int room,
                   dl_deadline deadline);

#endif
