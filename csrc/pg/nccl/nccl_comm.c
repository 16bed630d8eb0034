/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

/* Between two looks at a communicator that is busy. */
#define LOOK_EVERY (200 * INT64_C(1000))

dl_status
dl_nccl_check(const dl_nccl_table *nccl, int result, const char *call)
{
    if (result == DL_NCCL_SUCCESS) {
        return DL_OK;
    }
    const char *detail = nccl->last_error(NULL);
    bool has_detail = detail != NULL && detail[0] != '\0';
    return dl_fail(DL_BACKEND, "%s: %s (result %d)%s%s; NCCL_DEBUG=WARN says more",
                   call, nccl->error_text(result), result, has_detail ? ": " : "",
                   has_detail ? detail : "");
}

dl_status
dl_nccl_comm_settle(dl_nccl_watch *watch, void *handle, int result, const char *call,
                    dl_deadline deadline)
{
    while (result == DL_NCCL_IN_PROGRESS) {
        if (dl_deadline_passed(deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "%s did not end within %" PRId64 "ms in %s: a rank did not "
                           "come, or NCCL cannot reach it",
                           call, deadline.limit / DL_MILLISECOND, watch->label);
        }
        DL_TRY(dl_sleep_until(dl_deadline_sooner(deadline, LOOK_EVERY)));
        DL_TRY(dl_nccl_watch_cause(watch));
        int asked = watch->nccl->comm_error(handle, &result);
        result = asked == DL_NCCL_SUCCESS ? result : asked;
    }
    return dl_nccl_check(watch->nccl, result, call);
}

