/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waiting on a condition under a deadline, and telling a forked child apart.  Plain
 * pthread mutexes and conditions are used as they are: zeroed memory is valid. */
#ifndef DISTLITE_BASE_THREAD_H
#define DISTLITE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* A thread that no signal is delivered to: handlers run on the program's own threads. */
dl_status dl_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Waits for a signal on `condition`, for one slice at most, with `mutex` held; the mutex
 * is dropped while looking for interrupts.  DL_OK: look again (wake-ups may be false).
 * DL_TIMEOUT (no text written) and DL_INTERRUPTED: give up. */
dl_status dl_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                            dl_deadline deadline);

/* Sleeps until the deadline or an interrupt: DL_OK once it has passed. */
dl_status dl_sleep_until(dl_deadline deadline);

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
