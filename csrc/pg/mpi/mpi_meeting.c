/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_meeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pg/record/blocked_threads.h"
#include "pg/mpi/mpi_news.h"
#include "pg/agree/rank_keys.h"
#include "pg/record/wait_graph.h"

/* Bytes of the arrays of all ranks together: copying so much a few times costs less
 * than a collective of MPI. */
#define ROOM ((size_t)16 << 10)
#define MOST_OF_ONE ((size_t)8192)
#define MOST_OF_ALL ((size_t)8192)

/* Up to so many ranks send to each other directly: more messages, but none waits
 * for another.  Measured up to this number with four ranks per core: never
 * slower than rounds. */
#define MOST_DIRECT 8

/* More than the bits of a rank number, and so more than the children of a rank in a
 * tree. */
#define MOST_CHILDREN 32

/* How long ranks that have all called an operation may take to send that they go on. */
#define MOST_BOUND DL_SECOND

/* After so many operations a rank receives news, even if it never had to wait. */
#define LISTEN_EVERY 64

/* How long MPI may take to complete the messages of an operation that failed. */
#define PARTING (100 * DL_MILLISECOND)

/* Set among a card's flags if it travels along a tree. */
#define ONE_WAY 8

/* Operations between two meetings.  They bound how many messages a rank that runs ahead
 * leaves queued at others, and how late a difference is detected. */
#define MOST_AHEAD 64

/* An odd number without a pattern of bits: 2^64 divided by the golden ratio. */
#define MULTIPLIER UINT64_C(0x9e3779b97f4a7c15)

/* Precedes each array, at a multiple of 8 bytes. */
typedef struct card {
    dl_fingerprint fingerprint;
    uint32_t sequence; /* low half; likewise the digest */
    uint32_t digest;
    uint32_t sent; /* bytes of all cards and arrays of this message */
    uint16_t size; /* bytes of the array */
    uint16_t flags;
} card;

/* Adds the ranks beyond `partner` that must call the operation before it can
 * end on this rank.  The partner itself may be merely slow, while one of these
 * waits for this rank. */
typedef void (*needed_fn)(const dl_mpi_comm *comm, const dl_op_context *op, int partner,
                          dl_awaited *awaited);

/* The peer of a message, which also brings the cards of `count` ranks from `first` on;
 * these reach this rank by no other way. */
typedef struct peer {
    int rank;
    int first;
    int count;
    needed_fn add_needed; /* NULL: no other rank is needed */
} peer;

/* A place is a rank's number from the root on.  Its parent is the place without its
 * lowest bit, and its subtree has as many places as the value of that bit. */
typedef struct place {
    int root;
    int number;
    int below; /* size of its subtree, itself included, up to a power of two */
} place;

static uint64_t
mix(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * MULTIPLIER;
    return digest ^ digest >> 29;
}

void
dl_mpi_history_note(dl_mpi_history *history, const dl_op_context *op)
{
    dl_fingerprint *newest = &history->called[history->newest % DL_MPI_REMEMBERED];
    uint64_t words[2];

    if (op->sequence == history->newest) {
        return;
    }
    _Static_assert(sizeof words == sizeof *newest, "no gaps in a fingerprint");
    memcpy(words, newest, sizeof words);
    history->digest = mix(mix(history->digest, words[0]), words[1]);
    history->newest = op->sequence;
    history->called[op->sequence % DL_MPI_REMEMBERED] = op->fingerprint;
}

const dl_fingerprint *
dl_mpi_history_at(const dl_mpi_history *history, uint64_t sequence)
{
    bool is_known = sequence > 0 && sequence <= history->newest
                    && history->newest - sequence < DL_MPI_REMEMBERED;

    return is_known ? &history->called[sequence % DL_MPI_REMEMBERED] : NULL;
}

static card *
card_at(const dl_mpi_meeting *meeting, size_t at)
{
    return (card *)(void *)(meeting->buffer + at);
}

static card *
card_of(const dl_mpi_meeting *meeting, int rank)
{
    return card_at(meeting, meeting->offsets[rank]);
}

