/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "pg/cpu/p2p/p2p_state.h"

/* The search is short: the oldest message is usually the one asked for. */
dl_message *
dl_p2p_find(dl_list *list, int peer, uint64_t id)
{
    for (dl_list *node = list->next; node != list; node = node->next) {
        if (dl_p2p_message_of(node)->id == id
            && dl_p2p_message_of(node)->peer == peer) {
            return dl_p2p_message_of(node);
        }
    }
    return NULL;
}

uint8_t *
dl_p2p_reserve(const dl_p2p *engine, int rank, size_t size)
{
    dl_channel *channel = engine->peers[rank].channel;

    return channel->ops->reserve(channel, size);
}

void
dl_p2p_publish(const dl_p2p *engine, int rank, const dl_frame *frame)
{
    dl_channel *channel = engine->peers[rank].channel;

    channel->ops->publish(channel, frame);
}

/* Returns the bytes that are unsent to `peer`.  A message ends when its frames are in
 * the channel, but only a thread that drives the engine moves them on to a peer that
 * may wait for them. */
static size_t
owed_to(const dl_p2p_peer *peer)
{
    size_t held = peer->link == NULL ? 0 : dl_link_channel_owed(peer->link);

    return peer->is_gone ? 0 : held + peer->controls.size;
}

size_t
dl_p2p_owed(const dl_p2p *engine)
{
    size_t sum = 0;

    for (int rank = 0; rank < engine->size; rank++) {
        sum += owed_to(&engine->peers[rank]);
    }
    return sum;
}

bool
dl_p2p_has_work(const dl_p2p *engine)
{
    return engine->pending > 0
           || (engine->is_owing && !engine->is_aborted && !engine->is_closed);
}

static bool
put_control(dl_p2p *engine, int rank, const dl_frame *frame)
{
    bool has_room = dl_p2p_reserve(engine, rank, 0) != NULL;

    if (has_room) {
        dl_p2p_publish(engine, rank, frame);
    }
    return has_room;
}

/* A frame never overtakes others that still wait for room. */
void
dl_p2p_control(dl_p2p *engine, int rank, const dl_frame *frame)
{
    dl_p2p_peer *peer = &engine->peers[rank];

    if (peer->controls.size > 0 || !put_control(engine, rank, frame)) {
        dl_buffer_put(&peer->controls,
                      (dl_bytes){(const uint8_t *)frame, sizeof *frame});
    }
    engine->is_owing |= owed_to(peer) > 0;
    /* Without this frame the peer would wait forever. */
    if (dl_buffer_check(&peer->controls) != DL_OK) {
        dl_p2p_break(engine);
    }
}

static bool
flush_controls(dl_p2p *engine, int rank)
{
    dl_p2p_peer *peer = &engine->peers[rank];
    bool has_moved = false;

    while (peer->controls.size > 0) {
        dl_frame frame;
        memcpy(&frame, peer->controls.data, sizeof frame);
        if (!put_control(engine, rank, &frame)) {
            break;
        }
        dl_buffer_consume(&peer->controls, sizeof frame);
        has_moved = true;
    }
    return has_moved;
}

bool
dl_p2p_reject(dl_p2p *engine, int source)
{
    dl_link_channel *link = engine->peers[source].link;

    if (link != NULL) {
        dl_link_channel_reject(link);
    }
    return link == NULL;
}

static bool
take_frame(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    switch (frame->kind) {
    case DL_FRAME_RTS:
    case DL_FRAME_EAGER:
        return dl_p2p_take_message(engine, source, received);
    case DL_FRAME_CTS:
        dl_p2p_take_cts(engine, source, frame);
        return true;
    case DL_FRAME_REFUSE:
        dl_p2p_take_refuse(engine, source, frame);
        return true;
    case DL_FRAME_DATA:
        return dl_p2p_take_data(engine, source, received);
    case DL_FRAME_CANCEL:
        dl_p2p_take_cancel(engine, source, frame);
        return true;
    case DL_FRAME_STOP:
        dl_p2p_take_stop(engine, source, frame);
        return true;
    default:
        return dl_p2p_reject(engine, source);
    }
}

/* Returns true if the next frame is to be left until a chunk has been sent to the same
 * rank, which waits for it meanwhile. */
static bool
is_turn_to_send(const dl_p2p *engine, int source, const dl_frame *last, int taken)
{
    dl_list *streaming = &engine->peers[source].streaming;

    return last->kind == DL_FRAME_DATA && !dl_list_is_empty(streaming)
           && taken + 1 >= dl_p2p_burst_of(engine, dl_p2p_message_of(streaming->next));
}

