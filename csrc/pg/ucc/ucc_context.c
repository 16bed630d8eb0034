/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a team needs: the library, the exchange of bytes before UCC's network is up, and
 * a context. */
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/paired_gather.h"
#include "pg/ucc/ucc_backend.h"
#include "pg/ucc/ucc_state.h"

/* With this prefix UCC reads TORCH_UCC_X if that is set, and UCC_X otherwise. */
#define PREFIX "TORCH"

/* How long an exchange waits for messages before UCC makes progress with other
 * things. */
#define LOOK (20 * DL_MILLISECOND)

static const char *const sonames[] = {"libucc.so.1", NULL};
static const char *const folders[] = {"libucc/lib", "nvidia/ucc/lib", NULL};
static const char *const homes[] = {"UCC_HOME", "UCC_ROOT", "UCC_DIR", NULL};

static const dl_library library = {
    .title = "UCC",
    .variable = "DISTLITE_UCC_LIBRARY",
    .sonames = sonames,
    .folders = folders,
    .homes = homes,
    .advice = "install UCC with apt install libucc1 (newer Debian and Ubuntu), conda "
              "install -c conda-forge ucc, or from github.com/openucx/ucc",
};

static const dl_symbol symbols[] = {
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_ucc_table, field), false},
    DL_UCC_SYMBOLS(X)
#undef X
#define X(field, symbol, result, arguments) \
    {#symbol, offsetof(dl_ucc_table, field), true},
        DL_UCC_NEWER_SYMBOLS(X)
#undef X
};

static dl_ucc_table table;

static dl_status
check_version(void *handle)
{
    table.major = 1;
    if (table.version != NULL) {
        table.version(&table.major, &table.minor, &table.patch);
    }
    return table.major == 1 ? DL_OK
                            : dl_fail(DL_UNSUPPORTED,
                                      "UCC in %s is %u.%u, but only 1.x is known; %s",
                                      dl_library_path(handle), table.major, table.minor,
                                      library.advice);
}

