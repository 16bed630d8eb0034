/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/p2p/p2p_state.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* Chunks that are sent or taken at a time. */
#define BURST 4

/* Arrays of at least this size are written past the caches, for they do not fit into
 * them. */
#define LARGE ((size_t)4 << 20)

static void
copy_out(dl_message *send, size_t offset, void *target, size_t size)
{
    dl_p2p_peer *peer = &send->engine->peers[send->peer];

    if (send->tensor.is_contiguous && size < DL_SLOT_WRITER_LEAST) {
        memcpy(target, (const char *)send->tensor.data + offset, size);
    } else if (peer->link == NULL) {
        dl_slot_gather(&peer->writer, target, &send->tensor, offset, size);
    } else {
        dl_strided_gather_part(target, &send->tensor, offset, size);
    }
}

static void
copy_in(const dl_tensor *tensor, size_t offset, const void *source, size_t size)
{
    if (!tensor->is_contiguous) {
        dl_strided_scatter_part(tensor, source, offset, size);
    } else if (dl_tensor_size(tensor) >= LARGE) {
        dl_copy_streaming((char *)tensor->data + offset, source, size);
    } else {
        memcpy((char *)tensor->data + offset, source, size);
    }
}

static dl_message *
message_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_message, node);
}

/* The search is short: the oldest message is usually the one asked for. */
static dl_message *
find(dl_list *list, int peer, uint64_t id)
{
    for (dl_list *node = list->next; node != list; node = node->next) {
        if (message_of(node)->id == id && message_of(node)->peer == peer) {
            return message_of(node);
        }
    }
    return NULL;
}

static dl_channel *
channel_to(const dl_p2p *engine, int rank)
{
    return engine->peers[rank].channel;
}

static uint8_t *
reserve(const dl_p2p *engine, int rank, size_t size)
{
    dl_channel *channel = channel_to(engine, rank);

    return channel->ops->reserve(channel, size);
}

static void
publish(const dl_p2p *engine, int rank, const dl_frame *frame)
{
    dl_channel *channel = channel_to(engine, rank);

    channel->ops->publish(channel, frame);
}

/* Bytes that are unsent to `peer`.  A message ends when its frames are in the channel,
 * but only a thread that drives the engine moves them on to a peer that may be waiting
 * for nothing else. */
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

/* A frame never overtakes others that still wait for room. */
void
dl_p2p_control(dl_p2p *engine, int rank, const dl_frame *frame)
{
    dl_p2p_peer *peer = &engine->peers[rank];

    if (peer->controls.size == 0 && reserve(engine, rank, 0) != NULL) {
        publish(engine, rank, frame);
    } else {
        dl_buffer_put(&peer->controls,
                      (dl_bytes){(const uint8_t *)frame, sizeof *frame});
    }
    engine->is_owing |= owed_to(peer) > 0;
    /* Without this frame the peer would wait forever. */
    if (dl_buffer_check(&peer->controls) != DL_OK) {
        dl_p2p_break(engine);
    }
}

/* Both lists are in the order of time, and both sides take the first match: messages
 * from one source with one tag are received in the order in which they were sent. */

static bool
is_for(const dl_message *receive, int source, const dl_frame *frame)
{
    bool is_tag = receive->tag == frame->tag
                  || (receive->tag == DL_ANY_TAG && frame->tag != DL_OBJECT_TAG);

    return is_tag && (receive->peer == DL_ANY_RANK || receive->peer == source);
}

/* Ends a probe that has found its message, which stays where it is. */
static void
report(dl_message *probe, const dl_arrival *arrival)
{
    const dl_frame *frame = &arrival->frame;

    *probe->probed = (dl_probed){.source = arrival->source,
                                 .tag = frame->tag,
                                 .size = frame->total,
                                 .dtype = (dl_dtype)frame->dtype,
                                 .opaque_code = frame->code};
    probe->work.source = arrival->source;
    dl_p2p_end(probe, DL_OK);
}

/* Ends the probes that look for a message which no receive has taken. */
static void
report_to_all(dl_p2p *engine, const dl_arrival *arrival)
{
    dl_list *posted = &engine->posted;

    for (dl_list *node = posted->next; node != posted;) {
        dl_message *probe = message_of(node);
        node = node->next;
        if (probe->probed != NULL && is_for(probe, arrival->source, &arrival->frame)) {
            report(probe, arrival);
        }
    }
}

static bool
fits(const dl_message *receive, const dl_frame *frame)
{
    return frame->total <= receive->size
           && frame->dtype == (uint8_t)receive->tensor.dtype
           && frame->code == receive->tensor.opaque_code;
}

