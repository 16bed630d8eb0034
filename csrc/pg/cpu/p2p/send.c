/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/p2p/p2p_state.h"
#include "tensor/strided.h"

/* Chunks that are sent or taken at a time: with the largest ones half a ring.  The memory
 * that a side reads and writes in turn is then the same for longer. */
#define BURST 16

/* Bytes of a rank's messages that wait for a receive.  With more of them, a send to the
 * rank that keeps them ends only when it is accepted: a sender that is faster than its
 * receiver would otherwise fill the receiver's memory. */
#define MOST_KEPT ((uint64_t)1 << 20)

static void
copy_out(dl_p2p_peer *peer, const dl_tensor *tensor, size_t offset, void *target,
         size_t size)
{
    if (tensor->is_contiguous && size < DL_SLOT_WRITER_LEAST) {
        memcpy(target, (const char *)tensor->data + offset, size);
    } else if (peer->link == NULL) {
        dl_slot_gather(&peer->writer, target, tensor, offset, size);
    } else {
        dl_strided_gather_part(target, tensor, offset, size);
    }
}

/* The first frame of a message. */
typedef struct opening {
    uint8_t kind;
    size_t size;    /* of its payload */
    size_t allowed; /* bytes that may follow at once, with these */
} opening;

/* Returns what a message that waits for a receive costs its receiver. */
static uint64_t
cost_of(const dl_message *send)
{
    return sizeof(dl_arrival) + send->size;
}

/* Returns true if a send to the rank need not wait to be accepted: it receives its
 * messages as fast as they come.  A rank of another host has said so with the last
 * message that it accepted; what was sent after that may be kept, too. */
static bool
keeps_up(const dl_p2p_peer *peer)
{
    uint64_t kept =
        dl_p2p_is_here(peer)
            ? atomic_load_explicit(&peer->rings.out.words->kept, memory_order_relaxed)
            : peer->kept_there + (peer->sent_ahead - peer->known_ahead);

    return kept <= MOST_KEPT;
}

/* The smallest part of a message that its sender waits for, and the most parts.  The
 * receiver copies a part out while the sender copies the next one in; more parts cost
 * more than that saves.  Where nobody waits for the send, the receive has usually been
 * posted, too, and each part costs it a search; and a send with others is usually one of
 * those that two ranks exchange, so that the receiver copies in at the same time. */
#define LEAST_PART ((size_t)8 << 10)
#define LARGEST_PART ((size_t)32 << 10)
#define MOST_PARTS 4

/* Returns the bytes of each part but the last one. */
static size_t
part_of(const dl_p2p *engine, const dl_message *send)
{
    size_t part = dl_round_up(send->size / MOST_PARTS, DL_LINE);

    if (!send->is_awaited || !send->is_alone || send->size > engine->window
        || engine->peers[send->peer].link != NULL) {
        return engine->chunk;
    }
    part = part < LEAST_PART ? LEAST_PART : dl_min_size(part, LARGEST_PART);
    return dl_min_size(part, engine->chunk);
}

static opening
opening_of(const dl_p2p *engine, const dl_message *send)
{
    const dl_p2p_peer *peer = &engine->peers[send->peer];
    size_t size = send->size;
    bool is_ahead = keeps_up(peer);

    if (!is_ahead || !dl_p2p_is_here(peer)) {
        size_t first = size <= engine->chunk ? size : 0;
        bool is_whole = is_ahead && first == size;
        return (opening){is_whole ? DL_FRAME_EAGER : DL_FRAME_RTS, first, first};
    }
    bool is_sent = size <= engine->window;
    size_t first = dl_min_size(size, part_of(engine, send));
    return (opening){
        .kind = is_sent ? DL_FRAME_EAGER : DL_FRAME_RTS,
        .size = first,
        .allowed = is_sent ? size : first,
    };
}

