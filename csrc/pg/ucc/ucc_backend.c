/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "pg/ucc/ucc_state.h"

static void
abort_backend(dl_backend *backend, const dl_error *cause)
{
    dl_ucc_backend *self = dl_ucc_self(backend);

    pthread_mutex_lock(&self->lock);
    if (!atomic_load_explicit(&self->is_aborted, memory_order_relaxed)) {
        self->cause = *cause;
        atomic_store_explicit(&self->is_aborted, true, memory_order_release);
    }
    pthread_mutex_unlock(&self->lock);
}

/* Whoever is in an operation says so when it gives that up (ucc_run.c). */
static void
leave_backend(dl_backend *backend)
{
    (void)backend;
}

/* Until UCC is done with it, or the others have had their time. */
static void
destroy_team(dl_ucc_backend *self)
{
    const dl_ucc_table *ucc = self->context->ucc;
    dl_deadline deadline = dl_deadline_after(DL_UCC_GRACE);
    int status = DL_UCC_IN_PROGRESS;

    self->exchange.deadline = deadline;
    self->exchange.is_leaving = true;
    while (status == DL_UCC_IN_PROGRESS && !dl_deadline_passed(deadline)) {
        status = ucc->team_destroy(self->team);
        if (status == DL_UCC_IN_PROGRESS) {
            (void)ucc->context_progress(self->context->handle);
        }
    }
}

static void
free_backend(dl_backend *backend)
{
    dl_ucc_backend *self = dl_ucc_self(backend);
    bool is_inherited = self->fork_generation != dl_fork_generation();
    bool is_spoilt = self->context != NULL && atomic_load(&self->context->is_spoilt);

    if (is_inherited) {
        return;
    }
    if (self->team != NULL && !is_spoilt) {
        destroy_team(self);
    }
    if (self->context != NULL) {
        dl_backend_origin_unref(&self->context->base);
    }
    dl_buffer_fini(&self->raw);
    dl_buffer_fini(&self->input);
    dl_buffer_fini(&self->output);
    free(self->lengths);
    free(self->group_name);
    free(self->label);
    if (is_spoilt) {
        /* UCC may still have the way to the store of a team that it was making. */
        return;
    }
    dl_ucc_exchange_fini(&self->exchange);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

/* NULL entries, of messages above all: what UCC does not offer. */
static const dl_backend_ops ucc_ops = {
    .name = "ucc",
    .all_reduce = dl_ucc_all_reduce,
    .broadcast = dl_ucc_broadcast,
    .barrier = dl_ucc_barrier,
    .reduce = dl_ucc_reduce,
    .all_gather = dl_ucc_all_gather,
    .gather = dl_ucc_gather,
    .scatter = dl_ucc_scatter,
    .reduce_scatter = dl_ucc_reduce_scatter,
    .all_to_all = dl_ucc_all_to_all,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

static char *
make_label(const dl_backend_options *options)
{
    char host[65] = "?";
    char *label = NULL;

    gethostname(host, sizeof host - 1);
    int size = asprintf(&label, "group %s, rank %d of %d on %s", options->group_name,
                        options->rank, options->size, host);
    return size < 0 ? NULL : label;
}

/* torch's word for "one context for all groups", which is what it is unless told. */
static bool
may_share(void)
{
    const char *text = getenv("TORCH_UCC_SHARED_COMM");

    return text == NULL || strcmp(text, "0") != 0;
}

static dl_status
find_context(dl_ucc_backend *self, const dl_backend_options *options,
             dl_deadline deadline)
{
    const dl_ucc_table *ucc;

    DL_TRY(dl_ucc_load(&ucc));
    if (options->size == 1) {
        return DL_OK;
    }
    if (options->origin != NULL && may_share()) {
        dl_backend_origin *origin = dl_backend_origin_ref(options->origin);
        self->context = dl_ucc_context_of(origin);
        DL_TRY(dl_ucc_context_admit(self->context));
    } else {
        DL_TRY(dl_ucc_context_new(ucc, options, deadline, &self->context));
    }
    self->base.origin = &self->context->base;
    return DL_OK;
}

static dl_status
wait_for_team(dl_ucc_backend *self, dl_deadline deadline)
{
    const dl_ucc_table *ucc = self->context->ucc;
    dl_ucc_patience patience;
    int status;

    dl_ucc_patience_init(&patience, 0);
    while ((status = ucc->team_test(self->team)) == DL_UCC_IN_PROGRESS) {
        DL_TRY(dl_ucc_check(ucc, ucc->context_progress(self->context->handle),
                            "ucc_context_progress"));
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "%s: UCC has no team after %" PRId64
                           "ms; another rank is late or gone",
                           self->label, deadline.limit / DL_MILLISECOND);
        }
        DL_TRY(dl_ucc_patience_rest(&patience));
    }
    return dl_ucc_check(ucc, status, "ucc_team_create");
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

    self->exchange.deadline = deadline;
    DL_TRY(dl_ucc_check(ucc, ucc->team_create(&context, 1, &params, &team),
                        "ucc_team_create_post"));
    self->team = team;
    dl_status status = wait_for_team(self, deadline);
    if (status == DL_OK) {
        return DL_OK;
    }
    if (self->exchange.error.status != DL_OK) {
        status = dl_fail_again(&self->exchange.error);
    }
    /* A team that is half made cannot be destroyed. */
    dl_error error = *dl_last_error();
    dl_ucc_context_spoil(self->context, self->group_name, &error);
    return dl_fail_again(&error);
}

static dl_status
open_backend(dl_ucc_backend *self, const dl_backend_options *options,
             dl_deadline deadline)
{
    self->group_name = strdup(options->group_name);
    self->label = make_label(options);
    self->lengths = calloc(4 * (size_t)options->size, sizeof *self->lengths);
    if (self->group_name == NULL || self->label == NULL || self->lengths == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(find_context(self, options, deadline));
    return options->size == 1 ? DL_OK : make_team(self, deadline);
}

dl_status
dl_ucc_backend_new(const dl_backend_options *options, dl_deadline deadline,
                   dl_backend **backend)
{
    dl_ucc_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &ucc_ops;
    self->rank = options->rank;
    self->size = options->size;
    self->fork_generation = dl_fork_generation();
    pthread_mutex_init(&self->lock, NULL);
    if (options->store != NULL) {
        dl_ucc_exchange_init(&self->exchange, options->store, "team", options->rank,
                             options->size);
    }
    dl_status status = open_backend(self, options, deadline);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        free_backend(&self->base);
        return dl_fail_again(&error);
    }
    *backend = &self->base;
    return DL_OK;
}
