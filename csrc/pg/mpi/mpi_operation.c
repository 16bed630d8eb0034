/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "pg/agree/rank_keys.h"
#include "pg/mpi/mpi_state.h"
#include "pg/record/blocked_threads.h"

/* Bytes behind the cards of all ranks together: copying so much a few times costs less
 * than another operation of MPI's. */
#define ROOM ((size_t)64 << 10)
#define MOST_OF_ONE ((size_t)32 << 10)

/* Naps, some milliseconds in all, after which a rank says that it waits. */
#define FIRST_NAPS 20

/* After so many operations a rank receives notices, even if it never had to wait. */
#define LISTEN_EVERY 64

/* How long ranks may take to say what they call, after MPI has failed. */
#define EXPLAINING (2 * DL_SECOND)

/* How long MPI may take to complete the requests of an operation that failed. */
#define PARTING (100 * DL_MILLISECOND)

/* An odd number without a pattern of bits: 2^64 divided by the golden ratio. */
#define MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

static dl_mpi_card *
card_at(const dl_mpi_backend *self, int index)
{
    return (dl_mpi_card *)(void *)(self->cards + (size_t)index * self->stride);
}

bool
dl_mpi_has_all(const dl_mpi_backend *self)
{
    return self->way == DL_MPI_ALL
           || (self->way == DL_MPI_UP && self->rank == self->root);
}

size_t
dl_mpi_room(const dl_mpi_backend *self, dl_mpi_way way)
{
    size_t share = way == DL_MPI_DOWN ? ROOM : ROOM / (size_t)self->size;

    return share < MOST_OF_ONE ? share : MOST_OF_ONE;
}

void *
dl_mpi_block(const dl_mpi_backend *self, int rank)
{
    return card_at(self, dl_mpi_has_all(self) ? rank : 0) + 1;
}

char *
dl_mpi_stage(dl_mpi_backend *self, size_t size)
{
    dl_buffer_clear(&self->staging);
    return dl_buffer_reserve(&self->staging, size + DL_MPI_STAGED) == DL_OK
               ? (char *)self->staging.data
               : NULL;
}

static uint64_t
mix(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * MULTIPLIER;
    return digest ^ digest >> 29;
}

static dl_mpi_call *
call_at(dl_mpi_backend *self, uint64_t turn)
{
    return &self->called[turn % DL_MPI_REMEMBERED];
}

/* Adds the operation to those that this rank has called. */
static void
note_call(dl_mpi_backend *self)
{
    uint64_t words[2];

    if (self->turn > 0) {
        memcpy(words, &call_at(self, self->turn)->fingerprint, sizeof words);
        self->digest = mix(mix(self->digest, words[0]), words[1]);
    }
    self->turn++;
    *call_at(self, self->turn) =
        (dl_mpi_call){self->op->fingerprint, self->op->sequence};
}

/* Fails, since two ranks have called different operations in the same turn, or before
 * it if the calls are equal. */
static dl_status
differ(const dl_mpi_backend *self, const dl_mpi_call *mine, int other,
       const dl_fingerprint *theirs)
{
    int low = self->rank < other ? self->rank : other;
    int high = self->rank < other ? other : self->rank;
    const dl_fingerprint *first = low == self->rank ? &mine->fingerprint : theirs;
    const dl_fingerprint *second = low == self->rank ? theirs : &mine->fingerprint;
    char what[192], texts[2][DL_FINGERPRINT_TEXT_SIZE];

    snprintf(what, sizeof what, "%s #%" PRIu64 " in group %.100s",
             dl_op_type_name(first->op), mine->sequence, self->comm->group_name);
    if (dl_fingerprint_equal(first, second)) {
        return dl_fail(DL_MISMATCH,
                       "%s: ranks %d and %d called different operations before it; "
                       "TORCH_DISTRIBUTED_DEBUG=DETAIL finds the first one",
                       what, low, high);
    }
    dl_fingerprint_describe(first, texts[0], sizeof texts[0]);
    dl_fingerprint_describe(second, texts[1], sizeof texts[1]);
    return dl_fail(DL_MISMATCH, "%s: rank %d called %s, rank %d called %s", what, low,
                   texts[0], high, texts[1]);
}

void
dl_mpi_write_card(const dl_mpi_backend *self, dl_mpi_card *card, size_t size)
{
    *card = (dl_mpi_card){.fingerprint = self->op->fingerprint,
                          .turn = (uint32_t)self->turn,
                          .digest = (uint32_t)self->digest,
                          .size = size};
}