/* Returns the size of a card with its array, up to the next card. */
static size_t
card_size(const card *self)
{
    return sizeof *self + (((size_t)self->size + 7) & ~(size_t)7);
}

dl_status
dl_mpi_meeting_init(dl_mpi_meeting *meeting, dl_mpi_comm *comm)
{
    size_t count = (size_t)comm->size;

    meeting->comm = comm;
    meeting->segment = (size_t)comm->mpi->eager_size;
    /* Up to seven bytes of padding follow an array. */
    meeting->capacity = count * (sizeof(card) + 8) + ROOM;
    meeting->buffer = calloc(1, meeting->capacity + meeting->segment);
    meeting->offsets = calloc(count, sizeof *meeting->offsets);
    meeting->sent = calloc((meeting->capacity / meeting->segment + 1) * MOST_CHILDREN,
                           sizeof *meeting->sent);
    bool is_whole =
        meeting->buffer != NULL && meeting->offsets != NULL && meeting->sent != NULL;
    return is_whole ? DL_OK : dl_fail_no_memory();
}

void
dl_mpi_meeting_fini(dl_mpi_meeting *meeting)
{
    if (meeting->comm != NULL) {
        dl_mpi_news_end(meeting);
    }
    free(meeting->buffer);
    free(meeting->offsets);
    free(meeting->sent);
}

size_t
dl_mpi_meeting_room(const dl_mpi_meeting *meeting)
{
    size_t share = ROOM / (size_t)meeting->comm->size;

    return share < MOST_OF_ONE ? share : MOST_OF_ONE;
}

size_t
dl_mpi_meeting_room_for_one(void)
{
    return MOST_OF_ALL;
}

const void *
dl_mpi_meeting_array(const dl_mpi_meeting *meeting, int rank)
{
    return card_of(meeting, rank) + 1;
}

/* Begins an operation: adds it to the history, and writes this rank's card and array to
 * the start of the buffer, as a message of its own.  Fails if the communicator was
 * aborted or MPI has ended. */
static dl_status
begin_operation(dl_mpi_meeting *meeting, const dl_op_context *op,
                const dl_mpi_contribution *own)
{
    card *mine = card_at(meeting, 0);

    DL_TRY(dl_mpi_comm_admit(meeting->comm));
    dl_mpi_history_note(&meeting->history, op);
    mine->fingerprint = op->fingerprint;
    mine->sequence = (uint32_t)op->sequence;
    mine->digest = (uint32_t)meeting->history.digest;
    mine->size = (uint16_t)own->array.size;
    mine->flags = (uint16_t)own->flags;
    mine->sent = (uint32_t)card_size(mine);
    if (own->array.size > 0) {
        memcpy(mine + 1, own->array.data, own->array.size);
    }
    meeting->sent_count = 0;
    meeting->unheard++;
    return DL_OK;
}

/* Returns the size of the cards of `count` ranks, which lie in the buffer from this
 * rank's card on, and sets their offsets. */
static size_t
measure(dl_mpi_meeting *meeting, int count)
{
    const dl_mpi_comm *comm = meeting->comm;
    size_t at = 0;

    for (int i = 0; i < count; i++) {
        int rank = (comm->rank + i) % comm->size;
        meeting->offsets[rank] = at;
        at += card_size(card_of(meeting, rank));
    }
    return at;
}

static dl_status
fail_timeout(const dl_mpi_meeting *meeting, const dl_op_context *op,
             const peer *missing, bool is_here)
{
    const dl_mpi_comm *comm = meeting->comm;
    dl_rank_list ranks = {.count = 0};

    for (int i = 0; i < missing->count; i++) {
        dl_rank_list_add(&ranks, (missing->first + i) % comm->size);
    }
    dl_rank_list_end(&ranks);
    dl_fail(DL_TIMEOUT,
            "%s #%" PRIu64 " in group %.100s timed out after %" PRId64
            "ms on rank %d of %d",
            dl_op_type_name(op->fingerprint.op), op->sequence, comm->group_name,
            op->deadline.limit / DL_MILLISECOND, comm->rank, comm->size);
    dl_error error = *dl_last_error();
    const char *plural = missing->count == 1 ? "" : "s";
    return is_here
               ? dl_fail(DL_TIMEOUT,
                         "%.500s: rank%s %s called it, but made no further progress; "
                         "`distlite ps` shows what each does",
                         error.text, plural, ranks.text)
               : dl_fail(
                     DL_TIMEOUT,
                     "%.500s: nothing was received from rank%s %s; those that called "
                     "it wait for another of them; `distlite ps` shows what each does",
                     error.text, plural, ranks.text);
}

