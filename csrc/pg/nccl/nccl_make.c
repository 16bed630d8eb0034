/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_make.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/call.h"

/* How much longer the caller waits than the thread, whose own timeout tells more. */
#define MARGIN (20 * DL_MILLISECOND)

/* NCCL's defaults and environment variables apply to the fields that stay unset. */
static void
fill_config(dl_nccl_config *config, const dl_device_options *options)
{
#define NUMBER(name) .name = options->is_given ? options->name : DL_OPTION_UNSET
    *config = (dl_nccl_config){
        .size = sizeof *config,
        .magic = DL_NCCL_CONFIG_MAGIC,
        .version = DL_NCCL_CONFIG_VERSION,
        NUMBER(blocking),
        NUMBER(cga_cluster_size),
        NUMBER(min_ctas),
        NUMBER(max_ctas),
        NUMBER(split_share),
        NUMBER(traffic_class),
        NUMBER(collnet_enable),
        NUMBER(cta_policy),
        NUMBER(shrink_share),
        NUMBER(nvls_ctas),
        .net_name = options->net_name[0] == '\0' ? NULL : options->net_name,
        .comm_name = options->comm_name[0] == '\0' ? NULL : options->comm_name,
    };
#undef NUMBER
    if (config->blocking == INT_MIN
        && dl_environment_is_on("TORCH_NCCL_USE_COMM_NONBLOCKING")) {
        config->blocking = 0;
    }
}

/* Each communicator has a stream of its own, so that communication overlaps with the
 * program's kernels.  It is a non-blocking one, or the default stream would wait for
 * it. */
static dl_status
open_stream(dl_nccl_watch *watch, const dl_device_options *options, dl_nccl_comm *comm)
{
    const dl_cuda_table *cuda = watch->cuda;
    int least = 0;
    int greatest = 0;

    DL_TRY(dl_cuda_check(cuda, cuda->priority_range(&least, &greatest),
                         "cudaDeviceGetStreamPriorityRange"));
    bool is_high = options->is_high_priority_stream
                   || dl_environment_is_on("TORCH_NCCL_HIGH_PRIORITY");
    return dl_cuda_check(cuda,
                         cuda->stream_create(&comm->stream, DL_CUDA_STREAM_NON_BLOCKING,
                                             is_high ? greatest : least),
                         "cudaStreamCreateWithPriority");
}

/* Makes a communicator on `device` without a handle.  The caller owns the reference. */
static dl_status
begin_comm(dl_nccl_watch *watch, const dl_device_options *options, int device,
           dl_nccl_comm **comm)
{
    dl_nccl_comm *made = calloc(1, sizeof *made);
    int previous;

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&made->references, 1);
    made->device = device;
    dl_lane_init(&made->turn);
    dl_status status = dl_cuda_enter(watch->cuda, device, &previous);
    if (status == DL_OK) {
        status = open_stream(watch, options, made);
        dl_cuda_leave(watch->cuda, device, previous);
    }
    if (status != DL_OK) {
        dl_nccl_comm_unref(made);
        return status;
    }
    *comm = made;
    return DL_OK;
}

/* A communicator that a thread of its own is making; the caller and that thread have a
 * reference each.  While its call is in progress NCCL reads texts of the configuration
 * and may store the handle, so these lie here and not in a stack frame that may
 * return. */
typedef struct making {
    atomic_uint references;
    dl_nccl_watch *watch;
    dl_nccl_comm *comm;
    dl_nccl_origin origin; /* with copies; without a parent, its watch is `watch` */
    int *excluded;
    dl_device_options options;
    dl_nccl_config config;
    dl_nccl_id *ids;
    int id_count;
    dl_deadline deadline;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    bool is_over;
    bool is_left; /* the caller has returned */
    dl_status status;
    dl_error error;
} making;

static void
making_unref(making *self)
{
    if (dl_reference_drop(&self->references)) {
        dl_nccl_comm_unref(self->origin.parent);
        dl_nccl_watch_unref(self->origin.watch);
        dl_nccl_watch_unref(self->watch);
        pthread_cond_destroy(&self->changed);
        pthread_mutex_destroy(&self->lock);
        free(self->excluded);
        free(self->ids);
        free(self);
    }
}

