/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/failure_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/text.h"
#include "base/thread.h"
#include "pg/cpu/operation_text.h"
#include "pg/record/blocked_threads.h"
#include "pg/record/recording.h"

#define NOT_BEGUN " (it has not begun any operation)"

int
dl_failure_check_name(const dl_board *board, int rank)
{
    return board->options.names == NULL ? rank : board->options.names[rank];
}

uint64_t
dl_failure_check_operation(const dl_board *board, uint64_t sequence)
{
    uint64_t phases = board->options.phases > 1 ? (uint64_t)board->options.phases : 1;

    return (sequence + phases - 1) / phases;
}

static dl_operation_text
describe_call(const dl_board *board, uint8_t type, uint64_t sequence)
{
    return dl_operation_describe(type, dl_failure_check_operation(board, sequence),
                                 board->options.group_name);
}

static dl_operation_text
describe_operation_at(const dl_board *board, uint64_t at)
{
    const dl_board_line *line = &board->lines[at % DL_BOARD_LINES][board->options.rank];

    return describe_call(board, line->fingerprint.op,
                         board->sequences[at % DL_BOARD_LINES]);
}

static dl_operation_text
describe_operation(const dl_board *board)
{
    return describe_operation_at(board, board->begun);
}

static void
describe_rank(const dl_board *board, int rank, char text[DL_PEER_TEXT_SIZE])
{
    dl_peer_describe(&board->options.peers[rank], dl_failure_check_name(board, rank),
                     text);
}

static uint64_t
load_word(dl_words words, int rank)
{
    return atomic_load(dl_words_at(words, rank));
}

uint64_t
dl_failure_check_last_seen(const dl_board *board, int rank)
{
    uint64_t last = 0;

    for (int i = 0; i < DL_BOARD_LINES; i++) {
        uint64_t seen = load_word(board->arrivals[i], rank);
        last = seen > last ? seen : last;
    }
    return last;
}

static bool
has_arrived(const dl_board *board, int rank)
{
    return dl_failure_check_last_seen(board, rank) >= board->op->sequence;
}

/* Returns whether `rank` is among the ranks that this wait is for. */
static bool
is_awaited(const dl_wanted *wanted, int rank)
{
    return rank >= wanted->first && rank <= wanted->last
           && load_word(wanted->words, rank) < wanted->value;
}

/* Returns the last operation that `rank` has called, whichever of its phases it is at. */
static uint64_t
last_called(const dl_board *board, int rank)
{
    return dl_failure_check_operation(board, dl_failure_check_last_seen(board, rank));
}

static bool
has_called(const dl_board *board, int rank)
{
    return last_called(board, rank)
           >= dl_failure_check_operation(board, board->op->sequence);
}

/* Returns " (last seen in #4)", or nothing if the rank is in this operation: in a group
 * of several hosts it may be at the first of two phases. */
static dl_last_seen
describe_last_seen(const dl_board *board, int rank)
{
    uint64_t seen = last_called(board, rank);

    return seen >= dl_failure_check_operation(board, board->op->sequence)
               ? (dl_last_seen){""}
               : dl_operation_last_seen(seen, NOT_BEGUN);
}

static dl_status
fail_gone(const dl_board *board, int rank, dl_member_state state)
{
    dl_operation_text operation = describe_operation(board);
    char peer[DL_PEER_TEXT_SIZE];

    describe_rank(board, rank, peer);
    if (state == DL_ABORTED) {
        return dl_fail(DL_PEER_LOST, "%s: %s: %.*s", operation.text, peer,
                       DL_BOARD_REASON_SIZE, board->members[rank].reason);
    }
    return dl_fail(DL_PEER_LOST, "%s: %s %s%s", operation.text, peer,
                   state == DL_LEFT ? "left the group" : "exited or was killed",
                   describe_last_seen(board, rank).text);
}

/* A rank that has ended or left fails this operation if it has not reached it, or if
 * this wait is for that rank; one that did its part before it left does not.  The
 * state and the arrival are read after the end, because a rank writes them before it
 * ends.  `*left` is the first such rank that left in good order, which does not fail
 * here, or -1. */