static void
move_to(dl_message *send, dl_message_state state, dl_list *list)
{
    send->state = state;
    dl_list_remove(&send->node);
    dl_list_append(list, &send->node);
}

/* To be called after bytes of the send have been put into the channel. */
static void
sort_send(dl_p2p *engine, dl_message *send)
{
    dl_p2p_peer *peer = &engine->peers[send->peer];

    if (send->moved < send->allowed) {
        move_to(send, DL_MESSAGE_STREAMING, &peer->streaming);
    } else if (!send->is_accepted) {
        move_to(send, DL_MESSAGE_OFFERED, &engine->offered);
    } else if (peer->link == NULL) {
        dl_p2p_end(send, DL_OK);
    } else {
        /* A ring is memory that outlives this process, but the buffer of a link does
         * not: a send over a link ends only when the kernel has accepted everything, so
         * that not even _exit(2) right after it loses data. */
        send->state = DL_MESSAGE_STREAMING;
        send->drained_at = peer->link->published;
        dl_list_remove(&send->node);
        dl_list_append(&peer->draining, &send->node);
    }
}

static dl_frame
head_of(const dl_message *send, const opening *first)
{
    return (dl_frame){
        .id = send->id,
        .tag = send->tag,
        .total = send->size,
        .size = (uint16_t)first->size,
        .kind = first->kind,
        .dtype = (uint8_t)send->tensor.dtype,
        .code = send->tensor.opaque_code,
    };
}

bool
dl_p2p_is_sending(const dl_p2p_peer *peer)
{
    return peer->controls.size > 0 || !dl_list_is_empty(&peer->queued)
           || !dl_list_is_empty(&peer->streaming) || !dl_list_is_empty(&peer->draining);
}

/* Puts the next bytes of a message into the channel; false if there is no room. */
static bool
put_part(dl_p2p *engine, const dl_message *send, const dl_frame *frame)
{
    uint8_t *contents = dl_p2p_reserve(engine, send->peer, frame->size);

    if (contents == NULL) {
        return false;
    }
    if (frame->size > 0) {
        copy_out(&engine->peers[send->peer], &send->tensor, send->moved, contents,
                 frame->size);
    }
    dl_p2p_publish(engine, send->peer, frame);
    return true;
}

static bool
offer_send(dl_p2p *engine, dl_message *send)
{
    opening first = opening_of(engine, send);
    dl_frame frame = head_of(send, &first);

    if (!put_part(engine, send, &frame)) {
        return false;
    }
    send->moved = first.size;
    send->allowed = first.allowed;
    send->is_accepted = first.kind == DL_FRAME_EAGER;
    dl_p2p_peer *peer = &engine->peers[send->peer];
    peer->sent_ahead += send->is_accepted ? cost_of(send) : 0;
    send->sent_ahead = peer->sent_ahead;
    sort_send(engine, send);
    return true;
}

static bool
offer_queued(dl_p2p *engine, int rank)
{
    dl_list *queued = &engine->peers[rank].queued;
    bool has_moved = false;

    while (!dl_list_is_empty(queued)) {
        dl_message *send = dl_p2p_message_of(queued->next);
        if (dl_p2p_is_in_place(send) && !offer_send(engine, send)) {
            break;
        }
        has_moved = true;
    }
    return has_moved;
}

static bool
stream_send(dl_p2p *engine, dl_message *send)
{
    size_t size = dl_min_size(send->allowed - send->moved, part_of(engine, send));
    dl_frame frame = {.id = send->id, .size = (uint16_t)size, .kind = DL_FRAME_DATA};

    if (!put_part(engine, send, &frame)) {
        return false;
    }
    send->moved += size;
    return true;
}

static bool
end_drained(dl_p2p_peer *peer)
{
    dl_list *draining = &peer->draining;
    bool has_moved = false;

    while (!dl_list_is_empty(draining)
           && dl_p2p_message_of(draining->next)->drained_at <= peer->link->flushed) {
        dl_p2p_end(dl_p2p_message_of(draining->next), DL_OK);
        has_moved = true;
    }
    return has_moved;
}

