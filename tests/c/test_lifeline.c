/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/deadline.h"
#include "base/thread.h"
#include "check.h"
#include "net/socket.h"
#include "pg/cpu/health/lifeline.h"

/* Until it is cut, for five seconds at most. */
static bool
is_cut_soon(dl_lifelines *lifelines, int rank)
{
    dl_deadline deadline = dl_deadline_after(5 * DL_SECOND);

    while (!lifelines->is_cut[rank] && !dl_deadline_passed(deadline)) {
        dl_lifelines_watch(lifelines);
    }
    return lifelines->is_cut[rank];
}

/* A child that holds rank 1's line; `fork_again` leaves a grandchild behind. */
static pid_t
start_holder(dl_lifelines *lifelines, bool fork_again)
{
    int told[2];
    dl_lifeline line;
    char ready;

    CHECK_OK(dl_lifelines_init(lifelines, 3));
    CHECK(pipe(told) == 0);
    CHECK_OK(dl_lifeline_make(&line));
    dl_lifelines_put(lifelines, 1, line.shown);
    /* As if the child had made it: the parent's fork guard would close it there. */
    int held = dup(line.held);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        line.held = held;
        dl_fork_guard(held);
        if (fork_again && fork() == 0) {
            for (;;) {
                pause();
            }
        }
        CHECK(write(told[1], "!", 1) == 1);
        for (;;) {
            pause();
        }
    }
    CHECK(read(told[0], &ready, 1) == 1);
    dl_socket_close(line.held);
    close(held);
    return child;
}

CHECK_CASE(nobody_is_cut_while_all_hold_on)
{
    dl_lifelines lifelines;
    dl_lifeline line;

    CHECK_OK(dl_lifelines_init(&lifelines, 2));
    CHECK_OK(dl_lifeline_make(&line));
    dl_lifelines_put(&lifelines, 1, line.shown);
    dl_lifelines_watch(&lifelines);
    CHECK(!lifelines.is_cut[0] && !lifelines.is_cut[1]);
    dl_socket_close(line.held);
    dl_lifelines_watch(&lifelines);
    CHECK(!lifelines.is_cut[0] && lifelines.is_cut[1]);
    dl_lifelines_watch(&lifelines);
    dl_lifelines_fini(&lifelines);
    dl_lifelines_fini(&lifelines);
}

CHECK_CASE(a_killed_process_is_cut)
{
    dl_lifelines lifelines;
    pid_t child = start_holder(&lifelines, false);

    dl_lifelines_watch(&lifelines);
    CHECK(!lifelines.is_cut[1]);
    kill(child, SIGKILL);
    CHECK(is_cut_soon(&lifelines, 1));
    dl_lifelines_fini(&lifelines);
    CHECK(waitpid(child, NULL, 0) == child);
}

CHECK_CASE(a_grandchild_does_not_hold_on_for_it)
{
    dl_lifelines lifelines;
    pid_t child = start_holder(&lifelines, true);

    dl_lifelines_watch(&lifelines);
    CHECK(!lifelines.is_cut[1]);
    kill(child, SIGKILL);
    CHECK(is_cut_soon(&lifelines, 1));
    dl_lifelines_fini(&lifelines);
    CHECK(waitpid(child, NULL, 0) == child);
}