static dl_status
init_comm(making *self)
{
    const dl_nccl_table *nccl = self->watch->nccl;
    dl_nccl_comm *comm = self->comm;
    bool is_scalable = self->id_count > 1;
    int result =
        is_scalable ? nccl->comm_init_scalable(&comm->handle, comm->size, comm->rank,
                                               self->id_count, self->ids, &self->config)
                    : nccl->comm_init(&comm->handle, comm->size, self->ids[0],
                                      comm->rank, &self->config);

    return dl_nccl_comm_await(self->watch, comm->handle, result,
                              is_scalable ? "ncclCommInitRankScalable"
                                          : "ncclCommInitRankConfig",
                              self->deadline);
}

/* The excluded ranks do not take part, since they may be dead. */
static int
call_shrink(making *self)
{
    const dl_device_split_args *wanted = &self->origin.wanted;

    return self->watch->nccl->comm_shrink(self->origin.parent->handle, self->excluded,
                                          wanted->excluded_count, &self->comm->handle,
                                          &self->config, wanted->flags);
}

/* All ranks of the parent take part, also those that are in no part. */
static int
call_split(making *self)
{
    const dl_device_split_args *wanted = &self->origin.wanted;
    int color = wanted->color < 0 ? DL_NCCL_NO_COLOR : wanted->color;

    return self->watch->nccl->comm_split(self->origin.parent->handle, color,
                                         wanted->key, &self->comm->handle,
                                         &self->config);
}

/* The parent's ranks leave the new numbers to NCCL, and only the first one has the id.
 * As for a split, NCCL returns ncclSuccess before it is done. */
static dl_status
grow_comm(making *self)
{
    dl_nccl_comm *comm = self->comm;
    const dl_nccl_comm *parent = self->origin.parent;
    bool has_id = parent == NULL || comm->rank == 0;
    int result = self->watch->nccl->comm_grow(
        parent == NULL ? NULL : parent->handle, comm->size, has_id ? self->ids : NULL,
        parent == NULL ? comm->rank : -1, &comm->handle, &self->config);

    result = result == DL_NCCL_SUCCESS ? DL_NCCL_IN_PROGRESS : result;
    return dl_nccl_comm_await(self->origin.watch, comm->handle, result, "ncclCommGrow",
                              self->deadline);
}

/* Called with the turn.  A non-blocking parent is in progress until all its ranks have
 * made the call, and stores the new handle only then.  NCCL's calls return
 * ncclSuccess nevertheless, so the parent is asked. */
static dl_status
split_locked(making *self)
{
    bool is_shrinking = self->origin.wanted.way == DL_DEVICE_SHRINK;
    const char *call = is_shrinking ? "ncclCommShrink" : "ncclCommSplit";
    dl_nccl_watch *watch = self->origin.watch;

    if (self->origin.wanted.flags == DL_NCCL_SHRINK_ABORT) {
        dl_nccl_watch_suspend(watch);
    }
    int result = is_shrinking ? call_shrink(self) : call_split(self);
    result = result == DL_NCCL_SUCCESS ? DL_NCCL_IN_PROGRESS : result;
    DL_TRY(dl_nccl_comm_await(watch, self->origin.parent->handle, result, call,
                              self->deadline));
    return self->comm->handle == NULL
               ? DL_OK
               : dl_nccl_comm_await(watch, self->comm->handle, DL_NCCL_IN_PROGRESS,
                                    "creating a subgroup's communicator",
                                    self->deadline);
}

/* Called with the turn.  A failure after NCCL was called fails the parent's group, since
 * its ranks may be in different states, and NCCL may still be inside the parent: what
 * it stores late is freed after that, and what grows, before, which ends NCCL's work. */
static dl_status
break_parent(making *self)
{
    dl_error error = *dl_last_error();
    dl_nccl_comm *comm = self->comm;

    self->comm = NULL;
    if (self->origin.wanted.way != DL_DEVICE_GROW) {
        dl_nccl_watch_adopt(self->origin.watch, comm);
        dl_nccl_watch_fail(self->origin.watch, &error);
    } else {
        dl_nccl_watch_fail(self->origin.watch, &error);
        dl_nccl_comm_free(self->watch, comm, true);
    }
    return dl_rethrow(&error);
}

static dl_status
follow_parent(making *self)
{
    dl_nccl_watch *watch = self->origin.watch;

    DL_TRY(dl_nccl_comm_take_turn(self->origin.parent, self->deadline));
    dl_status status = dl_nccl_watch_admit(watch);
    if (status == DL_OK) {
        status = self->origin.wanted.way == DL_DEVICE_GROW ? grow_comm(self)
                                                           : split_locked(self);
    }
    if (status != DL_OK) {
        status = break_parent(self);
    }
    dl_lane_pass(&self->origin.parent->turn);
    if (status == DL_OK && self->origin.wanted.flags == DL_NCCL_SHRINK_ABORT) {
        dl_fail(DL_CANCELLED, "%s was shrunk, which aborted its pending operations",
                watch->label);
        dl_nccl_watch_fail(watch, dl_last_error());
    }
    return status;
}

