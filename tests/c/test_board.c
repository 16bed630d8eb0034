/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/interrupt.h"
#include "boards.h"

#define CHUNK 1024

static test_boards all;

/* Arrives in operation `sequence` as rank `rank`. */
static dl_status
arrive(int rank, uint64_t sequence, dl_op_type op, int64_t limit)
{
    static _Thread_local dl_op_context context;

    context = test_op(sequence, op, limit);
    dl_board_begin(&all.boards[rank], &context);
    return dl_board_arrive(&all.boards[rank]);
}

static void
check_payloads(int rank, int size, void *unused)
{
    dl_board *board = &all.boards[rank];

    (void)unused;
    for (uint64_t sequence = 1; sequence <= 500; sequence++) {
        dl_op_context op = test_op(sequence, DL_BARRIER, 10 * DL_SECOND);
        memset(dl_board_begin(board, &op), (int)sequence + rank, DL_BOARD_PAYLOAD);
        CHECK_OK(dl_board_arrive(board));
        for (int peer = 0; peer < size; peer++) {
            const uint8_t *payload = dl_board_payload(board, peer);
            CHECK_EQUAL(payload[0], (uint8_t)(sequence + (uint64_t)peer));
            CHECK_EQUAL(payload[DL_BOARD_PAYLOAD - 1], payload[0]);
        }
    }
}

CHECK_CASE(payloads_ride_on_lines)
{
    for (int size = 2; size <= 5; size++) {
        boards_init(&all, size, CHUNK, size == 2);
        dl_run_ranks(size, check_payloads, NULL);
        boards_fini(&all);
    }
}

CHECK_CASE(lines_and_slots_do_not_touch)
{
    boards_init(&all, 3, CHUNK, false);
    dl_op_context op = test_op(1, DL_BARRIER, 0);
    for (int rank = 0; rank < 3; rank++) {
        dl_board_begin(&all.boards[rank], &op);
        for (uint64_t round = 0; round < 2; round++) {
            memset(dl_board_slot(&all.boards[rank], rank, round, CHUNK), 1 + rank,
                   CHUNK);
        }
    }
    for (int rank = 0; rank < 3; rank++) {
        for (uint64_t round = 0; round < 4; round++) {
            const uint8_t *slot = dl_board_slot(&all.boards[0], rank, round, CHUNK);
            CHECK(slot[0] == 1 + rank && slot[CHUNK - 1] == 1 + rank);
            CHECK(slot == dl_board_slot(&all.boards[2], rank, round + 2, CHUNK));
        }
        CHECK_EQUAL(dl_board_payload(&all.boards[0], rank)[0], 0);
        CHECK_EQUAL((uintptr_t)dl_board_slot(&all.boards[0], rank, 0, CHUNK) % DL_LINE,
                    0);
    }
    boards_fini(&all);
}

/* Returns the number of different places that the first slot of rank 1 has in `count`
 * operations of two rounds of `size` bytes. */
static int
count_places(size_t size, size_t chunk, int count)
{
    bool is_used[256] = {false};
    int used = 0;

    for (int i = 0; i < count; i++) {
        dl_op_context op = test_op(1, DL_BARRIER, 0);
        dl_board_begin(&all.boards[0], &op);
        uint8_t *start = dl_board_slot(&all.boards[0], 1, 0, 0);
        uint8_t *slot = dl_board_slot(&all.boards[0], 1, 0, size);
        size_t at = (size_t)(slot - start);
        CHECK(slot >= start && at + size <= chunk);
        CHECK_EQUAL(slot + chunk, dl_board_slot(&all.boards[0], 1, 1, size));
        CHECK_EQUAL(at % 4096, 0);
        used += is_used[at / 4096] ? 0 : 1;
        is_used[at / 4096] = true;
        dl_board_end(&all.boards[0], 2, 0);
    }
    return used;
}

