/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"

/* Descriptors from this number on are not guarded: a child then keeps them open, which
 * delays the detection of a lost peer and breaks nothing else. */
#define GUARDED_DESCRIPTORS (1 << 18)
#define WORD_BITS 64

/* If a yield takes longer than LONG_YIELD, other programs use the core: a thread that
 * sleeps gets it back soon after it is woken, one that yields only in its turn, after
 * milliseconds.  So the thread does not yield for SHARED_CORE_SPAN.  Ranks of one job
 * that share a core yield to each other within tens of microseconds, and lose by
 * sleeping. */
#define LONG_YIELD DL_MILLISECOND
#define SHARED_CORE_SPAN (100 * DL_MILLISECOND)

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

atomic_uint dl_fork_count;
static atomic_int own_pid;
static _Atomic uint64_t guarded[GUARDED_DESCRIPTORS / WORD_BITS];

dl_status
dl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all;
    sigset_t old;

    /* A new thread inherits the signal mask.  Faults of its own are left to the program's
     * handlers, such as Python's faulthandler. */
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error == 0 ? DL_OK
                      : dl_fail(DL_INTERNAL, "starting a thread: %s", strerror(error));
}

static struct timespec
timespec_at(int64_t at)
{
    return (struct timespec){.tv_sec = at / DL_SECOND, .tv_nsec = at % DL_SECOND};
}

/* pthread_cond_clockwait() would need no attribute, but requires glibc 2.30. */
void
dl_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool
dl_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t at)
{
    struct timespec until = timespec_at(at);

    return pthread_cond_timedwait(condition, mutex, &until) == 0;
}

dl_status
dl_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                  dl_deadline deadline)
{
    dl_deadline slice = dl_deadline_earlier(deadline, DL_WAIT_SLICE);

    dl_blocking_begin();
    if (dl_condition_wait_until(condition, mutex, slice.at)) {
        return DL_OK;
    }
    if (dl_deadline_passed(deadline)) {
        return DL_TIMEOUT;
    }
    pthread_mutex_unlock(mutex);
    dl_status status = dl_interrupt_check();
    pthread_mutex_lock(mutex);
    return status;
}

dl_status
dl_sleep_until(dl_deadline deadline)
{
    while (!dl_deadline_passed(deadline)) {
        struct timespec until =
            timespec_at(dl_deadline_earlier(deadline, DL_WAIT_SLICE).at);
        dl_blocking_begin();
        /* An absolute time: a signal that cuts the sleep short does not extend it. */
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        DL_TRY(dl_interrupt_check());
    }
    return DL_OK;
}

/* Uses the system call, since gettid() requires glibc 2.30. */
bool
dl_is_main_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

/* Runs in the child between fork and return: async-signal-safe calls only. */
static void
enter_child(void)
{
    atomic_fetch_add(&dl_fork_count, 1);
    atomic_store(&own_pid, getpid());
    /* Most of these 4096 words are 0 and cost one load each, which is little compared
     * to a fork.  The child has no other thread yet, so no ordering is needed. */
    for (int word = 0; word < GUARDED_DESCRIPTORS / WORD_BITS; word++) {
        uint64_t bits = atomic_load_explicit(&guarded[word], memory_order_relaxed);
        if (bits == 0) {
            continue;
        }
        atomic_store_explicit(&guarded[word], 0, memory_order_relaxed);
        while (bits != 0) {
            close(word * WORD_BITS + __builtin_ctzll(bits));
            bits &= bits - 1;
        }
    }
}

bool
dl_thread_yield(int64_t until)
{
    static _Thread_local int64_t sleeps_until;
    int64_t before = dl_now();

    if (before >= until || before < sleeps_until) {
        return false;
    }
    sched_yield();
    int64_t after = dl_now();
    if (after - before > LONG_YIELD) {
        sleeps_until = after + SHARED_CORE_SPAN;
    }
    return true;
}

/* Runs when the library is loaded, so that no function has to check for it. */
__attribute__((constructor)) static void
install_fork_handler(void)
{
    atomic_store(&own_pid, getpid());
    pthread_atfork(NULL, NULL, enter_child);
}

void
dl_reset_at_fork(void (*reset)(void))
{
    reset();
    pthread_atfork(NULL, NULL, reset);
}

int
dl_own_pid(void)
{
    return atomic_load_explicit(&own_pid, memory_order_relaxed);
}

void
dl_fork_guard(int fd)
{
    /* Atomic, since several threads open and close descriptors of one word. */
    if (fd >= 0 && fd < GUARDED_DESCRIPTORS) {
        atomic_fetch_or(&guarded[fd / WORD_BITS], UINT64_C(1) << (fd % WORD_BITS));
    }
}

void
dl_fork_release(int fd)
{
    if (fd >= 0 && fd < GUARDED_DESCRIPTORS) {
        atomic_fetch_and(&guarded[fd / WORD_BITS], ~(UINT64_C(1) << (fd % WORD_BITS)));
    }
}
