/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_context.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"

/* With this prefix UCC reads TORCH_UCC_X if that is set, and UCC_X otherwise. */
#define PREFIX "TORCH"

dl_status
dl_ucc_check(const dl_ucc_table *ucc, int status, const char *what)
{
    return status >= 0
               ? DL_OK
               : dl_fail(DL_BACKEND,
                         "UCC failed in %s: %s (%d); UCC_LOG_LEVEL=info tells more",
                         what, ucc->status_text(status), status);
}

static dl_status
open_library(dl_ucc_context *self)
{
    const dl_ucc_table *ucc = self->ucc;
    dl_ucc_lib_params params = {
        .mask = DL_UCC_LIB_THREAD,
        .thread_mode = DL_UCC_THREAD_MULTIPLE,
    };
    void *config = NULL;

    DL_TRY(dl_ucc_check(ucc, ucc->lib_config_read(PREFIX, NULL, &config),
                        "ucc_lib_config_read"));
    int status = ucc->init(1, ucc->minor, &params, config, &self->library);
    ucc->lib_config_release(config);
    if (status < 0) {
        self->library = NULL;
    }
    return dl_ucc_check(ucc, status, "ucc_init");
}

static dl_status
create(dl_ucc_context *self, dl_deadline deadline)
{
    const dl_ucc_table *ucc = self->ucc;
    dl_ucc_context_params params = {
        .mask = DL_UCC_CONTEXT_OOB,
        .oob = dl_ucc_exchange_oob(&self->exchange),
    };
    void *config = NULL;

    self->exchange.deadline = deadline;
    DL_TRY(dl_ucc_check(ucc, ucc->context_config_read(self->library, NULL, &config),
                        "ucc_context_config_read"));
    int status = ucc->context_create(self->library, &params, config, &self->handle);
    ucc->context_config_release(config);
    if (status < 0) {
        self->handle = NULL;
    }
    return dl_ucc_exchange_explain(&self->exchange,
                                   dl_ucc_check(ucc, status, "ucc_context_create"));
}

/* Returns how long to wait for the other ranks; 0 if one of them will not come. */
static int64_t
grace_of(const dl_ucc_context *self)
{
    dl_bytes key = DL_UCC_DISABLED_KEY;
    bool is_disabled = atomic_load(&self->has_lost_rank);

    if (is_disabled) {
        return 0;
    }
    (void)dl_store_check(self->exchange.store, &key, 1, &is_disabled,
                         dl_deadline_after(0));
    return is_disabled ? 0 : DL_UCC_GRACE;
}

/* Destroys the context together with the other ranks that leave; a rank that does not
 * come within the grace is not waited for. */
static void
destroy(dl_ucc_context *self)
{
    self->exchange.deadline = dl_deadline_after(grace_of(self));
    self->exchange.is_leaving = true;
    if (self->handle != NULL) {
        (void)self->ucc->context_destroy(self->handle);
    }
    if (self->library != NULL) {
        (void)self->ucc->finalize(self->library);
    }
    dl_ucc_exchange_fini(&self->exchange);
    if (self->cpu_origin != NULL) {
        dl_backend_origin_unref(self->cpu_origin);
    }
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static void
free_context(dl_backend_origin *origin)
{
    dl_ucc_context *self = dl_ucc_context_of(origin);

    if (self->fork_generation == dl_fork_generation()
        && !atomic_load(&self->is_disabled)) {
        destroy(self);
    }
}

dl_status
dl_ucc_context_new(const dl_backend_options *options, dl_backend *cpu,
                   dl_deadline deadline, dl_ucc_context **context)
{
    const dl_ucc_table *ucc;

    DL_TRY(dl_ucc_load(&ucc));
    dl_ucc_context *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_backend_origin_init(&self->base, free_context);
    pthread_mutex_init(&self->lock, NULL);
    self->ucc = ucc;
    self->fork_generation = dl_fork_generation();
    dl_ucc_exchange_init(&self->exchange, options->store, "context", options->rank,
                         options->size);
    if (cpu->origin != NULL) {
        self->cpu_origin = dl_backend_origin_ref(cpu->origin);
    }
    self->exchange.watcher = cpu;
    dl_status status = open_library(self);
    if (status == DL_OK) {
        status = create(self, deadline);
    }
    self->exchange.watcher = NULL;
    if (status != DL_OK) {
        destroy(self);
        return status;
    }
    *context = self;
    return DL_OK;
}

dl_status
dl_ucc_context_admit(dl_ucc_context *context)
{
    if (!atomic_load_explicit(&context->is_disabled, memory_order_acquire)) {
        return DL_OK;
    }
    return dl_fail_again(&context->cause);
}

void
dl_ucc_context_disable(dl_ucc_context *context, const char *group_name,
                       const dl_error *cause)
{
    pthread_mutex_lock(&context->lock);
    if (!atomic_load_explicit(&context->is_disabled, memory_order_relaxed)) {
        context->cause.status = DL_CANCELLED;
        snprintf(
            context->cause.text, sizeof context->cause.text,
            "UCC has an operation that group %.100s gave up, which ends all groups "
            "that share its context (TORCH_UCC_SHARED_COMM=0: none do): %.1600s",
            group_name, cause->text);
        atomic_store_explicit(&context->is_disabled, true, memory_order_release);
    }
    pthread_mutex_unlock(&context->lock);
}