static dl_status
call_nccl(making *self)
{
    if (self->origin.parent != NULL) {
        return follow_parent(self);
    }
    return self->origin.wanted.way == DL_DEVICE_GROW ? grow_comm(self)
                                                     : init_comm(self);
}

/* The thread that makes the communicator.  If the caller has returned meanwhile, the
 * communicator is aborted, as on the other ranks, whose groups fail, too. */
static void *
run_making(void *argument)
{
    making *self = argument;
    int previous;

    dl_status status = dl_cuda_enter(self->watch->cuda, self->comm->device, &previous);
    if (status == DL_OK) {
        status = call_nccl(self);
    }
    pthread_mutex_lock(&self->lock);
    self->status = status;
    self->error = *dl_last_error();
    self->is_over = true;
    bool is_left = self->is_left;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (is_left && self->comm != NULL) {
        dl_nccl_comm_free(self->watch, self->comm, true);
    }
    making_unref(self);
    return NULL;
}

static dl_status
await_making(making *self)
{
    dl_deadline deadline = self->deadline;
    dl_status status = DL_OK;

    deadline.at = deadline.limit < 0 ? deadline.at : deadline.at + MARGIN;
    pthread_mutex_lock(&self->lock);
    while (!self->is_over && status == DL_OK) {
        status = dl_condition_wait(&self->changed, &self->lock, deadline);
        if (status == DL_OK && !self->is_over) {
            status = dl_nccl_watch_cause(self->watch);
        }
    }
    self->is_left = !self->is_over;
    bool is_over = self->is_over;
    pthread_mutex_unlock(&self->lock);
    if (is_over) {
        return self->status == DL_OK ? DL_OK : dl_rethrow(&self->error);
    }
    return status == DL_TIMEOUT
               ? dl_fail(DL_TIMEOUT,
                         "NCCL did not return within %" PRId64
                         "ms: a rank that had joined is gone, or NCCL cannot reach it",
                         self->deadline.limit / DL_MILLISECOND)
               : status;
}

/* Runs the making on its thread and waits for it, dropping the caller's reference.
 * `*comm` is the new communicator, or NULL on failure and if this rank is in no
 * part. */
static dl_status
make_comm(making *self, dl_nccl_comm **comm)
{
    pthread_t thread;

    *comm = NULL;
    dl_status status = dl_thread_start(&thread, run_making, self);
    if (status != DL_OK) {
        atomic_store(&self->references, 1);
    } else {
        pthread_detach(thread);
        status = await_making(self);
    }
    dl_error error = *dl_last_error();
    if (self->is_left && self->origin.parent != NULL) {
        dl_error cause = dl_error_for_others();
        dl_nccl_watch_fail(self->origin.watch, &cause);
    }
    if (!self->is_left && self->comm != NULL
        && (status != DL_OK || self->comm->handle == NULL)) {
        dl_nccl_comm_free(self->watch, self->comm, true);
    } else if (status == DL_OK) {
        *comm = self->comm;
    }
    making_unref(self);
    return status == DL_OK ? DL_OK : dl_rethrow(&error);
}

/* Returns how many ids NCCL needs: a large communicator is made from several, but not
 * where the user has chosen the address of ids, since there is one for all. */
static int
count_ids(const dl_nccl_table *nccl, const dl_nccl_rendezvous *place)
{
    int ranks = getenv("NCCL_COMM_ID") == NULL ? place->ranks_per_id : 0;

    switch (place->origin.wanted.way) {
    case DL_DEVICE_MEET:
        return nccl->comm_init_scalable != NULL && ranks > 0
                   ? (place->size + ranks - 1) / ranks
                   : 1;
    case DL_DEVICE_GROW:
        return 1;
    default:
        return 0;
    }
}

