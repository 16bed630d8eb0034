/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/nccl/nccl_comm.h"
#include "pg/nccl/nccl_watch_state.h"

/* Works in progress are polled at intervals that grow from POLL_EVERY to POLL_SELDOM, so
 * that the end of a short one is seen soon and a long one costs nothing. */
#define POLL_EVERY DL_MILLISECOND
#define POLL_SELDOM (20 * DL_MILLISECOND)

/* Returns whether the work's event still counts. */
static bool
is_open_locked(const dl_nccl_work *work)
{
    const dl_nccl_watch *self = work->watch;

    return work->is_watched && !self->has_cause && !self->is_suspended;
}

/* Moves a work that has ended to `ended`, and fails the group if it has failed, with the
 * thread's last error. */
static void
end_or_fail_locked(dl_nccl_work *work, int found, dl_list *ended)
{
    dl_nccl_watch *self = work->watch;

    if (found > 0) {
        dl_list_remove(&work->node);
        work->is_watched = false;
        dl_list_append(ended, &work->node);
    } else if (found < 0) {
        dl_nccl_fail_locked(self, dl_last_error());
    }
}

/* Called without the lock, since the driver may let a query wait for what another
 * thread does with the device. */
static void
poll_work(dl_nccl_work *work, dl_list *ended)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    bool is_open = is_open_locked(work);
    bool is_launched = work->is_launched;
    pthread_mutex_unlock(&dl_nccl_all.lock);
    if (!is_open) {
        return;
    }
    int found = dl_nccl_work_poll(work, is_launched);
    pthread_mutex_lock(&dl_nccl_all.lock);
    if (is_open_locked(work)) {
        end_or_fail_locked(work, found, ended);
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

/* What querying events changes in the calling thread.  The capture mode is relaxed,
 * since in the default mode a query invalidates any capture that a thread has begun. */
typedef struct querying {
    const dl_cuda_table *cuda;
    int device;
    int previous;
    int mode;
} querying;

static querying
begin_querying(const dl_nccl_work *work)
{
    querying self = {
        .cuda = work->watch->cuda,
        .device = work->device,
        .previous = work->device,
        .mode = DL_CUDA_MODE_RELAXED,
    };

    (void)dl_cuda_enter(self.cuda, self.device, &self.previous);
    self.cuda->exchange_mode(&self.mode);
    return self;
}

static void
end_querying(querying *self)
{
    self->cuda->exchange_mode(&self->mode);
    dl_cuda_leave(self->cuda, self->device, self->previous);
}

/* Polls `first` and the works that are chained to it, and drops a reference to
 * each. */
static void
poll_chained(dl_nccl_work *first, dl_list *ended)
{
    querying querying = begin_querying(first);

    while (first != NULL) {
        dl_nccl_work *work = first;
        first = work->next;
        poll_work(work, ended);
        dl_work_unref(&work->work);
    }
    end_querying(&querying);
}

/* Polls all works of the group; drops the lock meanwhile.  Only the watching thread
 * chains works. */
static void
poll_works_locked(dl_nccl_watch *self, dl_list *ended)
{
    dl_nccl_work *first = NULL, **end = &first;

    for (dl_list *node = self->works.next; node != &self->works; node = node->next) {
        *end = DL_LIST_ENTRY(node, dl_nccl_work, node);
        dl_reference_take(&(*end)->work.references);
        end = &(*end)->next;
    }
    *end = NULL;
    if (first != NULL) {
        pthread_mutex_unlock(&dl_nccl_all.lock);
        poll_chained(first, ended);
        pthread_mutex_lock(&dl_nccl_all.lock);
    }
}

/* Notices of the works may call into this file. */
void
dl_nccl_finish_works(dl_list *works, const dl_error *cause)
{
    while (!dl_list_is_empty(works)) {
        dl_nccl_work *work = DL_LIST_ENTRY(works->next, dl_nccl_work, node);
        dl_list_remove(&work->node);
        dl_work_finish(&work->work, cause == NULL ? DL_OK : dl_rethrow(cause));
        dl_work_unref(&work->work);
    }
}

void
dl_nccl_watch_reap(dl_nccl_work *work)
{
    dl_list ended;

    dl_list_init(&ended);
    querying querying = begin_querying(work);
    poll_work(work, &ended);
    end_querying(&querying);
    dl_nccl_finish_works(&ended, NULL);
}

/* Returns the communicator's error, DL_NCCL_SUCCESS for none.  If another thread is
 * inside it, it is not asked: only one thread may use it, and that one sees its
 * errors. */
static int
error_of_comm(const dl_nccl_watch *self, dl_nccl_comm *comm)
{
    int error = DL_NCCL_SUCCESS;

    if (comm->handle == NULL || !dl_lane_try(&comm->turn)) {
        return DL_NCCL_SUCCESS;
    }
    int result = self->nccl->comm_error(comm->handle, &error);
    dl_lane_pass(&comm->turn);
    error = result == DL_NCCL_SUCCESS ? error : result;
    return error == DL_NCCL_IN_PROGRESS ? DL_NCCL_SUCCESS : error;
}

/* Fails the group if a communicator has an error, such as one of the network; often
 * long before the deadline.  Drops the lock for NCCL's calls.  The list only grows
 * meanwhile: the teardown, which empties it, is begun by this thread. */
static void
poll_comms_locked(dl_nccl_watch *self)
{
    for (dl_list *node = self->comms.next; node != &self->comms; node = node->next) {
        dl_nccl_comm *comm = DL_LIST_ENTRY(node, dl_nccl_comm, node);
        if (comm->is_waiting) {
            continue;
        }
        pthread_mutex_unlock(&dl_nccl_all.lock);
        int error = error_of_comm(self, comm);
        pthread_mutex_lock(&dl_nccl_all.lock);
        if (error == DL_NCCL_SUCCESS) {
            continue;
        }
        dl_nccl_check(self->nccl, error, "a communicator");
        dl_fail_while("%s", self->label);
        dl_nccl_fail_locked(self, dl_last_error());
        return;
    }
}

static void
check_leaving_locked(dl_nccl_watch *self)
{
    if (!self->has_cause && dl_now() > self->leave_by
        && !dl_list_is_empty(&self->works)) {
        dl_fail(DL_CLOSED, "%s was closed before its operations had finished",
                self->label);
        dl_nccl_fail_locked(self, dl_last_error());
    }
}

/* Handles one group; drops the lock meanwhile.  Returns true if that may have taken so
 * long that the groups are to be looked at anew. */
static bool
poll_group_locked(dl_nccl_watch *self, dl_list *ended)
{
    if (self->is_torn) {
        bool is_late = dl_now() > self->fail_by && !dl_list_is_empty(&self->works);
        if (is_late) {
            dl_nccl_fail_works_locked(self);
        }
        return is_late;
    }
    if (!self->has_cause) {
        poll_works_locked(self, ended);
        poll_comms_locked(self);
    }
    if (self->is_leaving) {
        check_leaving_locked(self);
    }
    if (self->has_cause || (self->is_leaving && dl_list_is_empty(&self->works))) {
        dl_nccl_begin_teardown_locked(self);
        return true;
    }
    return false;
}

/* Handles all groups and removes those that are over; drops the lock meanwhile.
 * Returns whether anything happened. */
static bool
poll_all_locked(void)
{
    dl_list ended;
    bool has_changed = false;

    dl_list_init(&ended);
    dl_list *node = dl_nccl_all.groups.next;
    while (node != &dl_nccl_all.groups) {
        dl_nccl_watch *self = DL_LIST_ENTRY(node, dl_nccl_watch, node);
        node = node->next;
        if (self->is_over) {
            dl_list_remove(&self->node);
            dl_nccl_watch_unref(self);
        } else if (poll_group_locked(self, &ended)) {
            has_changed = true;
            break;
        }
    }
    has_changed = has_changed || !dl_list_is_empty(&ended);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    dl_nccl_finish_works(&ended, NULL);
    pthread_mutex_lock(&dl_nccl_all.lock);
    return has_changed;
}

void *
dl_nccl_watch_run(void *unused)
{
    int64_t pause = POLL_EVERY;

    (void)unused;
    pthread_setname_np(pthread_self(), "distlite-nccl");
    pthread_mutex_lock(&dl_nccl_all.lock);
    while (!dl_list_is_empty(&dl_nccl_all.groups)) {
        if (poll_all_locked()) {
            pause = POLL_EVERY;
            continue;
        }
        dl_nccl_check_lost_locked();
        if (dl_list_is_empty(&dl_nccl_all.groups)) {
            break;
        }
        dl_nccl_all.is_asleep = pause > POLL_EVERY;
        dl_nccl_all.is_woken = false;
        (void)dl_condition_wait_until(&dl_nccl_all.changed, &dl_nccl_all.lock,
                                      dl_now() + pause);
        dl_nccl_all.is_asleep = false;
        pause = dl_nccl_all.is_woken      ? POLL_EVERY
                : pause * 2 < POLL_SELDOM ? pause * 2
                                          : POLL_SELDOM;
    }
    dl_nccl_all.is_running = false;
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return NULL;
}
