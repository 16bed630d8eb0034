/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks that go on without waiting for ranks that send them nothing. */
#include <stdlib.h>

#include "boards.h"

#define TURNS 2000
#define RANKS 4

static test_boards all;

/* Where a payload has room when an eager buffer is taken, whose place comes before it. */
#define BEHIND_PLACE sizeof(uint64_t)

static void
put(uint8_t *place, uint64_t turn, int rank)
{
    uint64_t value = turn * 100 + (uint64_t)rank;

    memcpy(place, &value, sizeof value);
}

static void
check(const uint8_t *place, uint64_t turn, int rank)
{
    uint64_t value;

    memcpy(&value, place, sizeof value);
    CHECK_EQUAL(value, turn * 100 + (uint64_t)rank);
}

/* A size that the other ranks can compute. */
static size_t
eager_size_in(const dl_board *board, uint64_t turn, int rank)
{
    return turn * 977 % 5 == 0 ? board->eager_size
                               : 1 + (turn * 613 + (uint64_t)rank) % 1000;
}

/* On a line beside the place of an eager buffer, a number is written as well. */
static void
fill_eager(dl_board *board, uint8_t *payload, uint64_t turn)
{
    int self = board->options.rank;
    size_t size = eager_size_in(board, turn, self);

    memset(dl_board_take_eager(board, size), (int)(turn + (uint64_t)self), size);
    if (size > DL_BOARD_PAYLOAD) {
        put(payload + BEHIND_PLACE, turn, self);
    }
}

static void
check_eager(const dl_board *board, uint64_t turn, int rank)
{
    size_t size = eager_size_in(board, turn, rank);
    const uint8_t *buffer = dl_board_eager(board, rank, size);

    CHECK_EQUAL(buffer[0], (uint8_t)(turn + (uint64_t)rank));
    CHECK_EQUAL(buffer[size - 1], (uint8_t)(turn + (uint64_t)rank));
    if (size > DL_BOARD_PAYLOAD) {
        check(dl_board_payload(board, rank) + BEHIND_PLACE, turn, rank);
    }
}

/* What all ranks do in a turn is drawn from the same numbers. */
static void
take_turn(dl_board *board, uint64_t turn, unsigned kind, int root)
{
    int self = board->options.rank;
    /* Operations of a group have numbers without order among its boards. */
    dl_op_context op = test_op(3 * turn + kind, DL_REDUCE, 10 * DL_SECOND);

    fill_eager(board, dl_board_begin(board, &op), turn);
    if (kind == 0 || (kind == 1 && self == root)) {
        CHECK_OK(dl_board_arrive(board));
        for (int rank = 0; rank < RANKS; rank++) {
            check_eager(board, turn, rank);
        }
    } else if (kind == 1 || self == root) {
        CHECK_OK(dl_board_announce(board));
    } else {
        CHECK_OK(dl_board_await(board, root, root));
        check_eager(board, turn, root);
    }
    dl_board_end(board, 0, 0);
}

static void
take_turns(int rank, int size, void *unused)
{
    unsigned random = 1;

    (void)size;
    (void)unused;
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        /* Long runs of one kind, so that ranks get as far ahead as they may. */
        unsigned kind = (unsigned)(turn / 100 % 3);
        int root = rand_r(&random) / 7 % RANKS;
        if (turn / 400 % 2 == 1) {
            kind = (unsigned)rand_r(&random) / 7 % 3;
        }
        if (turn % 97 == (uint64_t)rank * 20) {
            usleep(300);
        }
        take_turn(&all.boards[rank], turn, kind, root);
    }
}

CHECK_CASE(nothing_is_overwritten_before_it_is_read)
{
    boards_init(&all, RANKS, 4096, false);
    dl_run_ranks(RANKS, take_turns, NULL);
    boards_fini(&all);
}

/* Rank 0 announces a turn with an eager buffer; returns how far behind its first block
 * that is. */
static size_t
announce_eager(dl_op_context *op, uint64_t turn, size_t size)
{
    dl_board *board = &all.boards[0];

    *op = test_op(turn, DL_BROADCAST, DL_SECOND);
    dl_board_begin(board, op);
    memset(dl_board_take_eager(board, size), (int)turn, size);
    CHECK_OK(dl_board_announce(board));
    return (size_t)(dl_board_eager(board, 0, size) - board->eager_blocks);
}

