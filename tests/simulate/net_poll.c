/* SPDX-License-Identifier: BSD-3-Clause
 *
 * poll(2), epoll(7) with level-triggered events, and eventfd(2). */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "net.h"

int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_ctl(int fd, int operation, int watched, struct epoll_event *event);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_eventfd_write(int fd, eventfd_t value);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);

/* Room of one poll(2). */
#define POLLED 64

static int64_t
until(int timeout)
{
    return timeout < 0 ? SIM_FOREVER : sim.now + timeout * DL_MILLISECOND;
}

typedef struct poll_wait {
    struct pollfd *entries;
    nfds_t count;
    const sim_descriptor *found[POLLED];
} poll_wait;

static bool
has_events(void *context)
{
    poll_wait *wait = context;
    bool is_any = false;

    for (nfds_t i = 0; i < wait->count; i++) {
        struct pollfd *entry = &wait->entries[i];
        entry->revents = 0;
        if (wait->found[i] != NULL) {
            entry->revents = (short)(sim_events(wait->found[i])
                                     & (entry->events | POLLERR | POLLHUP));
        }
        is_any |= entry->revents != 0;
    }
    return is_any;
}

int
__wrap_poll(struct pollfd *entries, nfds_t count, int timeout)
{
    poll_wait wait = {.entries = entries, .count = count};
    int ready = 0;

    sim_call("poll");
    if (count > POLLED) {
        sim_fail("poll() of %d descriptors", (int)count);
    }
    for (nfds_t i = 0; i < count; i++) {
        wait.found[i] = entries[i].fd < 0 ? NULL : sim_descriptor_of(entries[i].fd);
    }
    if (!has_events(&wait) && timeout != 0) {
        sim_wait("poll", has_events, &wait, until(timeout));
    }
    for (nfds_t i = 0; i < count; i++) {
        ready += entries[i].revents != 0;
    }
    sim_result("poll", ready);
    return ready;
}

int
__wrap_epoll_create1(int flags)
{
    sim_descriptor *opened;

    (void)flags;
    sim_call("epoll_create1");
    return sim_descriptor_open(SIM_EPOLL, &opened);
}

static void
add_watch(sim_descriptor *epoll, int fd, const struct epoll_event *event)
{
    if (epoll->watch_count == epoll->watch_capacity) {
        size_t used = (size_t)epoll->watch_count * sizeof *epoll->watches;
        epoll->watch_capacity = 2 * epoll->watch_capacity + 16;
        epoll->watches =
            sim_grow(epoll->watches, used,
                     (size_t)epoll->watch_capacity * sizeof *epoll->watches);
    }
    epoll->watches[epoll->watch_count++] = (sim_watch){
        fd, sim_descriptor_of(fd)->generation, event->events, event->data.ptr};
}

int
__wrap_epoll_ctl(int fd, int operation, int watched, struct epoll_event *event)
{
    sim_descriptor *epoll = sim_descriptor_of(fd);
    int found = 0;

    if (epoll == NULL || sim_descriptor_of(watched) == NULL) {
        sim_fail("epoll_ctl() of a descriptor that is closed");
    }
    while (found < epoll->watch_count && epoll->watches[found].fd != watched) {
        found++;
    }
    if (operation == EPOLL_CTL_ADD) {
        add_watch(epoll, watched, event);
        return 0;
    }
    if (found == epoll->watch_count) {
        errno = ENOENT;
        return -1;
    }
    if (operation == EPOLL_CTL_DEL) {
        epoll->watches[found] = epoll->watches[--epoll->watch_count];
    } else {
        epoll->watches[found].events = event->events;
    }
    return 0;
}

/* The bits of poll(2) and epoll(7) are the same. */
static uint32_t
watched_events(const sim_watch *watch)
{
    const sim_descriptor *watched = sim_descriptor_at(watch->fd);

    return watched->generation != watch->generation
               ? 0
               : (uint32_t)sim_events(watched) & (watch->events | EPOLLERR | EPOLLHUP);
}

static bool
has_watched(void *context)
{
    sim_descriptor *epoll = context;

    for (int i = 0; i < epoll->watch_count; i++) {
        if (watched_events(&epoll->watches[i]) != 0) {
            return true;
        }
    }
    return false;
}

/* Reports the events in any order, and sometimes only some. */
int
__wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    sim_descriptor *epoll = sim_descriptor_of(fd);
    int count = 0;

    sim_call("epoll_wait");
    if (!has_watched(epoll) && timeout != 0) {
        sim_wait("epoll_wait", has_watched, epoll, until(timeout));
    }
    for (int i = 0; i < epoll->watch_count && count < most; i++) {
        uint32_t now = watched_events(&epoll->watches[i]);
        if (now == 0) {
            continue;
        }
        int place = (int)sim_random_below(&sim.schedule, (uint64_t)count + 1);
        events[count] = events[place];
        events[place] =
            (struct epoll_event){.events = now, .data.ptr = epoll->watches[i].tag};
        count++;
    }
    if (count > 1 && sim_random_once_in(&sim.schedule, 4)) {
        count = 1 + (int)sim_random_below(&sim.schedule, (uint64_t)count);
    }
    sim_result("epoll_wait", count);
    return count;
}

int
__wrap_eventfd(unsigned count, int flags)
{
    sim_descriptor *opened;

    (void)flags;
    sim_call("eventfd");
    int fd = sim_descriptor_open(SIM_EVENT, &opened);
    if (fd >= 0) {
        opened->count = count;
    }
    return fd;
}

int
__wrap_eventfd_write(int fd, eventfd_t value)
{
    sim_descriptor *event = sim_descriptor_of(fd);

    sim_call("eventfd_write");
    event->count += value;
    return 0;
}

/* Of an eventfd(2) only. */
ssize_t
__wrap_write(int fd, const void *bytes, size_t size)
{
    const sim_descriptor *event = sim_descriptor_of(fd);

    if (event == NULL || event->kind != SIM_EVENT || size != sizeof(eventfd_t)) {
        sim_fail("write() to something else than an eventfd is not simulated");
    }
    (void)__wrap_eventfd_write(fd, *(const eventfd_t *)bytes);
    return (ssize_t)size;
}

/* The same; it does not block, and its eventfd is not a semaphore. */
ssize_t
__wrap_read(int fd, void *bytes, size_t size)
{
    sim_descriptor *event = sim_descriptor_of(fd);

    sim_call("read");
    if (event == NULL || event->kind != SIM_EVENT || size != sizeof(eventfd_t)) {
        sim_fail("read() from something else than an eventfd is not simulated");
    }
    if (event->count == 0) {
        errno = EAGAIN;
        return -1;
    }
    *(eventfd_t *)bytes = event->count;
    event->count = 0;
    return (ssize_t)size;
}
