/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/references.h"
#include "pg/call.h"
#include "pg/nccl/nccl_watch_state.h"

/* How often the group's side for the CPU is asked whether an awaited rank is lost, and
 * how long after that the group fails: what the rank had sent before may still complete
 * the operation. */
#define CHECK_EVERY (100 * DL_MILLISECOND)
#define LOST_GRACE (500 * DL_MILLISECOND)

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
    dl_nccl_fail_locked(self, dl_last_error());
}

/* Asks whether awaited ranks are lost, and fails the group if one has been for
 * LOST_GRACE.  Drops the lock meanwhile: `lost` takes the group's lock, and a thread
 * that aborts the group takes this lock while it has the group's. */
static void
check_group_locked(dl_nccl_watch *self)
{
    dl_status (*lost)(void *context, int rank) = self->lost;
    void *context = self->context;
    awaited awaited = awaited_locked(self);
    dl_status status = DL_OK;

    self->is_checking_lost = true;
    dl_reference_take(&self->references);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    for (int i = 0; i < awaited.count && status == DL_OK; i++) {
        status = lost(context, awaited.peers[i]);
    }
    pthread_mutex_lock(&dl_nccl_all.lock);
    int64_t now = dl_now();
    self->is_checking_lost = false;
    pthread_cond_broadcast(&dl_nccl_all.changed);
    self->check_lost_after = now + CHECK_EVERY;
    if (status == DL_OK) {
        self->lost_since = 0;
    } else if (self->lost_since == 0) {
        self->lost_since = now;
        self->lost_error = *dl_last_error();
    } else if (now - self->lost_since >= LOST_GRACE && is_waiting_locked(self)) {
        /* Others may have given up because of that rank meanwhile. */
        (void)dl_rethrow(&self->lost_error);
        fail_lost_locked(self);
    }
    dl_nccl_watch_unref(self);
}

static dl_nccl_watch *
find_due_locked(void)
{
    for (dl_list *node = dl_nccl_all.groups.next; node != &dl_nccl_all.groups;
         node = node->next) {
        dl_nccl_watch *self = DL_LIST_ENTRY(node, dl_nccl_watch, node);
        if (self->lost != NULL && dl_now() >= self->check_lost_after
            && is_waiting_locked(self)) {
            return self;
        }
    }
    return NULL;
}

void
dl_nccl_check_lost_locked(void)
{
    dl_nccl_watch *due;

    while ((due = find_due_locked()) != NULL) {
        check_group_locked(due);
    }
}
