/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/thread.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/backend.h"
#include "pg/ucc/ucc_state.h"

/* How long the destruction of a team may take after a rank was lost. */
#define SHORT_GRACE (100 * DL_MILLISECOND)

/* Destroys the team together with the other ranks.  If they do not come in time, the
 * team is left as it is, and the context is disabled. */
static void
destroy_team(dl_ucc_backend *self)
{
    const dl_ucc_table *ucc = self->context->ucc;
    bool has_lost_rank = atomic_load(&self->context->has_lost_rank);
    dl_deadline deadline =
        dl_deadline_after(has_lost_rank ? SHORT_GRACE : DL_UCC_GRACE);
    dl_error cause = {.status = DL_CANCELLED,
                      .text = "its ranks did not leave it at the same time"};
    int status = DL_UCC_IN_PROGRESS;

    self->exchange.deadline = deadline;
    while (status == DL_UCC_IN_PROGRESS && !dl_deadline_passed(deadline)
           && dl_ucc_context_drive(self->context) == DL_OK) {
        status = ucc->team_destroy(self->team);
        if (status == DL_UCC_IN_PROGRESS) {
            (void)ucc->context_progress(self->context->handle);
        }
        dl_ucc_context_pause(self->context);
    }
    if (status == DL_UCC_IN_PROGRESS) {
        dl_ucc_context_disable(self->context, self->group_name, &cause);
    }
}

static void
free_backend(dl_backend *backend)
{
    dl_ucc_backend *self = dl_ucc_self(backend);
    bool is_inherited = self->fork_generation != dl_fork_generation();

    if (self->team != NULL && !is_inherited
        && !atomic_load(&self->context->is_disabled)) {
        destroy_team(self);
    }
    if (self->pair.base.cpu != NULL) {
        self->pair.base.cpu->ops->free(self->pair.base.cpu);
    }
    if (is_inherited) {
        return;
    }
    bool is_disabled =
        self->context != NULL && atomic_load(&self->context->is_disabled);
    if (self->context != NULL) {
        dl_backend_origin_unref(&self->context->base);
    }
    dl_buffer_fini(&self->raw);
    dl_buffer_fini(&self->input);
    dl_buffer_fini(&self->output);
    free(self->lengths);
    free(self->group_name);
    free(self->label);
    if (is_disabled) {
        /* UCC may still use the exchange of a team that was not completed. */
        return;
    }
    pthread_mutex_destroy(&self->pair.lock);
    free(self);
}

static const dl_backend_ops ucc_ops = {
    .name = "ucc",
    .collectives = DL_PAIRED_COLLECTIVES(dl_ucc_collective),
    .abort = dl_paired_abort,
    /* No .is_proved: objects take UCC's connections, where no rank proves the token. */
    .free = free_backend,
};

static dl_status
find_context(dl_ucc_backend *self, const dl_backend_options *options,
             dl_deadline deadline)
{
    bool is_shared;

    DL_TRY(dl_environment_flag("TORCH_UCC_SHARED_COMM", true, &is_shared));
    if (options->origin != NULL && is_shared) {
        dl_backend_origin *origin = dl_backend_origin_ref(options->origin);
        self->context = dl_ucc_context_of(origin);
        DL_TRY(dl_ucc_context_admit(self->context));
    } else {
        DL_TRY(
            dl_ucc_context_new(options, self->pair.base.cpu, deadline, &self->context));
    }
    self->pair.base.origin = &self->context->base;
    self->pair.base.origin_ranks = self->pair.base.cpu->origin_ranks;
    return DL_OK;
}

/* Drives UCC once.  `*is_made` is set when the team is complete. */
static dl_status
test_team(dl_ucc_backend *self, bool *is_made)
{
    const dl_ucc_table *ucc = self->context->ucc;
    const char *what = "ucc_team_create";

    DL_TRY(dl_ucc_context_drive(self->context));
    int status = ucc->team_test(self->team);
    *is_made = status == DL_UCC_OK;
    if (status == DL_UCC_IN_PROGRESS) {
        what = "ucc_context_progress";
        status = ucc->context_progress(self->context->handle);
    }
    dl_ucc_context_pause(self->context);
    return dl_ucc_check(ucc, status, what);
}

/* Ends later than the exchange, whose error names a rank. */
static dl_status
wait_for_team(dl_ucc_backend *self, dl_deadline deadline)
{
    dl_deadline end = dl_deadline_with_grace(deadline);
    dl_ucc_patience patience;
    bool is_made = false;

    dl_ucc_patience_init(&patience, 0);
    for (;;) {
        DL_TRY(test_team(self, &is_made));
        if (is_made) {
            return DL_OK;
        }
        if (dl_deadline_passed(end)) {
            return dl_fail(DL_TIMEOUT,
                           "%s: UCC has not created a team within %" PRId64
                           "ms; another rank is late or gone",
                           self->label, deadline.limit / DL_MILLISECOND);
        }
        int rounds = patience.rounds;
        DL_TRY(dl_ucc_patience_rest(&patience));
        DL_TRY(patience.rounds == rounds
                   ? DL_OK
                   : self->pair.base.cpu->ops->lost(self->pair.base.cpu, -1));
    }
}

