/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a team needs: the library, the exchange of bytes through the store, and a
 * context. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/agree/rank_keys.h"
#include "pg/ucc/ucc_backend.h"
#include "pg/ucc/ucc_state.h"

/* With this prefix UCC reads TORCH_UCC_X if that is set, and UCC_X otherwise. */
#define PREFIX "TORCH"

/* How long one request to the store may take before UCC makes progress with other
 * things. */
#define LOOK (20 * DL_MILLISECOND)

/* The time for a request that the store answers at once. */
#define PATIENCE DL_SECOND

/* Key in the context's store: a rank has disabled the context, and will not leave it
 * together with the others. */
#define DISABLED_KEY DL_LITERAL("ucc/disabled")

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
    uint8_t *target;
    size_t bytes; /* from each rank */
    uint64_t round;
    bool is_done;
} pending;

static int
fail_exchange(dl_ucc_exchange *self)
{
    if (self->error.status == DL_OK) {
        self->error = *dl_last_error();
    }
    return DL_UCC_NO_MESSAGE;
}

static dl_bytes
exchange_key(const dl_ucc_exchange *self, uint64_t round, int rank,
             char text[DL_RANK_KEY_SIZE])
{
    int size = snprintf(text, DL_RANK_KEY_SIZE, "ucc/%s/%" PRIu64 "/%d", self->what,
                        round, rank);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

static int
begin_exchange(void *send, void *receive, size_t bytes, void *user, void **request)
{
    dl_ucc_exchange *self = user;
    char key[DL_RANK_KEY_SIZE];
    pending *made = malloc(sizeof *made);

    if (made == NULL) {
        (void)dl_fail_no_memory();
        return fail_exchange(self);
    }
    *made = (pending){self, receive, bytes, self->round++, false};
    if (dl_store_set(self->store, exchange_key(self, made->round, self->rank, key),
                     (dl_bytes){send, bytes}, self->deadline)
        != DL_OK) {
        free(made);
        return fail_exchange(self);
    }
    *request = made;
    return DL_UCC_OK;
}

static dl_bytes
write_key(const void *context, int rank, char text[DL_RANK_KEY_SIZE])
{
    const pending *self = context;

    return exchange_key(self->exchange, self->round, rank, text);
}

/* Copies a rank's bytes, which are as many as this rank's. */
static dl_status
copy_values(const pending *self, int rank, const dl_buffer *value)
{
    if (value->size != self->bytes) {
        return dl_fail(DL_PROTOCOL,
                       "rank %d sent %zu bytes to create the UCC %s, not %zu; check "
                       "that all ranks have the same version of UCC",
                       rank, value->size, self->exchange->what, self->bytes);
    }
    memcpy(self->target + (size_t)rank * self->bytes, value->data, self->bytes);
    return DL_OK;
}

static dl_status
collect_values(pending *self, const dl_rank_keys *keys, dl_buffer *values)
{
    dl_ucc_exchange *exchange = self->exchange;
    dl_deadline look = dl_deadline_earlier(exchange->deadline, LOOK);

    dl_status status = dl_rank_keys_get(keys, exchange->store, values, look);
    if (status == DL_TIMEOUT && dl_deadline_passed(exchange->deadline)) {
        char what[32];
        snprintf(what, sizeof what, "the UCC %s", exchange->what);
        return dl_rank_keys_fail_absent(keys, exchange->store, what,
                                        exchange->deadline);
    }
    for (int rank = 0; status == DL_OK && rank < exchange->size; rank++) {
        status = copy_values(self, rank, &values[rank]);
    }
    self->is_done = status == DL_OK;
    return status;
}

static dl_status
poll_exchange(pending *self)
{
    int size = self->exchange->size;
    dl_buffer *values = dl_rank_values_new(size);
    dl_rank_keys keys = {0};
    dl_status status =
        values == NULL ? DL_NO_MEMORY : dl_rank_keys_init(&keys, size, write_key, self);

    if (status == DL_OK) {
        status = collect_values(self, &keys, values);
    }
    dl_rank_keys_fini(&keys);
    dl_rank_values_free(values, size);
    return status;
}

/* Fails if a rank has disabled the context that this one leaves. */
static dl_status
check_disabled(const dl_ucc_exchange *self)
{
    dl_bytes key = DISABLED_KEY;
    bool is_disabled = false;

    (void)dl_store_check(self->store, &key, 1, &is_disabled,
                         dl_deadline_earlier(self->deadline, LOOK));
    return is_disabled ? dl_fail(DL_PEER_LOST, "another rank does not leave the UCC %s",
                                 self->what)
                       : DL_OK;
}

/* Checks between requests whether the exchange has to end. */
static dl_status
check_exchange(const dl_ucc_exchange *self)
{
    if (self->is_leaving) {
        return check_disabled(self);
    }
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank
            && self->watcher->ops->watch(self->watcher, rank) != DL_OK) {
            return dl_fail_while("creating the UCC %s", self->what);
        }
    }
    return dl_interrupt_check();
}

static int
test_exchange(void *request)
{
    pending *self = request;
    dl_ucc_exchange *exchange = self->exchange;

    if (self->is_done) {
        return DL_UCC_OK;
    }
    dl_status status = poll_exchange(self);
    if (status == DL_TIMEOUT && !dl_deadline_passed(exchange->deadline)) {
        status = check_exchange(exchange);
    }
    if (status != DL_OK) {
        return fail_exchange(exchange);
    }
    return self->is_done ? DL_UCC_OK : DL_UCC_IN_PROGRESS;
}

static int
end_exchange(void *request)
{
    free(request);
    return DL_UCC_OK;
}

void
dl_ucc_exchange_init(dl_ucc_exchange *exchange, const dl_backend_options *options,
                     const char *what, dl_backend *watcher)
{
    *exchange = (dl_ucc_exchange){
        .store = dl_store_ref(options->store),
        .what = what,
        .rank = options->rank,
        .size = options->size,
        .watcher = watcher,
    };
}

void
dl_ucc_exchange_fini(dl_ucc_exchange *exchange)
{
    dl_store_unref(exchange->store);
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
create_context(dl_ucc_context *self, dl_deadline deadline)
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

/* Destroys the context together with the other ranks that leave; a rank that does not
 * come within the grace, or has disabled its own, is not waited for. */
static void
destroy_context(dl_ucc_context *self)
{
    bool has_lost_rank = atomic_load(&self->has_lost_rank);

    self->exchange.deadline = dl_deadline_after(has_lost_rank ? 0 : DL_UCC_GRACE);
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
    dl_ucc_exchange_init(&self->exchange, options, "context", cpu);
    if (cpu->origin != NULL) {
        self->cpu_origin = dl_backend_origin_ref(cpu->origin);
    }
    dl_status status = open_library(self);
    if (status == DL_OK) {
        status = create_context(self, deadline);
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
    (void)dl_store_set(context->exchange.store, DISABLED_KEY, DL_LITERAL("1"),
                       dl_deadline_after(PATIENCE));
}
