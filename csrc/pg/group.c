/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/group.h"

#include "base/interrupt.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/device/pinned.h"
#include "pg/group_state.h"

bool
dl_group_is_inherited(const dl_group *group)
{
    return group->fork_generation != dl_fork_generation();
}

bool
dl_group_is_brief(const dl_group *group, const dl_call *call)
{
    return dl_call_bytes(call) < group->brief;
}

bool
dl_group_are_brief(const dl_group *group, const dl_call *messages, int count)
{
    size_t sum = 0;

    for (int i = 0; i < count; i++) {
        size_t size = dl_call_bytes(&messages[i]);
        sum = size < group->brief ? sum + size : group->brief;
    }
    return group->has_brief_messages && sum < group->brief;
}

dl_group *
dl_group_ref(dl_group *group)
{
    dl_reference_take(&group->references);
    return group;
}

int
dl_group_rank(const dl_group *group)
{
    return group->rank;
}

int
dl_group_size(const dl_group *group)
{
    return group->size;
}

const char *
dl_group_name(const dl_group *group)
{
    return group->name;
}

const char *
dl_group_backend(const dl_group *group)
{
    return group->backend_name;
}

int64_t
dl_group_timeout(const dl_group *group)
{
    return atomic_load_explicit(&group->timeout, memory_order_relaxed);
}

void
dl_group_set_timeout(dl_group *group, int64_t timeout)
{
    atomic_store_explicit(&group->timeout, timeout, memory_order_relaxed);
}

dl_deadline
dl_group_deadline(const dl_group *group)
{
    return dl_deadline_after(dl_group_timeout(group));
}

uint64_t
dl_group_sequence(const dl_group *group)
{
    return atomic_load_explicit(&group->host.sequence, memory_order_relaxed);
}

dl_status
dl_group_admit(dl_group *group)
{
    if (dl_group_is_inherited(group)) {
        return dl_fail(DL_CLOSED,
                       "group %s was joined by process %d; a forked child is not a "
                       "member and must create its own group",
                       group->name, (int)group->creator);
    }
    if (!atomic_load_explicit(&group->is_broken, memory_order_acquire)) {
        return DL_OK;
    }
    if (atomic_load_explicit(&group->is_closed, memory_order_acquire)) {
        return dl_fail(DL_CLOSED, "group %s is closed", group->name);
    }
    return dl_rethrow(&group->cause);
}

void
dl_group_set_cause(dl_group *group, const dl_error *cause)
{
    pthread_mutex_lock(&group->lock);
    if (!atomic_load_explicit(&group->is_broken, memory_order_relaxed)) {
        group->cause = *cause;
        atomic_store_explicit(&group->is_broken, true, memory_order_release);
    }
    pthread_mutex_unlock(&group->lock);
}

static void
free_side(dl_group *group, dl_side *side)
{
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = side->backend;
    side->backend = NULL;
    pthread_mutex_unlock(&group->lock);
    if (backend != NULL) {
        backend->ops->free(backend);
    }
    if (side == &group->host) {
        dl_pinned_free(group->pinned);
        group->pinned = NULL;
    }
}

dl_status
dl_group_check_rank(void *context, int rank)
{
    dl_group *group = context;
    dl_status status = DL_OK;

    DL_TRY(dl_group_admit(group));
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    if (backend != NULL && backend->ops->watch != NULL) {
        status = backend->ops->watch(backend, rank);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

dl_status
dl_group_lost(dl_group *group, int rank)
{
    dl_status status = DL_OK;

    pthread_mutex_lock(&group->lock);
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    if (backend != NULL && backend->ops->lost != NULL) {
        status = backend->ops->lost(backend, rank);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

bool
dl_group_has_ended(dl_group *group, int rank)
{
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    bool has_ended = backend != NULL && backend->ops->has_ended != NULL
                     && backend->ops->has_ended(backend, rank);
    pthread_mutex_unlock(&group->lock);
    return has_ended;
}

bool
dl_group_is_proved(dl_group *group, int rank)
{
    int first = rank < 0 ? 0 : rank;
    int last = rank < 0 ? group->size - 1 : rank;
    bool is_proved = true;

    pthread_mutex_lock(&group->lock);
    dl_backend *backend = group->host.backend;
    for (int other = first; backend != NULL && is_proved && other <= last; other++) {
        is_proved = other == group->rank
                    || (backend->ops->is_proved != NULL
                        && backend->ops->is_proved(backend, other));
    }
    pthread_mutex_unlock(&group->lock);
    return is_proved;
}

/* No free is lost: the closing thread sets is_closed and then tries for the turn, and a
 * holder of the turn passes it and then looks at is_closed.  One of the two gets it. */
void
dl_group_free_backend_if_closed(dl_group *group, dl_side *side)
{
    if (atomic_load(&group->is_closed) && dl_lane_try(&side->lane)) {
        /* Freeing joins threads and returns memory, possibly at the end of
         * a brief call. */
        dl_blocking_begin();
        free_side(group, side);
        dl_lane_pass(&side->lane);
    }
}

void
dl_group_pass_turn(dl_group *group, dl_side *side)
{
    dl_lane_pass(&side->lane);
    dl_group_free_backend_if_closed(group, side);
}
