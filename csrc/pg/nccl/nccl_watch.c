/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "pg/call.h"
#include "pg/nccl/nccl_comm.h"

/* Works in progress are polled at intervals that grow from LOOK_EVERY to LOOK_LAZILY,
 * so that the end of a short one is seen soon and a long one costs nothing. */
#define LOOK_EVERY DL_MILLISECOND
#define LOOK_LAZILY (20 * DL_MILLISECOND)

/* How often the group's side for the CPU is asked whether an awaited rank is lost, and
 * how long after that the group fails: what the rank had sent before may still complete
 * the operation. */
#define ASK_EVERY (100 * DL_MILLISECOND)
#define LOST_GRACE (500 * DL_MILLISECOND)

/* How long an orderly end waits for the works, and any teardown for NCCL. */
#define GRACE (5 * DL_SECOND)

/* The watches of all groups of the process, with one thread and one lock.  The thread
 * ends with the last group.  Lock order: a thread with a communicator's turn may
 * take the lock, and not the other way round.  Neither CUDA nor NCCL is called with the lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dl_list groups;
    bool is_running;
    bool is_asleep; /* the thread sleeps for longer than LOOK_EVERY */
    bool is_woken;  /* wake_locked() was called since the thread last began to wait */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
wake_locked(void)
{
    if (all.is_asleep && !all.is_woken) {
        pthread_cond_broadcast(&all.changed);
    }
    all.is_woken = true;
}

/* Sets the group's cause, unless it has one: later failures follow from the first. */
static void
fail_locked(dl_nccl_watch *self, const dl_error *cause)
{
    if (self->has_cause || self->is_torn) {
        return;
    }
    self->cause = *cause;
    self->has_cause = true;
    wake_locked();
}

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
settle_locked(dl_nccl_work *work, int look, dl_list *ended)
{
    dl_nccl_watch *self = work->watch;

    if (look > 0) {
        dl_list_remove(&work->node);
        work->is_watched = false;
        dl_list_append(ended, &work->node);
    } else if (look < 0) {
        fail_locked(self, dl_last_error());
    }
}

/* Called without the lock, since the driver may let a query wait for what another
 * thread does with the device. */
