/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "pg/label.h"
#include "pg/nccl/nccl_comm.h"
#include "pg/nccl/nccl_state.h"

/* Parts the communicator with the parent's device current, and gives the child's share
 * to `child` (NULL if it has no backend of ours).  NCCL orders the ranks of a part by
 * their keys, which is the order of the child's ranks. */
static dl_status
part_entered(dl_nccl_backend *self, const dl_device_split_args *wanted,
             dl_deadline deadline, dl_nccl_backend *child)
{
    char key[48];
    dl_nccl_meeting meeting = {
        .store = self->store, .key = key, .rank = self->rank, .size = self->size};
    dl_nccl_split_args args = {
        .parent = self->comm,
        .meeting = wanted->is_shrinking ? NULL : &meeting,
        .is_shrinking = wanted->is_shrinking,
        /* A part without a backend of ours needs no communicator. */
        .color = child == NULL ? -1 : wanted->color,
        .key = wanted->key,
        .excluded = wanted->excluded,
        .excluded_count = wanted->excluded_count,
        .flags = wanted->flags,
        .options = child == NULL ? &self->options : &child->options,
    };
    dl_nccl_comm *made;

    if (wanted->is_shrinking && child == NULL) {
        return DL_OK;
    }
    snprintf(key, sizeof key, "nccl/split/%" PRIu64, self->splits);
    self->splits += wanted->is_shrinking ? 0 : 1;
    DL_TRY(dl_nccl_comm_split(self->watch, &args, deadline, &made));
    if (made == NULL) {
        return DL_OK;
    }
    made->rank = child->rank;
    made->size = child->size;
    DL_TRY(dl_nccl_watch_comm(child->watch, made));
    child->comm = made;
    return DL_OK;
}

/* A parent without a communicator has nothing to part: each part then makes its own.
 * All ranks are in the same state here, since making a communicator needs all of
 * them. */
static dl_status
split(dl_device_backend *backend, const dl_device_split_args *wanted,
      dl_deadline deadline, dl_device_backend *child)
{
    dl_nccl_backend *self = dl_nccl_self(backend);
    int previous;

    if (self->comm == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_nccl_watch_admit(self->watch));
    /* A child that another backend serves connects by itself. */
    bool is_ours = child != NULL && child->ops == backend->ops;
    DL_TRY(dl_cuda_enter(self->cuda, self->comm->device, &previous));
    dl_status status =
        part_entered(self, wanted, deadline, is_ours ? dl_nccl_self(child) : NULL);
    dl_cuda_leave(self->cuda, self->comm->device, previous);
    return status;
}

static void
abort_backend(dl_device_backend *backend, const dl_error *cause)
{
    dl_nccl_watch_fail(dl_nccl_self(backend)->watch, cause);
}

static void
leave_backend(dl_device_backend *backend)
{
    dl_nccl_watch_leave(dl_nccl_self(backend)->watch);
}

/* In a forked child neither the watch's thread nor the device's context exists: it
 * leaves the watch and the communicators as they are. */
static void
free_backend(dl_device_backend *backend)
{
    dl_nccl_backend *self = dl_nccl_self(backend);

    if (self->watch != NULL && self->fork_generation == dl_fork_generation()) {
        dl_nccl_watch_free(self->watch);
        dl_nccl_comm_unref(self->comm);
        for (int peer = 0; peer < self->size; peer++) {
            dl_nccl_comm_unref(self->pairs[peer]);
        }
    }
    dl_store_unref(self->store);
    free(self->pairs);
    free(self);
}

static int
device_of(const dl_device_backend *backend)
{
    const dl_nccl_backend *self = (const dl_nccl_backend *)(const void *)backend;

    return self->comm == NULL ? -1 : self->comm->device;
}

static const dl_device_ops nccl_ops = {
    .name = "nccl",
    .device = device_of,
    .enqueue = dl_nccl_enqueue,
    .split = split,
    .connect = dl_nccl_connect,
    .abort = abort_backend,
    .leave = leave_backend,
    .free = free_backend,
};

/* NCCL_TIMEOUT is in seconds; -1 if it is not set.  One that is too long for the clock,
 * such as "inf", never passes. */
static int64_t
limit_from_environment(void)
{
    const char *text = getenv("NCCL_TIMEOUT");
    double limit = text == NULL ? 0 : strtod(text, NULL) * (double)DL_SECOND;

    return !(limit > 0) ? -1 : limit < (double)INT64_MAX ? (int64_t)limit : INT64_MAX;
}

static dl_status
open_backend(dl_nccl_backend *self, const dl_device_backend_options *options)
{
    DL_TRY(dl_nccl_load(&self->nccl));
    DL_TRY(dl_cuda_load(&self->cuda));
    self->pairs = calloc((size_t)options->size, sizeof *self->pairs);
    if (self->pairs == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_nccl_watch_new(
        self->nccl, self->cuda,
        dl_label_new(options->group_name, options->rank, options->size), &self->watch));
    dl_nccl_watch_ask(self->watch, options->lost, options->context);
    return DL_OK;
}

dl_status
dl_nccl_backend_new(const dl_device_backend_options *options,
                    dl_device_backend **backend)
{
    dl_nccl_backend *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &nccl_ops;
    self->store = dl_store_ref(options->store);
    self->rank = options->rank;
    self->size = options->size;
    self->options = *options->options;
    self->limit = limit_from_environment();
    self->fork_generation = dl_fork_generation();
    dl_status status = open_backend(self, options);
    if (status != DL_OK) {
        free_backend(&self->base);
        return status;
    }
    *backend = &self->base;
    return DL_OK;
}

dl_status
dl_nccl_version(int *version)
{
    const dl_nccl_table *nccl;

    DL_TRY(dl_nccl_load(&nccl));
    *version = nccl->version;
    return DL_OK;
}

dl_status
dl_nccl_device_of(const void *data, int *device)
{
    const dl_cuda_table *cuda;
    dl_cuda_pointer attributes = {0};

    DL_TRY(dl_cuda_load(&cuda));
    if (data == NULL) {
        /* An empty array, which has no memory on any device. */
        return dl_cuda_check(cuda, cuda->get_device(device), "cudaGetDevice");
    }
    DL_TRY(dl_cuda_check(cuda, cuda->pointer_attributes(&attributes, data),
                         "cudaPointerGetAttributes"));
    *device = attributes.device;
    return DL_OK;
}
