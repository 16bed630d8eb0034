/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread.h"
#include "pg/agree/deadlock.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/device/device.h"
#include "pg/device/device_state.h"
#include "pg/extension/extension_backend.h"
#include "pg/fake/fake_backend.h"
#include "pg/group_state.h"
#include "pg/mpi/mpi_backend.h"
#include "pg/ucc/ucc_backend.h"
#include "pg/wrapper/wrapper_backend.h"

typedef struct backend_entry {
    const char *name;
    dl_backend_new_fn make;
    /* Tells the other ranks that this one fails before it calls `make`, as `make`
     * itself does for its own failures; or NULL. */
    void (*refuse)(const dl_backend_options *options);
} backend_entry;

static const backend_entry backends[] = {
    {"cpu", dl_cpu_backend_new, dl_cpu_backend_refuse},
    {"gloo", dl_cpu_backend_new, dl_cpu_backend_refuse},
    {"fake", dl_fake_backend_new, NULL},
    {"custom", dl_custom_backend_new, NULL},
    {"mpi", dl_mpi_backend_new, NULL},
    {"ucc", dl_ucc_backend_new, dl_ucc_backend_refuse},
    {DL_UCC_CUDA_GROUP, dl_ucc_cuda_new, dl_ucc_backend_refuse},
};

/* Of all backends that other packages have registered. */
static const backend_entry extension_entry = {"", dl_extension_backend_new, NULL};

static const backend_entry *
find_backend(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (strcmp(backends[i].name, name) == 0) {
            return &backends[i];
        }
    }
    return dl_extension_is_registered(name) ? &extension_entry : NULL;
}

bool
dl_group_is_inherited(const dl_group *group)
{
    return group->fork_generation != dl_fork_generation();
}

static dl_status
check_options(const dl_group_options *options)
{
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size) {
        return dl_fail(DL_INVALID, "rank %d of a group of %d does not exist",
                       options->rank, options->size);
    }
    if (find_backend(options->backend) == NULL) {
        return dl_fail(DL_INVALID,
                       "there is no backend \"%s\"; the built-in backend is \"cpu\", "
                       "also called \"gloo\", and \"fake\" moves no data",
                       options->backend);
    }
    return DL_OK;
}

static dl_status
copy_ranks(const dl_group_options *options, int **ranks)
{
    size_t bytes = (size_t)options->size * sizeof **ranks;

    for (int rank = 0; rank < options->size; rank++) {
        int parent_rank = options->parent_ranks[rank];
        if (parent_rank < 0 || parent_rank >= options->parent->size) {
            return dl_fail(DL_INVALID, "group %s has no rank %d", options->parent->name,
                           parent_rank);
        }
    }
    *ranks = malloc(bytes);
    if (*ranks == NULL) {
        return dl_fail_no_memory();
    }
    memcpy(*ranks, options->parent_ranks, bytes);
    return DL_OK;
}

/* Passes on what the new group shares with its parent if both have the same backend: a
 * counted reference to the origin, and the new ranks in it, written over
 * `origin_ranks`.  Fails with DL_CLOSED if the parent has ended, or with the cause of
 * its abort. */
static dl_status
inherit(dl_group *parent, const backend_entry *entry, bool is_successor,
        dl_backend_options *options, int *origin_ranks)
{
    if (dl_group_is_inherited(parent) || atomic_load(&parent->is_closed)) {
        return dl_group_admit(parent);
    }
    pthread_mutex_lock(&parent->lock);
    if (parent->has_ended_family && !is_successor) {
        dl_status status = dl_fail_again(&parent->cause);
        pthread_mutex_unlock(&parent->lock);
        return status;
    }
    const dl_backend *backend = parent->backend;
    if (backend != NULL && backend->origin != NULL
        && find_backend(parent->backend_name)->make == entry->make) {
        options->origin = dl_backend_origin_ref(backend->origin);
        options->family = is_successor ? NULL : parent->name;
        for (int rank = 0; backend->origin_ranks != NULL && rank < options->size;
             rank++) {
            origin_ranks[rank] = backend->origin_ranks[origin_ranks[rank]];
        }
    }
    pthread_mutex_unlock(&parent->lock);
    return DL_OK;
}