static void
refuse(dl_message *receive, const dl_frame *frame)
{
    dl_frame answer = {
        .id = frame->id,
        .total = receive->size,
        .kind = DL_FRAME_REFUSE,
        .dtype = (uint8_t)receive->tensor.dtype,
        .code = receive->tensor.opaque_code,
    };

    dl_p2p_control(receive->engine, receive->peer, &answer);
    dl_p2p_end(receive, dl_p2p_fail_refused(receive, frame));
}

static void
take_in(dl_message *receive, const dl_frame *frame, const uint8_t *contents)
{
    dl_frame answer = {
        .id = frame->id, .tag = (int64_t)receive->id, .kind = DL_FRAME_ACCEPT};

    receive->total = frame->total;
    receive->peer_id = frame->id;
    dl_p2p_control(receive->engine, receive->peer, &answer);
    if (frame->size < frame->total) {
        receive->state = DL_MESSAGE_FILLING;
        dl_list_remove(&receive->node);
        dl_list_append(&receive->engine->filling, &receive->node);
        return;
    }
    if (frame->size > 0) {
        copy_in(&receive->tensor, 0, contents, frame->size);
    }
    dl_p2p_end(receive, DL_OK);
}

static void
match(dl_message *receive, int source, const dl_frame *frame, const uint8_t *contents)
{
    receive->peer = source;
    receive->work.source = source;
    if (!dl_p2p_is_in_place(receive)) {
        dl_frame answer = {.id = frame->id, .kind = DL_FRAME_STOP};
        dl_p2p_control(receive->engine, source, &answer);
    } else if (fits(receive, frame)) {
        take_in(receive, frame, contents);
    } else {
        refuse(receive, frame);
    }
}

static dl_arrival *
arrival_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_arrival, node);
}

void
dl_p2p_match_posted(dl_message *receive)
{
    dl_list *arrivals = &receive->engine->arrivals;
    dl_list *node = arrivals->next;

    while (node != arrivals
           && !is_for(receive, arrival_of(node)->source, &arrival_of(node)->frame)) {
        node = node->next;
    }
    if (node == arrivals) {
        return;
    }
    dl_arrival *arrival = arrival_of(node);
    if (receive->probed != NULL) {
        report(receive, arrival);
        return;
    }
    dl_list_remove(node);
    match(receive, arrival->source, &arrival->frame, arrival->contents);
    free(arrival);
}

/* Handles a MESSAGE frame.  Returns false when there is no memory to keep it; it then
 * has to stay in the channel. */
static bool
match_frame(dl_p2p *engine, int source, const dl_received *message)
{
    const dl_frame *frame = message->frame;
    dl_list *posted = &engine->posted;

    for (dl_list *node = posted->next; node != posted; node = node->next) {
        dl_message *receive = message_of(node);
        if (receive->probed == NULL && is_for(receive, source, frame)) {
            match(receive, source, frame, message->contents);
            return true;
        }
    }
    dl_arrival *arrival = malloc(sizeof *arrival + frame->size);
    if (arrival == NULL) {
        return false;
    }
    *arrival = (dl_arrival){.source = source, .frame = *frame};
    memcpy(arrival->contents, message->contents, frame->size);
    dl_list_append(&engine->arrivals, &arrival->node);
    report_to_all(engine, arrival);
    return true;
}

/* Discards an unmatched message that its sender has cancelled. */
static void
drop_arrival(dl_p2p *engine, int source, uint64_t id)
{
    dl_list *arrivals = &engine->arrivals;

    for (dl_list *node = arrivals->next; node != arrivals; node = node->next) {
        dl_arrival *arrival = arrival_of(node);
        if (arrival->source == source && arrival->frame.id == id) {
            dl_list_remove(node);
            free(arrival);
            return;
        }
    }
}

static bool
flush_controls(dl_p2p *engine, int rank)
{
    dl_p2p_peer *peer = &engine->peers[rank];
    bool has_moved = false;

    while (peer->controls.size > 0 && reserve(engine, rank, 0) != NULL) {
        dl_frame frame;
        memcpy(&frame, peer->controls.data, sizeof frame);
        dl_buffer_consume(&peer->controls, sizeof frame);
        publish(engine, rank, &frame);
        has_moved = true;
    }
    return has_moved;
}

static bool
offer(dl_p2p *engine, dl_message *send)
{
    size_t size = send->size <= engine->eager ? send->size : 0;
    uint8_t *contents = reserve(engine, send->peer, size);

    if (contents == NULL) {
        return false;
    }
    if (size > 0) {
        copy_out(send, 0, contents, size);
    }
    dl_frame frame = {
        .id = send->id,
        .tag = send->tag,
        .total = send->size,
        .size = (uint16_t)size,
        .kind = DL_FRAME_MESSAGE,
        .dtype = (uint8_t)send->tensor.dtype,
        .code = send->tensor.opaque_code,
    };
    publish(engine, send->peer, &frame);
    send->moved = size;
    send->state = DL_MESSAGE_OFFERED;
    dl_list_remove(&send->node);
    dl_list_append(&engine->offered, &send->node);
    return true;
}

