/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations on devices as they are compared at DETAIL, and as they are recorded. */
#include "base/log.h"
#include "base/thread.h"
#include "device_groups.h"
#include "pg/device/device_state.h"
#include "pg/group_state.h"
#include "pg/record/recorder.h"
#include "pg/record/recording.h"
#include "store_calls.h"

static void
run_detailed(int size, dl_rank_fn run)
{
    dl_debug_level_set(DL_DEBUG_DETAIL);
    run_ranks(size, run);
}

static void
note_line(int line)
{
    dl_recorder_site = dl_recorder_add_site("train.py", "step", line);
}

static void
finish_sum(dl_group *group, int64_t *data, size_t count)
{
    dl_work *work = begin_sum(group, data, count);

    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
}

/* Single ones, messages, and a part made out of a wrapped group. */
static void
call_alike(int rank, int size, void *context)
{
    dl_group *group = join_device_group("d", rank, size, GROUP_PATIENCE);
    dl_device_split_args parting = {.color = 0, .key = rank};
    int64_t data[2] = {rank, 1};
    dl_call message = {.tensor = device_tensor(data, 2), .peer = 1 - rank};
    dl_work *work;

    (void)context;
    finish_sum(group, data, 2);
    CHECK_EQUAL(data[1], size);
    CHECK_OK(post_as(group, rank == 0 ? DL_SEND : DL_RECV, &message, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    dl_group *part = join_device_group("part", rank, size, GROUP_PATIENCE);
    CHECK_OK(dl_device_split(group, &parting, soon(), part));
    finish_sum(part, data, 2);
    CHECK_EQUAL(data[1], size * size);
    end_group(part);
    end_group(group);
}

CHECK_CASE(equal_calls_of_all_ranks_pass)
{
    run_detailed(2, call_alike);
}

/* The first item of the batch is the same on both, the second is not. */
static void
call_differently(int rank, int size, void *context)
{
    dl_group *group = join_device_group("d", rank, size, GROUP_PATIENCE);
    int64_t data[3] = {rank, rank, rank};
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM};
    dl_work *work;

    (void)context;
    finish_sum(group, data, 1);
    data[0] = rank;
    CHECK_OK(dl_device_batch_begin(group, soon()));
    for (int i = 0; i < 2; i++) {
        note_line(10 * i + rank);
        args.tensor = device_tensor(data, i == 0 ? 1 : 2 + (size_t)rank);
        CHECK_OK(dl_group_submit(group, &args, soon(), &work));
    }
    note_line(77);
    CHECK_STATUS(dl_device_batch_end(group, false, soon(), &work), DL_MISMATCH);
    const char *text = dl_last_error()->text;
    CHECK_CONTAINS(text, "Detected mismatch between collectives on ranks");
    CHECK_CONTAINS(text, "Tensor shapes: [2] vs [3]");
    CHECK_CONTAINS(text, "operation 3 of group d (nccl), nothing was sent");
    CHECK_CONTAINS(text, "at train.py:10 in step");
    CHECK_CONTAINS(text, "at train.py:11 in step");
    CHECK_EQUAL(data[0], rank);
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_MISMATCH);
    end_group(group);
}

CHECK_CASE(a_mismatch_is_reported_before_anything_is_sent)
{
    run_detailed(2, call_differently);
}

CHECK_CASE(a_batch_excludes_calls_that_it_could_not_keep)
{
    int64_t data = 1;
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(&data, 1), .reduction = DL_SUM};
    dl_work *work;
    long number = 0;
    bool has_failed;

    dl_debug_level_set(DL_DEBUG_DETAIL);
    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_device_group("d", 0, 1, GROUP_PATIENCE);
    do {
        CHECK_OK(dl_device_batch_begin(group, soon()));
        dl_check_fail_allocation_at(++number);
        dl_status status = dl_group_submit(group, &args, soon(), &work);
        has_failed = dl_check_allocation_failed();
        CHECK_EQUAL(status, has_failed ? DL_NO_MEMORY : DL_OK);
        CHECK_EQUAL(group->device->batch_count, has_failed ? 0 : 1);
        CHECK_OK(dl_device_batch_end(group, true, soon(), &work));
    } while (has_failed);
    CHECK(number > 2);
    end_group(group);
    dl_store_unref(store);
}

/* Rank 1 never comes to the second; rank 0 would otherwise learn nothing before NCCL's
 * own timeout, and not where rank 1 was last. */
static void
stay_away(int rank, int size, void *context)
{
    dl_group *group = join_device_group("d", rank, size, GROUP_PATIENCE);
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM};
    int64_t data = rank;

    (void)context;
    note_line(40 + rank);
    finish_sum(group, &data, 1);
    if (rank == 0) {
        dl_work *work;
        args.tensor = device_tensor(&data, 1);
        CHECK_STATUS(dl_group_submit(group, &args,
                                     dl_deadline_after(200 * DL_MILLISECOND), &work),
                     DL_TIMEOUT);
        CHECK_CONTAINS(dl_last_error()->text, "Ranks 1 failed to pass");
        CHECK_CONTAINS(dl_last_error()->text, "was last in operation 1");
        CHECK_CONTAINS(dl_last_error()->text, "at train.py:41 in step");
    }
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("over"), size, soon()));
    end_group(group);
}