static dl_status
check_peers(const dl_board *board, const dl_wanted *wanted, int *left)
{
    *left = -1;
    dl_process_table_poll();
    for (int rank = 0; rank < board->options.size; rank++) {
        bool has_ended = dl_board_has_ended(board, rank);
        uint32_t state = atomic_load(&board->members[rank].state);
        bool is_gone = has_ended || state != DL_STAYING;
        if (!is_gone || (has_arrived(board, rank) && !is_awaited(wanted, rank))) {
            continue;
        }
        if (state != DL_LEFT) {
            return fail_gone(board, rank, (dl_member_state)state);
        }
        *left = *left < 0 ? rank : *left;
    }
    return DL_OK;
}

dl_status
dl_failure_check_watch(const dl_board *board, int rank)
{
    const dl_board_member *member = &board->members[rank];
    char peer[DL_PEER_TEXT_SIZE];

    dl_process_table_poll();
    bool has_ended = dl_board_has_ended(board, rank);
    uint32_t state = atomic_load(&member->state);
    if (state == DL_STAYING && !has_ended) {
        return DL_OK;
    }
    describe_rank(board, rank, peer);
    if (state == DL_ABORTED) {
        return dl_fail(DL_PEER_LOST, "%s gave up: %.*s", peer, DL_BOARD_REASON_SIZE,
                       member->reason);
    }
    return dl_fail(DL_PEER_LOST, "%s %s", peer,
                   state == DL_LEFT ? "left the group" : "exited or was killed");
}

/* A text that is appended to, and cut at its limit. */
typedef struct list_text {
    char data[DL_ERROR_TEXT_SIZE - 2 * DL_OPERATION_TEXT_SIZE];
    size_t size;
} list_text;

static void
append_late(const dl_board *board, int rank, list_text *text)
{
    char peer[DL_PEER_TEXT_SIZE];

    describe_rank(board, rank, peer);
    dl_text_append(text->data, sizeof text->data, &text->size, "%s%s, which %s%s",
                   text->size > 0 ? "; " : "", peer,
                   has_called(board, rank) ? "has not finished it"
                                           : "has not called it",
                   describe_last_seen(board, rank).text);
}

static dl_status
fail_late_ranks(const dl_board *board, const dl_wanted *wanted)
{
    int64_t limit = board->op->deadline.limit / DL_MILLISECOND;
    list_text late = {.size = 0};
    int count = 0;

    for (int rank = 0; rank < board->options.size; rank++) {
        if (is_awaited(wanted, rank) && ++count <= DL_NAMED_RANKS) {
            append_late(board, rank, &late);
        }
    }
    if (count == 0) {
        return DL_OK; /* the last one came at this moment */
    }
    if (count > DL_NAMED_RANKS) {
        dl_text_append(late.data, sizeof late.data, &late.size, "; and %d more",
                       count - DL_NAMED_RANKS);
    }
    return dl_fail(DL_TIMEOUT, "%s timed out after %" PRId64 "ms: waiting for %s",
                   describe_operation(board).text, limit, late.data);
}

typedef struct pending_timeout {
    uint64_t version;
    uint64_t operation;
    char text[(DL_BOARD_PENDING_TIMEOUT_WORDS - 2) * sizeof(uint64_t)];
} pending_timeout;

_Static_assert(sizeof(pending_timeout)
                   == DL_BOARD_PENDING_TIMEOUT_WORDS * sizeof(uint64_t),
               "the same row");

void
dl_failure_check_set_pending_timeout(dl_board *board, uint64_t operation,
                                     const char *text)
{
    pending_timeout row = {.operation = operation};

    snprintf(row.text, sizeof row.text, "%s", text);
    dl_row_write(board->header->pending_timeout, &row, DL_BOARD_PENDING_TIMEOUT_WORDS);
}

/* What rank 0 has published comes first: it may wait for ranks of other hosts, which
 * this rank does not see. */