static bool
offer_queued(dl_p2p *engine, int rank)
{
    dl_list *queued = &engine->peers[rank].queued;
    bool has_moved = false;

    while (!dl_list_is_empty(queued)) {
        dl_message *send = message_of(queued->next);
        if (dl_p2p_is_in_place(send) && !offer(engine, send)) {
            break;
        }
        has_moved = true;
    }
    return has_moved;
}

static bool
stream(dl_p2p *engine, dl_message *send)
{
    size_t left = send->size - send->moved;
    size_t size = left < engine->chunk ? left : engine->chunk;
    uint8_t *contents = reserve(engine, send->peer, size);

    if (contents == NULL) {
        return false;
    }
    copy_out(send, send->moved, contents, size);
    dl_frame frame = {
        .id = send->peer_id, .size = (uint16_t)size, .kind = DL_FRAME_DATA};
    publish(engine, send->peer, &frame);
    send->moved += size;
    return true;
}

/* Puts a send whose data are all in the channel among those that drain, or ends it.  A
 * ring is memory that outlives this process, but the buffer of a link does not: a send
 * over a link ends only when the kernel has accepted everything, so that not even
 * _exit(2) right after it loses data. */
static void
end_streamed(dl_p2p *engine, dl_message *send)
{
    dl_p2p_peer *peer = &engine->peers[send->peer];

    if (peer->link == NULL) {
        dl_p2p_end(send, DL_OK);
        return;
    }
    send->drained_at = peer->link->published;
    dl_list_remove(&send->node);
    dl_list_append(&peer->draining, &send->node);
}

static bool
end_drained(dl_p2p_peer *peer)
{
    dl_list *draining = &peer->draining;
    bool has_moved = false;

    while (!dl_list_is_empty(draining)
           && message_of(draining->next)->drained_at <= peer->link->flushed) {
        dl_p2p_end(message_of(draining->next), DL_OK);
        has_moved = true;
    }
    return has_moved;
}

/* Returns the number of chunks that are sent, or taken, before it is the other's turn:
 * one of a message of a few chunks, which both sides are to move at the same time. */
static int
burst_of(const dl_p2p *engine, const dl_message *send)
{
    return send->size < 8 * engine->chunk ? 1 : BURST;
}

/* Streams one chunk of each send in turn, as long as there is room and nothing arrives:
 * where data go both ways, sending and receiving alternate, so that what either side
 * touches stays in its caches. */
static bool
stream_all(dl_p2p *engine, int rank)
{
    const dl_p2p_peer *peer = &engine->peers[rank];
    dl_list *streaming = &engine->peers[rank].streaming;
    bool has_moved = false;
    int moved = 0;

    while (!dl_list_is_empty(streaming)
           && !(moved >= burst_of(engine, message_of(streaming->next))
                && peer->link == NULL && dl_ring_has_news(&peer->rings.in))) {
        dl_message *send = message_of(streaming->next);
        if (!dl_p2p_is_in_place(send)) {
            has_moved = true;
            continue;
        }
        if (!stream(engine, send)) {
            break;
        }
        has_moved = true;
        moved++;
        if (send->moved == send->size) {
            end_streamed(engine, send);
        } else {
            dl_list_remove(&send->node);
            dl_list_append(streaming, &send->node);
        }
    }
    return has_moved;
}

static void
take_accept(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_message *send = find(&engine->offered, source, frame->id);

    if (send == NULL) {
        return; /* cancelled meanwhile: the CANCEL is on its way */
    }
    if (send->moved == send->size) {
        dl_p2p_end(send, DL_OK);
        return;
    }
    send->peer_id = (uint64_t)frame->tag;
    send->state = DL_MESSAGE_STREAMING;
    dl_list_remove(&send->node);
    dl_list_append(&engine->peers[source].streaming, &send->node);
}

/* Handles a frame that no rank of this version sends.  A link is lost by it.  Returns
 * whether the frame is to be released. */
static bool
reject(dl_p2p *engine, int source)
{
    dl_link_channel *link = engine->peers[source].link;

    if (link != NULL) {
        dl_link_channel_reject(link);
    }
    return link == NULL;
}

static bool
take_message(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;

    return frame->size == 0 || frame->size == frame->total
               ? match_frame(engine, source, received)
               : reject(engine, source);
}

