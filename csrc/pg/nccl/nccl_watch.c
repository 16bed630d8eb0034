/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "pg/nccl/nccl_state.h"

/* Works under way are looked at this often: at first as soon as anybody could care, then
 * less, so that a long operation costs nothing. */
#define LOOK_EVERY DL_MILLISECOND
#define LOOK_LAZILY (20 * DL_MILLISECOND)

/* What an orderly end gives works and communicators to end in. */
#define GRACE (5 * DL_SECOND)

/* The first cause is the one that counts: what follows are its consequences. */
static void
fail_locked(dl_nccl_watch *self, const dl_error *cause)
{
    if (!self->has_cause) {
        self->cause = *cause;
        self->has_cause = true;
    }
    pthread_cond_broadcast(&self->changed);
}

/* Moves the works that have ended from one list to another; notes the first failure. */
static void
sort_works_locked(dl_nccl_watch *self, dl_list *ended)
{
    dl_list *next;

    for (dl_list *node = self->works.next; node != &self->works; node = next) {
        dl_nccl_work *work = DL_LIST_ENTRY(node, dl_nccl_work, node);
        int look = dl_nccl_work_look(work);
        next = node->next;
        if (look > 0) {
            dl_list_remove(node);
            dl_list_append(ended, node);
        } else if (look < 0 && self->is_lenient) {
            dl_log(DL_LOG_ERROR, "%s", dl_last_error()->text);
            work->deadline = dl_deadline_after(-1);
        } else if (look < 0) {
            fail_locked(self, dl_last_error());
        }
    }
}

/* While anybody captures a graph, asking for an event would spoil it, unless the thread
 * says that it knows what it does. */
static void
sort_locked(dl_nccl_watch *self, dl_list *ended)
{
    int mode = DL_CUDA_MODE_RELAXED;

    if (dl_list_is_empty(&self->works)) {
        return;
    }
    self->cuda->exchange_mode(&mode);
    sort_works_locked(self, ended);
    self->cuda->exchange_mode(&mode);
}

/* Without the lock: whoever hears of it may come back here. */
static void
finish_all(dl_list *works, const dl_error *cause)
{
    while (!dl_list_is_empty(works)) {
        dl_nccl_work *work = DL_LIST_ENTRY(works->next, dl_nccl_work, node);
        dl_list_remove(&work->node);
        dl_work_finish(&work->work, cause == NULL ? DL_OK : dl_fail_again(cause));
        dl_work_unref(&work->work);
    }
}

void
dl_nccl_watch_reap(dl_nccl_watch *self)
{
    dl_list ended;

    dl_list_init(&ended);
    pthread_mutex_lock(&self->lock);
    if (!self->has_cause) {
        sort_locked(self, &ended);
    }
    pthread_mutex_unlock(&self->lock);
    finish_all(&ended, NULL);
}

/* Errors of the network come to light here, often long before the deadline. */
static void
look_at_comms_locked(dl_nccl_watch *self)
{
    if (dl_list_is_empty(&self->comms)) {
        return;
    }
    for (dl_list *node = self->comms.next; node != &self->comms; node = node->next) {
        dl_nccl_comm *comm = DL_LIST_ENTRY(node, dl_nccl_comm, node);
        int error = DL_NCCL_SUCCESS;
        int result = self->nccl->comm_error(comm->handle, &error);
        error = result == DL_NCCL_SUCCESS ? error : result;
        if (error == DL_NCCL_SUCCESS || error == DL_NCCL_IN_PROGRESS
            || comm->is_reported) {
            continue;
        }
        comm->is_reported = true;
        dl_nccl_check(self->nccl, error, "a communicator");
        dl_fail_while("%s", self->label);
        if (!self->is_lenient) {
            fail_locked(self, dl_last_error());
            return;
        }
        dl_log(DL_LOG_ERROR, "%s", dl_last_error()->text);
    }
}

