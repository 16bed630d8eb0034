/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays on a device by UCC, with the doubles of both libraries. */
#include "device_groups.h"

#include <dlfcn.h>

#include "base/interrupt.h"

/* Of arrays in CUDA memory, which is the host's with the doubles. */
static void
add_up_on_device(int rank, int size, void *context)
{
    dl_group *group = join_device_group("device", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {rank, 10, rank * rank};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 3), .reduction = DL_SUM};
    dl_work *works[4];

    (void)context;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_EQUAL(data[0], size * (size - 1) / 2);
    CHECK_EQUAL(data[1], 10 * size);
    for (int i = 0; i < 4; i++) {
        works[i] = begin_sum(group, data, 1);
    }
    for (int i = 3; i >= 0; i--) {
        CHECK_OK(dl_work_wait(works[i], soon()));
        dl_work_unref(works[i]);
    }
    CHECK_EQUAL(data[0], size * (size - 1) / 2 * size * size * size * size);
    args.reduction = DL_PREMUL_SUM;
    args.tensor.dtype = DL_FLOAT64;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_UNSUPPORTED);
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
}

CHECK_CASE(ranks_add_up_on_a_device)
{
    device_engine = "ucc";
    run_ranks(2, add_up_on_device);
}

static void *
end_in_thread(void *group)
{
    end_group(group);
    return NULL;
}

/* The group's memory and streams are on device 1, and end on a thread that has used no
 * device, so that 0 is its current one. */
static void
use_the_second_device(int rank, int size, void *context)
{
    dl_group *group = join_device_group("second", rank, size, GROUP_PATIENCE);
    int64_t data[2] = {rank, 1};
    pthread_t thread;
    dl_call args = {
        .op = DL_REDUCE, .tensor = device_tensor(data, 2), .reduction = DL_SUM};

    (void)context;
    args.tensor.device_index = 1;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_EQUAL(data[1], rank == 0 ? size : 1);
    CHECK_EQUAL(pthread_create(&thread, NULL, end_in_thread, group), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

CHECK_CASE(a_group_makes_no_context_on_other_devices)
{
    int (*contexts)(int);

    device_engine = "ucc";
    run_ranks(2, use_the_second_device);
    *(void **)&contexts =
        dlsym(dlopen(getenv("DISTLITE_CUDART_LIBRARY"), RTLD_NOW), "double_contexts");
    CHECK(contexts(1) > 0);
    CHECK_EQUAL(contexts(0), 0);
}

/* What is under way on a device ends with its group, and with an abort. */
static void
break_off(int rank, int size, void *context)
{
    dl_group *group = join_device_group("abort", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {rank};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 3), .reduction = DL_SUM};

    (void)context;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 0) {
        dl_work *work = begin_sum(group, data, 1);
        dl_group_abort(group, "enough");
        CHECK_STATUS(dl_work_wait(work, soon()), DL_CANCELLED);
        CHECK_CONTAINS(dl_last_error()->text, "enough");
        dl_work_unref(work);
    }
    dl_group_close(group);
    dl_group_unref(group);
}

CHECK_CASE(an_abort_ends_what_is_under_way_on_a_device)
{
    device_engine = "ucc";
    run_ranks(2, break_off);
}

static dl_status
see_meeting(void *context, dl_bytes key)
{
    *(bool *)context = *(bool *)context || memmem(key.data, key.size, "devices", 7);
    return DL_OK;
}

/* Rank 0's first operation meets the ranks on a device when its group is aborted: its
 * backend, which is made after that, notifies rank 1. */
static void
abort_early(int rank, int size, void *context)
{
    dl_group *group = join_device_group("early", rank, size, GROUP_PATIENCE);
    int64_t data[1] = {rank};
    bool is_meeting = false;
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 1), .reduction = DL_SUM};
    dl_work *work = NULL;

    (void)context;
    if (rank == 0) {
        work = begin_sum(group, data, 1);
        while (!is_meeting) {
            CHECK_OK(dl_store_list_keys(store, see_meeting, &is_meeting, soon()));
            sched_yield();
        }
        dl_group_abort(group, "enough");
    }
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("aborted"), size, soon()));
    if (rank == 0) {
        CHECK_STATUS(dl_work_wait(work, soon()), DL_CANCELLED);
        CHECK_CONTAINS(dl_last_error()->text, "enough");
        dl_work_unref(work);
    } else {
        CHECK(dl_group_run(group, &args, soon()) != DL_OK);
        CHECK_CONTAINS(dl_last_error()->text, "enough");
    }
    dl_group_close(group);
    dl_group_unref(group);
}

CHECK_CASE(an_abort_before_the_ranks_have_met_is_not_lost)
{
    device_engine = "ucc";
    run_ranks(2, abort_early);
}

static _Thread_local bool is_interrupted;

static dl_status
interrupt(void)
{
    return is_interrupted ? dl_fail(DL_INTERRUPTED, "interrupted by the test") : DL_OK;
}

/* An interrupt belongs to the call that it ends: later calls fail because the group is
 * broken. */
static void
be_interrupted(int rank, int size, void *context)
{
    dl_group *group = join_device_group("interrupt", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {rank};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 3), .reduction = DL_SUM};

    (void)context;
    CHECK_OK(dl_group_run(group, &args, soon()));
    CHECK_OK(dl_group_barrier(group, soon()));
    if (rank == 0) {
        is_interrupted = true;
        /* The waiting thread may carry out the operation itself, or wait for another. */
        CHECK(dl_group_run(group, &args, soon()) != DL_OK);
        is_interrupted = false;
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(dl_group_run(group, &args, soon()), DL_CANCELLED);
            CHECK_CONTAINS(dl_last_error()->text, "is broken: ");
            CHECK_CONTAINS(dl_last_error()->text, "interrupted");
        }
    }
    /* Rank 1 stays until then. */
    CHECK_OK(dl_store_barrier(store, DL_LITERAL("over"), size, soon()));
    dl_group_close(group);
    dl_group_unref(group);
}

CHECK_CASE(an_interrupt_does_not_fail_later_calls)
{
    device_engine = "ucc";
    dl_interrupt_install(interrupt);
    run_ranks(2, be_interrupted);
    dl_interrupt_install(NULL);
}