static bool
take_data(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    dl_message *receive = find(&engine->filling, source, frame->id);

    if (receive != NULL && frame->size > receive->total - receive->moved) {
        return reject(engine, source);
    }
    /* Data for a receive that was cancelled are dropped. */
    if (receive == NULL || !dl_p2p_is_in_place(receive)) {
        return true;
    }
    copy_in(&receive->tensor, receive->moved, received->contents, frame->size);
    receive->moved += frame->size;
    if (receive->moved == receive->total) {
        dl_p2p_end(receive, DL_OK);
    }
    return true;
}

static void
take_stop(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_p2p_peer *peer = &engine->peers[source];
    dl_message *send = find(&peer->streaming, source, frame->id);

    send = send == NULL ? find(&peer->draining, source, frame->id) : send;
    send = send == NULL ? find(&engine->offered, source, frame->id) : send;
    if (send != NULL) {
        dl_p2p_end(send, dl_p2p_fail_stopped(send));
    }
}

static void
take_cancel(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_list *filling = &engine->filling;

    for (dl_list *node = filling->next; node != filling; node = node->next) {
        dl_message *receive = message_of(node);
        if (receive->peer == source && receive->peer_id == frame->id) {
            dl_p2p_end(receive, dl_p2p_fail_stopped(receive));
            return;
        }
    }
    drop_arrival(engine, source, frame->id);
}

static void
take_refuse(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_message *send = find(&engine->offered, source, frame->id);

    if (send != NULL) {
        dl_p2p_end(send, dl_p2p_fail_refused(send, frame));
    }
}

static bool
take(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    switch (frame->kind) {
    case DL_FRAME_MESSAGE:
        return take_message(engine, source, received);
    case DL_FRAME_ACCEPT:
        take_accept(engine, source, frame);
        return true;
    case DL_FRAME_REFUSE:
        take_refuse(engine, source, frame);
        return true;
    case DL_FRAME_DATA:
        return take_data(engine, source, received);
    case DL_FRAME_CANCEL:
        take_cancel(engine, source, frame);
        return true;
    case DL_FRAME_STOP:
        take_stop(engine, source, frame);
        return true;
    default:
        return reject(engine, source);
    }
}

/* Returns true if the next frame is better left until a chunk has been sent to the same
 * rank, which waits for that meanwhile. */
static bool
is_turn_to_send(const dl_p2p *engine, int source, const dl_frame *last, int taken)
{
    dl_list *streaming = &engine->peers[source].streaming;

    return last->kind == DL_FRAME_DATA && !dl_list_is_empty(streaming)
           && taken + 1 >= burst_of(engine, message_of(streaming->next));
}

/* Without `may_stream` it takes everything. */
static bool
take_all(dl_p2p *engine, int source, bool may_stream)
{
    dl_channel *channel = channel_to(engine, source);
    dl_received received;
    bool is_last = false;
    int taken = 0;

    while (!is_last && channel->ops->peek(channel, &received)) {
        is_last = may_stream && is_turn_to_send(engine, source, received.frame, taken);
        if (!take(engine, source, &received)) {
            break;
        }
        channel->ops->release(channel);
        taken++;
    }
    return taken > 0;
}

static bool
put_all(dl_p2p *engine, int rank, bool may_stream)
{
    bool has_moved = flush_controls(engine, rank);

    has_moved |= offer_queued(engine, rank);
    if (may_stream) {
        has_moved |= stream_all(engine, rank);
    }
    return end_drained(&engine->peers[rank]) || has_moved;
}

static bool
is_blocked(const dl_p2p_peer *peer)
{
    return peer->controls.size > 0 || !dl_list_is_empty(&peer->queued)
           || !dl_list_is_empty(&peer->streaming) || !dl_list_is_empty(&peer->draining);
}

/* A ring is checked with one load; a link has to read its socket first. */
static bool
has_news(const dl_p2p_peer *peer)
{
    if (peer->link == NULL) {
        return peer->channel != NULL && dl_ring_has_news(&peer->rings.in);
    }
    dl_link_channel_step(peer->link);
    return peer->link->in.end > peer->link->in.start;
}

static bool
progress(dl_p2p *engine, bool may_stream)
{
    bool has_moved = false;
    bool is_any_blocked = false;
    bool is_owing = false;

    for (int rank = 0; rank < engine->size; rank++) {
        const dl_p2p_peer *peer = &engine->peers[rank];
        if (has_news(peer)) {
            has_moved |= take_all(engine, rank, may_stream);
        }
        has_moved |= is_blocked(peer) && put_all(engine, rank, may_stream);
        is_any_blocked |= is_blocked(peer);
        is_owing |= owed_to(peer) > 0;
    }
    engine->is_owing = is_owing;
    atomic_store_explicit(&engine->is_blocked, is_any_blocked, memory_order_relaxed);
    return has_moved;
}

bool
dl_p2p_progress(dl_p2p *engine)
{
    return progress(engine, true);
}

void
dl_p2p_begin(dl_p2p *engine)
{
    (void)progress(engine, false);
}