/* Returns true if a message has ended and no receive is posted: the next message would
 * have to be kept, but goes straight into its array if it stays in the channel until
 * its receive is posted. */
static bool
is_enough(const dl_p2p *engine, bool may_stream)
{
    return may_stream && !dl_list_is_empty(&engine->ended)
           && dl_list_is_empty(&engine->posted);
}

/* Without `may_stream` it takes everything. */
static bool
take_all_frames(dl_p2p *engine, int source, bool may_stream)
{
    dl_channel *channel = engine->peers[source].channel;
    dl_received received;
    bool is_last = false;
    int taken = 0;

    while (!is_last && !is_enough(engine, may_stream)
           && channel->ops->peek(channel, &received)) {
        is_last = may_stream && is_turn_to_send(engine, source, received.frame, taken);
        if (!take_frame(engine, source, &received)) {
            break;
        }
        channel->ops->release(channel);
        taken++;
    }
    return taken > 0;
}

/* A ring is checked with one load; a link has to read its socket first. */
static bool
has_frames(const dl_p2p_peer *peer)
{
    if (peer->link == NULL) {
        return peer->channel != NULL && dl_ring_has_frame(&peer->rings.in);
    }
    dl_link_channel_step(peer->link);
    return peer->link->in.end > peer->link->in.start;
}

static bool
make_progress(dl_p2p *engine, bool may_stream)
{
    bool has_moved = false;
    bool is_any_blocked = false;
    bool is_owing = false;

    for (int rank = 0; rank < engine->size; rank++) {
        const dl_p2p_peer *peer = &engine->peers[rank];
        if (has_frames(peer)) {
            has_moved |= take_all_frames(engine, rank, may_stream);
        }
        if (dl_p2p_is_sending(peer)) {
            has_moved |= flush_controls(engine, rank);
            has_moved |= dl_p2p_send_more(engine, rank, may_stream);
        }
        is_any_blocked |= dl_p2p_is_sending(peer);
        is_owing |= owed_to(peer) > 0;
    }
    engine->is_owing = is_owing;
    atomic_store_explicit(&engine->is_blocked, is_any_blocked, memory_order_relaxed);
    return has_moved;
}

/* How often a receive polls the ring for the next part of a message, which a sender that
 * runs has there within a few microseconds.  What is to be sent goes first: the other
 * rank may wait for it in the same way. */
#define PART_POLLS 2000

/* Returns the next frame of the ring if it is to be taken for `receive`: the beginning of
 * an EAGER message that it may be waiting for, or what follows.  Otherwise NULL. */
static const dl_frame *
next_for(const dl_ring *in, const dl_message *receive, int polls)
{
    const dl_frame *frame = dl_ring_peek(in);

    for (int i = 0; frame == NULL && receive->state == DL_MESSAGE_FILLING && i < polls;
         i++) {
        frame = dl_ring_peek(in);
    }
    bool is_due =
        frame != NULL
        && (receive->state == DL_MESSAGE_FILLING || frame->kind == DL_FRAME_EAGER);
    return is_due ? frame : NULL;
}

static void
take_eager_from(dl_p2p *engine, int source, const dl_message *receive)
{
    dl_p2p_peer *peer = &engine->peers[source];
    dl_ring_channel *rings = &peer->rings;
    bool has_core = engine->options.board->waiter.spin > 0;
    bool may_poll = receive->is_awaited && has_core && !dl_p2p_is_sending(peer);
    int polls = may_poll ? PART_POLLS : 0;
    const dl_frame *frame;

    while (receive->state != DL_MESSAGE_ENDED
           && (frame = next_for(&rings->in, receive, polls)) != NULL) {
        dl_received received = {frame, dl_ring_payload(&rings->in)};
        if (!take_frame(engine, source, &received)) {
            return;
        }
        rings->base.ops->release(&rings->base);
    }
}

void
dl_p2p_take_eager(dl_message *receive)
{
    dl_p2p *engine = receive->engine;
    int first = receive->peer == DL_ANY_RANK ? 0 : receive->peer;
    int last = receive->peer == DL_ANY_RANK ? engine->size - 1 : receive->peer;

    for (int rank = first; rank <= last && receive->state == DL_MESSAGE_POSTED;
         rank++) {
        if (dl_p2p_is_here(&engine->peers[rank])) {
            take_eager_from(engine, rank, receive);
        }
    }
}

bool
dl_p2p_progress(dl_p2p *engine)
{
    return make_progress(engine, true);
}

void
dl_p2p_begin(dl_p2p *engine)
{
    (void)make_progress(engine, false);
}