/* Publishes what this thread waits for, for the search for deadlocks. */
static void
note_wait(const dl_mpi_comm *comm, const dl_op_context *op, const peer *other)
{
    dl_awaited awaited = {.count = 0};

    dl_awaited_add(&awaited, other->rank);
    if (other->add_needed != NULL) {
        other->add_needed(comm, op, other->rank, &awaited);
    }
    dl_blocked_look(op->record, &awaited, op->deadline);
}

/* Waits for a request; `bound_until` is that of dl_mpi_pace. */
static dl_status
await_card(dl_mpi_meeting *meeting, const dl_op_context *op, const peer *other,
           dl_mpi_handle *request, int64_t bound_until)
{
    dl_mpi_comm *comm = meeting->comm;
    dl_mpi_pace pace = {.bound_until = bound_until, .awaited = other->rank + 1};
    int is_done = 0;

    for (;;) {
        int result = comm->mpi->test(request, &is_done, NULL);
        if (result != 0) {
            return dl_mpi_check(comm->mpi, result, "MPI_Test");
        }
        if (is_done) {
            return DL_OK;
        }
        dl_status status = dl_mpi_pause(comm, &pace, op->deadline);
        if (pace.naps > 0) {
            note_wait(comm, op, other);
        }
        if (status == DL_OK && pace.naps > 0) {
            status = dl_mpi_news_exchange(meeting, other->rank, pace.naps);
        }
        if (status != DL_OK) {
            return pace.is_late ? fail_timeout(meeting, op, other, bound_until != 0)
                                : status;
        }
    }
}

static dl_status
await_request(dl_mpi_meeting *meeting, const dl_op_context *op, const peer *other,
              dl_mpi_handle *request, int64_t bound_until)
{
    dl_status status = await_card(meeting, op, other, request, bound_until);

    dl_blocked_end();
    return status;
}

static bool
ends_before(const dl_mpi_table *mpi, dl_mpi_handle *request, dl_deadline deadline)
{
    int is_done = 0;

    while (!is_done && mpi->test(request, &is_done, NULL) == 0) {
        if (!is_done && dl_deadline_passed(deadline)) {
            return false;
        }
    }
    return is_done != 0;
}

/* Cancels what is pending.  Requests that MPI does not complete soon are left to it,
 * with the buffer. */
static void
cancel_pending(dl_mpi_meeting *meeting)
{
    dl_mpi_comm *comm = meeting->comm;
    const dl_mpi_table *mpi = comm->mpi;
    dl_deadline soon = dl_deadline_after(PARTING);
    bool is_left = false;

    atomic_store(&comm->has_pending, true);
    if (meeting->is_receiving) {
        mpi->cancel(&meeting->received);
        if (!ends_before(mpi, &meeting->received, soon)) {
            dl_mpi_leftover_add(mpi, meeting->received, NULL);
            is_left = true;
        }
    }
    for (int i = 0; i < meeting->sent_count; i++) {
        if (!ends_before(mpi, &meeting->sent[i].request, soon)) {
            dl_mpi_leftover_add(mpi, meeting->sent[i].request, NULL);
            is_left = true;
        }
    }
    meeting->is_receiving = false;
    meeting->sent_count = 0;
    if (is_left) {
        meeting->buffer = NULL;
    }
}

/* Ends an operation with `status`, which it returns.  After a failure it sends the
 * other ranks the reason, and cancels the requests with which MPI could still write to
 * the buffer. */
