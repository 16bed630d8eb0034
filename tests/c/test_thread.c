/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "check.h"
#include "ranks.h"

static dl_status
refuse(void)
{
    return dl_fail(DL_INTERRUPTED, "asked to stop");
}

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived; /* guarded by lock */
} meeting;

static void
meet(int rank, int size, void *context)
{
    meeting *place = context;
    dl_deadline deadline = dl_deadline_after(10 * DL_SECOND);

    (void)rank;
    pthread_mutex_lock(&place->lock);
    place->arrived++;
    pthread_cond_broadcast(&place->changed);
    while (place->arrived < size) {
        CHECK_OK(dl_condition_wait(&place->changed, &place->lock, deadline));
    }
    pthread_mutex_unlock(&place->lock);
}

CHECK_CASE(a_condition_wait_ends_with_the_signal)
{
    meeting place = {0};

    dl_condition_init(&place.changed);
    dl_run_ranks(8, meet, &place);
    CHECK_EQUAL(place.arrived, 8);
}

CHECK_CASE(a_condition_wait_ends_with_the_deadline)
{
    meeting place = {0};
    int64_t start = dl_now();
    dl_deadline deadline = dl_deadline_after(120 * DL_MILLISECOND);
    dl_status status = DL_OK;

    dl_condition_init(&place.changed);
    pthread_mutex_lock(&place.lock);
    while (status == DL_OK) {
        status = dl_condition_wait(&place.changed, &place.lock, deadline);
    }
    CHECK_EQUAL(status, DL_TIMEOUT);
    CHECK(dl_now() - start >= 120 * DL_MILLISECOND);
    CHECK(dl_now() - start < 5 * DL_SECOND);
    CHECK_EQUAL(dl_condition_wait(&place.changed, &place.lock, dl_deadline_after(0)),
                DL_TIMEOUT);
    /* Still ours. */
    CHECK_EQUAL(pthread_mutex_unlock(&place.lock), 0);
}

CHECK_CASE(a_condition_wait_ends_at_a_point_in_time)
{
    meeting place = {0};
    int64_t at = dl_now() + 30 * DL_MILLISECOND;

    dl_condition_init(&place.changed);
    pthread_mutex_lock(&place.lock);
    while (dl_condition_wait_until(&place.changed, &place.lock, at)) {
        CHECK(dl_now() - at < 5 * DL_SECOND);
    }
    CHECK(dl_now() >= at);
    CHECK(!dl_condition_wait_until(&place.changed, &place.lock, at));
    pthread_mutex_unlock(&place.lock);
}

static void *
look_who_it_is(void *is_main)
{
    *(bool *)is_main = dl_is_main_thread();
    return NULL;
}

CHECK_CASE(the_main_thread_is_recognised)
{
    bool is_main = true;
    pthread_t thread;

    CHECK(dl_is_main_thread());
    CHECK_OK(dl_thread_start(&thread, look_who_it_is, &is_main));
    pthread_join(thread, NULL);
    CHECK(!is_main);
}

static meeting *watched;

static dl_status
refuse_without_the_lock(void)
{
    CHECK_EQUAL(pthread_mutex_trylock(&watched->lock), 0);
    pthread_mutex_unlock(&watched->lock);
    return DL_INTERRUPTED;
}

CHECK_CASE(an_interrupt_is_looked_for_without_the_lock)
{
    meeting place = {0};

    dl_condition_init(&place.changed);
    watched = &place;
    dl_interrupt_install(refuse_without_the_lock);
    pthread_mutex_lock(&place.lock);
    CHECK_EQUAL(dl_condition_wait(&place.changed, &place.lock, dl_deadline_after(-1)),
                DL_INTERRUPTED);
    CHECK(pthread_mutex_trylock(&place.lock) == EBUSY);
    pthread_mutex_unlock(&place.lock);
}