static void
look_at_work(dl_nccl_work *work, dl_list *ended)
{
    pthread_mutex_lock(&all.lock);
    bool is_open = is_open_locked(work);
    bool is_launched = work->is_launched;
    pthread_mutex_unlock(&all.lock);
    if (!is_open) {
        return;
    }
    int look = dl_nccl_work_look(work, is_launched);
    pthread_mutex_lock(&all.lock);
    if (is_open_locked(work)) {
        settle_locked(work, look, ended);
    }
    pthread_mutex_unlock(&all.lock);
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

/* Looks at `first` and the works that are chained to it, and drops a reference to
 * each. */
static void
look_at_works(dl_nccl_work *first, dl_list *ended)
{
    querying querying = begin_querying(first);

    while (first != NULL) {
        dl_nccl_work *work = first;
        first = work->next;
        look_at_work(work, ended);
        dl_work_unref(&work->work);
    }
    end_querying(&querying);
}

/* Looks at all works of the group; drops the lock meanwhile.  Only the watching thread
 * chains works. */
static void
sort_locked(dl_nccl_watch *self, dl_list *ended)
{
    dl_nccl_work *first = NULL, **end = &first;

    for (dl_list *node = self->works.next; node != &self->works; node = node->next) {
        *end = DL_LIST_ENTRY(node, dl_nccl_work, node);
        atomic_fetch_add_explicit(&(*end)->work.references, 1, memory_order_relaxed);
        end = &(*end)->next;
    }
    *end = NULL;
    if (first != NULL) {
        pthread_mutex_unlock(&all.lock);
        look_at_works(first, ended);
        pthread_mutex_lock(&all.lock);
    }
}

/* Finishes the works, with `cause` unless it is NULL.  Called without the lock, since
 * notices of the works may call into this file. */
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

/* Fails all works with the group's cause, which is fixed by now.  Drops the lock
 * meanwhile. */
static void
fail_works_locked(dl_nccl_watch *self)
{
    dl_list works;

    dl_list_init(&works);
    for (dl_list *node = self->works.next; node != &self->works; node = node->next) {
        DL_LIST_ENTRY(node, dl_nccl_work, node)->is_watched = false;
    }
    dl_list_move(&self->works, &works);
    pthread_mutex_unlock(&all.lock);
    finish_all(&works, &self->cause);
    pthread_mutex_lock(&all.lock);
}

void
dl_nccl_watch_reap(dl_nccl_work *work)
{
    dl_list ended;

    dl_list_init(&ended);
    querying querying = begin_querying(work);
    look_at_work(work, &ended);
    end_querying(&querying);
    finish_all(&ended, NULL);
}

/* Returns the communicator's error, DL_NCCL_SUCCESS for none.  If another thread is
 * inside it, it is not asked: only one thread may use it, and that one sees its
 * errors. */
static int
ask_for_error(const dl_nccl_watch *self, dl_nccl_comm *comm)
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
look_at_comms_locked(dl_nccl_watch *self)
{
    for (dl_list *node = self->comms.next; node != &self->comms; node = node->next) {
        dl_nccl_comm *comm = DL_LIST_ENTRY(node, dl_nccl_comm, node);
        if (comm->is_waiting) {
            continue;
        }
        pthread_mutex_unlock(&all.lock);
        int error = ask_for_error(self, comm);
        pthread_mutex_lock(&all.lock);
        if (error == DL_NCCL_SUCCESS) {
            continue;
        }
        dl_nccl_check(self->nccl, error, "a communicator");
        dl_fail_while("%s", self->label);
        fail_locked(self, dl_last_error());
        return;
    }
}

/* Communicators to be freed, which one thread at a time takes from. */
typedef struct freeing {
    dl_nccl_watch *watch;
    dl_list comms;
    bool is_aborted;
} freeing;

/* Frees the first communicator, while a thread of their own frees the others: freeing
 * waits for all kernels of the device, and so for those of communicators that have not
 * been aborted yet.  NCCL's calls for that may be grouped from 2.22 on only. */
static void *
free_comms(void *argument)
{
    freeing *self = argument;
    pthread_t others;

    if (dl_list_is_empty(&self->comms)) {
        return NULL;
    }
    dl_nccl_comm *comm = DL_LIST_ENTRY(self->comms.next, dl_nccl_comm, node);
    dl_list_remove(&comm->node);
    bool has_thread = !dl_list_is_empty(&self->comms)
                      && dl_thread_start(&others, free_comms, self) == DL_OK;
    dl_nccl_comm_free(self->watch, comm, self->is_aborted);
    if (has_thread) {
        pthread_join(others, NULL);
        return NULL;
    }
    return free_comms(self);
}

/* Frees all communicators, those whose handles NCCL may still store after the ones that
 * they are made from. */
static void
free_all_comms(dl_nccl_watch *self)
{
    freeing first = {.watch = self}, last = {.watch = self};
    dl_list *next;

    dl_list_init(&first.comms);
    dl_list_init(&last.comms);
    pthread_mutex_lock(&all.lock);
    first.is_aborted = last.is_aborted = self->has_cause;
    dl_list_move(&self->comms, &first.comms);
    for (dl_list *node = first.comms.next; node != &first.comms; node = next) {
        next = node->next;
        if (DL_LIST_ENTRY(node, dl_nccl_comm, node)->is_waiting) {
            dl_list_remove(node);
            dl_list_append(&last.comms, node);
        }
    }
    pthread_mutex_unlock(&all.lock);
    free_comms(&first);
    free_comms(&last);
}

/* The teardown's thread.  Aborted communicators are freed before the works fail, since
 * until then the device may write to the arrays of these. */
static void *
tear_down(void *argument)
{
    dl_nccl_watch *self = argument;

    free_all_comms(self);
    pthread_mutex_lock(&all.lock);
    fail_works_locked(self);
    self->is_over = true;
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
    dl_nccl_watch_unref(self);
    return NULL;
}

/* Starts the teardown of a group that has a cause or no works left.  May drop the
 * lock. */
static void
begin_teardown_locked(dl_nccl_watch *self)
{
    pthread_t thread;

    if (self->has_cause && self->cause.status != DL_CLOSED
        && self->cause.status != DL_CANCELLED) {
        dl_log(DL_LOG_ERROR, "%s; the communicators of this group are aborted",
               self->cause.text);
    }
    self->is_torn = true;
    self->fail_by = dl_now() + GRACE;
    if (dl_list_is_empty(&self->comms) && dl_list_is_empty(&self->works)) {
        self->is_over = true;
        pthread_cond_broadcast(&all.changed);
        return;
    }
    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    if (dl_thread_start(&thread, tear_down, self) == DL_OK) {
        pthread_detach(thread);
        return;
    }
    pthread_mutex_unlock(&all.lock);
    tear_down(self);
    pthread_mutex_lock(&all.lock);
}

static void
look_at_leaving_locked(dl_nccl_watch *self)
{
    if (!self->has_cause && dl_now() > self->leave_by
        && !dl_list_is_empty(&self->works)) {
        dl_fail(DL_CLOSED, "%s was closed before its operations had finished",
                self->label);
        fail_locked(self, dl_last_error());
    }
}

/* Handles one group; drops the lock meanwhile.  Returns true if that may have taken so
 * long that the groups are to be looked at anew. */
static bool
look_at_group_locked(dl_nccl_watch *self, dl_list *ended)
{
    if (self->is_torn) {
        bool is_late = dl_now() > self->fail_by && !dl_list_is_empty(&self->works);
        if (is_late) {
            fail_works_locked(self);
        }
        return is_late;
    }
    if (!self->has_cause) {
        sort_locked(self, ended);
        look_at_comms_locked(self);
    }
    if (self->is_leaving) {
        look_at_leaving_locked(self);
    }
    if (self->has_cause || (self->is_leaving && dl_list_is_empty(&self->works))) {
        begin_teardown_locked(self);
        return true;
    }
    return false;
}

/* Handles all groups and removes those that are over; drops the lock meanwhile.
 * Returns whether anything happened. */
static bool
look_at_all_locked(void)
{
    dl_list ended;
    bool has_changed = false;

    dl_list_init(&ended);
    dl_list *node = all.groups.next;
    while (node != &all.groups) {
        dl_nccl_watch *self = DL_LIST_ENTRY(node, dl_nccl_watch, node);
        node = node->next;
        if (self->is_over) {
            dl_list_remove(&self->node);
            dl_nccl_watch_unref(self);
        } else if (look_at_group_locked(self, &ended)) {
            has_changed = true;
            break;
        }
    }
    has_changed = has_changed || !dl_list_is_empty(&ended);
    pthread_mutex_unlock(&all.lock);
    finish_all(&ended, NULL);
    pthread_mutex_lock(&all.lock);
    return has_changed;
}

static bool
is_waiting_locked(const dl_nccl_watch *self)
{
    return !self->has_cause && !self->is_torn
           && (!dl_list_is_empty(&self->works) || !dl_list_is_empty(&self->expected));
}

/* The awaited ranks, each once; DL_ANY_RANK alone if there are more than fit. */
#define AWAITED_LIMIT 16

typedef struct awaited {
    int peers[AWAITED_LIMIT];
    int count;
} awaited;

static void
add_awaited(awaited *self, int peer)
{
    for (int i = 0; i < self->count; i++) {
        if (self->peers[i] == peer || self->peers[i] == DL_ANY_RANK) {
            return;
        }
    }
    if (peer == DL_ANY_RANK || self->count == AWAITED_LIMIT) {
        self->peers[0] = DL_ANY_RANK;
        self->count = 1;
    } else {
        self->peers[self->count++] = peer;
    }
}

static awaited
awaited_locked(const dl_nccl_watch *self)
{
    awaited found = {.count = 0};

    for (const dl_list *node = self->works.next; node != &self->works;
         node = node->next) {
        add_awaited(&found, DL_LIST_ENTRY(node, dl_nccl_work, node)->peer);
    }
    for (const dl_list *node = self->expected.next; node != &self->expected;
         node = node->next) {
        add_awaited(&found, DL_LIST_ENTRY(node, dl_nccl_expected, node)->peer);
    }
    return found;
}

/* The thread's last error names the lost rank. */
static void
fail_lost_locked(dl_nccl_watch *self)
{
    char name[DL_NCCL_WORK_TEXT_SIZE];

    if (!dl_list_is_empty(&self->works)) {
        dl_nccl_work_describe(DL_LIST_ENTRY(self->works.next, dl_nccl_work, node), name,
                              sizeof name);
        dl_fail_while("%s in %s", name, self->label);
    } else {
        dl_fail_while("%s", self->label);
    }
    fail_locked(self, dl_last_error());
}

/* Asks whether awaited ranks are lost, and fails the group if one has been for
 * LOST_GRACE.  Drops the lock meanwhile: `lost` takes the group's lock, and a thread
 * that aborts the group takes this lock while it has the group's. */
static void
ask_locked(dl_nccl_watch *self)
{
    dl_status (*lost)(void *context, int rank) = self->lost;
    void *context = self->context;
    awaited awaited = awaited_locked(self);
    dl_status status = DL_OK;

    self->is_asking = true;
    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    pthread_mutex_unlock(&all.lock);
    for (int i = 0; i < awaited.count && status == DL_OK; i++) {
        status = lost(context, awaited.peers[i]);
    }
    pthread_mutex_lock(&all.lock);
    int64_t now = dl_now();
    self->is_asking = false;
    pthread_cond_broadcast(&all.changed);
    self->ask_after = now + ASK_EVERY;
    if (status == DL_OK) {
        self->lost_since = 0;
    } else if (self->lost_since == 0) {
        self->lost_since = now;
    } else if (now - self->lost_since >= LOST_GRACE && is_waiting_locked(self)) {
        fail_lost_locked(self);
    }
    dl_nccl_watch_unref(self);
}

static dl_nccl_watch *
find_due_locked(void)
{
    for (dl_list *node = all.groups.next; node != &all.groups; node = node->next) {
        dl_nccl_watch *self = DL_LIST_ENTRY(node, dl_nccl_watch, node);
        if (self->lost != NULL && dl_now() >= self->ask_after
            && is_waiting_locked(self)) {
            return self;
        }
    }
    return NULL;
}

/* Asks for all groups that wait for ranks and have not asked for ASK_EVERY. */
static void
ask_all_locked(void)
{
    dl_nccl_watch *due;

    while ((due = find_due_locked()) != NULL) {
        ask_locked(due);
    }
}

static bool
is_idle_locked(void)
{
    for (dl_list *node = all.groups.next; node != &all.groups; node = node->next) {
        const dl_nccl_watch *self = DL_LIST_ENTRY(node, dl_nccl_watch, node);
        bool is_finished = self->is_torn && dl_list_is_empty(&self->works);
        if (self->is_over
            || (!is_finished
                && (self->has_cause || self->is_leaving
                    || !dl_list_is_empty(&self->works)
                    || !dl_list_is_empty(&self->expected)
                    || !dl_list_is_empty(&self->comms)))) {
            return false;
        }
    }
    return true;
}

/* Waits for `pause` at most, or until it is woken if there is nothing to poll. */
static void
wait_locked(int64_t pause)
{
    bool is_idle = is_idle_locked();

    all.is_asleep = is_idle || pause > LOOK_EVERY;
    all.is_woken = false;
    if (is_idle) {
        pthread_cond_wait(&all.changed, &all.lock);
    } else {
        (void)dl_condition_wait_until(&all.changed, &all.lock, dl_now() + pause);
    }
    all.is_asleep = false;
}

/* The watching thread: polls at intervals that grow while nothing happens. */
static void *
run_watch(void *unused)
{
    int64_t pause = LOOK_EVERY;

    (void)unused;
    pthread_setname_np(pthread_self(), "distlite-nccl");
    pthread_mutex_lock(&all.lock);
    while (!dl_list_is_empty(&all.groups)) {
        if (look_at_all_locked()) {
            pause = LOOK_EVERY;
            continue;
        }
        ask_all_locked();
        if (dl_list_is_empty(&all.groups)) {
            break;
        }
        wait_locked(pause);
        pause = all.is_woken              ? LOOK_EVERY
                : pause * 2 < LOOK_LAZILY ? pause * 2
                                          : LOOK_LAZILY;
    }
    all.is_running = false;
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

void
dl_nccl_watch_unref(dl_nccl_watch *self)
{
    if (atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) == 1) {
        free(self->label);
        free(self);
    }
}

static dl_status
join_locked(dl_nccl_watch *self)
{
    pthread_t thread;

    if (!all.is_running) {
        DL_TRY(dl_thread_start(&thread, run_watch, NULL));
        pthread_detach(thread);
        all.is_running = true;
    }
    dl_list_append(&all.groups, &self->node);
    wake_locked();
    return DL_OK;
}

/* Resets `all` in a forked child, where the thread does not exist and the lock may have
 * been held by another thread. */
static void
forget_parent(void)
{
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static _Atomic(uint64_t) ready_for; /* the generation, from 1 on */
    uint64_t generation = (uint64_t)dl_fork_generation() + 1;

    if (atomic_load(&ready_for) == generation) {
        return;
    }
    pthread_mutex_lock(&guard);
    if (atomic_load(&ready_for) != generation) {
        pthread_mutex_init(&all.lock, NULL);
        dl_condition_init(&all.changed);
        dl_list_init(&all.groups);
        all.is_running = all.is_asleep = false;
        atomic_store(&ready_for, generation);
    }
    pthread_mutex_unlock(&guard);
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
    forget_parent();
    pthread_mutex_lock(&all.lock);
    dl_status status = join_locked(self);
    pthread_mutex_unlock(&all.lock);
    if (status != DL_OK) {
        atomic_store(&self->references, 1);
        dl_nccl_watch_unref(self);
        return status;
    }
    *watch = self;
    return DL_OK;
}

void
dl_nccl_watch_ask(dl_nccl_watch *self, dl_status (*lost)(void *context, int rank),
                  void *context)
{
    pthread_mutex_lock(&all.lock);
    self->lost = lost;
    self->context = context;
    pthread_mutex_unlock(&all.lock);
}

void
dl_nccl_watch_expect(dl_nccl_watch *self, dl_nccl_expected *expected)
{
    pthread_mutex_lock(&all.lock);
    dl_list_append(&self->expected, &expected->node);
    wake_locked();
    pthread_mutex_unlock(&all.lock);
}

void
dl_nccl_watch_met(dl_nccl_expected *expected)
{
    pthread_mutex_lock(&all.lock);
    dl_list_remove(&expected->node);
    pthread_mutex_unlock(&all.lock);
}

/* The cause of a failure has precedence: it tells more than that the group is
 * closed. */
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
    pthread_mutex_lock(&all.lock);
    dl_status status = admit_locked(self);
    pthread_mutex_unlock(&all.lock);
    return status;
}