static dl_status
finish_operation(dl_mpi_meeting *meeting, dl_status status)
{
    if (status == DL_OK) {
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    dl_mpi_news_send_failure(meeting->comm, &error);
    if (status == DL_MISMATCH) {
        dl_mpi_news_end(meeting); /* it may be long until this rank calls MPI again */
    }
    cancel_pending(meeting);
    return status == DL_INTERRUPTED ? status : dl_fail_again(&error);
}

/* Describes the segment that begins at `at` in a message of `size` bytes. */
static dl_mpi_part
segment_at(const dl_mpi_meeting *meeting, char *data, size_t size, size_t at)
{
    size_t left = size - at, most = meeting->segment;

    return (dl_mpi_part){data + at, (int)(left < most ? left : most),
                         meeting->comm->mpi->byte};
}

static dl_status
send_part(dl_mpi_meeting *meeting, int to, int tag, const dl_mpi_part *part)
{
    const dl_mpi_comm *comm = meeting->comm;
    dl_mpi_pending_send *sent = &meeting->sent[meeting->sent_count];

    sent->to = to;
    DL_TRY(dl_mpi_check(comm->mpi,
                        comm->mpi->isend(part, to, tag, comm->handle, &sent->request),
                        "MPI_Isend"));
    meeting->sent_count++;
    return DL_OK;
}

/* Starts to send the message that lies `at` bytes into the buffer; its first
 * card has its length. */
static dl_status
send_message(dl_mpi_meeting *meeting, int to, size_t at)
{
    char *message = meeting->buffer + at;
    size_t size = card_at(meeting, at)->sent;

    for (size_t done = 0; done < size; done += meeting->segment) {
        dl_mpi_part part = segment_at(meeting, message, size, done);
        DL_TRY(send_part(meeting, to, DL_MPI_OWN_TAG, &part));
    }
    return DL_OK;
}

/* Waits until MPI has completed all sends. */
static dl_status
await_sends(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    for (int i = 0; i < meeting->sent_count; i++) {
        dl_mpi_pending_send *sent = &meeting->sent[i];
        peer taker = {sent->to, sent->to, 1, NULL};
        DL_TRY(await_request(meeting, op, &taker, &sent->request, 0));
    }
    meeting->sent_count = 0;
    return DL_OK;
}

static dl_status
expect_part(dl_mpi_meeting *meeting, int from, int tag, const dl_mpi_part *part)
{
    const dl_mpi_comm *comm = meeting->comm;
    int result = comm->mpi->irecv(part, from, tag, comm->handle, &meeting->received);

    meeting->is_receiving = result == 0;
    return dl_mpi_check(comm->mpi, result, "MPI_Irecv");
}

/* Posts the receive of a message's first segment, `at` bytes into the buffer. */
static dl_status
expect_message(dl_mpi_meeting *meeting, int from, size_t at)
{
    dl_mpi_part first = {meeting->buffer + at, (int)meeting->segment,
                         meeting->comm->mpi->byte};

    return expect_part(meeting, from, DL_MPI_OWN_TAG, &first);
}

/* Checks the first card of a message.  In a meeting, calls are compared only after each
 * rank has the cards of all, so that all ranks fail with the same text. */
static dl_status
check_first_card(dl_mpi_meeting *meeting, int from, const card *first, size_t at)
{
    const card *mine = card_at(meeting, 0);
    bool is_one_way = (mine->flags & ONE_WAY) != 0;
    bool is_due = first->sequence == mine->sequence
                  && (first->flags & ONE_WAY) == (mine->flags & ONE_WAY)
                  && first->sent <= meeting->capacity - at;
    bool is_same = first->digest == mine->digest
                   && dl_fingerprint_equal(&first->fingerprint, &mine->fingerprint);

    return is_due && (is_same || !is_one_way)
               ? DL_OK
               : dl_mpi_news_refuse(meeting, from, first->sequence,
                                    &first->fingerprint);
}

/* Waits for a message whose first segment was posted, receives the rest of it, and
 * advances `*at` to its end.  Fails with DL_MISMATCH if its first card does not belong
 * to the operation, and with DL_TIMEOUT, DL_INTERRUPTED or the reason of an abort. */
static dl_status
receive_message(dl_mpi_meeting *meeting, const dl_op_context *op, const peer *from,
                size_t *at)
{
    char *inbox = meeting->buffer + *at;
    const card *first = card_at(meeting, *at);

    for (size_t got = meeting->segment;; got += meeting->segment) {
        DL_TRY(await_request(meeting, op, from, &meeting->received, 0));
        meeting->is_receiving = false;
        if (got == meeting->segment) {
            DL_TRY(check_first_card(meeting, from->rank, first, *at));
        }
        if (got >= first->sent) {
            *at += first->sent;
            return DL_OK;
        }
        dl_mpi_part next = segment_at(meeting, inbox, first->sent, got);
        DL_TRY(expect_part(meeting, from->rank, DL_MPI_OWN_TAG, &next));
    }
}

/* Sends an empty message, which states that this rank goes on with the operation. */
static dl_status
send_go(dl_mpi_meeting *meeting, int to)
{
    dl_mpi_part nothing = {meeting->buffer, 0, meeting->comm->mpi->byte};

    return send_part(meeting, to, DL_MPI_GO_TAG, &nothing);
}

/* Waits for such a message.  Until `bound_until` neither the deadline nor a signal nor
 * an abort ends that wait. */
static dl_status
receive_go(dl_mpi_meeting *meeting, const dl_op_context *op, int from,
           int64_t bound_until)
{
    dl_mpi_part nothing = {meeting->buffer, 0, meeting->comm->mpi->byte};
    peer sender = {from, from, 1, NULL};

    DL_TRY(expect_part(meeting, from, DL_MPI_GO_TAG, &nothing));
    DL_TRY(await_request(meeting, op, &sender, &meeting->received, bound_until));
    meeting->is_receiving = false;
    return DL_OK;
}

static int
rank_at(const dl_mpi_comm *comm, int distance)
{
    return (comm->rank + distance + comm->size) % comm->size;
}

/* Every rank has to come.  Cards are received from this rank's successor on, so those
 * of the ranks before `partner` have arrived. */
static void
add_all(const dl_mpi_comm *comm, const dl_op_context *op, int partner,
        dl_awaited *awaited)
{
    (void)op;
    for (int rank = (partner + 1) % comm->size; rank != comm->rank;
         rank = (rank + 1) % comm->size) {
        dl_awaited_add_unless_begun(awaited, rank);
    }
}

/* For few ranks: each sends its own card to all others. */
static dl_status
exchange_directly(dl_mpi_meeting *meeting, const dl_op_context *op, size_t *filled)
{
    const dl_mpi_comm *comm = meeting->comm;

    DL_TRY(expect_message(meeting, rank_at(comm, 1), *filled));
    for (int distance = 1; distance < comm->size; distance++) {
        DL_TRY(send_message(meeting, rank_at(comm, -distance), 0));
    }
    for (int distance = 1; distance < comm->size; distance++) {
        int from = rank_at(comm, distance);
        if (distance > 1) {
            DL_TRY(expect_message(meeting, from, *filled));
        }
        peer unknown = {from, from, 1, add_all};
        DL_TRY(receive_message(meeting, op, &unknown, filled));
    }
    return await_sends(meeting, op);
}

/* One round.  Before it, `*filled` bytes of the buffer hold the cards of
 * `distance` ranks. */
static dl_status
exchange_round(dl_mpi_meeting *meeting, const dl_op_context *op, int distance,
               size_t *filled)
{
    const dl_mpi_comm *comm = meeting->comm;
    int before = rank_at(comm, -distance), behind = rank_at(comm, distance);
    int left = comm->size - distance;
    peer unknown = {behind, behind, left, add_all};

    DL_TRY(expect_message(meeting, behind, *filled));
    card_at(meeting, 0)->sent =
        (uint32_t)measure(meeting, distance < left ? distance : left);
    DL_TRY(send_message(meeting, before, 0));
    DL_TRY(receive_message(meeting, op, &unknown, filled));
    return await_sends(meeting, op);
}

/* All ranks have the same cards, so all fail with the same text. */
static dl_status
compare_cards(dl_mpi_meeting *meeting)
{
    const card *first = card_of(meeting, 0);

    meeting->flags = 0;
    for (int rank = 0; rank < meeting->comm->size; rank++) {
        const card *theirs = card_of(meeting, rank);
        meeting->flags |= theirs->flags;
        if (first->digest != theirs->digest
            || !dl_fingerprint_equal(&first->fingerprint, &theirs->fingerprint)) {
            dl_mpi_call calls[2] = {
                {0, meeting->history.newest, &first->fingerprint},
                {rank, meeting->history.newest, &theirs->fingerprint},
            };
            atomic_store(&meeting->comm->has_told, true);
            return dl_mpi_differ(meeting, calls);
        }
    }
    return DL_OK;
}

static dl_status
exchange_cards(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    int size = meeting->comm->size;
    size_t filled = measure(meeting, 1);

    if (meeting->unheard >= LISTEN_EVERY) {
        meeting->unheard = 0;
        DL_TRY(dl_mpi_news_receive(meeting));
    }
    if (size > 1 && size <= MOST_DIRECT) {
        DL_TRY(exchange_directly(meeting, op, &filled));
    }
    for (int distance = 1; size > MOST_DIRECT && distance < size; distance *= 2) {
        DL_TRY(exchange_round(meeting, op, distance, &filled));
    }
    measure(meeting, size);
    return compare_cards(meeting);
}

dl_status
dl_mpi_meet(dl_mpi_meeting *meeting, const dl_op_context *op,
            const dl_mpi_contribution *own)
{
    DL_TRY(begin_operation(meeting, op, own));
    meeting->ahead = 0;
    return finish_operation(meeting, exchange_cards(meeting, op));
}

static dl_status
exchange_go(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    const dl_mpi_comm *comm = meeting->comm;
    int64_t bound_until = dl_now() + MOST_BOUND;

    if (comm->size <= MOST_DIRECT) {
        for (int distance = 1; distance < comm->size; distance++) {
            DL_TRY(send_go(meeting, rank_at(comm, -distance)));
        }
        for (int distance = 1; distance < comm->size; distance++) {
            int from = rank_at(comm, distance);
            DL_TRY(receive_go(meeting, op, from, bound_until));
        }
        return await_sends(meeting, op);
    }
    /* With each round this rank knows of twice as many ranks that go on. */
    for (int distance = 1; distance < comm->size; distance *= 2) {
        int behind = rank_at(comm, distance);
        DL_TRY(send_go(meeting, rank_at(comm, -distance)));
        DL_TRY(receive_go(meeting, op, behind, bound_until));
        DL_TRY(await_sends(meeting, op));
    }
    return DL_OK;
}

dl_status
dl_mpi_meeting_commit(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    return finish_operation(meeting, exchange_go(meeting, op));
}

static place
place_of(const dl_mpi_comm *comm, int root)
{
    int number = (comm->rank - root + comm->size) % comm->size;
    int below = number == 0 ? 1 : number & -number;

    while (number == 0 && below < comm->size) {
        below *= 2;
    }
    return (place){root, number, below};
}

static int
parent_of(int number)
{
    return number & (number - 1);
}

/* An array comes down through each place from the root to the parent. */
static void
add_above(const dl_mpi_comm *comm, const dl_op_context *op, int parent,
          dl_awaited *awaited)
{
    int root = (int)op->fingerprint.root;
    int number = (parent - root + comm->size) % comm->size;

    while (number > 0) {
        number = parent_of(number);
        dl_awaited_add_unless_begun(awaited, (root + number) % comm->size);
    }
}

/* Arrays come up from all places of the subtree, in their order. */
static void
add_below(const dl_mpi_comm *comm, const dl_op_context *op, int child,
          dl_awaited *awaited)
{
    place own = place_of(comm, (int)op->fingerprint.root);
    int first = (child - own.root + comm->size) % comm->size + 1;

    for (int i = first; i < own.number + own.below && i < comm->size; i++) {
        dl_awaited_add_unless_begun(awaited, (own.root + i) % comm->size);
    }
}

/* Returns the peer at the place `number`, whose subtree has `below` places. */
static peer
peer_at(const dl_mpi_comm *comm, const place *own, int number, int below)
{
    int rank = (own->root + number) % comm->size;
    int left = comm->size - number;

    return (peer){rank, rank, below < left ? below : left, NULL};
}

/* Receives the root's card and array into the buffer, at `at`. */
static dl_status
receive_from_above(dl_mpi_meeting *meeting, const dl_op_context *op, const place *own,
                   size_t at)
{
    peer parent = peer_at(meeting->comm, own, parent_of(own->number), 1);

    parent.add_needed = add_above;
    DL_TRY(expect_message(meeting, parent.rank, at));
    return receive_message(meeting, op, &parent, &at);
}

/* The largest subtree comes first: its arrays have the longest way. */
static dl_status
send_below(dl_mpi_meeting *meeting, const dl_op_context *op, const place *own,
           size_t at)
{
    const dl_mpi_comm *comm = meeting->comm;

    for (int step = own->below / 2; step > 0; step /= 2) {
        if (own->number + step < comm->size) {
            peer child = peer_at(comm, own, own->number + step, step);
            DL_TRY(send_message(meeting, child.rank, at));
        }
    }
    return await_sends(meeting, op);
}

static dl_status
go_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root)
{
    place own = place_of(meeting->comm, root);
    size_t at = 0;

    if (own.number > 0) {
        at = measure(meeting, 1);
        DL_TRY(receive_from_above(meeting, op, &own, at));
    }
    meeting->offsets[root] = at;
    return send_below(meeting, op, &own, at);
}

