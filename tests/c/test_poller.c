/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/poller.h"

#include <sys/socket.h>

#include "check.h"

typedef struct fixture {
    dl_poller poller;
    int ends[2];
    struct epoll_event events[4];
} fixture;

static void
open_fixture(fixture *f)
{
    CHECK_OK(dl_poller_init(&f->poller));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, f->ends) == 0);
}

static void
close_fixture(fixture *f)
{
    dl_poller_fini(&f->poller);
    close(f->ends[0]);
    close(f->ends[1]);
}

static int
look(fixture *f)
{
    return dl_poller_wait(&f->poller, f->events, 4, dl_deadline_after(0));
}

CHECK_CASE(ready_descriptors_are_reported_with_their_tag_until_they_are_read)
{
    fixture f;
    char byte;

    open_fixture(&f);
    CHECK_OK(dl_poller_add(&f.poller, f.ends[0], EPOLLIN, &f));
    CHECK_EQUAL(look(&f), 0);
    CHECK(write(f.ends[1], "x", 1) == 1);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(look(&f), 1);
        CHECK(f.events[0].data.ptr == &f && f.events[0].events == EPOLLIN);
    }
    CHECK(read(f.ends[0], &byte, 1) == 1);
    CHECK_EQUAL(look(&f), 0);
    close_fixture(&f);
}

CHECK_CASE(the_watched_events_can_be_changed)
{
    fixture f;

    open_fixture(&f);
    CHECK_OK(dl_poller_add(&f.poller, f.ends[0], 0, &f));
    CHECK(write(f.ends[1], "x", 1) == 1);
    CHECK_EQUAL(look(&f), 0);
    CHECK_OK(dl_poller_change(&f.poller, f.ends[0], EPOLLOUT, &f.ends));
    CHECK_EQUAL(look(&f), 1);
    CHECK(f.events[0].data.ptr == &f.ends && f.events[0].events == EPOLLOUT);
    dl_poller_remove(&f.poller, f.ends[0]);
    CHECK_EQUAL(look(&f), 0);
    close_fixture(&f);
}

CHECK_CASE(a_hang_up_is_reported_without_a_request)
{
    fixture f;

    open_fixture(&f);
    CHECK_OK(dl_poller_add(&f.poller, f.ends[0], 0, &f));
    close(f.ends[1]);
    CHECK_EQUAL(look(&f), 1);
    CHECK((f.events[0].events & EPOLLHUP) != 0);
    f.ends[1] = dup(f.ends[0]);
    close_fixture(&f);
}

CHECK_CASE(a_wait_ends_at_its_deadline)
{
    fixture f;

    open_fixture(&f);
    int64_t start = dl_now();
    CHECK_EQUAL(
        dl_poller_wait(&f.poller, f.events, 4, dl_deadline_after(30 * DL_MILLISECOND)),
        0);
    CHECK(dl_now() - start >= 30 * DL_MILLISECOND);
    close_fixture(&f);
}

static void
ignore(int number)
{
    (void)number;
}

CHECK_CASE(a_wait_ends_when_a_signal_comes)
{
    fixture f;
    struct sigaction action = {.sa_handler = ignore};

    open_fixture(&f);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    CHECK_EQUAL(
        dl_poller_wait(&f.poller, f.events, 4, dl_deadline_after(15 * DL_SECOND)), 0);
    close_fixture(&f);
}

CHECK_CASE(a_process_that_cannot_be_watched_is_an_error)
{
    fixture f;

    open_fixture(&f);
    CHECK_STATUS(dl_poller_add(&f.poller, -1, EPOLLIN, NULL), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "fd -1");
    CHECK_STATUS(dl_poller_change(&f.poller, f.ends[0], EPOLLIN, NULL), DL_NETWORK);
    dl_poller_remove(&f.poller, f.ends[0]);
    close_fixture(&f);
}
