/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups whose arrays on devices are served by the doubles of the CUDA runtime and of
 * NCCL or gloo.  Ranks are threads. */
#ifndef DISTLITE_TESTS_DEVICE_GROUPS_H
#define DISTLITE_TESTS_DEVICE_GROUPS_H

#include "groups.h"
#include "pg/device/device.h"
#include "store/prefix_store.h"

/* State of the running case. */
static dl_store *store;
static const char *device_engine = "nccl";

DL_CHECK_UNUSED static dl_group *
join_device_group(const char *name, int rank, int size, int64_t timeout)
{
    dl_group_options options = {
        .name = name, .backend = "cpu", .rank = rank, .size = size, .timeout = timeout};
    dl_device_options unset = {0};
    dl_group *group = NULL;
    dl_store *own;

    CHECK_OK(dl_prefix_store_new(dl_bytes_of(name), store, &own));
    CHECK_OK(dl_group_new(&options, own, &group));
    dl_store_unref(own);
    CHECK_OK(dl_device_serve(group, device_engine, &unset));
    return group;
}

DL_CHECK_UNUSED static dl_tensor
device_tensor(void *data, size_t count)
{
    dl_tensor tensor = tensor_of(data, count, DL_INT64);

    tensor.device = DL_CUDA;
    return tensor;
}

DL_CHECK_UNUSED static dl_work *
begin_sum(dl_group *group, int64_t *data, size_t count)
{
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, count), .reduction = DL_SUM};
    dl_work *work = NULL;

    CHECK_OK(dl_group_submit(group, &args, dl_group_deadline(group), &work));
    return work;
}

/* Runs a first operation on all ranks, so that later ones need not connect
 * and do not block. */
DL_CHECK_UNUSED static void
warm_up(dl_group *group)
{
    int64_t data = 1;
    dl_work *work = begin_sum(group, &data, 1);

    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
}

DL_CHECK_UNUSED static void
run_ranks(int size, dl_rank_fn run)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(size, run, NULL);
    dl_store_unref(store);
}

#endif