CHECK_CASE(a_rank_that_does_not_come_is_named)
{
    run_detailed(2, stay_away);
}

/* Rank 1 is gone for good, which the CPU's side knows. */
static void
leave(int rank, int size, void *context)
{
    dl_group *group = join_device_group("d", rank, size, GROUP_PATIENCE);
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM};
    int64_t data = rank;

    (void)context;
    finish_sum(group, &data, 1);
    if (rank == 0) {
        args.tensor = device_tensor(&data, 1);
        int64_t begun = dl_now();
        CHECK(dl_group_run(group, &args, soon()) != DL_OK);
        CHECK(dl_now() - begun < GROUP_PATIENCE / 2);
        CHECK_CONTAINS(dl_last_error()->text, "rank 1");
    }
    end_group(group);
}

CHECK_CASE(a_rank_that_has_left_is_not_waited_for)
{
    run_detailed(2, leave);
}

/* The rows of operations on devices in this process, by state. */
static int
count_rows(uint64_t state, uint64_t status)
{
    dl_recording_header header;
    dl_buffer copy = {0};
    int count = 0;

    CHECK_OK(dl_recorder_snapshot(&copy));
    CHECK(dl_recording_check(copy.data, copy.size, &header));
    dl_recording tables = dl_recording_at(copy.data, &header);
    for (uint64_t i = 0; i < header.record_count; i++) {
        uint64_t what = atomic_load(&tables.records[i].what);
        uint64_t serial = atomic_load(&tables.records[i].place) & UINT32_MAX;
        for (uint64_t k = 0; serial > 0 && k < header.group_count; k++) {
            const dl_recorded_group *group = &tables.groups[k];
            uint64_t backend = atomic_load(&group->backend[0]);
            count += atomic_load(&group->serial) == serial
                     && memcmp(&backend, "nccl", 5) == 0
                     && dl_record_state(what) == state
                     && dl_record_status(what) == status;
        }
    }
    dl_buffer_fini(&copy);
    return count;
}

/* A row ends shortly after the waits for its work. */
static void
check_rows(uint64_t state, uint64_t status, int count)
{
    dl_deadline deadline = soon();

    while (count_rows(state, status) != count && !dl_deadline_passed(deadline)) {
        dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    CHECK_EQUAL(count_rows(state, status), count);
}

CHECK_CASE(rows_begin_with_the_call_and_end_with_the_event)
{
    int64_t data[2] = {1, 2};
    dl_call args = {
        .op = DL_ALL_REDUCE, .tensor = device_tensor(data, 2), .reduction = DL_SUM};
    dl_work *work;

    CHECK_OK(dl_hash_store_new(&store));
    dl_group *group = join_device_group("r", 0, 1, GROUP_PATIENCE);
    finish_sum(group, data, 2);
    check_rows(DL_RECORD_ENDED, DL_OK, 1);
    CHECK_OK(dl_device_batch_begin(group, soon()));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dl_group_submit(group, &args, soon(), &work));
    }
    check_rows(DL_RECORD_QUEUED, 0, 3);
    CHECK_OK(dl_device_batch_end(group, false, soon(), &work));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
    check_rows(DL_RECORD_ENDED, DL_OK, 4);
    CHECK_OK(dl_device_batch_begin(group, soon()));
    CHECK_OK(dl_group_submit(group, &args, soon(), &work));
    CHECK_OK(dl_device_batch_end(group, true, soon(), &work));
    check_rows(DL_RECORD_ENDED, DL_CANCELLED, 1);
    check_rows(DL_RECORD_RUNNING, 0, 0);
    end_group(group);
    dl_store_unref(store);
}

/* Rank 1 does not come: rank 0's row says that it is in it, and then how that ended. */
static void
wait_in_vain(int rank, int size, void *context)
{
    dl_group *group = join_device_group("late", rank, size, GROUP_PATIENCE);
    int64_t data = 1;

    (void)context;
    warm_up(group);
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("warm"), size, soon()));
    dl_group_set_timeout(group, 500 * DL_MILLISECOND);
    if (rank == 0) {
        dl_work *work = begin_sum(group, &data, 1);
        check_rows(DL_RECORD_RUNNING, 0, 1);
        CHECK(!dl_recorder_take_failure());
        CHECK_STATUS(dl_work_wait(work, soon()), DL_TIMEOUT);
        dl_work_unref(work);
        check_rows(DL_RECORD_ENDED, DL_TIMEOUT, 1);
        CHECK(dl_recorder_take_failure());
    }
    CHECK_OK(dl_store_barrier(store, dl_bytes_of("over"), size, soon()));
    end_group(group);
}

CHECK_CASE(an_operation_that_hangs_is_seen_from_outside)
{
    run_ranks(2, wait_in_vain);
}
