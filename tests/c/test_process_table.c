/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/process_table.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/deadline.h"
#include "base/thread.h"
#include "check.h"
#include "net/socket.h"

static bool
has_ended_soon(const dl_process *process, int64_t limit)
{
    dl_deadline deadline = dl_deadline_after(limit);

    while (!dl_process_has_ended(process) && !dl_deadline_passed(deadline)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    return dl_process_has_ended(process);
}

/* What a child that works with this process hands over. */
typedef struct shown {
    dl_process_id id;
    int lifeline;
    int pidfd;
} shown;

static dl_process_id
id_of(uint8_t number)
{
    return (dl_process_id){.bytes = {number}};
}

/* A process with a lifeline of its own, which waits until it is killed.  `clones`: it
 * leaves a child behind, made without fork handlers, that keeps the lifeline open.
 * `execs`: it becomes another program. */
static pid_t
start_peer(uint8_t number, bool clones, bool execs, shown *peer)
{
    int ends[2], told[2];
    char ready;

    CHECK(pipe2(ends, O_CLOEXEC) == 0 && pipe(told) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (clones && syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            sleep(20);
            _exit(0);
        }
        CHECK(write(told[1], "!", 1) == 1);
        if (execs) {
            execlp("sleep", "sleep", "20", (char *)NULL);
        }
        for (;;) {
            pause();
        }
    }
    CHECK(read(told[0], &ready, 1) == 1);
    close(ends[1]);
    *peer = (shown){id_of(number), ends[0], (int)syscall(SYS_pidfd_open, child, 0)};
    return child;
}

static dl_process *
watch(const shown *peer)
{
    dl_process *process;

    CHECK_OK(dl_process_find(&peer->id, &process));
    CHECK_OK(dl_process_watch(process, peer->lifeline, peer->pidfd));
    return process;
}

static void
end(pid_t child, dl_process *process)
{
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    dl_process_unref(process);
}

CHECK_CASE(a_killed_process_has_ended)
{
    shown peer;
    pid_t child = start_peer(1, false, false, &peer);
    dl_process *process = watch(&peer);

    CHECK(!has_ended_soon(process, 50 * DL_MILLISECOND));
    CHECK(!dl_process_any_has_ended());
    CHECK(!dl_process_is_gone(process));
    kill(child, SIGKILL);
    CHECK(has_ended_soon(process, 5 * DL_SECOND));
    CHECK(dl_process_any_has_ended());
    CHECK(dl_process_is_gone(process));
    end(child, process);
}

/* Its lifeline is still open: the pidfd reports the end. */
CHECK_CASE(a_child_by_raw_clone_does_not_hide_an_end)
{
    shown peer;
    pid_t child = start_peer(1, true, false, &peer);
    dl_process *process = watch(&peer);

    CHECK(!has_ended_soon(process, 50 * DL_MILLISECOND));
    kill(child, SIGKILL);
    CHECK(has_ended_soon(process, 5 * DL_SECOND));
    end(child, process);
}

/* The process goes on, as another program: the lifeline reports the end. */
CHECK_CASE(a_process_that_calls_exec_has_ended)
{
    shown peer;
    pid_t child = start_peer(1, false, true, &peer);
    dl_process *process = watch(&peer);

    CHECK(has_ended_soon(process, 5 * DL_SECOND));
    end(child, process);
}

CHECK_CASE(all_that_know_a_process_share_what_is_known_of_it)
{
    shown peer;
    pid_t child = start_peer(1, false, false, &peer);
    dl_process *process = watch(&peer);
    dl_process *same, *other;
    dl_process_id id = id_of(2);

    CHECK_OK(dl_process_find(&peer.id, &same));
    CHECK_OK(dl_process_find(&id, &other));
    CHECK(same == process && other != process);
    /* What comes a second time is closed. */
    CHECK_OK(dl_process_watch(same, dup(0), dup(0)));
    CHECK(!dl_process_has_ended(same));
    dl_process_set_ended(other);
    CHECK(dl_process_has_ended(other) && !dl_process_has_ended(process));
    kill(child, SIGKILL);
    CHECK(has_ended_soon(same, 5 * DL_SECOND));
    dl_process_unref(same);
    dl_process_unref(other);
    end(child, process);
}

CHECK_CASE(a_process_does_not_watch_itself)
{
    dl_process_own own;
    dl_process_id id;
    dl_process *process;

    CHECK_OK(dl_process_own_get(&own));
    CHECK_OK(dl_process_own_id(&id));
    CHECK(memcmp(&own.id, &id, sizeof id) == 0);
    CHECK_OK(dl_process_find(&own.id, &process));
    int ends[2];
    CHECK(pipe(ends) == 0);
    close(ends[1]);
    CHECK_OK(dl_process_watch(process, ends[0], -1));
    CHECK(!has_ended_soon(process, 20 * DL_MILLISECOND));
    CHECK(!dl_process_has_ended(NULL));
    dl_process_unref(process);
    dl_process_unref(NULL);
}

static int
count_threads(void)
{
    char line[128];
    int count = 0;
    FILE *file = fopen("/proc/self/status", "r");

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "Threads: %d", &count);
    }
    fclose(file);
    return count;
}