/* For at most a pause, or as long as there is nothing to look at. */
static void
wait_locked(dl_nccl_watch *self, int64_t pause)
{
    if (dl_list_is_empty(&self->works) && dl_list_is_empty(&self->comms)) {
        pthread_cond_wait(&self->changed, &self->lock);
        return;
    }
    int64_t at = dl_now() + pause;
    struct timespec until = {.tv_sec = at / DL_SECOND, .tv_nsec = at % DL_SECOND};
    pthread_cond_clockwait(&self->changed, &self->lock, CLOCK_MONOTONIC, &until);
}

/* A failure ends the watch at once; an orderly end waits for what is under way. */
static bool
goes_on_locked(dl_nccl_watch *self)
{
    if (self->has_cause || (self->is_leaving && dl_list_is_empty(&self->works))) {
        return false;
    }
    if (self->is_leaving && dl_now() > self->leave_by) {
        dl_fail(DL_CLOSED, "%s was closed before its operations had ended",
                self->label);
        fail_locked(self, dl_last_error());
    }
    return !self->has_cause;
}

/* Looks more and more rarely while nothing happens, and often again once it does. */
static void
watch_locked(dl_nccl_watch *self)
{
    int64_t pause = LOOK_EVERY;

    while (goes_on_locked(self)) {
        dl_list ended;
        dl_list_init(&ended);
        sort_locked(self, &ended);
        look_at_comms_locked(self);
        bool has_ended = !dl_list_is_empty(&ended);
        if (has_ended) {
            pthread_mutex_unlock(&self->lock);
            finish_all(&ended, NULL);
            pthread_mutex_lock(&self->lock);
        }
        pause = has_ended                 ? LOOK_EVERY
                : pause * 2 < LOOK_LAZILY ? pause * 2
                                          : LOOK_LAZILY;
        if (!self->has_cause && !has_ended) {
            wait_locked(self, pause);
        }
    }
}

/* False: a call does not return from NCCL.  An abort frees it, but its memory has to stay
 * then. */
static bool
stop_launches(dl_nccl_watch *self)
{
    struct timespec until;

    /* Not by the steady clock: thread sanitizers do not know that call. */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    return pthread_mutex_timedlock(&self->launching, &until) == 0;
}

/* Works first: those who wait for them must not wait for an abort that hangs. */
static void
tear_down_locked(dl_nccl_watch *self)
{
    dl_list works, comms;

    dl_list_init(&works);
    dl_list_init(&comms);
    dl_list_move(&self->works, &works);
    dl_list_move(&self->comms, &comms);
    bool is_aborted = self->has_cause;
    pthread_mutex_unlock(&self->lock);
    finish_all(&works, &self->cause);
    bool is_quiet = stop_launches(self);
    while (!dl_list_is_empty(&comms)) {
        dl_nccl_comm *comm = DL_LIST_ENTRY(comms.next, dl_nccl_comm, node);
        dl_list_remove(&comm->node);
        if (is_quiet) {
            dl_nccl_comm_free(self, comm, is_aborted);
        } else {
            self->nccl->comm_abort(comm->handle);
        }
    }
    if (is_quiet) {
        pthread_mutex_unlock(&self->launching);
    }
    pthread_mutex_lock(&self->lock);
}

static void *
run(void *argument)
{
    dl_nccl_watch *self = argument;

    pthread_mutex_lock(&self->lock);
    watch_locked(self);
    if (self->has_cause && self->cause.status != DL_CLOSED
        && self->cause.status != DL_CANCELLED) {
        dl_log(DL_LOG_ERROR, "%s; the communicators of this group are aborted",
               self->cause.text);
    }
    tear_down_locked(self);
    self->is_over = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    dl_nccl_watch_unref(self);
    return NULL;
}

void
dl_nccl_watch_unref(dl_nccl_watch *self)
{
    if (atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) == 1) {
        pthread_cond_destroy(&self->changed);
        pthread_mutex_destroy(&self->lock);
        pthread_mutex_destroy(&self->launching);
        free(self->label);
        free(self);
    }
}

static bool
is_switched_off(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && strcmp(value, "0") == 0;
}