/* As torch reads its switches: any text but "0" is a yes. */
static bool
is_switched_on(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* Unset fields stay what NCCL, or its own variables, make of them. */
static void
fill_config(dl_nccl_config *config, const dl_device_options *options)
{
    dl_nccl_config_init(config);
    if (options->is_given) {
        config->blocking = options->blocking;
        config->cga_cluster_size = options->cga_cluster_size;
        config->min_ctas = options->min_ctas;
        config->max_ctas = options->max_ctas;
        config->split_share = options->split_share;
        config->traffic_class = options->traffic_class;
        config->collnet_enable = options->collnet_enable;
        config->cta_policy = options->cta_policy;
        config->shrink_share = options->shrink_share;
        config->nvls_ctas = options->nvls_ctas;
        config->net_name = options->net_name[0] == '\0' ? NULL : options->net_name;
        config->comm_name = options->comm_name[0] == '\0' ? NULL : options->comm_name;
    }
    if (config->blocking == INT_MIN
        && is_switched_on("TORCH_NCCL_USE_COMM_NONBLOCKING")) {
        config->blocking = 0;
    }
}

/* On the watch's thread, or before the communicator is anybody's: NCCL may hang in any of
 * these calls when a peer is gone. */
void
dl_nccl_comm_free(dl_nccl_watch *watch, dl_nccl_comm *comm, bool is_aborted)
{
    if (comm->handle != NULL && is_aborted) {
        watch->nccl->comm_abort(comm->handle);
    } else if (comm->handle != NULL) {
        int result = watch->nccl->comm_finalize(comm->handle);
        /* What it ends with does not matter: it is destroyed in any case. */
        dl_nccl_comm_settle(watch, comm->handle, result, "ncclCommFinalize",
                            dl_deadline_after(DL_SECOND));
        watch->nccl->comm_destroy(comm->handle);
    }
    if (comm->stream != NULL) {
        watch->cuda->stream_destroy(comm->stream);
    }
    free(comm);
}

/* A stream of its own, so that communication overlaps with what the program computes; one
 * that does not block, or the default stream would wait for it. */
static dl_status
open_stream(dl_nccl_watch *watch, const dl_device_options *options, dl_nccl_comm *comm)
{
    const dl_cuda_table *cuda = watch->cuda;
    int least = 0;
    int greatest = 0;

    DL_TRY(dl_cuda_check(cuda, cuda->priority_range(&least, &greatest),
                         "cudaDeviceGetStreamPriorityRange"));
    bool is_high =
        options->is_high_priority_stream || is_switched_on("TORCH_NCCL_HIGH_PRIORITY");
    return dl_cuda_check(cuda,
                         cuda->stream_create(&comm->stream, DL_CUDA_STREAM_NON_BLOCKING,
                                             is_high ? greatest : least),
                         "cudaStreamCreateWithPriority");
}

static dl_status
begin_comm(dl_nccl_watch *watch, const dl_device_options *options, int device,
           dl_nccl_comm **comm)
{
    dl_nccl_comm *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->device = device;
    dl_status status = open_stream(watch, options, made);
    if (status != DL_OK) {
        made->stream = NULL;
        dl_nccl_comm_free(watch, made, true);
        return status;
    }
    *comm = made;
    return DL_OK;
}

static dl_status
init_comm(dl_nccl_watch *watch, const dl_nccl_meeting *meeting, dl_deadline deadline,
          dl_nccl_comm *comm)
{
    /* Zeroed: old libraries leave what was there. */
    dl_nccl_id id = {{0}};
    dl_nccl_config config;

    fill_config(&config, meeting->options);
    DL_TRY(dl_nccl_meet(watch, meeting, deadline, &id));
    void *handle = NULL;
    int result =
        watch->nccl->comm_init(&handle, meeting->size, id, meeting->rank, &config);
    comm->handle = handle;
    comm->rank = meeting->rank;
    comm->size = meeting->size;
    return dl_nccl_comm_settle(watch, handle, result, "ncclCommInitRankConfig",
                               deadline);
}

dl_status
dl_nccl_comm_meet(dl_nccl_watch *watch, const dl_nccl_meeting *meeting,
                  dl_deadline deadline, dl_nccl_comm **comm)
{
    dl_nccl_comm *made;

    DL_TRY(begin_comm(watch, meeting->options, meeting->device, &made));
    dl_status status = init_comm(watch, meeting, deadline, made);
    if (status != DL_OK) {
        dl_nccl_comm_free(watch, made, true);
        return dl_fail_while("making the NCCL communicator of %s on cuda:%d",
                             watch->label, meeting->device);
    }
    *comm = made;
    return DL_OK;
}

/* Without those excluded, who may be dead: that is what it is for. */
static dl_status
shrink(dl_nccl_watch *watch, const dl_nccl_parting *parting, void **handle,
       dl_nccl_config *config)
{
    char found[32];

    if (watch->nccl->comm_shrink == NULL) {
        dl_nccl_version_text(watch->nccl->version, found, sizeof found);
        return dl_fail(DL_UNSUPPORTED,
                       "shrinking a group needs NCCL 2.27 or newer; this is %s", found);
    }
    /* NCCL takes the list as writable, and leaves it as it is. */
    int result = watch->nccl->comm_shrink(
        parting->parent->handle, (int *)(uintptr_t)parting->excluded,
        parting->excluded_count, handle, config, parting->flags);
    return result == DL_NCCL_IN_PROGRESS
               ? DL_OK
               : dl_nccl_check(watch->nccl, result, "ncclCommShrink");
}

/* All ranks of the parent take part, also those that go nowhere. */
static dl_status
split(dl_nccl_watch *watch, const dl_nccl_parting *parting, void **handle,
      dl_nccl_config *config)
{
    int color = parting->color < 0 ? DL_NCCL_NO_COLOR : parting->color;
    int result = watch->nccl->comm_split(parting->parent->handle, color, parting->key,
                                         handle, config);

    return result == DL_NCCL_IN_PROGRESS
               ? DL_OK
               : dl_nccl_check(watch->nccl, result, "ncclCommSplit");
}

/* A parent that does not block is busy until all its ranks have called this. */
static dl_status
part_comm(dl_nccl_watch *watch, const dl_nccl_parting *parting, dl_deadline deadline,
          dl_nccl_comm *comm)
{
    bool is_member = parting->is_shrinking || parting->color >= 0;
    dl_nccl_config config;
    void *handle = NULL;

    fill_config(&config, parting->options);
    dl_status status =
        (parting->is_shrinking ? shrink : split)(watch, parting, &handle, &config);
    comm->handle = handle;
    if (status == DL_OK) {
        status =
            dl_nccl_comm_settle(watch, parting->parent->handle, DL_NCCL_IN_PROGRESS,
                                "parting a communicator", deadline);
    }
    if (status == DL_OK && is_member) {
        status = dl_nccl_comm_settle(watch, handle, DL_NCCL_IN_PROGRESS,
                                     "making a part's communicator", deadline);
    }
    return status;
}

dl_status
dl_nccl_comm_part(dl_nccl_watch *watch, const dl_nccl_parting *parting,
                  dl_deadline deadline, dl_nccl_comm **comm)
{
    dl_nccl_comm *made;

    DL_TRY(begin_comm(watch, parting->options, parting->parent->device, &made));
    dl_status status = DL_OK;
    if (parting->meeting != NULL) {
        status = dl_nccl_meet(watch, parting->meeting, deadline, NULL);
    }
    if (status == DL_OK) {
        status = part_comm(watch, parting, deadline, made);
    }
    if (status != DL_OK || made->handle == NULL) {
        dl_nccl_comm_free(watch, made, true);
        *comm = NULL;
        return status == DL_OK
                   ? DL_OK
                   : dl_fail_while("parting the NCCL communicator of %s", watch->label);
    }
    *comm = made;
    return DL_OK;
}
