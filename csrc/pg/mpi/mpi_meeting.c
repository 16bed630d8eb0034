/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_meeting.h"

#include <stdlib.h>

#include "pg/mpi/mpi_cards.h"
#include "pg/mpi/mpi_news.h"

/* Bytes of the arrays of all ranks together: copying so much a few times costs less
 * than a collective of MPI. */
#define ROOM ((size_t)16 << 10)
#define MOST_OF_ONE ((size_t)8192)
#define MOST_OF_ALL ((size_t)8192)

/* Up to so many ranks send to each other directly: more messages, but none waits
 * for another.  Measured up to this number with four ranks per core: never
 * slower than rounds. */
#define MOST_DIRECT 8

/* More than a rank has bits, and thus more than a rank has children in a tree. */
#define MOST_CHILDREN 32

/* How long ranks that have all called an operation may take to say that they go on. */
#define MOST_BOUND DL_SECOND

/* After so many operations a rank listens to news, even if it never had to wait. */
#define LISTEN_EVERY 64

dl_status
dl_mpi_meeting_init(dl_mpi_meeting *meeting, dl_mpi_comm *comm)
{
    size_t count = (size_t)comm->size;

    meeting->comm = comm;
    meeting->segment = (size_t)comm->mpi->eager_size;
    /* Up to seven bytes of padding follow an array. */
    meeting->capacity = count * (sizeof(dl_mpi_card) + 8) + ROOM;
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
    return dl_mpi_card_of(meeting, rank) + 1;
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

    DL_TRY(dl_mpi_cards_expect(meeting, rank_at(comm, 1), *filled));
    for (int distance = 1; distance < comm->size; distance++) {
        DL_TRY(dl_mpi_cards_send(meeting, rank_at(comm, -distance), 0));
    }
    for (int distance = 1; distance < comm->size; distance++) {
        int from = rank_at(comm, distance);
        if (distance > 1) {
            DL_TRY(dl_mpi_cards_expect(meeting, from, *filled));
        }
        dl_mpi_partner unknown = {from, from, 1, add_all};
        DL_TRY(dl_mpi_cards_receive(meeting, op, &unknown, filled));
    }
    return dl_mpi_cards_sent(meeting, op);
}

/* One round.  Before it, `*filled` bytes of the buffer hold the cards of
 * `distance` ranks. */
static dl_status
exchange(dl_mpi_meeting *meeting, const dl_op_context *op, int distance, size_t *filled)
{
    const dl_mpi_comm *comm = meeting->comm;
    int before = rank_at(comm, -distance), behind = rank_at(comm, distance);
    int left = comm->size - distance;
    dl_mpi_partner unknown = {behind, behind, left, add_all};

    DL_TRY(dl_mpi_cards_expect(meeting, behind, *filled));
    dl_mpi_card_at(meeting, 0)->sent =
        (uint32_t)dl_mpi_cards_measure(meeting, distance < left ? distance : left);
    DL_TRY(dl_mpi_cards_send(meeting, before, 0));
    DL_TRY(dl_mpi_cards_receive(meeting, op, &unknown, filled));
    return dl_mpi_cards_sent(meeting, op);
}

/* All ranks have the same cards, so all fail with the same text. */
static dl_status
compare(dl_mpi_meeting *meeting)
{
    const dl_mpi_card *first = dl_mpi_card_of(meeting, 0);

    meeting->flags = 0;
    for (int rank = 0; rank < meeting->comm->size; rank++) {
        const dl_mpi_card *theirs = dl_mpi_card_of(meeting, rank);
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
meet(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    int size = meeting->comm->size;
    size_t filled = dl_mpi_cards_measure(meeting, 1);

    if (meeting->unheard >= LISTEN_EVERY) {
        meeting->unheard = 0;
        DL_TRY(dl_mpi_news_hear(meeting));
    }
    if (size > 1 && size <= MOST_DIRECT) {
        DL_TRY(exchange_directly(meeting, op, &filled));
    }
    for (int distance = 1; size > MOST_DIRECT && distance < size; distance *= 2) {
        DL_TRY(exchange(meeting, op, distance, &filled));
    }
    dl_mpi_cards_measure(meeting, size);
    return compare(meeting);
}

dl_status
dl_mpi_meet(dl_mpi_meeting *meeting, const dl_op_context *op,
            const dl_mpi_contribution *own)
{
    DL_TRY(dl_mpi_cards_begin(meeting, op, own));
    meeting->ahead = 0;
    return dl_mpi_cards_end(meeting, meet(meeting, op));
}

static dl_status
commit(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    const dl_mpi_comm *comm = meeting->comm;
    int64_t bound_until = dl_now() + MOST_BOUND;

    if (comm->size <= MOST_DIRECT) {
        for (int distance = 1; distance < comm->size; distance++) {
            DL_TRY(dl_mpi_cards_send_go(meeting, rank_at(comm, -distance)));
        }
        for (int distance = 1; distance < comm->size; distance++) {
            int from = rank_at(comm, distance);
            DL_TRY(dl_mpi_cards_receive_go(meeting, op, from, bound_until));
        }
        return dl_mpi_cards_sent(meeting, op);
    }
    /* With each round this rank knows of twice as many ranks that go on. */
    for (int distance = 1; distance < comm->size; distance *= 2) {
        int behind = rank_at(comm, distance);
        DL_TRY(dl_mpi_cards_send_go(meeting, rank_at(comm, -distance)));
        DL_TRY(dl_mpi_cards_receive_go(meeting, op, behind, bound_until));
        DL_TRY(dl_mpi_cards_sent(meeting, op));
    }
    return DL_OK;
}

dl_status
dl_mpi_meeting_commit(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    return dl_mpi_cards_end(meeting, commit(meeting, op));
}