/* Rank 1 follows. */
static void
await_eager(const dl_op_context *op, uint64_t turn, size_t size)
{
    dl_board *board = &all.boards[1];

    dl_board_begin(board, op);
    CHECK_OK(dl_board_await(board, 0, 0));
    CHECK_EQUAL(dl_board_eager(board, 0, size)[size - 1], (uint8_t)turn);
}

/* One thread plays both ranks. */
CHECK_CASE(while_others_keep_up_eager_buffers_are_in_two_blocks)
{
    dl_op_context op;

    boards_init(&all, 2, 4096, false);
    for (uint64_t turn = 1; turn <= 2 * DL_BOARD_LINES; turn++) {
        CHECK(announce_eager(&op, turn, 1000) + 1000 <= 2 * EAGER_SIZE);
        await_eager(&op, turn, 1000);
    }
    boards_fini(&all);
}

CHECK_CASE(after_running_ahead_eager_buffers_are_in_two_blocks_again)
{
    dl_op_context ops[4 * DL_BOARD_LINES + 1];
    uint64_t awaited = 0;
    size_t deepest = 0;

    boards_init(&all, 2, 4096, false);
    for (uint64_t turn = 1; turn <= 4 * DL_BOARD_LINES; turn++) {
        size_t at = announce_eager(&ops[turn], turn, EAGER_SIZE);
        deepest = at > deepest ? at : deepest;
        /* Rank 0 is ahead by more and more turns of each hundred, and then waits. */
        uint64_t ahead = turn % 100 == 99 ? 0 : turn % 100;
        for (; awaited + ahead < turn; awaited++) {
            await_eager(&ops[awaited + 1], awaited + 1, EAGER_SIZE);
        }
        CHECK(turn % 100 != 1 || turn == 1 || at < 2 * EAGER_SIZE);
    }
    CHECK(deepest >= 90 * EAGER_SIZE);
    boards_fini(&all);
}

/* One thread plays all ranks: rank 1 is ahead as far as it gets. */
CHECK_CASE(there_are_so_many_turns_and_no_more)
{
    dl_op_context ops[DL_BOARD_AHEAD + 1];

    boards_init(&all, 2, 4096, false);
    for (uint64_t turn = 1; turn <= DL_BOARD_AHEAD; turn++) {
        dl_op_context *op = &ops[turn];
        *op = test_op(turn, DL_REDUCE, 20 * DL_MILLISECOND);
        put(dl_board_begin(&all.boards[1], op), turn, 1);
        if (turn < DL_BOARD_AHEAD) {
            CHECK_OK(dl_board_announce(&all.boards[1]));
        } else {
            CHECK_STATUS(dl_board_announce(&all.boards[1]), DL_TIMEOUT);
        }
    }
    CHECK_CONTAINS(dl_last_error()->text, "waiting for rank 0 (pid 100 on host h)");
    for (uint64_t turn = 1; turn <= DL_BOARD_AHEAD; turn++) {
        put(dl_board_begin(&all.boards[0], &ops[turn]), turn, 0);
        CHECK_OK(dl_board_await(&all.boards[0], 1, 1));
        check(dl_board_payload(&all.boards[0], 1), turn, 1);
    }
    boards_fini(&all);
}