dl_status
dl_mpi_compare_card(dl_mpi_backend *self, int rank, const dl_mpi_card *theirs)
{
    bool is_same =
        theirs->turn == (uint32_t)self->turn && theirs->digest == (uint32_t)self->digest
        && dl_fingerprint_equal(&theirs->fingerprint, &self->op->fingerprint);

    return is_same
               ? DL_OK
               : differ(self, call_at(self, self->turn), rank, &theirs->fingerprint);
}

/* Every rank compares with its own, so that texts differ between ranks if more than two
 * calls do. */
static dl_status
compare_cards(dl_mpi_backend *self)
{
    bool has_all = dl_mpi_has_all(self);

    self->is_compared = true;
    for (int rank = 0; rank < (has_all ? self->size : 1); rank++) {
        int from = has_all ? rank : self->root;
        if (from != self->rank) {
            DL_TRY(dl_mpi_compare_card(self, from, card_at(self, rank)));
        }
    }
    return DL_OK;
}

/* Handles the notices that have come.  Fails with DL_MISMATCH if a rank waits in another
 * call, and with the error of one that has given up. */
static dl_status
receive_notices(dl_mpi_backend *self)
{
    dl_mpi_notice notice;
    int from;

    while (dl_mpi_notice_receive(self->comm, &notice, &from)) {
        if (notice.status != DL_OK) {
            return dl_mpi_notice_fail(self->comm, from, &notice);
        }
        self->heard[from] = notice.turn;
        const dl_mpi_call *mine = call_at(self, notice.turn);
        bool is_known =
            notice.turn <= self->turn && self->turn - notice.turn < DL_MPI_REMEMBERED;
        bool differs_before =
            notice.turn == self->turn && notice.digest != self->digest;
        if (differs_before
            || (is_known
                && !dl_fingerprint_equal(&mine->fingerprint, &notice.fingerprint))) {
            return differ(self, mine, from, &notice.fingerprint);
        }
    }
    return DL_OK;
}

static dl_status
reserve_cards(dl_mpi_backend *self)
{
    /* As much again for what ranks send that call something else. */
    size_t all = (size_t)self->size * sizeof(dl_mpi_card) + ROOM + MOST_OF_ONE;

    if (self->cards == NULL) {
        self->cards_room = 2 * all;
        self->cards = calloc(1, self->cards_room);
    }
    return self->cards == NULL ? dl_fail_no_memory() : DL_OK;
}

dl_status
dl_mpi_begin(dl_mpi_backend *self, dl_mpi_way way, int root, size_t along)
{
    DL_TRY(dl_mpi_comm_admit(self->comm));
    DL_TRY(reserve_cards(self));
    note_call(self);
    self->way = way;
    self->root = root;
    self->is_compared = self->uses_arrays = false;
    self->stride = sizeof(dl_mpi_card) + ((along + 7) & ~(size_t)7);
    dl_mpi_write_card(self, card_at(self, dl_mpi_has_all(self) ? self->rank : 0), 0);
    return self->turn % LISTEN_EVERY == 0 ? receive_notices(self) : DL_OK;
}

dl_status
dl_mpi_add(dl_mpi_backend *self, int result, dl_mpi_handle request, const char *name,
           int awaited)
{
    if (result != 0) {
        dl_mpi_check(self->mpi, result, name);
        return dl_fail_while("%s #%" PRIu64 " in group %s on rank %d",
                             dl_op_type_name(self->op->fingerprint.op),
                             self->op->sequence, self->comm->group_name, self->rank);
    }
    if (self->pending_count == self->pending_room) {
        int room = self->pending_room * 2 + 8;
        void *grown = realloc(self->pending, (size_t)room * sizeof *self->pending);
        if (grown == NULL) {
            dl_mpi_comm_leave(self->comm, request, NULL);
            dl_backend_keep_memory();
            return dl_fail_no_memory();
        }
        self->pending = grown;
        self->pending_room = room;
    }
    self->pending[self->pending_count++] = (dl_mpi_pending){request, name, awaited};
    return DL_OK;
}