CHECK_CASE(larger_rounds_begin_with_two_parts)
{
    const size_t chunk = (size_t)1 << 20;

    boards_init(&all, 2, chunk, true);
    CHECK_EQUAL(count_places(chunk / 8, chunk, 50), 1);
    CHECK_EQUAL(count_places(chunk / 4, chunk, 50), 2);
    CHECK_EQUAL(count_places(chunk / 2, chunk, 20), 2);
    CHECK_EQUAL(count_places(chunk, chunk, 20), 1);
    boards_go_on(&all);
    CHECK_EQUAL(count_places(chunk / 4, chunk, 50), 4);
    boards_fini(&all);
}

CHECK_CASE(rounds_use_more_and_more_parts_of_slots)
{
    const size_t chunk = (size_t)256 << 10;

    boards_init(&all, 2, chunk, true);
    CHECK_EQUAL(count_places(20000, chunk, 100), 1);
    CHECK(count_places(20000, chunk, 256) > 1);
    boards_go_on(&all);
    CHECK_EQUAL(count_places(20000, chunk, 100), 256 / 20);
    CHECK_EQUAL(count_places(100000, chunk, 100), 2);
    CHECK_EQUAL(count_places(200000, chunk, 100), 1);
    CHECK_EQUAL(count_places(chunk, chunk, 100), 1);
    CHECK_EQUAL(count_places(8000, chunk, 100), 1);
    boards_fini(&all);
    boards_init(&all, 2, chunk, false);
    boards_go_on(&all);
    CHECK_EQUAL(count_places(20000, chunk, 100), 1);
    boards_fini(&all);
}

static void
step_together(int rank, int size, void *unused)
{
    dl_board *board = &all.boards[rank];

    (void)size;
    (void)unused;
    for (uint64_t sequence = 1; sequence <= 50; sequence++) {
        dl_op_context op = test_op(sequence, DL_BARRIER, 10 * DL_SECOND);
        dl_board_begin(board, &op);
        CHECK_OK(dl_board_arrive(board));
        for (uint64_t step = 1; step <= 5; step++) {
            dl_board_publish_step(board, step);
            CHECK_OK(step % 2 == 0 ? dl_board_wait_steps(board, step)
                                   : dl_board_wait_step(board, 1, step));
        }
        dl_board_end(board, 1, 5);
    }
}

CHECK_CASE(steps_go_on_from_operation_to_operation)
{
    boards_init(&all, 4, CHUNK, false);
    dl_run_ranks(4, step_together, NULL);
    boards_fini(&all);
}

static void
call_differently(int rank, int size, void *context)
{
    const dl_fingerprint *odd = context;
    dl_op_context op = test_op(12, DL_ALL_REDUCE, 10 * DL_SECOND);
    int64_t start = dl_now();

    (void)size;
    op.fingerprint.count_low = 1000;
    op.fingerprint.dtype = DL_FLOAT32;
    if (rank == 1) {
        op.fingerprint = *odd;
    }
    dl_board_begin(&all.boards[rank], &op);
    CHECK_STATUS(dl_board_arrive(&all.boards[rank]), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "#12 in group g: rank ");
    CHECK_CONTAINS(dl_last_error()->text,
                   rank == 2 ? "rank 1 called" : "called all_reduce(1000 x float32");
    dl_board_break(&all.boards[rank], all.boards[rank].op);
    CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
}

CHECK_CASE(a_difference_in_any_field_is_reported_on_all_ranks)
{
    dl_fingerprint same = {
        .count_low = 1000, .op = DL_ALL_REDUCE, .dtype = DL_FLOAT32, .detail = DL_SUM};
    dl_fingerprint odd[6] = {same, same, same, same, same, same};

    odd[0].count_low = 999;
    odd[1].op = DL_BROADCAST;
    odd[2].dtype = DL_INT32;
    odd[3].detail = DL_MAX;
    odd[4].count_high = 1;
    odd[5].root = 1;
    for (int i = 0; i < 6; i++) {
        boards_init(&all, 3, CHUNK, false);
        dl_run_ranks(3, call_differently, &odd[i]);
        boards_fini(&all);
    }
}