static dl_status
fail_at_deadline(const dl_board *board, const dl_wanted *wanted)
{
    uint64_t operation = dl_failure_check_operation(board, board->op->sequence);
    pending_timeout row;

    if (board->options.rank != 0 && is_awaited(wanted, 0)
        && dl_row_read(board->header->pending_timeout, &row,
                       DL_BOARD_PENDING_TIMEOUT_WORDS)
        && row.operation == operation) {
        return dl_fail(DL_TIMEOUT, "%.*s", (int)sizeof row.text - 1, row.text);
    }
    return fail_late_ranks(board, wanted);
}

/* Announces the ranks that this one waits for to the ranks that will fail together with
 * it.  Their deadlines may be a little earlier, and then they name those ranks and not
 * this one. */
static void
announce_timeout(const dl_board *board, const dl_wanted *wanted)
{
    const dl_board_options *options = &board->options;

    if (options->announce_timeout != NULL && dl_deadline_is_near(board->op->deadline)
        && fail_late_ranks(board, wanted) != DL_OK) {
        dl_error error = *dl_last_error();
        options->announce_timeout(options->context, &error);
    }
}

dl_status
dl_failure_check_broken(const dl_board *board)
{
    const dl_board_header *header = board->header;

    if (!atomic_load_explicit(&header->is_broken, memory_order_acquire)
        || header->broken_at > board->op->sequence) {
        return DL_OK;
    }
    int breaker = (int)atomic_load(&header->breaker) - 1;
    if (breaker < 0 || breaker >= board->options.size) {
        return dl_fail(DL_PROTOCOL, "the shared memory of group %s was overwritten",
                       board->options.group_name);
    }
    dl_error cause = {.status = (dl_status)header->status};
    memcpy(cause.text, header->text, sizeof cause.text - 1);
    return dl_peer_fail_gave_up(&board->options.peers[breaker],
                                dl_failure_check_name(board, breaker), &cause);
}

static dl_status
check_abort(dl_board *board)
{
    dl_status status = DL_OK;

    if (atomic_load_explicit(&board->is_aborted, memory_order_acquire)) {
        pthread_mutex_lock(&board->lock);
        status = dl_rethrow(&board->abort_cause);
        pthread_mutex_unlock(&board->lock);
    }
    return status;
}

uint64_t
dl_failure_check_describe_ended(const dl_board *board, int rank, dl_error *message)
{
    uint64_t seen = last_called(board, rank);
    char peer[DL_PEER_TEXT_SIZE];

    describe_rank(board, rank, peer);
    message->status = DL_PEER_LOST;
    snprintf(message->text, sizeof message->text, "%s exited or was killed%s", peer,
             dl_operation_last_seen(seen, NOT_BEGUN).text);
    return seen;
}

bool
dl_failure_check_is_notified(const dl_board *board)
{
    uint32_t breaker = atomic_load(&board->header->breaker);

    return breaker != 0 && breaker != (uint32_t)board->options.rank + 1;
}

static dl_status
check_elsewhere(const dl_board *board)
{
    const dl_board_options *options = &board->options;

    return options->elsewhere == NULL || options->elsewhere(options->context) == DL_OK
               ? DL_OK
               : dl_operation_fail(describe_operation(board).text, "");
}

/* Fails because `rank` left the group, unless another cause arrives within a short
 * time: ranks often leave because an operation of another group has failed, and may
 * know before this rank which one is lost. */
static dl_status
fail_left(dl_board *board, const dl_wanted *wanted, int rank)
{
    dl_deadline deadline = dl_deadline_earlier(board->op->deadline, DL_REASON_PATIENCE);
    int left;

    while (!dl_deadline_passed(deadline)) {
        DL_TRY(dl_sleep_until(dl_deadline_after(DL_MILLISECOND)));
        DL_TRY(check_abort(board));
        DL_TRY(dl_failure_check_broken(board));
        DL_TRY(check_peers(board, wanted, &left));
        DL_TRY(check_elsewhere(board));
    }
    return fail_gone(board, rank, DL_LEFT);
}