dl_status
dl_nccl_watch_new(const dl_nccl_table *nccl, const dl_cuda_table *cuda, char *label,
                  dl_nccl_watch **watch)
{
    dl_nccl_watch *self = label == NULL ? NULL : calloc(1, sizeof *self);
    pthread_t thread;

    if (self == NULL) {
        free(label);
        return dl_fail_no_memory();
    }
    atomic_init(&self->references, 2);
    self->nccl = nccl;
    self->cuda = cuda;
    self->label = label;
    self->is_lenient = is_switched_off("TORCH_NCCL_ASYNC_ERROR_HANDLING")
                       || is_switched_off("NCCL_ASYNC_ERROR_HANDLING");
    pthread_mutex_init(&self->lock, NULL);
    pthread_mutex_init(&self->launching, NULL);
    pthread_cond_init(&self->changed, NULL);
    dl_list_init(&self->works);
    dl_list_init(&self->comms);
    dl_status status = dl_thread_start(&thread, run, self);
    if (status != DL_OK) {
        atomic_store(&self->references, 1);
        dl_nccl_watch_unref(self);
        return status;
    }
    pthread_detach(thread);
    *watch = self;
    return DL_OK;
}

/* The cause of a failure says more than that the group is closed. */
static dl_status
admit_locked(dl_nccl_watch *self)
{
    if (self->has_cause) {
        return dl_fail_again(&self->cause);
    }
    return self->is_leaving ? dl_fail(DL_CLOSED, "%s is closed", self->label) : DL_OK;
}

dl_status
dl_nccl_watch_admit(dl_nccl_watch *self)
{
    pthread_mutex_lock(&self->lock);
    dl_status status = admit_locked(self);
    pthread_mutex_unlock(&self->lock);
    return status;
}

dl_status
dl_nccl_watch_cause(dl_nccl_watch *self)
{
    pthread_mutex_lock(&self->lock);
    dl_status status = self->has_cause ? dl_fail_again(&self->cause) : DL_OK;
    pthread_mutex_unlock(&self->lock);
    return status;
}

/* One that comes too late is aborted: its peers are being told the same. */
dl_status
dl_nccl_watch_comm(dl_nccl_watch *self, dl_nccl_comm *comm)
{
    pthread_mutex_lock(&self->lock);
    dl_status status = admit_locked(self);
    if (status == DL_OK) {
        dl_list_append(&self->comms, &comm->node);
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    if (status != DL_OK) {
        dl_nccl_comm_free(self, comm, true);
    }
    return status;
}

/* One that comes too late ends at once, so that its waiter hears of it. */
void
dl_nccl_watch_work(dl_nccl_work *work)
{
    dl_nccl_watch *self = work->watch;

    pthread_mutex_lock(&self->lock);
    dl_status status = admit_locked(self);
    if (status == DL_OK) {
        dl_list_append(&self->works, &work->node);
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    if (status != DL_OK) {
        dl_work_finish(&work->work, status);
        dl_work_unref(&work->work);
    }
}

void
dl_nccl_watch_fail(dl_nccl_watch *self, const dl_error *cause)
{
    pthread_mutex_lock(&self->lock);
    /* One that leaves has its grace, and then a cause of its own. */
    if (!self->is_leaving) {
        fail_locked(self, cause);
    }
    pthread_mutex_unlock(&self->lock);
}

void
dl_nccl_watch_leave(dl_nccl_watch *self)
{
    pthread_mutex_lock(&self->lock);
    if (!self->is_leaving) {
        self->is_leaving = true;
        self->leave_by = dl_now() + GRACE;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
}

void
dl_nccl_watch_free(dl_nccl_watch *self)
{
    /* The works' grace, and as much for the communicators. */
    dl_deadline deadline = dl_deadline_after(2 * GRACE);

    dl_nccl_watch_leave(self);
    pthread_mutex_lock(&self->lock);
    dl_status status = DL_OK;
    while (!self->is_over && status == DL_OK) {
        status = dl_condition_wait(&self->changed, &self->lock, deadline);
    }
    bool is_over = self->is_over;
    pthread_mutex_unlock(&self->lock);
    if (!is_over) {
        dl_log(DL_LOG_WARNING,
               "%s: NCCL does not let go of its communicators; they are left behind",
               self->label);
    }
    dl_nccl_watch_unref(self);
}