CHECK_CASE(a_mismatch_names_both_calls)
{
    dl_op_context op = test_op(12, DL_ALL_REDUCE, 10 * DL_SECOND);

    boards_init(&all, 2, CHUNK, false);
    op.fingerprint.count_low = 1000;
    op.fingerprint.dtype = DL_FLOAT32;
    dl_board_begin(&all.boards[0], &op);
    op.deadline = dl_deadline_after(0);
    CHECK_STATUS(dl_board_arrive(&all.boards[0]), DL_TIMEOUT);
    dl_op_context other = test_op(12, DL_BROADCAST, 0);
    other.fingerprint.count_low = 3;
    other.fingerprint.dtype = DL_INT64;
    dl_board_begin(&all.boards[1], &other);
    CHECK_STATUS(dl_board_arrive(&all.boards[1]), DL_MISMATCH);
    CHECK_TEXT(
        dl_last_error()->text,
        "broadcast #12 in group g: rank 0 called all_reduce(1000 x float32, SUM), "
        "rank 1 called broadcast(3 x int64, from rank 0)");
    boards_fini(&all);
}

static void
all_but_rank_3(int rank, int size, void *unused)
{
    (void)size;
    (void)unused;
    if (rank == 3) {
        CHECK_OK(arrive(rank, 4, DL_BARRIER, 5 * DL_SECOND));
        return;
    }
    CHECK_OK(arrive(rank, 4, DL_BARRIER, 5 * DL_SECOND));
    /* Long enough for all three to come before one of them gives up. */
    dl_status status = arrive(rank, 5, DL_ALL_REDUCE, 400 * DL_MILLISECOND);
    dl_board_break(&all.boards[rank], all.boards[rank].op);
    CHECK_EQUAL(status, DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text,
                   "all_reduce #5 in group g timed out after 400ms: waiting for rank 3 "
                   "(pid 103 on host h), which has not called it (last seen in #4)");
}

CHECK_CASE(a_timeout_names_the_missing_ranks)
{
    boards_init(&all, 4, CHUNK, false);
    dl_run_ranks(4, all_but_rank_3, NULL);
    boards_fini(&all);
}

CHECK_CASE(a_timeout_names_several_and_counts_the_rest)
{
    boards_init(&all, 12, CHUNK, false);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, 0), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text,
                   "barrier #1 in group g timed out after 0ms: waiting for rank 1 (pid "
                   "101 on host h), which has not called it (it has not begun any "
                   "operation); rank 2 ");
    CHECK_CONTAINS(dl_last_error()->text, "; and 5 more");
    boards_fini(&all);
}

CHECK_CASE(a_timeout_within_an_operation_says_so)
{
    boards_init(&all, 2, CHUNK, false);
    CHECK_STATUS(arrive(1, 1, DL_ALL_REDUCE, 0), DL_TIMEOUT);
    CHECK_OK(arrive(0, 1, DL_ALL_REDUCE, 20 * DL_MILLISECOND));
    CHECK_STATUS(dl_board_wait_step(&all.boards[0], 1, 1), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text,
                   "waiting for rank 1 (pid 101 on host h), which has not finished it");
    boards_fini(&all);
}

CHECK_CASE(a_lost_peer_is_named)
{
    boards_init(&all, 3, CHUNK, false);
    boards_cut(&all, 2);
    CHECK_STATUS(arrive(0, 1, DL_ALL_REDUCE, -1), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text,
                   "all_reduce #1 in group g: rank 2 (pid 102 on host h) exited or was "
                   "killed");
    boards_fini(&all);
}

