/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waiting on a condition under a deadline, and telling a forked child apart.  Plain
 * pthread mutexes and conditions are used.  Each condition is made by
 * dl_condition_init(): its waits end by the monotonic clock, which is an attribute of the
 * condition, so zeroed memory and PTHREAD_COND_INITIALIZER are not valid ones. */
#ifndef DISTLITE_BASE_THREAD_H
#define DISTLITE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* A thread that no signal is delivered to: handlers run on the program's own threads. */
dl_status dl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Makes a condition whose timed waits end by dl_now()'s clock.  Free it with
 * pthread_cond_destroy().  A forked child may make it anew over the old one. */
void dl_condition_init(pthread_cond_t *condition);

/* Waits for a signal on `condition` with `mutex` held, until `at` on dl_now()'s clock, and
 * does not look for interrupts: for threads of the library itself.  False: `at` has come.
 * Wake-ups may be false. */
bool dl_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                             int64_t at);

/* Waits for a signal on `condition`, for one slice at most, with `mutex` held; the mutex
 * is dropped while looking for interrupts.  DL_OK: look again (wake-ups may be false).
 * DL_TIMEOUT (no text written) and DL_INTERRUPTED: give up. */
dl_status dl_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                            dl_deadline deadline);

/* Sleeps until the deadline or an interrupt: DL_OK once it has passed. */
dl_status dl_sleep_until(dl_deadline deadline);

/* Whether this is the thread that the process began with, or that forked it. */
bool dl_is_main_thread(void);

/* A number that differs between a process and its forked children.  An object remembers
 * it at birth and refuses to work when it has changed. */
uint32_t dl_fork_generation(void);

/* This process's number, without a system call. */
int dl_own_pid(void);

/* Descriptors that a forked child must not keep open, because their closing tells peers
 * that this process died, or gives a lock back.  Closed in the child by a fork handler. */
void dl_fork_guard(int fd);
void dl_fork_release(int fd);

#endif