/* Fills in the options of the backend.  The caller frees `*ranks` and drops the
 * reference to the origin. */
static dl_status
backend_options_init(dl_backend_options *options, const dl_group_options *asked,
                     dl_store *store, int **ranks)
{
    *options = (dl_backend_options){
        .store = store,
        .rank = asked->rank,
        .size = asked->size,
        .group_name = asked->name,
        .backend_name = asked->backend,
    };
    *ranks = NULL;
    if (asked->parent == NULL) {
        return DL_OK;
    }
    DL_TRY(copy_ranks(asked, ranks));
    options->origin_ranks = *ranks;
    return inherit(asked->parent, find_backend(asked->backend), asked->is_successor,
                   options, *ranks);
}

void
dl_group_refuse(const dl_group_options *asked, dl_store *store)
{
    const backend_entry *entry = find_backend(asked->backend);
    dl_error error = *dl_last_error();
    dl_backend_options options;
    dl_group_options successor = *asked;
    int *ranks = NULL;

    if (entry == NULL || entry->refuse == NULL) {
        return;
    }
    /* A refusal is valid even where the parent was aborted and the group
     * cannot be made. */
    successor.is_successor = true;
    if (backend_options_init(&options, &successor, store, &ranks) == DL_OK
        && (options.store != NULL || options.origin != NULL)) {
        (void)dl_fail_again(&error);
        entry->refuse(&options);
    }
    dl_backend_origin_unref(options.origin);
    free(ranks);
    (void)dl_fail_again(&error);
}

/* Makes the group's backend, with the wrapper that compares calls if that
 * is asked for. */
static dl_status
make_backend(dl_group *group, const dl_group_options *asked,
             const dl_backend_options *options)
{
    dl_status status = find_backend(group->backend_name)
                           ->make(options, dl_group_deadline(group), &group->backend);
    bool is_compared = asked->is_compared || dl_debug_level_get() == DL_DEBUG_DETAIL;

    if (status == DL_OK && is_compared) {
        status = dl_wrapper_backend_wrap(options, &group->backend);
        if (status != DL_OK) {
            /* The other ranks have met this one already and would wait for it. */
            dl_error cause = dl_error_for_others();
            group->backend->ops->abort(group->backend, &cause);
        }
    }
    return status;
}

static dl_status
join(dl_group *group, const dl_group_options *asked)
{
    dl_backend_options options;
    int *ranks;
    dl_status status = backend_options_init(&options, asked, group->store, &ranks);

    if (status == DL_OK) {
        status = make_backend(group, asked, &options);
    } else if (status == DL_NO_MEMORY) {
        dl_group_refuse(asked, group->store);
    }
    dl_backend_origin_unref(options.origin);
    free(ranks);
    return status == DL_OK ? DL_OK
                           : dl_fail_while("joining group %s as rank %d of %d",
                                           group->name, group->rank, group->size);
}

static void
free_group(dl_group *group)
{
    dl_deadlock_leave(group);
    if (group->window_backend != NULL) {
        group->window_backend->ops->free(group->window_backend);
    }
    if (group->backend != NULL) {
        group->backend->ops->free(group->backend);
    }
    dl_device_free(group);
    dl_store_unref(group->store);
    dl_recorder_leave(&group->seat);
    if (dl_group_is_inherited(group)) {
        dl_lane_forget(&group->lane);
    } else {
        dl_lane_fini(&group->lane);
    }
    pthread_mutex_destroy(&group->lock);
    free(group->global_ranks);
    free(group->name);
    free(group->backend_name);
    free(group);
}

