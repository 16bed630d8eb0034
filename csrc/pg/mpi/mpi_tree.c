/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_tree.h"

#include "pg/mpi/mpi_cards.h"

/* Operations between two meetings.  They bound how many messages a rank that runs ahead
 * leaves queued at others, and how late a difference is detected. */
#define MOST_AHEAD 64

/* A place is a rank's number from the root on.  Its parent is the place without its
 * lowest bit, and its subtree has as many places as the value of that bit. */
typedef struct place {
    int root;
    int number;
    int below; /* size of its subtree, itself included, up to a power of two */
} place;

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

/* The partner at the place `number`, whose subtree has `below` places. */
static dl_mpi_partner
partner_at(const dl_mpi_comm *comm, const place *own, int number, int below)
{
    int rank = (own->root + number) % comm->size;
    int left = comm->size - number;

    return (dl_mpi_partner){rank, rank, below < left ? below : left, NULL};
}

/* Receives the root's card and array into the buffer, at `at`. */
static dl_status
receive_from_above(dl_mpi_meeting *meeting, const dl_op_context *op, const place *own,
                   size_t at)
{
    dl_mpi_partner parent = partner_at(meeting->comm, own, parent_of(own->number), 1);

    parent.add_needed = add_above;
    DL_TRY(dl_mpi_cards_expect(meeting, parent.rank, at));
    return dl_mpi_cards_receive(meeting, op, &parent, &at);
}

/* The largest subtree comes first: its arrays have the longest way. */
static dl_status
send_below(dl_mpi_meeting *meeting, const dl_op_context *op, const place *own,
           size_t at)
{
    const dl_mpi_comm *comm = meeting->comm;

    for (int step = own->below / 2; step > 0; step /= 2) {
        if (own->number + step < comm->size) {
            dl_mpi_partner child = partner_at(comm, own, own->number + step, step);
            DL_TRY(dl_mpi_cards_send(meeting, child.rank, at));
        }
    }
    return dl_mpi_cards_sent(meeting, op);
}

static dl_status
go_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root)
{
    place own = place_of(meeting->comm, root);
    size_t at = 0;

    if (own.number > 0) {
        at = dl_mpi_cards_measure(meeting, 1);
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
    size_t filled = dl_mpi_cards_measure(meeting, 1);

    for (int step = 1; step < own.below && own.number + step < comm->size; step *= 2) {
        dl_mpi_partner child = partner_at(comm, &own, own.number + step, step);
        child.add_needed = add_below;
        DL_TRY(dl_mpi_cards_expect(meeting, child.rank, filled));
        DL_TRY(dl_mpi_cards_receive(meeting, op, &child, &filled));
    }
    if (own.number == 0) {
        dl_mpi_cards_measure(meeting, comm->size);
        return DL_OK;
    }
    int parent = (root + parent_of(own.number)) % comm->size;
    dl_mpi_card_at(meeting, 0)->sent = (uint32_t)filled;
    DL_TRY(dl_mpi_cards_send(meeting, parent, 0));
    return dl_mpi_cards_sent(meeting, op);
}

/* Begins an operation.  Every so many operations all ranks meet first, with cards only:
 * if every rank took itself for the root, their arrays would not have room.  All ranks
 * count alike, or the cards differ. */
static dl_status
begin(dl_mpi_meeting *meeting, const dl_op_context *op, dl_bytes array)
{
    dl_mpi_contribution own = {array, DL_MPI_ONE_WAY};

    if (++meeting->ahead > MOST_AHEAD) {
        DL_TRY(dl_mpi_meet(meeting, op, &(dl_mpi_contribution){0}));
    }
    return dl_mpi_cards_begin(meeting, op, &own);
}

dl_status
dl_mpi_tree_down(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
                 dl_bytes array)
{
    bool is_root = meeting->comm->rank == root;

    DL_TRY(begin(meeting, op, is_root ? array : (dl_bytes){NULL, 0}));
    return dl_mpi_cards_end(meeting, go_down(meeting, op, root));
}

dl_status
dl_mpi_tree_up(dl_mpi_meeting *meeting, const dl_op_context *op, int root,
               dl_bytes array)
{
    DL_TRY(begin(meeting, op, array));
    return dl_mpi_cards_end(meeting, go_up(meeting, op, root));
}