static int
start_collective(const dl_mpi_backend *self, const dl_mpi_part *part, const char **name,
                 dl_mpi_handle *request)
{
    const dl_mpi_table *mpi = self->mpi;
    dl_mpi_handle comm = self->comm->handle, type = part->type;
    void *all = part->data, *own = dl_mpi_has_all(self) ? mpi->abi.in_place : all;
    int count = part->count;

    switch (self->way) {
    case DL_MPI_ALL:
        *name = "MPI_Iallgather";
        return mpi->iallgather(own, count, type, all, count, type, comm, request);
    case DL_MPI_DOWN:
        *name = "MPI_Ibcast";
        return mpi->ibcast(all, count, type, self->root, comm, request);
    default:
        *name = "MPI_Igather";
        return mpi->igather(own, count, type, all, count, type, self->root, comm,
                            request);
    }
}

dl_status
dl_mpi_start(dl_mpi_backend *self, char *data, size_t size)
{
    dl_mpi_handle request = 0, type;
    dl_mpi_part part;
    const char *name;

    DL_TRY(dl_mpi_part_of(self->comm, data, size, &part, &type));
    int result = start_collective(self, &part, &name, &request);
    dl_mpi_type_free(self->comm, type);
    return dl_mpi_add(self, result, request, name, -1);
}

dl_status
dl_mpi_send_cards(dl_mpi_backend *self, size_t size, bool uses_arrays)
{
    if (size > 0) {
        dl_blocking_begin();
    }
    DL_TRY(dl_mpi_start(self, self->cards, self->stride));
    if (size > DL_MPI_STAGED) {
        DL_TRY(dl_mpi_await(self, &self->pending[0]));
        DL_TRY(compare_cards(self));
        DL_TRY(dl_op_check_arrays(self->op));
        self->uses_arrays = uses_arrays;
    }
    return DL_OK;
}

/* Returns whether this rank cannot go on without `rank`. */
static bool
needs(const dl_mpi_backend *self, const dl_mpi_pending *pending, int rank)
{
    if (rank == self->rank) {
        return false;
    }
    if (pending->awaited >= 0) {
        return rank == pending->awaited;
    }
    return self->way == DL_MPI_ALL || self->rank == self->root || rank == self->root;
}

/* Publishes what this thread waits for, for the search for deadlocks. */
static void
note_wait(const dl_mpi_backend *self, const dl_mpi_pending *pending)
{
    dl_awaited awaited = {.count = 0};

    for (int rank = 0; rank < self->size; rank++) {
        if (needs(self, pending, rank)) {
            dl_awaited_add_unless_begun(&awaited, rank);
        }
    }
    dl_blocked_look(self->op->record, &awaited, self->op->deadline);
}

static dl_status
fail_timeout(const dl_mpi_backend *self, const dl_mpi_pending *pending)
{
    const dl_op_context *op = self->op;
    dl_rank_list ranks = {.count = 0};
    char what[256];

    snprintf(what, sizeof what,
             "%s #%" PRIu64 " in group %.100s timed out after %" PRId64
             "ms on rank %d of %d",
             dl_op_type_name(op->fingerprint.op), op->sequence, self->comm->group_name,
             op->deadline.limit / DL_MILLISECOND, self->rank, self->size);
    for (int rank = 0; rank < self->size; rank++) {
        if (needs(self, pending, rank) && self->heard[rank] < self->turn) {
            dl_rank_list_add(&ranks, rank);
        }
    }
    dl_rank_list_end(&ranks);
    if (ranks.count == 0) {
        return dl_fail(DL_TIMEOUT,
                       "%s: the ranks that it waits for called it, but made no further "
                       "progress; `distlite ps` shows what each does",
                       what);
    }
    return dl_fail(DL_TIMEOUT,
                   "%s: nothing was received from rank%s %s; those that called it wait "
                   "for another of them; `distlite ps` shows what each does",
                   what, ranks.count == 1 ? "" : "s", ranks.text);
}

static void
say_waiting(const dl_mpi_backend *self)
{
    dl_mpi_notice notice = {.fingerprint = self->op->fingerprint,
                            .turn = self->turn,
                            .digest = self->digest};

    dl_mpi_notice_send(self->comm, &notice);
}

/* What a wait does in each of its naps. */
static dl_status
look_around(dl_mpi_backend *self, const dl_mpi_pending *pending, int nap)
{
    note_wait(self, pending);
    if (nap == FIRST_NAPS) {
        say_waiting(self);
    }
    return receive_notices(self);
}

static bool
has_heard_all(const dl_mpi_backend *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank && self->heard[rank] < self->turn) {
            return false;
        }
    }
    return true;
}

/* After a failure of MPI's: that may come from ranks that called something else.  All
 * ranks that wait say what they call; one that computes is not waited for to the end. */