/* Reports the wait to the deadlock detector, with the ranks that it is for. */
static void
note_board_wait(const dl_board *board, const dl_wanted *wanted)
{
    dl_awaited awaited = {.count = 0};

    for (int rank = wanted->first; rank <= wanted->last; rank++) {
        if (is_awaited(wanted, rank)) {
            dl_awaited_add(&awaited, dl_failure_check_name(board, rank));
        }
    }
    if (board->options.add_awaited != NULL) {
        board->options.add_awaited(board->options.context, &awaited);
    }
    dl_blocked_check(board->op->record, &awaited);
}

dl_status
dl_failure_check_run(void *context, const dl_wanted *wanted)
{
    dl_board *board = context;
    int left;

    DL_TRY(check_abort(board));
    DL_TRY(dl_failure_check_broken(board));
    dl_status status = check_peers(board, wanted, &left);
    if (status != DL_OK) {
        dl_error gone = *dl_last_error();
        /* The rank may have written its reason between the two checks, before it ended.
         * Or it ended because of a rank of another host, of which this rank has been
         * told as well. */
        DL_TRY(dl_failure_check_broken(board));
        DL_TRY(check_elsewhere(board));
        return dl_rethrow(&gone);
    }
    DL_TRY(check_elsewhere(board));
    if (left >= 0) {
        return fail_left(board, wanted, left);
    }
    DL_TRY(dl_op_check_arrays(board->op));
    DL_TRY(dl_interrupt_check());
    note_board_wait(board, wanted);
    if (dl_deadline_passed(board->op->deadline)) {
        return fail_at_deadline(board, wanted);
    }
    announce_timeout(board, wanted);
    return DL_OK;
}

dl_status
dl_failure_check_mismatch(const dl_board *board, uint64_t at, int other)
{
    const dl_board_line *lines = board->lines[at % DL_BOARD_LINES];
    int self = board->options.rank;
    int first = self < other ? self : other;
    int second = self < other ? other : self;
    char calls[2][DL_FINGERPRINT_TEXT_SIZE];

    dl_fingerprint_describe(&lines[first].fingerprint, calls[0], sizeof calls[0]);
    dl_fingerprint_describe(&lines[second].fingerprint, calls[1], sizeof calls[1]);
    return dl_fail(DL_MISMATCH, "%s: rank %d called %s, rank %d called %s",
                   describe_operation_at(board, at).text,
                   dl_failure_check_name(board, first), calls[0],
                   dl_failure_check_name(board, second), calls[1]);
}

dl_status
dl_failure_check_unequal(const dl_board *board, uint64_t at, int other)
{
    dl_words arrivals = board->arrivals[at % DL_BOARD_LINES];
    uint64_t sequence = board->sequences[at % DL_BOARD_LINES];

    for (int rank = 0; rank < board->options.size; rank++) {
        bool is_gone = board->options.processes != NULL
                       && dl_process_is_gone(board->options.processes[rank]);
        uint32_t state = atomic_load(&board->members[rank].state);
        if ((is_gone ? state != DL_LEFT : state == DL_ABORTED)
            && load_word(arrivals, rank) < sequence) {
            return fail_gone(board, rank, (dl_member_state)state);
        }
    }
    return dl_failure_check_mismatch(board, at, other);
}

dl_error
dl_failure_check_message(const dl_board *board, const dl_op_context *op,
                         const dl_error *error)
{
    dl_error message = *error;
    char peer[DL_PEER_TEXT_SIZE];

    if (atomic_load(&board->is_aborted)) {
        /* To this rank the group is aborted or closed; to the others this rank is
         * lost. */
        describe_rank(board, board->options.rank, peer);
        message.status = DL_PEER_LOST;
        snprintf(message.text, sizeof message.text, "%s gave up: %.*s", peer,
                 DL_ERROR_TEXT_SIZE - DL_PEER_TEXT_SIZE - 16, error->text);
        return message;
    }
    return dl_operation_error_for_others(
        error, describe_call(board, op->fingerprint.op, op->sequence).text);
}