CHECK_CASE(awaited_ranks_are_compared_at_once_and_others_later)
{
    dl_op_context reduce = test_op(1, DL_REDUCE, DL_SECOND);
    dl_op_context gather = test_op(1, DL_GATHER, DL_SECOND);
    dl_op_context next = test_op(2, DL_REDUCE, DL_SECOND);

    boards_init(&all, 3, 4096, false);
    dl_board_begin(&all.boards[1], &reduce);
    CHECK_OK(dl_board_announce(&all.boards[1]));
    dl_board_begin(&all.boards[2], &gather);
    CHECK_STATUS(dl_board_await(&all.boards[2], 1, 1), DL_MISMATCH);
    dl_board_break(&all.boards[2], all.boards[2].op);
    dl_board_begin(&all.boards[1], &next);
    CHECK_STATUS(dl_board_announce(&all.boards[1]), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called reduce");
    CHECK_CONTAINS(dl_last_error()->text, "rank 2 called gather");
    boards_fini(&all);
}

/* Rank 0 was told of the death elsewhere, and goes on with another call. */
CHECK_CASE(a_death_is_named_before_the_mismatch_that_follows_it)
{
    dl_op_context mine = test_op(1, DL_BARRIER, DL_SECOND);
    dl_op_context theirs = test_op(1, DL_SCAN, DL_SECOND);

    boards_init(&all, 3, 4096, false);
    dl_board_begin(&all.boards[0], &mine);
    CHECK_OK(dl_board_announce(&all.boards[0]));
    boards_cut(&all, 2);
    dl_board_begin(&all.boards[1], &theirs);
    CHECK_STATUS(dl_board_await(&all.boards[1], 0, 0), DL_PEER_LOST);
    CHECK_CONTAINS(dl_last_error()->text,
                   "rank 2 (pid 102 on host h) exited or was killed");
    boards_fini(&all);
}

/* It may have ended because of the mismatch. */
CHECK_CASE(a_mismatch_is_named_before_the_death_that_follows_it)
{
    dl_op_context mine = test_op(1, DL_BARRIER, DL_SECOND);
    dl_op_context theirs = test_op(1, DL_SCAN, DL_SECOND);

    boards_init(&all, 3, 4096, false);
    dl_board_begin(&all.boards[0], &mine);
    CHECK_OK(dl_board_announce(&all.boards[0]));
    dl_board_begin(&all.boards[2], &theirs);
    CHECK_OK(dl_board_announce(&all.boards[2]));
    boards_cut(&all, 2);
    dl_board_begin(&all.boards[1], &theirs);
    CHECK_STATUS(dl_board_await(&all.boards[1], 0, 0), DL_MISMATCH);
    boards_fini(&all);
}

/* Two ranks that both call a broadcast as its root: neither waits for the other. */
CHECK_CASE(a_mismatch_of_ranks_that_did_not_wait_is_reported_in_the_next_meeting)
{
    dl_op_context mine = test_op(1, DL_BROADCAST, DL_SECOND);
    dl_op_context theirs = mine;
    dl_op_context next = test_op(2, DL_BARRIER, DL_SECOND);

    theirs.fingerprint.root = 1;
    boards_init(&all, 2, 4096, false);
    dl_board_begin(&all.boards[0], &mine);
    CHECK_OK(dl_board_announce(&all.boards[0]));
    dl_board_begin(&all.boards[1], &theirs);
    CHECK_OK(dl_board_announce(&all.boards[1]));
    dl_board_begin(&all.boards[1], &next);
    CHECK_OK(dl_board_announce(&all.boards[1]));
    dl_board_begin(&all.boards[0], &next);
    CHECK_STATUS(dl_board_arrive(&all.boards[0]), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "broadcast #1 in group g: rank 0 called");
    boards_fini(&all);
}

/* The same without any meeting, within the turns that a rank may be ahead. */
CHECK_CASE(a_mismatch_is_reported_before_its_lines_are_reused)
{
    dl_op_context ops[2][DL_BOARD_LINES];
    dl_status status[2] = {DL_OK, DL_OK};

    boards_init(&all, 2, 4096, false);
    for (uint64_t turn = 1; turn < DL_BOARD_LINES; turn++) {
        for (int rank = 0; rank < 2; rank++) {
            dl_op_context *op = &ops[rank][turn];
            *op = test_op(turn, DL_BROADCAST, DL_SECOND);
            op->fingerprint.root = turn == 1 ? (uint32_t)rank : 0;
            if (status[rank] == DL_OK) {
                dl_board_begin(&all.boards[rank], op);
                status[rank] = dl_board_announce(&all.boards[rank]);
            }
        }
    }
    CHECK_EQUAL(status[0], DL_MISMATCH);
    CHECK_EQUAL(status[1], DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "broadcast #1 in group g: rank 0 called");
    boards_fini(&all);
}

CHECK_CASE(ranks_that_are_ahead_detect_ended_ranks)
{
    dl_op_context ops[DL_BOARD_AHEAD + 1];

    boards_init(&all, 2, 4096, true);
    boards_cut(&all, 0);
    for (uint64_t turn = 1; turn <= DL_BOARD_AHEAD; turn++) {
        ops[turn] = test_op(turn, DL_REDUCE, 10 * DL_SECOND);
        dl_board_begin(&all.boards[1], &ops[turn]);
        dl_status status = dl_board_announce(&all.boards[1]);
        CHECK_EQUAL(status, turn < DL_BOARD_AHEAD ? DL_OK : DL_PEER_LOST);
    }
    CHECK_CONTAINS(dl_last_error()->text, "rank 0 (pid 100 on host h) exited or was");
    boards_fini(&all);
}