static dl_status
explain(dl_mpi_backend *self)
{
    dl_deadline soon = dl_deadline_earlier(self->op->deadline, EXPLAINING);
    dl_error error = *dl_last_error();

    say_waiting(self);
    while (!has_heard_all(self) && !dl_deadline_passed(soon)) {
        dl_status status = receive_notices(self);
        if (status == DL_MISMATCH) {
            return status;
        }
        if (status != DL_OK
            || dl_sleep_until(dl_deadline_after(DL_MILLISECOND)) != DL_OK) {
            break;
        }
    }
    return dl_fail_again(&error);
}

static dl_status
await_request(dl_mpi_backend *self, dl_mpi_pending *pending)
{
    dl_mpi_pace pace = {.awaited = pending->awaited,
                        .bytes = self->uses_arrays ? SIZE_MAX : 0};
    int is_done = 0;

    for (;;) {
        int result = dl_mpi_test(self->mpi, &pending->request, &is_done);
        if (result != 0) {
            pending->request = 0;
            dl_mpi_add(self, result, 0, pending->name, 0);
            return explain(self);
        }
        if (is_done) {
            pending->request = 0;
            return DL_OK;
        }
        dl_status status = dl_mpi_pause(self->comm, &pace, self->op->deadline);
        if (status == DL_OK && pace.naps > 0) {
            status = look_around(self, pending, pace.naps);
        }
        if (status != DL_OK) {
            return pace.is_late ? fail_timeout(self, pending) : status;
        }
    }
}

dl_status
dl_mpi_await(dl_mpi_backend *self, dl_mpi_pending *pending)
{
    dl_status status = pending->request == 0 ? DL_OK : await_request(self, pending);

    dl_blocked_end();
    return status;
}

dl_status
dl_mpi_finish(dl_mpi_backend *self)
{
    for (int i = 0; i < self->pending_count; i++) {
        DL_TRY(dl_mpi_await(self, &self->pending[i]));
        if (i == 0 && !self->is_compared) {
            DL_TRY(compare_cards(self)); /* the first request is that of the cards */
        }
    }
    self->pending_count = 0;
    return dl_op_check_arrays(self->op);
}

/* Tests the requests that are pending, and returns whether MPI has completed all. */
static bool
have_ended(dl_mpi_backend *self)
{
    bool have_all = true;

    for (int i = 0; i < self->pending_count; i++) {
        dl_mpi_handle *request = &self->pending[i].request;
        int is_done = 0;
        if (*request == 0) {
            continue;
        }
        if (dl_mpi_test(self->mpi, request, &is_done) != 0 || is_done) {
            *request = 0;
        }
        have_all &= *request == 0;
    }
    return have_all;
}

/* Leaves memory to MPI until the process ends.  The list is for tools that look for
 * leaks. */
static void
keep_for_good(void *memory)
{
    static struct kept {
        struct kept *next;
        void *memory;
    } *_Atomic all;
    struct kept *made = malloc(sizeof *made);

    if (made != NULL) {
        made->memory = memory;
        made->next = atomic_load(&all);
        while (!atomic_compare_exchange_weak(&all, &made->next, made)) {
        }
    }
}

/* Leaves to MPI what it does not complete soon, with the memory for it. */
static void
leave_pending(dl_mpi_backend *self)
{
    dl_deadline soon = dl_deadline_after(PARTING);

    while (!have_ended(self)) {
        if (!dl_deadline_passed(soon)) {
            sched_yield();
            continue;
        }
        for (int i = 0; i < self->pending_count; i++) {
            if (self->pending[i].request != 0) {
                dl_mpi_comm_leave(self->comm, self->pending[i].request, NULL);
            }
        }
        keep_for_good(self->cards);
        keep_for_good(self->staging.data);
        keep_for_good(self->inbox.data);
        self->cards = NULL;
        self->staging = self->inbox = (dl_buffer){0};
        if (self->uses_arrays) {
            dl_backend_keep_memory();
        }
        return;
    }
}

dl_status
dl_mpi_fail_operation(dl_mpi_backend *self, dl_status status)
{
    dl_error error = *dl_last_error();

    if (dl_mpi_world_is_open()) {
        leave_pending(self);
    }
    self->pending_count = 0;
    dl_mpi_notice_send_failure(self->comm, &error);
    return status == DL_INTERRUPTED ? status : dl_fail_again(&error);
}