static dl_library_use use = {
    .library = &library,
    .symbols = {symbols, sizeof symbols / sizeof *symbols},
    .table = &table,
    .check = check_version,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

dl_status
dl_ucc_load(const dl_ucc_table **loaded)
{
    dl_status status = dl_library_load(&use);

    *loaded = status == DL_OK ? &table : NULL;
    return status;
}

dl_status
dl_ucc_version(int *version)
{
    const dl_ucc_table *ucc;

    DL_TRY(dl_ucc_load(&ucc));
    *version = (int)(ucc->major * 10000 + ucc->minor * 100 + ucc->patch);
    return DL_OK;
}

dl_status
dl_ucc_check(const dl_ucc_table *ucc, int status, const char *what)
{
    return status >= 0
               ? DL_OK
               : dl_fail(DL_BACKEND,
                         "UCC failed in %s: %s (%d); UCC_LOG_LEVEL=info shows more",
                         what, ucc->status_text(status), status);
}

/* An exchange that is in progress. */
typedef struct pending {
    dl_ucc_exchange *exchange;
    dl_paired_gather gather;
} pending;

static int
fail_exchange(dl_ucc_exchange *self)
{
    if (self->error.status == DL_OK) {
        self->error = *dl_last_error();
    }
    return DL_UCC_NO_MESSAGE;
}

static int
end_exchange(void *request)
{
    pending *self = request;

    dl_paired_gather_end(&self->gather);
    free(self);
    return DL_UCC_OK;
}

static int
begin_exchange(void *send, void *receive, size_t bytes, void *user, void **request)
{
    dl_ucc_exchange *self = user;
    pending *made = malloc(sizeof *made);

    if (made == NULL) {
        (void)dl_fail_no_memory();
        return fail_exchange(self);
    }
    *made = (pending){
        .exchange = self,
        .gather = {.cpu = self->cpu,
                   .what = self->what,
                   .rank = self->rank,
                   .size = self->size,
                   .deadline = self->deadline,
                   .all = receive},
    };
    if (dl_paired_gather_begin(&made->gather, (dl_bytes){send, bytes}) != DL_OK) {
        (void)end_exchange(made);
        return fail_exchange(self);
    }
    *request = made;
    return DL_UCC_OK;
}

static int
test_exchange(void *request)
{
    pending *self = request;
    bool is_done;

    if (dl_paired_gather_test(&self->gather, dl_deadline_after(LOOK), &is_done)
        != DL_OK) {
        return fail_exchange(self->exchange);
    }
    return is_done ? DL_UCC_OK : DL_UCC_IN_PROGRESS;
}

dl_status
dl_ucc_exchange_explain(const dl_ucc_exchange *exchange, dl_status status)
{
    bool is_known = status != DL_OK && exchange->error.status != DL_OK;

    return is_known ? dl_rethrow(&exchange->error) : status;
}

dl_ucc_oob
dl_ucc_exchange_oob(dl_ucc_exchange *exchange)
{
    return (dl_ucc_oob){
        .all_gather = begin_exchange,
        .test = test_exchange,
        .free = end_exchange,
        .user = exchange,
        .size = (uint32_t)exchange->size,
        .rank = (uint32_t)exchange->rank,
    };
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
create_context(dl_ucc_context *self)
{
    const dl_ucc_table *ucc = self->ucc;
    dl_ucc_context_params params = {
        .mask = DL_UCC_CONTEXT_OOB,
        .oob = dl_ucc_exchange_oob(&self->exchange),
    };
    void *config = NULL;

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

/* Destroys the context together with the other ranks that leave; a rank that does not
 * come within the grace, or has disabled its own, is not waited for. */
static void
destroy_context(dl_ucc_context *self)
{
    bool has_lost_rank = atomic_load(&self->has_lost_rank);

    self->exchange.cpu = self->cpu;
    self->exchange.deadline = dl_deadline_after(has_lost_rank ? 0 : DL_UCC_GRACE);
    if (self->handle != NULL) {
        (void)self->ucc->context_destroy(self->handle);
    }
    if (self->library != NULL) {
        (void)self->ucc->finalize(self->library);
    }
    if (self->cpu != NULL) {
        self->cpu->ops->leave(self->cpu);
        self->cpu->ops->free(self->cpu);
    }
    pthread_rwlock_destroy(&self->drivers);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static void
free_context(dl_backend_origin *origin)
{
    dl_ucc_context *self = dl_ucc_context_of(origin);

    if (self->fork_generation == dl_fork_generation()
        && !atomic_load(&self->is_disabled)) {
        destroy_context(self);
    }
}

/* Makes the CPU backend with which the ranks leave, out of that of the group. */
static dl_status
make_cpu_backend(dl_ucc_context *self, const dl_backend_options *options,
                 const dl_backend *cpu, dl_deadline deadline)
{
    char name[256];
    dl_backend_options own = *options;

    snprintf(name, sizeof name, "%.240s/context", options->group_name);
    own.group_name = name;
    own.origin = cpu->origin;
    own.origin_ranks = cpu->origin_ranks;
    return dl_cpu_backend_new(&own, deadline, &self->cpu);
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
    pthread_rwlock_init(&self->drivers, NULL);
    pthread_mutex_init(&self->lock, NULL);
    self->ucc = ucc;
    self->fork_generation = dl_fork_generation();
    self->exchange = (dl_ucc_exchange){.cpu = cpu,
                                       .what = "the UCC context",
                                       .rank = options->rank,
                                       .size = options->size,
                                       .deadline = deadline};
    dl_status status = make_cpu_backend(self, options, cpu, deadline);
    if (status == DL_OK) {
        status = open_library(self);
    }
    if (status == DL_OK) {
        status = create_context(self);
    }
    if (status != DL_OK) {
        destroy_context(self);
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
    return dl_rethrow(&context->cause);
}

dl_status
dl_ucc_context_drive(dl_ucc_context *context)
{
    pthread_rwlock_rdlock(&context->drivers);
    dl_status status = dl_ucc_context_admit(context);
    if (status != DL_OK) {
        pthread_rwlock_unlock(&context->drivers);
    }
    return status;
}

void
dl_ucc_context_pause(dl_ucc_context *context)
{
    pthread_rwlock_unlock(&context->drivers);
}

void
dl_ucc_context_disable(dl_ucc_context *context, const char *group_name,
                       const dl_error *cause)
{
    pthread_mutex_lock(&context->lock);
    if (!atomic_load_explicit(&context->is_disabled, memory_order_relaxed)) {
        context->cause.status = DL_CANCELLED;
        snprintf(context->cause.text, sizeof context->cause.text,
                 "group %.100s gave up an operation that is stuck in UCC, which breaks "
                 "all groups that share its context (with TORCH_UCC_SHARED_COMM=0 only "
                 "its own): %.1600s",
                 group_name, cause->text);
        atomic_store_explicit(&context->is_disabled, true, memory_order_release);
    }
    pthread_mutex_unlock(&context->lock);
    /* Threads that found it enabled leave; no others come. */
    pthread_rwlock_wrlock(&context->drivers);
    pthread_rwlock_unlock(&context->drivers);
    context->cpu->ops->abort(context->cpu, cause);
}
