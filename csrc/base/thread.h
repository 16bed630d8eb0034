/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads, waiting on conditions under a deadline, and detecting forks.  Mutexes and
 * conditions are those of pthread.  Each condition is made by dl_condition_init(): its
 * waits use the monotonic clock, which is an attribute of the condition, so zeroed
 * memory and PTHREAD_COND_INITIALIZER are not valid conditions. */
#ifndef DISTLITE_BASE_THREAD_H
#define DISTLITE_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* Starts a thread with all signals blocked: handlers run on the program's own
 * threads. */
dl_status dl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Makes a condition whose timed waits use dl_now()'s clock.  Free it with
 * pthread_cond_destroy().  A forked child may initialise it again without destroying
 * it. */
void dl_condition_init(pthread_cond_t *condition);

/* Waits for a signal on `condition` with `mutex` held, until `at` on dl_now()'s clock.
 * Does not check for interrupts: for threads of the library itself.  Returns false once
 * `at` has passed.  Wake-ups may be spurious. */
bool dl_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                             int64_t at);

/* Waits for a signal on `condition` with `mutex` held, for one slice at most; the mutex
 * is released while checking for interrupts.  DL_OK: check the predicate again
 * (wake-ups may be spurious).  DL_TIMEOUT (no text written) and DL_INTERRUPTED: stop
 * waiting. */
dl_status dl_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                            dl_deadline deadline);

/* Sleeps until the deadline or an interrupt; returns DL_OK once the deadline has
 * passed. */
dl_status dl_sleep_until(dl_deadline deadline);

/* Gives up the core once, before a thread polls again; returns false if it should sleep:
 * it is `until` on dl_now()'s clock, or the core is shared with other programs. */
bool dl_thread_yield(int64_t until);

/* Returns whether this is the process's first thread; in a forked child, that is the
 * thread that called fork(2). */
bool dl_is_main_thread(void);

/* The forks between the process that loaded the library and this one; for the next
 * function. */
extern atomic_uint dl_fork_count;

/* Returns a number that differs between a process and its forked children.  An object
 * keeps the number of the process that made it and refuses to work when it has
 * changed. */
static inline uint32_t
dl_fork_generation(void)
{
    return atomic_load_explicit(&dl_fork_count, memory_order_relaxed);
}

/* Calls `reset` now and in each forked child, where no other thread of the parent
 * exists, although one of them may have held a lock: for state that a process has once,
 * from a constructor in its file. */
void dl_reset_at_fork(void (*reset)(void));

/* Returns this process's id without a system call. */
int dl_own_pid(void);

/* Registers a descriptor that a forked child must not keep open, because closing it
 * tells peers that this process died, or releases a lock.  A fork handler closes it in
 * the child.  Release a descriptor before closing it. */
void dl_fork_guard(int fd);
void dl_fork_release(int fd);

#endif
