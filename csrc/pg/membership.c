/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes a group, and ends it: in order, by an abort, or in a forked child. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/agree/agreement.h"
#include "pg/agree/deadlock.h"
#include "pg/backend_table.h"
#include "pg/device/device.h"
#include "pg/device/device_state.h"
#include "pg/group_state.h"

static dl_status
check_options(const dl_group_options *options)
{
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size) {
        return dl_fail(DL_INVALID, "rank %d of a group of %d does not exist",
                       options->rank, options->size);
    }
    const dl_backend_kind *kind = dl_backend_find(options->backend);
    if (kind == NULL || kind->make == NULL) {
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
inherit_origin(dl_group *parent, const dl_backend_kind *kind, bool is_successor,
               dl_backend_options *options, int *origin_ranks)
{
    if (dl_group_is_inherited(parent) || atomic_load(&parent->is_closed)) {
        return dl_group_admit(parent);
    }
    pthread_mutex_lock(&parent->lock);
    if (parent->is_ended && !is_successor) {
        dl_status status = dl_rethrow(&parent->cause);
        pthread_mutex_unlock(&parent->lock);
        return status;
    }
    const dl_backend *backend = parent->host.backend;
    if (backend != NULL && backend->origin != NULL
        && parent->host.kind->make == kind->make) {
        options->origin = dl_backend_origin_ref(backend->origin);
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
    };
    *ranks = NULL;
    if (asked->parent == NULL) {
        return DL_OK;
    }
    DL_TRY(copy_ranks(asked, ranks));
    options->origin_ranks = *ranks;
    return inherit_origin(asked->parent, dl_backend_find(asked->backend),
                          asked->is_successor, options, *ranks);
}

void
dl_group_refuse(const dl_group_options *asked, dl_store *store)
{
    const dl_backend_kind *kind = dl_backend_find(asked->backend);
    dl_error error = *dl_last_error();
    dl_backend_options options;
    dl_group_options successor = *asked;
    int *ranks = NULL;

    if (kind == NULL || kind->refuse == NULL) {
        return;
    }
    /* A refusal is valid even where the parent was aborted and the group
     * cannot be made. */
    successor.is_successor = true;
    if (backend_options_init(&options, &successor, store, &ranks) == DL_OK
        && (options.store != NULL || options.origin != NULL)) {
        (void)dl_rethrow(&error);
        kind->refuse(&options);
    }
    dl_backend_origin_unref(options.origin);
    free(ranks);
    (void)dl_rethrow(&error);
}

/* Makes the group's backend, and the agreement of its ranks at DETAIL. */
static dl_status
make_backend(dl_group *group, const dl_backend_options *options, bool is_vacant)
{
    dl_backend **backend = &group->host.backend;
    const dl_backend_kind *kind =
        is_vacant ? dl_backend_find("custom") : group->host.kind;

    DL_TRY(kind->make(options, dl_group_deadline(group), backend));
    if (dl_debug_level_get() != DL_DEBUG_DETAIL || (*backend)->ops->is_alone) {
        return DL_OK;
    }
    group->host.agreement = dl_agreement_new(group, NULL);
    if (group->host.agreement == NULL) {
        /* The other ranks have met this one already and would wait for it. */
        dl_error cause = dl_error_for_others();
        (*backend)->ops->abort(*backend, &cause);
        return DL_NO_MEMORY;
    }
    return DL_OK;
}

static dl_status
join_group(dl_group *group, const dl_group_options *asked)
{
    dl_backend_options options;
    int *ranks;
    dl_status status = backend_options_init(&options, asked, group->store, &ranks);

    if (status == DL_OK) {
        status = make_backend(group, &options, asked->is_vacant);
    } else if (status == DL_NO_MEMORY) {
        dl_group_refuse(asked, group->store);
    }
    dl_backend_origin_unref(options.origin);
    free(ranks);
    return status == DL_OK ? DL_OK
                           : dl_fail_while("joining group %s as rank %d of %d",
                                           group->name, group->rank, group->size);
}

void
dl_side_fini(dl_side *side, bool is_inherited)
{
    if (side->backend != NULL) {
        side->backend->ops->free(side->backend);
    }
    dl_agreement_free(side->agreement);
    dl_recorder_leave(&side->seat);
    if (!is_inherited) {
        dl_lane_fini(&side->lane);
    }
}

static void
free_group(dl_group *group)
{
    dl_deadlock_leave(group);
    dl_side_fini(&group->host, dl_group_is_inherited(group));
    dl_device_free(group);
    dl_store_unref(group->store);
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
    dl_lane_init(&made->host.lane);
    made->host.kind = dl_backend_find(options->backend);
    made->fork_generation = dl_fork_generation();
    made->creator = getpid();
    made->rank = options->rank;
    made->size = options->size;
    made->name = strdup(options->name);
    made->backend_name = strdup(options->backend);
    made->store = store == NULL ? NULL : dl_store_ref(store);
    dl_recorder_join(&made->host.seat, options->name, options->backend, options->rank,
                     options->size);
    dl_status status;
    if (made->name == NULL || made->backend_name == NULL) {
        status = dl_fail_no_memory();
        dl_group_refuse(options, store);
    } else {
        status = join_group(made, options);
    }
    if (status != DL_OK) {
        free_group(made);
        return status;
    }
    made->brief = made->host.agreement == NULL ? made->host.backend->brief : 0;
    made->has_brief_messages = made->host.backend->has_brief_messages;
    *group = made;
    return DL_OK;
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
    if (group != NULL && dl_reference_drop(&group->references)) {
        dl_blocking_begin();
        dl_group_close(group);
        free_group(group);
    }
}

static dl_side *
device_side_of(dl_group *group)
{
    return group->device == NULL ? NULL : &group->device->side;
}

static void
abort_side_locked(dl_side *side, const dl_error *cause)
{
    if (side != NULL && side->backend != NULL) {
        side->backend->ops->abort(side->backend, cause);
    }
}

void
dl_group_abort(dl_group *group, const char *reason)
{
    dl_error cause = {.status = DL_CANCELLED};

    if (dl_group_is_inherited(group)) {
        return;
    }
    snprintf(cause.text, sizeof cause.text, "group %s was aborted: %s", group->name,
             reason);
    dl_group_set_cause(group, &cause);
    pthread_mutex_lock(&group->lock);
    abort_side_locked(&group->host, &cause);
    abort_side_locked(device_side_of(group), &cause);
    group->is_ended = true;
    pthread_mutex_unlock(&group->lock);
}

/* Takes a turn, which comes after those of all operations. */
static void
drain_side(dl_group *group, dl_side *side, dl_deadline deadline)
{
    if (side != NULL && dl_lane_take(&side->lane, deadline) == DL_OK) {
        dl_group_pass_turn(group, side);
    }
}

bool
dl_group_drain(dl_group *group)
{
    dl_deadline deadline = dl_deadline_after(DL_SECOND);

    if (dl_group_is_inherited(group)) {
        return false;
    }
    drain_side(group, &group->host, deadline);
    drain_side(group, device_side_of(group), deadline);
    return !atomic_load(&group->is_closed);
}

dl_status
dl_group_verify_calls(dl_group *group, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (dl_group_is_inherited(group) || !dl_lane_try(&group->host.lane)) {
        return DL_OK;
    }
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    if (!atomic_load(&group->is_broken) && backend->ops->verify_calls != NULL) {
        status = backend->ops->verify_calls(backend, deadline);
    }
    if (status == DL_MISMATCH) {
        dl_group_set_cause(group, dl_last_error());
    }
    dl_group_pass_turn(group, &group->host);
    return status;
}

dl_status
dl_group_finish(dl_group *group, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (dl_group_is_inherited(group) || !dl_lane_try(&group->host.lane)) {
        return DL_OK;
    }
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    if (!atomic_load(&group->is_broken) && backend->ops->finish != NULL) {
        status = backend->ops->finish(backend, deadline);
    }
    dl_group_pass_turn(group, &group->host);
    return status;
}

static void
leave_side_locked(dl_side *side, const dl_error *cause)
{
    if (side != NULL && side->backend != NULL) {
        dl_backend *backend = dl_backend_of_messages(side->backend);
        backend->ops->leave(backend);
    }
    abort_side_locked(side, cause);
}

static void
close_side(dl_group *group, dl_side *side)
{
    if (side == NULL) {
        return;
    }
    dl_recorder_leave(&side->seat);
    /* The queued operations fail with DL_CLOSED. */
    dl_lane_drain(&side->lane);
    dl_group_free_backend_if_closed(group, side);
    /* A caller may keep a closed group for long; its thread is not needed any more. */
    dl_blocking_begin();
    dl_lane_retire(&side->lane);
}

void
dl_group_close(dl_group *group)
{
    dl_error cause = {.status = DL_CLOSED};

    if (dl_group_is_inherited(group)) {
        return;
    }
    snprintf(cause.text, sizeof cause.text, "group %s was closed", group->name);
    dl_group_set_cause(group, &cause);
    pthread_mutex_lock(&group->lock);
    atomic_store(&group->is_closed, true);
    leave_side_locked(&group->host, &cause);
    group->is_ended = true;
    leave_side_locked(device_side_of(group), &cause);
    pthread_mutex_unlock(&group->lock);
    close_side(group, &group->host);
    close_side(group, device_side_of(group));
}