dl_status
dl_nccl_watch_cause(dl_nccl_watch *self)
{
    pthread_mutex_lock(&all.lock);
    dl_status status = self->has_cause ? dl_fail_again(&self->cause) : DL_OK;
    pthread_mutex_unlock(&all.lock);
    return status;
}

/* A communicator that is made after the group has failed is aborted, as its peers do
 * with theirs. */
dl_status
dl_nccl_watch_comm(dl_nccl_watch *self, dl_nccl_comm *comm)
{
    pthread_mutex_lock(&all.lock);
    dl_status status = admit_locked(self);
    if (status == DL_OK) {
        atomic_fetch_add(&comm->references, 1);
        dl_list_append(&self->comms, &comm->node);
        wake_locked();
    }
    pthread_mutex_unlock(&all.lock);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_nccl_comm_free(self, comm, true);
        return dl_fail_again(&error);
    }
    return DL_OK;
}

/* Once the teardown has begun it is not known when NCCL is done with the communicator,
 * which then stays allocated. */
void
dl_nccl_watch_adopt(dl_nccl_watch *self, dl_nccl_comm *comm)
{
    pthread_mutex_lock(&all.lock);
    comm->is_waiting = true;
    if (!self->is_torn) {
        dl_list_append(&self->comms, &comm->node);
    }
    pthread_mutex_unlock(&all.lock);
}