dl_status
dl_group_new(const dl_group_options *options, dl_store *store, dl_group **group)
{
    DL_TRY(check_options(options));
    dl_group *made = calloc(1, sizeof *made);
    if (made == NULL) {
        dl_fail_no_memory();
        dl_group_refuse(options, store);
        return DL_NO_MEMORY;
    }
    atomic_init(&made->references, 1);
    atomic_init(&made->timeout, options->timeout);
    pthread_mutex_init(&made->lock, NULL);
    dl_lane_init(&made->lane);
    made->fork_generation = dl_fork_generation();
    made->creator = getpid();
    made->rank = options->rank;
    made->size = options->size;
    made->name = strdup(options->name);
    made->backend_name = strdup(options->backend);
    made->store = store == NULL ? NULL : dl_store_ref(store);
    dl_recorder_join(&made->seat, options->name, options->backend, options->rank,
                     options->size);
    dl_status status;
    if (made->name == NULL || made->backend_name == NULL) {
        status = dl_fail_no_memory();
        dl_group_refuse(options, store);
    } else {
        status = join(made, options);
    }
    if (status != DL_OK) {
        free_group(made);
        return status;
    }
    made->brief = made->backend->brief;
    *group = made;
    return DL_OK;
}

bool
dl_group_is_brief(const dl_group *group, const dl_call *call)
{
    return dl_call_bytes(call) < group->brief;
}

dl_group *
dl_group_ref(dl_group *group)
{
    atomic_fetch_add_explicit(&group->references, 1, memory_order_relaxed);
    return group;
}

dl_group *
dl_group_ref_if_alive(dl_group *group)
{
    unsigned count = atomic_load_explicit(&group->references, memory_order_relaxed);

    while (count > 0) {
        if (atomic_compare_exchange_weak(&group->references, &count, count + 1)) {
            return group;
        }
    }
    return NULL;
}

dl_status
dl_group_set_global_ranks(dl_group *group, const int64_t *ranks)
{
    int32_t *copy = calloc((size_t)group->size, sizeof *copy);

    if (copy == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < group->size; rank++) {
        copy[rank] = (int32_t)ranks[rank];
    }
    dl_deadlock_leave(group);
    free(group->global_ranks);
    group->global_ranks = copy;
    dl_deadlock_enter(group);
    return DL_OK;
}

void
dl_group_unref(dl_group *group)
{
    if (group != NULL
        && atomic_fetch_sub_explicit(&group->references, 1, memory_order_acq_rel)
               == 1) {
        dl_group_close(group);
        free_group(group);
    }
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
    return atomic_load_explicit(&group->sequence, memory_order_relaxed);
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
    return dl_fail_again(&group->cause);
}

static void
set_cause_locked(dl_group *group, const dl_error *cause)
{
    if (!atomic_load_explicit(&group->is_broken, memory_order_relaxed)) {
        group->cause = *cause;
        atomic_store_explicit(&group->is_broken, true, memory_order_release);
    }
}

void
dl_group_set_cause(dl_group *group, const dl_error *cause)
{
    pthread_mutex_lock(&group->lock);
    set_cause_locked(group, cause);
    pthread_mutex_unlock(&group->lock);
}

static void
free_backend(dl_group *group)
{
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = group->backend;
    dl_backend *window_backend = group->window_backend;
    group->backend = NULL;
    group->window_backend = NULL;
    pthread_mutex_unlock(&group->lock);
    if (window_backend != NULL) {
        window_backend->ops->free(window_backend);
    }
    if (backend != NULL) {
        backend->ops->free(backend);
    }
}