/* A thread that was joined may still be counted for a moment. */
static bool
are_threads_soon(int count)
{
    dl_deadline deadline = dl_deadline_after(5 * DL_SECOND);

    while (count_threads() != count && !dl_deadline_passed(deadline)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    return count_threads() == count;
}

CHECK_CASE(there_is_one_thread_while_any_process_is_watched)
{
    shown peers[3];
    pid_t children[3];
    dl_process *processes[3];
    int before = 0;

    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 3; i++) {
            children[i] = start_peer((uint8_t)(i + 1), false, false, &peers[i]);
            processes[i] = watch(&peers[i]);
            /* A sanitizer may have a thread of its own from the first one on. */
            before = before == 0 ? count_threads() - 1 : before;
            CHECK(are_threads_soon(before + 1));
        }
        for (int i = 0; i < 3; i++) {
            end(children[i], processes[i]);
        }
        CHECK(are_threads_soon(before));
    }
}

/* The child watches no process, has an identity of its own, and its own table works. */
CHECK_CASE(a_forked_child_begins_anew)
{
    shown peer, early;
    pid_t child = start_peer(1, false, false, &peer);
    pid_t killed = start_peer(2, false, false, &early);
    dl_process *process = watch(&peer);
    dl_process *ended = watch(&early);
    dl_process_own own, inherited;
    int status;

    CHECK_OK(dl_process_own_get(&inherited));
    /* The detector runs: a thread that is still starting may hold locks of a sanitizer,
     * which a child would find locked for ever. */
    kill(killed, SIGKILL);
    CHECK(has_ended_soon(ended, 5 * DL_SECOND));
    end(killed, ended);
    pid_t forked = fork();
    if (forked == 0) {
        CHECK_OK(dl_process_own_get(&own));
        CHECK(memcmp(&own.id, &inherited.id, sizeof own.id) != 0);
        dl_process_unref(process);
#ifndef __SANITIZE_THREAD__ /* which lets no child start threads */
        shown second;
        dl_process *again;
        pid_t grandchild = start_peer(1, false, false, &second);
        again = watch(&second);
        kill(grandchild, SIGKILL);
        CHECK(has_ended_soon(again, 5 * DL_SECOND));
        end(grandchild, again);
#endif
        _exit(0);
    }
    CHECK(waitpid(forked, &status, 0) == forked && status == 0);
    CHECK(!dl_process_has_ended(process));
    end(child, process);
}

typedef struct listener {
    dl_end_subscriber subscriber;
    atomic_int wakes;
    atomic_int tells;
} listener;

static void
note_wake(void *context)
{
    atomic_fetch_add(&((listener *)context)->wakes, 1);
}

/* Not done before the third time. */
static bool
note_tell(void *context)
{
    return atomic_fetch_add(&((listener *)context)->tells, 1) < 2;
}