void
dl_nccl_watch_suspend(dl_nccl_watch *self)
{
    pthread_mutex_lock(&all.lock);
    self->is_suspended = true;
    pthread_mutex_unlock(&all.lock);
}

void
dl_nccl_watch_graph(dl_nccl_watch *self)
{
    pthread_mutex_lock(&all.lock);
    self->has_graphs = true;
    pthread_mutex_unlock(&all.lock);
}

dl_status
dl_nccl_watch_begin(dl_nccl_work *work)
{
    dl_nccl_watch *self = work->watch;

    pthread_mutex_lock(&all.lock);
    dl_status status = admit_locked(self);
    if (status == DL_OK) {
        work->is_watched = true;
        dl_list_append(&self->works, &work->node);
        wake_locked();
    }
    pthread_mutex_unlock(&all.lock);
    return status;
}

void
dl_nccl_watch_launched(dl_nccl_work *work)
{
    pthread_mutex_lock(&all.lock);
    work->is_launched = true;
    pthread_mutex_unlock(&all.lock);
}

bool
dl_nccl_watch_retract(dl_nccl_work *work)
{
    pthread_mutex_lock(&all.lock);
    bool was_watched = work->is_watched;
    if (was_watched) {
        dl_list_remove(&work->node);
        work->is_watched = false;
    }
    pthread_mutex_unlock(&all.lock);
    return was_watched;
}