/* Cards lie in the buffer in the order of places, as the places of a subtree
 * are consecutive. */
static dl_status
go_up(dl_mpi_meeting *meeting, const dl_op_context *op, int root)
{
    const dl_mpi_comm *comm = meeting->comm;
    place own = place_of(comm, root);
    size_t filled = measure(meeting, 1);

    for (int step = 1; step < own.below && own.number + step < comm->size; step *= 2) {
        peer child = peer_at(comm, &own, own.number + step, step);
        child.add_needed = add_below;
        DL_TRY(expect_message(meeting, child.rank, filled));
        DL_TRY(receive_message(meeting, op, &child, &filled));
    }
    if (own.number == 0) {
        measure(meeting, comm->size);
        return DL_OK;
    }
    int parent = (root + parent_of(own.number)) % comm->size;
    card_at(meeting, 0)->sent = (uint32_t)filled;
    DL_TRY(send_message(meeting, parent, 0));
    return await_sends(meeting, op);
}

/* Begins an operation.  Every so many operations all ranks meet first, with cards only:
 * if every rank took itself for the root, their arrays would not have room.  All ranks
 * count alike, or the cards differ. */
static dl_status
begin_one_way(dl_mpi_meeting *meeting, const dl_op_context *op, dl_bytes array)
{
    dl_mpi_contribution own = {array, ONE_WAY};

    if (++meeting->ahead > MOST_AHEAD) {
        DL_TRY(dl_mpi_meet(meeting, op, &(dl_mpi_contribution){0}));
    }
    return begin_operation(meeting, op, &own);
}

dl_status
dl_mpi_tree_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                 dl_bytes array)
{
    bool is_root = meeting->comm->rank == root;

    DL_TRY(begin_one_way(meeting, op, is_root ? array : (dl_bytes){NULL, 0}));
    return finish_operation(meeting, go_down(meeting, op, root));
}

dl_status
dl_mpi_tree_up(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
               dl_bytes array)
{
    DL_TRY(begin_one_way(meeting, op, array));
    return finish_operation(meeting, go_up(meeting, op, root));
}