CHECK_CASE(sleep_lasts_until_the_deadline)
{
    int64_t start = dl_now();

    CHECK_OK(dl_sleep_until(dl_deadline_after(70 * DL_MILLISECOND)));
    CHECK(dl_now() - start >= 70 * DL_MILLISECOND);
    CHECK(dl_now() - start < 5 * DL_SECOND);
    CHECK_OK(dl_sleep_until(dl_deadline_after(0)));
}

CHECK_CASE(an_interrupt_ends_a_sleep)
{
    dl_interrupt_install(refuse);
    CHECK_STATUS(dl_sleep_until(dl_deadline_after(-1)), DL_INTERRUPTED);
}

/* Runs `check` in a forked child; true if it returned true there. */
static bool
holds_in_a_child(bool (*check)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        _exit(check() ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status == 0;
}

static uint32_t parents_generation;

static bool
has_another_generation(void)
{
    uint32_t mine = dl_fork_generation();

    return mine != parents_generation && mine == dl_fork_generation();
}

static bool
has_a_grandchild_with_another_generation(void)
{
    parents_generation = dl_fork_generation();
    return holds_in_a_child(has_another_generation);
}

CHECK_CASE(a_forked_child_has_another_generation)
{
    parents_generation = dl_fork_generation();
    CHECK(holds_in_a_child(has_another_generation));
    CHECK(holds_in_a_child(has_a_grandchild_with_another_generation));
    CHECK_EQUAL(dl_fork_generation(), parents_generation);
}

static void *
read_signal_mask(void *blocked)
{
    pthread_sigmask(SIG_SETMASK, NULL, blocked);
    return NULL;
}

CHECK_CASE(threads_of_ours_get_no_signals)
{
    pthread_t thread;
    sigset_t theirs;
    sigset_t mine;

    CHECK_OK(dl_thread_start(&thread, read_signal_mask, &theirs));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sigismember(&theirs, SIGINT) == 1);
    CHECK(sigismember(&theirs, SIGTERM) == 1);
    CHECK(sigismember(&theirs, SIGSEGV) == 0);
    read_signal_mask(&mine);
    CHECK(sigismember(&mine, SIGINT) == 0);
}

static int pair[2];

static bool
only_the_second_is_open(void)
{
    return fcntl(pair[0], F_GETFD) < 0 && fcntl(pair[1], F_GETFD) >= 0;
}

static bool
both_are_open(void)
{
    return fcntl(pair[0], F_GETFD) >= 0 && fcntl(pair[1], F_GETFD) >= 0;
}

CHECK_CASE(a_guarded_descriptor_is_closed_in_the_child_alone)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    dl_fork_guard(pair[0]);
    CHECK(holds_in_a_child(only_the_second_is_open));
    CHECK(both_are_open());
    dl_fork_release(pair[0]);
    CHECK(holds_in_a_child(both_are_open));
}

static bool
forgets_the_guard(void)
{
    /* The child's own use of the number is its own affair. */
    int fd = dup2(pair[1], pair[0]);

    return fd == pair[0] && holds_in_a_child(both_are_open);
}

CHECK_CASE(the_guard_ends_in_the_child)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    dl_fork_guard(pair[0]);
    CHECK(holds_in_a_child(forgets_the_guard));
}

CHECK_CASE(many_descriptors_are_guarded_one_by_one)
{
    int high = fcntl(STDIN_FILENO, F_DUPFD, 200);

    CHECK(high >= 200);
    pair[0] = high;
    pair[1] = fcntl(STDIN_FILENO, F_DUPFD, high + 1);
    dl_fork_guard(pair[0]);
    dl_fork_guard(pair[1]);
    dl_fork_release(pair[1]);
    CHECK(holds_in_a_child(only_the_second_is_open));
}

CHECK_CASE(descriptors_out_of_range_are_ignored)
{
    dl_fork_guard(-1);
    dl_fork_release(-1);
    dl_fork_guard(1 << 30);
    dl_fork_release(1 << 30);
    parents_generation = dl_fork_generation();
    CHECK(holds_in_a_child(has_another_generation));
}