static dl_status
make_team(dl_ucc_backend *self, dl_deadline deadline)
{
    const dl_ucc_table *ucc = self->context->ucc;
    dl_ucc_team_params params = {
        .mask =
            DL_UCC_TEAM_EP | DL_UCC_TEAM_EP_RANGE | DL_UCC_TEAM_SIZE | DL_UCC_TEAM_OOB,
        .ep = (uint64_t)self->rank,
        .size = (uint64_t)self->size,
        .oob = dl_ucc_exchange_oob(&self->exchange),
    };
    void *context = self->context->handle;
    void *team = NULL;

    DL_TRY(dl_ucc_exchange_explain(
        &self->exchange,
        dl_ucc_check(ucc, ucc->team_create(&context, 1, &params, &team),
                     "ucc_team_create_post")));
    self->team = team;
    dl_status status =
        dl_ucc_exchange_explain(&self->exchange, wait_for_team(self, deadline));
    if (status == DL_OK) {
        /* Begins to watch ranks of other hosts, as the end of one shows only on a
         * connection that was open before. */
        (void)self->pair.base.cpu->ops->lost(self->pair.base.cpu, -1);
        return DL_OK;
    }
    /* A team that is not completed cannot be destroyed. */
    dl_error error = *dl_last_error();
    dl_ucc_context_disable(self->context, self->group_name, &error);
    return dl_rethrow(&error);
}

static dl_status
init_fields(dl_ucc_backend *self, const dl_backend_options *options)
{
    self->group_name = strdup(options->group_name);
    self->label = dl_label_new(options->group_name, options->rank, options->size);
    self->lengths = calloc(4 * (size_t)options->size, sizeof *self->lengths);
    if (self->group_name == NULL || self->label == NULL || self->lengths == NULL) {
        return dl_fail_no_memory();
    }
    const dl_ucc_table *ucc;
    return dl_ucc_load(&ucc);
}

/* Returns the options of the CPU backend: it has the same ranks, and shares the origin
 * so that these need not meet again. */
static dl_backend_options
options_beside(const dl_backend_options *options)
{
    dl_backend_options beside = *options;

    if (options->origin != NULL) {
        beside.origin = dl_ucc_context_of(options->origin)->cpu->origin;
    }
    return beside;
}

void
dl_ucc_backend_refuse(const dl_backend_options *options)
{
    dl_backend_options beside = options_beside(options);

    dl_cpu_backend_refuse(&beside);
}

static dl_status
make_context_and_team(dl_ucc_backend *self, const dl_backend_options *options,
                      dl_deadline deadline)
{
    DL_TRY(find_context(self, options, deadline));
    return make_team(self, deadline);
}

static dl_status
open_backend(dl_ucc_backend *self, const dl_backend_options *options,
             dl_deadline deadline)
{
    dl_backend_options beside = options_beside(options);

    if (init_fields(self, options) != DL_OK) {
        dl_status status = dl_last_error()->status;
        dl_ucc_backend_refuse(options);
        return status;
    }
    DL_TRY(dl_cpu_backend_new(&beside, deadline, &self->pair.base.cpu));
    if (options->size == 1) {
        return DL_OK;
    }
    self->exchange = (dl_ucc_exchange){.cpu = self->pair.base.cpu,
                                       .what = "the UCC team",
                                       .rank = options->rank,
                                       .size = options->size,
                                       .deadline = deadline};
    dl_status status = make_context_and_team(self, options, deadline);
    if (status == DL_OK) {
        return DL_OK;
    }
    if (self->context != NULL && &self->context->base != options->origin) {
        /* The others cannot destroy it together with this rank. */
        atomic_store(&self->context->has_lost_rank, true);
    }
    /* For those that still exchange bytes for UCC, and those that have the group
     * already. */
    return dl_paired_refuse(&self->pair);
}

dl_status
dl_ucc_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    dl_ucc_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        dl_fail_no_memory();
        dl_ucc_backend_refuse(options);
        return DL_NO_MEMORY;
    }
    self->pair.base.ops = &ucc_ops;
    self->rank = options->rank;
    self->size = options->size;
    self->fork_generation = dl_fork_generation();
    pthread_mutex_init(&self->pair.lock, NULL);
    dl_status status = open_backend(self, options, deadline);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        free_backend(&self->pair.base);
        return dl_rethrow(&error);
    }
    self->pair.base.spans_hosts = self->pair.base.cpu->spans_hosts;
    *backend = &self->pair.base;
    return DL_OK;
}