void
dl_nccl_watch_fail(dl_nccl_watch *self, const dl_error *cause)
{
    pthread_mutex_lock(&all.lock);
    /* A group that is being closed gets its grace period, and then its own cause. */
    if (!self->is_leaving) {
        fail_locked(self, cause);
    }
    pthread_mutex_unlock(&all.lock);
}

void
dl_nccl_watch_leave(dl_nccl_watch *self)
{
    pthread_mutex_lock(&all.lock);
    if (!self->is_leaving) {
        self->is_leaving = true;
        self->leave_by = dl_now() + GRACE;
        wake_locked();
    }
    pthread_mutex_unlock(&all.lock);
}

void
dl_nccl_watch_free(dl_nccl_watch *self)
{
    /* One grace period for the works, and one for the communicators. */
    dl_deadline deadline = dl_deadline_after(2 * GRACE);

    dl_nccl_watch_leave(self);
    pthread_mutex_lock(&all.lock);
    self->lost = NULL;
    while (self->is_asking) {
        pthread_cond_wait(&all.changed, &all.lock);
    }
    dl_status status = DL_OK;
    while (!self->is_over && status == DL_OK
           && !(self->has_graphs && dl_list_is_empty(&self->works))) {
        status = dl_condition_wait(&all.changed, &all.lock, deadline);
    }
    bool is_left_behind = !self->is_over && !self->has_graphs;
    pthread_mutex_unlock(&all.lock);
    if (is_left_behind) {
        dl_log(DL_LOG_WARNING,
               "%s: NCCL has not released its communicators in time; they are leaked",
               self->label);
    }
    dl_nccl_watch_unref(self);
}