/* Returns the number of chunks that are sent before some are received, or the reverse:
 * one for a message of a few chunks, which both sides are to move at the same time. */
int
dl_p2p_burst_of(const dl_p2p *engine, const dl_message *send)
{
    return send->size < 8 * engine->chunk ? 1 : BURST;
}

/* Streams one chunk of each send in turn, as long as there is room and nothing arrives:
 * where data go both ways, sending and receiving alternate, so that the memory that
 * either side touches stays in its caches. */
static bool
stream_all(dl_p2p *engine, int rank)
{
    const dl_p2p_peer *peer = &engine->peers[rank];
    dl_list *streaming = &engine->peers[rank].streaming;
    bool has_moved = false;
    int moved = 0;

    while (!dl_list_is_empty(streaming)
           && !(moved >= dl_p2p_burst_of(engine, dl_p2p_message_of(streaming->next))
                && peer->link == NULL && dl_ring_has_frame(&peer->rings.in))) {
        dl_message *send = dl_p2p_message_of(streaming->next);
        if (!dl_p2p_is_in_place(send)) {
            has_moved = true;
            continue;
        }
        if (!stream_send(engine, send)) {
            break;
        }
        has_moved = true;
        moved++;
        sort_send(engine, send);
    }
    return has_moved;
}

void
dl_p2p_take_cts(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_message *send = dl_p2p_find(&engine->offered, source, frame->id);
    bool is_small = send != NULL && send->moved == send->size;

    send = send == NULL
               ? dl_p2p_find(&engine->peers[source].streaming, source, frame->id)
               : send;
    if (send == NULL) {
        return; /* cancelled meanwhile: the CANCEL is on its way */
    }
    engine->peers[source].kept_there = frame->total;
    engine->peers[source].known_ahead = send->sent_ahead;
    if (is_small) {
        dl_p2p_end(send, DL_OK);
        return;
    }
    send->is_accepted = true;
    send->allowed = send->size;
    sort_send(engine, send);
}

void
dl_p2p_take_stop(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_p2p_peer *peer = &engine->peers[source];
    dl_message *send = dl_p2p_find(&peer->streaming, source, frame->id);

    send = send == NULL ? dl_p2p_find(&peer->draining, source, frame->id) : send;
    send = send == NULL ? dl_p2p_find(&engine->offered, source, frame->id) : send;
    if (send != NULL) {
        dl_p2p_end(send, dl_p2p_fail_stopped(send));
    }
}

void
dl_p2p_take_refuse(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_message *send = dl_p2p_find(&engine->offered, source, frame->id);

    if (send != NULL) {
        dl_p2p_end(send, dl_p2p_fail_refused(send, frame));
    }
}

bool
dl_p2p_send_more(dl_p2p *engine, int rank, bool may_stream)
{
    bool has_moved = offer_queued(engine, rank);

    if (may_stream) {
        has_moved |= stream_all(engine, rank);
    }
    return end_drained(&engine->peers[rank]) || has_moved;
}

void
dl_p2p_put(dl_message *send)
{
    dl_p2p *engine = send->engine;
    dl_p2p_peer *peer = &engine->peers[send->peer];
    bool is_free = peer->link == NULL || dl_link_channel_is_free(peer->link);

    if (!is_free || peer->controls.size > 0) {
        dl_p2p_begin(engine);
    }
    (void)offer_queued(engine, send->peer);
    (void)end_drained(peer);
    while (send->state == DL_MESSAGE_STREAMING && peer->link == NULL
           && stream_send(engine, send)) {
        sort_send(engine, send);
    }
    if (send->state != DL_MESSAGE_ENDED && dl_p2p_is_sending(peer)) {
        atomic_store_explicit(&engine->is_blocked, true, memory_order_relaxed);
    }
}
