/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Level-triggered epoll(7): an event that is not handled completely is reported again. */
#include "store/tcp/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/thread.h"
#include "net/socket.h"

/* Most events that one epoll_wait(2) returns. */
#define EVENTS 256

struct dl_loop {
    int fd;
    int stop_fd; /* an eventfd; readable when the loop must end */
};

static dl_status
control_epoll(const dl_loop *loop, int operation, int fd, uint32_t events, void *tag)
{
    struct epoll_event event = {
        .events = ((events & DL_LOOP_READABLE) != 0 ? EPOLLIN : 0u)
                  | ((events & DL_LOOP_WRITABLE) != 0 ? EPOLLOUT : 0u),
        .data.ptr = tag,
    };

    return epoll_ctl(loop->fd, operation, fd, &event) == 0
               ? DL_OK
               : dl_fail(DL_NETWORK, "epoll_ctl for fd %d: %s", fd, strerror(errno));
}

static void
close_epoll(dl_loop *loop)
{
    dl_socket_close(loop->fd);
    dl_socket_close(loop->stop_fd);
    free(loop);
}

static dl_status
open_epoll(dl_loop **opened)
{
    dl_loop *loop = calloc(1, sizeof *loop);

    if (loop == NULL) {
        return dl_fail_no_memory();
    }
    loop->fd = epoll_create1(EPOLL_CLOEXEC);
    loop->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->fd < 0 || loop->stop_fd < 0) {
        dl_status status = dl_fail(DL_NETWORK, "epoll_create1: %s", strerror(errno));
        close_epoll(loop);
        return status;
    }
    /* A child shares the parent's registrations, so it must not keep the descriptor. */
    dl_fork_guard(loop->fd);
    dl_fork_guard(loop->stop_fd);
    dl_status status =
        control_epoll(loop, EPOLL_CTL_ADD, loop->stop_fd, DL_LOOP_READABLE, NULL);
    if (status != DL_OK) {
        close_epoll(loop);
        return status;
    }
    *opened = loop;
    return DL_OK;
}

static dl_status
add_epoll(dl_loop *loop, dl_watch *watch)
{
    return control_epoll(loop, EPOLL_CTL_ADD, watch->fd, watch->events, watch);
}

static dl_status
change_epoll(dl_loop *loop, dl_watch *watch, uint32_t events)
{
    watch->events = events;
    return control_epoll(loop, EPOLL_CTL_MOD, watch->fd, events, watch);
}

static void
remove_epoll(dl_loop *loop, dl_watch *watch)
{
    /* A child that is being forked may keep the descriptor open for a moment, so that
     * closing it does not end its registration. */
    (void)epoll_ctl(loop->fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

/* Returns false when the loop must end. */
static bool
report_ready(const struct epoll_event *event)
{
    dl_watch *watch = event->data.ptr;

    if (watch == NULL) {
        return false;
    }
    watch->ready(
        watch,
        ((event->events & EPOLLIN) != 0 ? DL_LOOP_READABLE : 0u)
            | ((event->events & EPOLLOUT) != 0 ? DL_LOOP_WRITABLE : 0u)
            | ((event->events & (EPOLLERR | EPOLLHUP)) != 0 ? DL_LOOP_BROKEN : 0u));
    return true;
}

static void
run_epoll(dl_loop *loop, dl_deadline (*turn)(void *), void *context)
{
    struct epoll_event events[EVENTS];

    for (;;) {
        int timeout = dl_deadline_poll(turn(context), INT64_MAX);
        int count = epoll_wait(loop->fd, events, EVENTS, timeout);
        /* A descriptor occurs once per batch, and its watch removes no other, so no
         * later tag of the batch points to freed memory. */
        for (int i = 0; i < count; i++) {
            if (!report_ready(&events[i])) {
                return;
            }
        }
    }
}

static void
stop_epoll(dl_loop *loop)
{
    /* Never read, so it stays readable until the thread has seen it. */
    (void)eventfd_write(loop->stop_fd, 1);
}

const dl_loop_ops dl_loop_epoll_ops = {
    .kind = "epoll",
    .open = open_epoll,
    .close = close_epoll,
    .add = add_epoll,
    .change = change_epoll,
    .remove = remove_epoll,
    .run = run_epoll,
    .stop = stop_epoll,
};