CHECK_CASE(a_peer_that_did_its_part_may_go)
{
    boards_init(&all, 2, CHUNK, false);
    CHECK_STATUS(arrive(1, 1, DL_BARRIER, 0), DL_TIMEOUT);
    boards_cut(&all, 1);
    dl_board_leave(&all.boards[1]);
    CHECK_OK(arrive(0, 1, DL_BARRIER, -1));
    CHECK_STATUS(dl_board_wait_step(&all.boards[0], 1, 1), DL_PEER_LOST);
    CHECK_STATUS(arrive(0, 2, DL_BARRIER, -1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text,
               "barrier #2 in group g: rank 1 (pid 101 on host h) left the group (last "
               "seen in #1)");
    boards_fini(&all);
}

/* It noticed the end of rank 2 first, in an operation of another group. */
CHECK_CASE(a_peer_that_left_is_not_blamed_for_the_end_of_another)
{
    boards_init(&all, 3, CHUNK, false);
    dl_board_leave(&all.boards[1]);
    dl_process_set_ended(all.processes[2]);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text, "rank 2 (pid 102 on host h) exited or was");
    boards_fini(&all);
}

/* The notice of the end comes at the second look. */
static dl_status
hear_of_an_end(void *context)
{
    int *calls = context;

    return ++*calls < 2 ? DL_OK : dl_fail(DL_PEER_LOST, "rank 9 has ended");
}

CHECK_CASE(a_peer_that_left_is_not_blamed_before_a_notice_may_have_come)
{
    int calls = 0;

    boards_init(&all, 2, CHUNK, false);
    all.boards[0].options.elsewhere = hear_of_an_end;
    all.boards[0].options.context = &calls;
    dl_board_leave(&all.boards[1]);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "barrier #1 in group g: rank 9 has ended");
    boards_fini(&all);
}

/* It may have ended because of the failure of which this rank has been told, too. */
CHECK_CASE(a_peer_that_ended_is_not_blamed_if_there_is_a_notice)
{
    int calls = 1;

    boards_init(&all, 2, CHUNK, false);
    all.boards[0].options.elsewhere = hear_of_an_end;
    all.boards[0].options.context = &calls;
    dl_process_set_ended(all.processes[1]);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "barrier #1 in group g: rank 9 has ended");
    boards_fini(&all);
}

CHECK_CASE(a_peer_that_aborted_is_named_with_its_reason)
{
    dl_error cause = {.status = DL_CANCELLED, .text = "group g was aborted: so there"};

    boards_init(&all, 2, CHUNK, false);
    dl_board_abort(&all.boards[1], &cause);
    dl_board_leave(&all.boards[1]);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text, "barrier #1 in group g: rank 1 (pid 101 on host "
                                      "h): group g was aborted: so there");
    boards_fini(&all);
}

static void
abort_the_other(int rank, int size, void *unused)
{
    dl_error cause = {.status = DL_CANCELLED, .text = "called off"};
    int64_t start = dl_now();

    (void)size;
    (void)unused;
    if (rank == 0) {
        CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_CANCELLED);
        CHECK_TEXT(dl_last_error()->text, "called off");
        CHECK(dl_now() - start < DL_SECOND + CHECK_SLACK);
        return;
    }
    CHECK_OK(dl_sleep_until(dl_deadline_after(20 * DL_MILLISECOND)));
    dl_board_abort(&all.boards[0], &cause);
    cause.text[0] = 'x';
    dl_board_abort(&all.boards[0], &cause);
}

CHECK_CASE(an_abort_frees_the_waiter)
{
    boards_init(&all, 2, CHUNK, false);
    dl_run_ranks(2, abort_the_other, NULL);
    boards_fini(&all);
}

CHECK_CASE(the_first_to_break_is_quoted)
{
    boards_init(&all, 3, CHUNK, false);
    CHECK_STATUS(arrive(1, 1, DL_BARRIER, 0), DL_TIMEOUT);
    dl_board_break(&all.boards[1], all.boards[1].op);
    (void)dl_fail(DL_INTERNAL, "a later cause");
    dl_board_break(&all.boards[2], all.boards[2].op);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 1 (pid 101 on host h) gave up: barrier #1 in group g timed "
                   "out after 0ms: waiting for rank 0");
    /* Also where all have arrived meanwhile. */
    CHECK_STATUS(arrive(2, 1, DL_BARRIER, -1), DL_TIMEOUT);
    boards_fini(&all);
}