dl_status
dl_group_watch(dl_group *group, int rank)
{
    dl_status status = DL_OK;

    pthread_mutex_lock(&group->lock);
    dl_backend *backend = group->backend;
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
    dl_backend *backend = group->backend;
    if (backend != NULL && backend->ops->lost != NULL) {
        status = backend->ops->lost(backend, rank);
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

bool
dl_group_is_proved(dl_group *group, int rank)
{
    int first = rank < 0 ? 0 : rank;
    int last = rank < 0 ? group->size - 1 : rank;
    bool is_proved = true;

    pthread_mutex_lock(&group->lock);
    dl_backend *backend = group->backend;
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
dl_group_free_backend_if_closed(dl_group *group)
{
    if (atomic_load(&group->is_closed) && dl_lane_try(&group->lane)) {
        /* Freeing joins threads and returns memory, possibly at the end of
         * a brief call. */
        dl_blocking_begin();
        free_backend(group);
        dl_lane_pass(&group->lane);
    }
}

void
dl_group_pass_turn(dl_group *group)
{
    dl_lane_pass(&group->lane);
    dl_group_free_backend_if_closed(group);
}

void
dl_group_fail(dl_group *group, const dl_error *cause)
{
    if (dl_group_is_inherited(group)) {
        return;
    }
    pthread_mutex_lock(&group->lock);
    set_cause_locked(group, cause);
    if (group->backend != NULL) {
        group->backend->ops->abort(group->backend, cause);
    }
    if (group->window_backend != NULL) {
        group->window_backend->ops->abort(group->window_backend, cause);
    }
    dl_device_abort_locked(group, cause, false);
    pthread_mutex_unlock(&group->lock);
}

static void
end_family_locked(dl_group *group)
{
    group->has_ended_family = true;
    if (group->backend != NULL && group->backend->ops->end_family != NULL) {
        group->backend->ops->end_family(group->backend);
    }
}

void
dl_group_abort(dl_group *group, const char *reason)
{
    dl_error cause = {.status = DL_CANCELLED};

    snprintf(cause.text, sizeof cause.text, "group %s was aborted: %s", group->name,
             reason);
    dl_group_fail(group, &cause);
    if (!dl_group_is_inherited(group)) {
        pthread_mutex_lock(&group->lock);
        end_family_locked(group);
        pthread_mutex_unlock(&group->lock);
    }
}

dl_status
dl_group_verify_calls(dl_group *group, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (dl_group_is_inherited(group) || !dl_lane_try(&group->lane)) {
        return DL_OK;
    }
    if (!atomic_load(&group->is_broken) && group->backend->ops->verify_calls != NULL) {
        status = group->backend->ops->verify_calls(group->backend, deadline);
    }
    if (status == DL_MISMATCH) {
        dl_group_set_cause(group, dl_last_error());
    }
    dl_group_pass_turn(group);
    return status;
}

void
dl_group_close(dl_group *group)
{
    dl_error cause = {.status = DL_CLOSED};

    if (dl_group_is_inherited(group)) {
        return;
    }
    snprintf(cause.text, sizeof cause.text, "group %s was closed", group->name);
    pthread_mutex_lock(&group->lock);
    set_cause_locked(group, &cause);
    atomic_store(&group->is_closed, true);
    if (group->backend != NULL) {
        group->backend->ops->leave(group->backend);
        group->backend->ops->abort(group->backend, &cause);
    }
    if (group->window_backend != NULL) {
        group->window_backend->ops->leave(group->window_backend);
        group->window_backend->ops->abort(group->window_backend, &cause);
    }
    end_family_locked(group);
    dl_device_abort_locked(group, &cause, true);
    pthread_mutex_unlock(&group->lock);
    dl_recorder_leave(&group->seat);
    /* The queued operations fail with DL_CLOSED. */
    dl_lane_drain(&group->lane);
    dl_group_free_backend_if_closed(group);
    dl_device_free_if_closed(group);
    /* A caller may keep a closed group for long; its thread is not needed any more. */
    dl_blocking_begin();
    dl_lane_retire(&group->lane);
    if (group->device != NULL) {
        dl_lane_retire(&group->device->lane);
    }
}