/* Copies what the thread needs; NULL if there is no memory. */
static making *
making_new(dl_nccl_watch *watch, const dl_nccl_rendezvous *place, dl_deadline deadline)
{
    const dl_device_split_args *wanted = &place->origin.wanted;
    size_t size = (size_t)wanted->excluded_count * sizeof *wanted->excluded;
    making *self = calloc(1, sizeof *self);
    int *excluded = malloc(size + 1);
    int id_count = count_ids(watch->nccl, place);
    dl_nccl_id *ids = calloc((size_t)id_count + 1, sizeof *ids);

    if (self == NULL || excluded == NULL || ids == NULL) {
        free(self);
        free(excluded);
        free(ids);
        (void)dl_fail_no_memory();
        return NULL;
    }
    atomic_init(&self->references, 2);
    pthread_mutex_init(&self->lock, NULL);
    dl_condition_init(&self->changed);
    self->watch = watch;
    self->origin = place->origin;
    self->ids = ids;
    self->id_count = id_count;
    self->excluded = size == 0 ? excluded : memcpy(excluded, wanted->excluded, size);
    if (self->origin.parent == NULL) {
        self->origin.watch = watch;
    } else {
        dl_reference_take(&self->origin.parent->references);
    }
    dl_reference_take(&self->origin.watch->references);
    dl_reference_take(&watch->references);
    self->options = *place->options;
    self->deadline = deadline;
    fill_config(&self->config, &self->options);
    if (wanted->way == DL_DEVICE_GROW) {
        /* While it blocks, nothing could end a call that waits for a lost rank. */
        self->config.blocking = 0;
    }
    return self;
}

static dl_status
meet_and_make(dl_nccl_watch *watch, const dl_nccl_rendezvous *place,
              dl_deadline deadline, dl_nccl_comm **comm)
{
    making *self = making_new(watch, place, deadline);

    if (self == NULL) {
        return DL_NO_MEMORY;
    }
    dl_status status = DL_OK;
    /* The caller has met the ranks of a shrink, by means that survive the others. */
    if (place->origin.wanted.way != DL_DEVICE_SHRINK) {
        status = dl_nccl_meet(watch, place, deadline, self->ids, self->id_count);
    }
    if (status == DL_OK) {
        status = begin_comm(watch, place->options, place->device, &self->comm);
    }
    if (status != DL_OK) {
        atomic_store(&self->references, 1);
        making_unref(self);
        return status;
    }
    self->comm->rank = place->rank;
    self->comm->size = place->size;
    return make_comm(self, comm);
}

int
dl_nccl_ways(const dl_nccl_table *nccl)
{
    bool can_grow = nccl->comm_id != NULL && nccl->comm_grow != NULL;

    return (nccl->comm_shrink == NULL ? 0 : DL_DEVICE_CAN_SHRINK)
           | (can_grow ? DL_DEVICE_CAN_GROW : 0);
}

static dl_status
check_version(const dl_nccl_table *nccl, dl_device_way way)
{
    int ways = dl_nccl_ways(nccl);
    char found[32];

    dl_nccl_version_text(nccl->version, found, sizeof found);
    if (way == DL_DEVICE_SHRINK && (ways & DL_DEVICE_CAN_SHRINK) == 0) {
        return dl_fail(DL_UNSUPPORTED,
                       "shrinking a group needs NCCL 2.27 or newer; this is %s", found);
    }
    return way == DL_DEVICE_GROW && (ways & DL_DEVICE_CAN_GROW) == 0
               ? dl_fail(DL_UNSUPPORTED,
                         "growing a group needs NCCL 2.29.2 or newer; this is %s",
                         found)
               : DL_OK;
}

/* A split leaves it to the parent's operations to notice lost ranks. */
dl_status
dl_nccl_comm_make(dl_nccl_watch *watch, const dl_nccl_rendezvous *place,
                  dl_deadline deadline, dl_nccl_comm **comm)
{
    static const char *const doing[] = {"creating", "splitting", "shrinking",
                                        "growing"};
    dl_device_way way = place->origin.wanted.way;
    dl_nccl_expected expected = {
        .peer = place->members == NULL ? DL_ANY_RANK : place->members[1 - place->rank]};

    *comm = NULL;
    DL_TRY(check_version(watch->nccl, way));
    if (way != DL_DEVICE_SPLIT) {
        dl_nccl_watch_expect(watch, &expected);
    }
    dl_status status = meet_and_make(watch, place, deadline, comm);
    if (way != DL_DEVICE_SPLIT) {
        dl_nccl_watch_unexpect(&expected);
    }
    return status == DL_OK ? DL_OK
                           : dl_fail_while("%s the NCCL communicator of %s on cuda:%d",
                                           doing[way], watch->label, place->device);
}