CHECK_CASE(subscribers_are_woken_at_once_and_report_until_they_are_done)
{
    shown peer;
    pid_t child = start_peer(1, false, false, &peer);
    dl_process *process = watch(&peer);
    listener one = {.subscriber = {.wake = note_wake, .context = &one}};
    listener two = {
        .subscriber = {.wake = note_wake, .notify = note_tell, .context = &two}};
    dl_deadline deadline = dl_deadline_after(10 * DL_SECOND);

    dl_end_subscribe(&one.subscriber);
    dl_end_subscribe(&two.subscriber);
    kill(child, SIGKILL);
    while (atomic_load(&two.tells) < 3 && !dl_deadline_passed(deadline)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    CHECK(atomic_load(&one.wakes) >= 1 && atomic_load(&two.wakes) >= 1);
    CHECK_EQUAL(atomic_load(&two.tells), 3);
    dl_end_unsubscribe(&one.subscriber);
    dl_end_unsubscribe(&two.subscriber);
    dl_end_unsubscribe(&two.subscriber);
    end(child, process);
}

/* Another host that does not answer keeps `notify` for as long as the test wants. */
typedef struct slow {
    dl_end_subscriber subscriber;
    atomic_int begun;
    atomic_bool may_end;
} slow;

static bool
tell_slowly(void *context)
{
    slow *self = context;
    dl_deadline deadline = dl_deadline_after(10 * DL_SECOND);

    atomic_fetch_add(&self->begun, 1);
    while (!atomic_load(&self->may_end) && !dl_deadline_passed(deadline)) {
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    return false;
}

static void
no_wake(void *context)
{
    (void)context;
}

static void *
unsubscribe(void *context)
{
    dl_end_unsubscribe(context);
    return NULL;
}

/* While a host is told, groups come and go, and the ends of other processes end waits;
 * only the group that tells stays until it has. */
CHECK_CASE(telling_holds_nobody_else)
{
    shown early, later;
    pid_t killed = start_peer(1, false, false, &early);
    pid_t child = start_peer(2, false, false, &later);
    dl_process *first = watch(&early);
    dl_process *second = watch(&later);
    slow notifier = {
        .subscriber = {.wake = no_wake, .notify = tell_slowly, .context = &notifier}};
    listener one = {.subscriber = {.wake = note_wake, .context = &one}};
    dl_deadline deadline = dl_deadline_after(5 * DL_SECOND);
    pthread_t thread;

    dl_end_subscribe(&notifier.subscriber);
    kill(killed, SIGKILL);
    while (atomic_load(&notifier.begun) == 0 && !dl_deadline_passed(deadline)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    dl_end_subscribe(&one.subscriber);
    kill(child, SIGKILL);
    CHECK(has_ended_soon(second, 5 * DL_SECOND));
    while (atomic_load(&one.wakes) == 0 && !dl_deadline_passed(deadline)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    CHECK(atomic_load(&one.wakes) > 0);
    dl_end_unsubscribe(&one.subscriber);
    CHECK_OK(dl_thread_start(&thread, unsubscribe, &notifier.subscriber));
    CHECK_OK(dl_sleep_until(dl_deadline_after(20 * DL_MILLISECOND)));
    CHECK(!dl_deadline_passed(deadline) && notifier.subscriber.node.next != NULL);
    atomic_store(&notifier.may_end, true);
    pthread_join(thread, NULL);
    CHECK(notifier.subscriber.node.next == NULL);
    end(killed, first);
    end(child, second);
}

/* Every call has an answer, however few descriptors there are, and nothing stays open. */
CHECK_CASE(too_few_descriptors_are_an_error)
{
    shown peer;
    pid_t child = start_peer(1, false, false, &peer);
    dl_process *process;
    struct rlimit usual, limit;
    int next = dup(0);

    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    limit = usual;
    CHECK_OK(dl_process_find(&peer.id, &process));
    limit.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_STATUS(dl_process_watch(process, peer.lifeline, peer.pidfd), DL_INTERNAL);
    CHECK_CONTAINS(dl_last_error()->text, "watching other processes: Too many open");
    dl_process_own own;
    limit.rlim_cur = (rlim_t)1;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_STATUS(dl_process_own_get(&own), DL_INTERNAL);
    /* A sanitizer opens files when the process ends. */
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(fcntl(peer.lifeline, F_GETFD) < 0 && fcntl(peer.pidfd, F_GETFD) < 0);
    end(child, process);
}

/* A file, which cannot be watched: nothing is left of the attempt. */
CHECK_CASE(a_process_that_could_not_be_watched_is_watched_by_the_next_attempt)
{
    shown peer;
    pid_t child = start_peer(1, false, false, &peer);
    dl_process *process;

    CHECK_OK(dl_process_find(&peer.id, &process));
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK_STATUS(dl_process_watch(process, file, -1), DL_INTERNAL);
    CHECK_CONTAINS(dl_last_error()->text, "watching another process: ");
    CHECK(fcntl(file, F_GETFD) < 0);
    CHECK_OK(dl_process_watch(process, peer.lifeline, peer.pidfd));
    kill(child, SIGKILL);
    CHECK(has_ended_soon(process, 5 * DL_SECOND));
    end(child, process);
}

static bool
drain(void *context)
{
    int *end = context;
    char bytes[16];

    while (read(*end, bytes, sizeof bytes) > 0) {
    }
    return false;
}

/* Until there are more than `count` wakes. */
static bool
is_woken_again(listener *self, int count)
{
    dl_deadline deadline = dl_deadline_after(10 * DL_SECOND);

    while (atomic_load(&self->wakes) <= count && !dl_deadline_passed(deadline)) {
        CHECK_OK(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
    }
    return atomic_load(&self->wakes) > count;
}

/* There is neither a process to watch nor a waiter. */
CHECK_CASE(call_sources_are_served_and_end_waits)
{
    int ends[2];
    listener waits = {.subscriber = {.wake = note_wake, .context = &waits}};
    dl_call_source calls = {.read = drain, .context = &ends[0]};
    char byte;

    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    calls.fd = ends[0];
    dl_call_source_remove(&calls);
    dl_end_subscribe(&waits.subscriber);
    CHECK_OK(dl_call_source_add(&calls));
    for (int i = 0; i < 3; i++) {
        int before = atomic_load(&waits.wakes);
        CHECK(write(ends[1], "!", 1) == 1);
        CHECK(is_woken_again(&waits, before));
    }
    dl_call_source_remove(&calls);
    dl_call_source_remove(&calls);
    CHECK(write(ends[1], "!", 1) == 1);
    CHECK(read(ends[0], &byte, 1) == 1);
    dl_end_unsubscribe(&waits.subscriber);
    close(ends[0]);
    close(ends[1]);
}

static dl_process *
find_slot(void *context, int rank)
{
    dl_process **slots = context;
    dl_process_id id = {.bytes = {7, (uint8_t)rank}};

    return dl_process_find_in(&slots[rank], &id);
}

CHECK_CASE(entries_of_ranks_are_made_when_they_are_needed)
{
    static const int ranks[] = {2, 0};
    dl_process *slots[3] = {NULL};
    dl_processes processes = {.find = find_slot, .context = slots, .ranks = ranks};
    dl_processes none = {.find = NULL};

    CHECK(!dl_processes_has_ended(&processes, 0));
    CHECK(slots[2] == NULL);
    dl_process *found = dl_processes_find(&processes, 0);
    CHECK(found != NULL && found == slots[2]);
    CHECK(dl_processes_find(&processes, 0) == found);
    dl_process_set_ended(found);
    CHECK(dl_processes_has_ended(&processes, 0));
    CHECK(!dl_processes_has_ended(&processes, 1));
    CHECK(dl_processes_find(&none, 0) == NULL && !dl_processes_has_ended(&none, 0));
    for (int rank = 0; rank < 3; rank++) {
        dl_process_unref(slots[rank]);
    }
}
