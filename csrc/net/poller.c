/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/poller.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

dl_status
dl_poller_init(dl_poller *poller)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);

    if (fd < 0) {
        return dl_fail(DL_NETWORK, "epoll_create1: %s", strerror(errno));
    }
    /* A child shares the parent's registrations, so it must not keep the descriptor. */
    dl_fork_guard(fd);
    poller->fd = fd;
    return DL_OK;
}

void
dl_poller_fini(dl_poller *poller)
{
    dl_fork_release(poller->fd);
    close(poller->fd);
}

static dl_status
control(dl_poller *poller, int operation, int fd, struct epoll_event event)
{
    if (epoll_ctl(poller->fd, operation, fd, &event) != 0) {
        return dl_fail(DL_NETWORK, "epoll_ctl for fd %d: %s", fd, strerror(errno));
    }
    return DL_OK;
}

dl_status
dl_poller_add(dl_poller *poller, int fd, uint32_t events, void *tag)
{
    return control(poller, EPOLL_CTL_ADD, fd,
                   (struct epoll_event){.events = events, .data.ptr = tag});
}

dl_status
dl_poller_change(dl_poller *poller, int fd, uint32_t events, void *tag)
{
    return control(poller, EPOLL_CTL_MOD, fd,
                   (struct epoll_event){.events = events, .data.ptr = tag});
}

void
dl_poller_remove(dl_poller *poller, int fd)
{
    (void)epoll_ctl(poller->fd, EPOLL_CTL_DEL, fd, NULL);
}

int
dl_poller_wait(dl_poller *poller, struct epoll_event *events, int room,
               dl_deadline deadline)
{
    /* Not in slices: this runs on threads of the library, which receive no signals and
     * are woken through a descriptor. */
    int timeout = dl_deadline_poll(deadline, INT64_MAX);
    int count = epoll_wait(poller->fd, events, room, timeout);

    return count < 0 ? 0 : count;
}
