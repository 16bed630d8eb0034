/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/log.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/nccl/nccl_watch_state.h"

dl_nccl_watches dl_nccl_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
wake_locked(void)
{
    if (dl_nccl_all.is_asleep && !dl_nccl_all.is_woken) {
        pthread_cond_broadcast(&dl_nccl_all.changed);
    }
    dl_nccl_all.is_woken = true;
}

void
dl_nccl_fail_locked(dl_nccl_watch *self, const dl_error *cause)
{
    if (self->has_cause || self->is_torn) {
        return;
    }
    self->cause = *cause;
    self->has_cause = true;
    wake_locked();
}

void
dl_nccl_watch_unref(dl_nccl_watch *self)
{
    if (dl_reference_drop(&self->references)) {
        free(self->label);
        free(self);
    }
}

static dl_status
join_locked(dl_nccl_watch *self)
{
    pthread_t thread;

    if (!dl_nccl_all.is_running) {
        DL_TRY(dl_thread_start(&thread, dl_nccl_watch_run, NULL));
        pthread_detach(thread);
        dl_nccl_all.is_running = true;
    }
    dl_list_append(&dl_nccl_all.groups, &self->node);
    wake_locked();
    return DL_OK;
}

static void
reset_all(void)
{
    pthread_mutex_init(&dl_nccl_all.lock, NULL);
    dl_condition_init(&dl_nccl_all.changed);
    dl_list_init(&dl_nccl_all.groups);
    dl_nccl_all.is_running = dl_nccl_all.is_asleep = false;
}

__attribute__((constructor)) static void
init_all(void)
{
    dl_reset_at_fork(reset_all);
}

dl_status
dl_nccl_watch_new(const dl_nccl_table *nccl, const dl_cuda_table *cuda, char *label,
                  dl_nccl_watch **watch)
{
    dl_nccl_watch *self = label == NULL ? NULL : calloc(1, sizeof *self);

    if (self == NULL) {
        free(label);
        return dl_fail_no_memory();
    }
    atomic_init(&self->references, 2);
    self->nccl = nccl;
    self->cuda = cuda;
    self->label = label;
    dl_list_init(&self->works);
    dl_list_init(&self->comms);
    dl_list_init(&self->expected);
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_status status = join_locked(self);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    if (status != DL_OK) {
        atomic_store(&self->references, 1);
        dl_nccl_watch_unref(self);
        return status;
    }
    *watch = self;
    return DL_OK;
}

void
dl_nccl_watch_set_lost(dl_nccl_watch *self, dl_status (*lost)(void *context, int rank),
                       void *context)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    self->lost = lost;
    self->context = context;
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

void
dl_nccl_watch_expect(dl_nccl_watch *self, dl_nccl_expected *expected)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_list_append(&self->expected, &expected->node);
    wake_locked();
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

void
dl_nccl_watch_unexpect(dl_nccl_expected *expected)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_list_remove(&expected->node);
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

/* The cause of a failure has precedence: it tells more than that the group is
 * closed. */
static dl_status
admit_locked(dl_nccl_watch *self)
{
    if (self->has_cause) {
        return dl_rethrow(&self->cause);
    }
    return self->is_leaving ? dl_fail(DL_CLOSED, "%s is closed", self->label) : DL_OK;
}

dl_status
dl_nccl_watch_admit(dl_nccl_watch *self)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_status status = admit_locked(self);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return status;
}

dl_status
dl_nccl_watch_cause(dl_nccl_watch *self)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_status status = self->has_cause ? dl_rethrow(&self->cause) : DL_OK;
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return status;
}

static bool
has_works(dl_nccl_watch *self)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    bool has = !dl_list_is_empty(&self->works);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return has;
}

dl_status
dl_nccl_watch_drain(dl_nccl_watch *self, dl_deadline deadline)
{
    while (has_works(self)) {
        DL_TRY(dl_nccl_watch_admit(self));
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT, "operations of %s are in progress", self->label);
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, DL_MILLISECOND)));
    }
    return dl_nccl_watch_admit(self);
}

dl_status
dl_nccl_watch_comm(dl_nccl_watch *self, dl_nccl_comm *comm)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_status status = admit_locked(self);
    if (status == DL_OK) {
        dl_reference_take(&comm->references);
        dl_list_append(&self->comms, &comm->node);
        wake_locked();
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return status;
}

/* Once the teardown has begun it is not known when NCCL is done with the communicator,
 * which then stays allocated. */
void
dl_nccl_watch_adopt(dl_nccl_watch *self, dl_nccl_comm *comm)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    comm->is_waiting = true;
    if (!self->is_torn) {
        dl_list_append(&self->comms, &comm->node);
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

void
dl_nccl_watch_suspend(dl_nccl_watch *self)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    self->is_suspended = true;
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

void
dl_nccl_watch_graph(dl_nccl_watch *self)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    self->has_graphs = true;
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

dl_status
dl_nccl_watch_begin(dl_nccl_work *work)
{
    dl_nccl_watch *self = work->watch;

    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_status status = admit_locked(self);
    if (status == DL_OK) {
        work->is_watched = true;
        dl_list_append(&self->works, &work->node);
        wake_locked();
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return status;
}

void
dl_nccl_watch_launched(dl_nccl_work *work)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    work->is_launched = true;
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

bool
dl_nccl_watch_retract(dl_nccl_work *work)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    bool was_watched = work->is_watched;
    if (was_watched) {
        dl_list_remove(&work->node);
        work->is_watched = false;
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
    return was_watched;
}

void
dl_nccl_watch_fail(dl_nccl_watch *self, const dl_error *cause)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    /* A group that is being closed gets its grace period, and then its own cause. */
    if (!self->is_leaving) {
        dl_nccl_fail_locked(self, cause);
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

void
dl_nccl_watch_leave(dl_nccl_watch *self)
{
    pthread_mutex_lock(&dl_nccl_all.lock);
    if (!self->is_leaving) {
        self->is_leaving = true;
        self->leave_by = dl_now() + DL_NCCL_GRACE;
        wake_locked();
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
}

void
dl_nccl_watch_free(dl_nccl_watch *self)
{
    /* One grace period for the works, and one for the communicators. */
    dl_deadline deadline = dl_deadline_after(2 * DL_NCCL_GRACE);

    dl_nccl_watch_leave(self);
    pthread_mutex_lock(&dl_nccl_all.lock);
    self->lost = NULL;
    while (self->is_checking_lost) {
        pthread_cond_wait(&dl_nccl_all.changed, &dl_nccl_all.lock);
    }
    dl_status status = DL_OK;
    while (!self->is_over && status == DL_OK
           && !(self->has_graphs && dl_list_is_empty(&self->works))) {
        status = dl_condition_wait(&dl_nccl_all.changed, &dl_nccl_all.lock, deadline);
    }
    bool is_left_behind = !self->is_over && !self->has_graphs;
    pthread_mutex_unlock(&dl_nccl_all.lock);
    if (is_left_behind) {
        dl_log(DL_LOG_WARNING,
               "%s: NCCL has not released its communicators in time; they are leaked",
               self->label);
    }
    dl_nccl_watch_unref(self);
}
