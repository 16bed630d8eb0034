/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The calls of pthread, and clocks.  A mutex or a condition is the first word of its
 * memory: the number of the thread that holds it, or how often it was signalled. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "image.h"
#include "world.h"

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_detach(pthread_t thread);
pthread_t __wrap_pthread_self(void);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *condition,
                             const pthread_condattr_t *attributes);
int __wrap_pthread_cond_destroy(pthread_cond_t *condition);
int __wrap_pthread_cond_signal(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *left);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                      void *(*run)(void *), void *argument)
{
    (void)attributes;
    sim_call("pthread_create");
    *thread = (pthread_t)sim_task_start(sim_process_current(), run, argument);
    return 0;
}

/* Runs have no signals but that of image.c, which no thread may block. */
int
__wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    (void)how;
    (void)set;
    return old == NULL ? 0 : sigemptyset(old);
}

int
__wrap_pthread_join(pthread_t thread, void **result)
{
    (void)result;
    sim_call("pthread_join");
    sim_wait("joins a thread", sim_task_is_over, (void *)thread, SIM_FOREVER);
    return 0;
}

int
__wrap_pthread_detach(pthread_t thread)
{
    (void)thread;
    return 0;
}

pthread_t
__wrap_pthread_self(void)
{
    return (pthread_t)sim_task_current();
}

static bool
is_free(void *mutex)
{
    return *(int *)mutex == 0;
}

int
__wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    int *holder = (int *)mutex;

    if (sim_task_current() == NULL) {
        return 0;
    }
    sim_call("pthread_mutex_lock");
    while (*holder != 0) {
        sim_wait_for("a mutex", is_free, mutex, SIM_FOREVER);
    }
    *holder = sim_task_number(sim_task_current());
    return 0;
}

int
__wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    int *holder = (int *)mutex;

    sim_call("pthread_mutex_trylock");
    if (*holder != 0) {
        return EBUSY;
    }
    *holder = sim_task_number(sim_task_current());
    return 0;
}

int
__wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int *holder = (int *)mutex;

    if (sim_task_current() == NULL) {
        return 0;
    }
    if (*holder != sim_task_number(sim_task_current())) {
        sim_fail("a mutex is released by a thread that does not hold it");
    }
    *holder = 0;
    sim_call("pthread_mutex_unlock");
    return 0;
}

int
__wrap_pthread_cond_init(pthread_cond_t *condition,
                         const pthread_condattr_t *attributes)
{
    (void)attributes;
    memset(condition, 0, sizeof *condition);
    return 0;
}

int
__wrap_pthread_cond_destroy(pthread_cond_t *condition)
{
    (void)condition;
    return 0;
}

int
__wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    ++*(unsigned *)condition;
    sim_call("pthread_cond_signal");
    return 0;
}

int
__wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    return __wrap_pthread_cond_broadcast(condition);
}

typedef struct signal_wait {
    const sim_process *process;
    unsigned *count;
    unsigned seen;
} signal_wait;

static bool
is_signalled(void *context)
{
    const signal_wait *wait = context;

    return *(unsigned *)sim_image_find(wait->process, wait->count) != wait->seen;
}

static bool
wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t at)
{
    signal_wait wait = {sim_process_current(), (unsigned *)condition,
                        *(unsigned *)condition};

    *(int *)mutex = 0;
    bool is_in_time = sim_wait("a condition", is_signalled, &wait, at);
    __wrap_pthread_mutex_lock(mutex);
    return is_in_time;
}

int
__wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    (void)wait_until(condition, mutex, SIM_FOREVER);
    return 0;
}

int
__wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                              const struct timespec *until)
{
    int64_t at = (int64_t)until->tv_sec * DL_SECOND + until->tv_nsec;

    return wait_until(condition, mutex, at) ? 0 : ETIMEDOUT;
}

int
__wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (sim_task_current() == NULL && sim.now == 0) {
        return __real_clock_gettime(clock, now);
    }
    sim_call("clock_gettime");
    int64_t at = sim.now + (clock == CLOCK_REALTIME ? sim.wall_offset : 0);
    *now = (struct timespec){at / DL_SECOND, at % DL_SECOND};
    return 0;
}

int
__wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                       struct timespec *left)
{
    (void)clock;
    (void)flags;
    (void)left;
    sim_call("clock_nanosleep");
    sim_wait("sleeps", NULL, NULL, (int64_t)until->tv_sec * DL_SECOND + until->tv_nsec);
    return 0;
}

/* Does not hand over: pthread_once() calls it. */
ssize_t
__wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
    uint8_t *next = bytes;

    (void)flags;
    for (size_t i = 0; i < size; i++) {
        next[i] = (uint8_t)sim_random_next(&sim.entropy);
    }
    return (ssize_t)size;
}