CHECK_CASE(a_fault_of_a_third_is_passed_on_as_it_is)
{
    boards_init(&all, 3, CHUNK, false);
    boards_cut(&all, 2);
    CHECK_STATUS(arrive(1, 1, DL_BARRIER, -1), DL_PEER_LOST);
    dl_board_break(&all.boards[1], all.boards[1].op);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_PEER_LOST);
    CHECK_TEXT(dl_last_error()->text,
               "barrier #1 in group g: rank 2 (pid 102 on host h) "
               "exited or was killed (it has not begun any "
               "operation)");
    boards_fini(&all);
}

CHECK_CASE(a_rank_in_an_earlier_operation_can_finish_it)
{
    boards_init(&all, 2, CHUNK, false);
    CHECK_STATUS(arrive(1, 1, DL_BARRIER, 0), DL_TIMEOUT);
    CHECK_STATUS(arrive(1, 2, DL_BARRIER, 0), DL_TIMEOUT);
    dl_board_break(&all.boards[1], all.boards[1].op);
    CHECK_OK(arrive(0, 1, DL_BARRIER, -1));
    CHECK_STATUS(arrive(0, 2, DL_BARRIER, -1), DL_TIMEOUT);
    boards_fini(&all);
}

static dl_status
interrupt(void)
{
    return dl_fail(DL_INTERRUPTED, "interrupted");
}

CHECK_CASE(an_interrupt_ends_the_wait_and_is_reported)
{
    boards_init(&all, 2, CHUNK, false);
    dl_interrupt_install(interrupt);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_INTERRUPTED);
    dl_board_break(&all.boards[0], all.boards[0].op);
    dl_interrupt_install(NULL);
    CHECK_STATUS(arrive(1, 1, DL_BARRIER, -1), DL_CANCELLED);
    CHECK_TEXT(dl_last_error()->text,
               "rank 0 (pid 100 on host h) gave up: barrier #1 in group g was "
               "interrupted");
    boards_fini(&all);
}

CHECK_CASE(memory_of_another_layout_is_refused)
{
    dl_board board;
    dl_board_options options = {.rank = 0, .size = 2, .group_name = "g"};
    size_t size = dl_board_memory(2, CHUNK);
    void *header;

    CHECK(posix_memalign(&header, 4096, 2 * size) == 0);
    memset(header, 0, 2 * size);
    CHECK_STATUS(dl_board_init(&board, &options, header, size), DL_PROTOCOL);
    dl_board_format(header, 3, CHUNK, false);
    CHECK_STATUS(dl_board_init(&board, &options, header, size), DL_PROTOCOL);
    dl_board_format(header, 2, CHUNK * 2, false);
    CHECK_STATUS(dl_board_init(&board, &options, header, size), DL_PROTOCOL);
    dl_board_format(header, 2, CHUNK + 8, false);
    CHECK_STATUS(dl_board_init(&board, &options, header, 2 * size), DL_PROTOCOL);
    CHECK_CONTAINS(dl_last_error()->text, "different versions of distlite");
    CHECK_STATUS(dl_board_init(&board, &options, header, 8), DL_PROTOCOL);
    free(header);
}

CHECK_CASE(an_overwritten_board_is_an_error)
{
    boards_init(&all, 2, CHUNK, false);
    dl_board_header *header = all.memory;
    atomic_store(&header->breaker, 77);
    atomic_store(&header->is_broken, 1);
    CHECK_STATUS(arrive(0, 1, DL_BARRIER, -1), DL_PROTOCOL);
    boards_fini(&all);
}

/* A rank that cannot make its board has to find memory for this. */
CHECK_CASE(a_refusal_needs_few_pages)
{
    CHECK(dl_board_head(2) < 3 * (size_t)4096);
    CHECK(dl_board_head(64) < 32 * (size_t)1024);
}
