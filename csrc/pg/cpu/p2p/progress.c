/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/p2p/p2p_state.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* Chunks that are sent or taken at a time: with the largest ones half a ring.  The memory
 * that a side reads and writes in turn is then the same for longer. */
#define BURST 16

static size_t
min_size(size_t left, size_t right)
{
    return left < right ? left : right;
}

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

static void
copy_in(const dl_p2p *engine, const dl_tensor *tensor, size_t offset,
        const void *source, size_t size)
{
    if (!tensor->is_contiguous) {
        dl_strided_scatter_part(tensor, source, offset, size);
    } else if (dl_tensor_size(tensor) >= engine->large) {
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

/* Bytes of a rank's messages that wait for a receive.  With more of them, a send to the
 * rank that keeps them ends only when it is accepted: a sender that is faster than its
 * receiver would otherwise fill the receiver's memory. */
#define MOST_KEPT ((uint64_t)1 << 20)

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
put_control(dl_p2p *engine, int rank, const dl_frame *frame, const void *contents)
{
    uint8_t *room = reserve(engine, rank, frame->size);

    if (room == NULL) {
        return false;
    }
    if (frame->size > 0) {
        memcpy(room, contents, frame->size);
    }
    publish(engine, rank, frame);
    return true;
}

/* A frame never overtakes others that still wait for room. */
void
dl_p2p_control(dl_p2p *engine, int rank, const dl_frame *frame, const void *contents)
{
    dl_p2p_peer *peer = &engine->peers[rank];

    if (peer->controls.size > 0 || !put_control(engine, rank, frame, contents)) {
        dl_buffer_put(&peer->controls,
                      (dl_bytes){(const uint8_t *)frame, sizeof *frame});
        dl_buffer_put(&peer->controls, (dl_bytes){contents, frame->size});
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

static dl_probed
probed_of(int source, const dl_frame *frame)
{
    return (dl_probed){.source = source,
                       .tag = frame->tag,
                       .size = frame->total,
                       .dtype = (dl_dtype)frame->dtype,
                       .opaque_code = frame->code};
}

/* Ends a probe that has found its message, which stays where it is. */
static void
report(dl_message *probe, const dl_arrival *arrival)
{
    *probe->probed = probed_of(arrival->source, &arrival->frame);
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
fits(const dl_tensor *tensor, const dl_frame *frame)
{
    return frame->total <= dl_tensor_size(tensor)
           && frame->dtype == (uint8_t)tensor->dtype
           && frame->code == tensor->opaque_code;
}

static void
refuse(dl_message *receive, const dl_frame *frame)
{
    dl_sent sent = {.total = frame->total, .code = frame->code, .dtype = frame->dtype};
    dl_frame answer = {
        .id = frame->id,
        .tag = frame->tag,
        .total = receive->size,
        .size = frame->kind == DL_FRAME_SENT ? sizeof sent : 0,
        .kind = DL_FRAME_REFUSE,
        .dtype = (uint8_t)receive->tensor.dtype,
        .code = receive->tensor.opaque_code,
    };

    if (frame->kind == DL_FRAME_SENT) {
        atomic_fetch_add(
            &receive->engine->peers[receive->peer].rings.in.words->refusals, 1);
    }
    dl_p2p_control(receive->engine, receive->peer, &answer, &sent);
    dl_p2p_end(receive, dl_p2p_fail_refused(receive, frame));
}

/* `got` bytes of the message have arrived. */
static void
take_in(dl_message *receive, const dl_frame *frame, const uint8_t *contents, size_t got)
{
    receive->total = frame->total;
    receive->id = frame->id;
    if (frame->kind == DL_FRAME_MESSAGE) {
        dl_frame answer = {.id = frame->id, .kind = DL_FRAME_ACCEPT};
        dl_p2p_control(receive->engine, receive->peer, &answer, NULL);
    }
    if (got > 0) {
        copy_in(receive->engine, &receive->tensor, 0, contents, got);
        receive->moved = got;
    }
    if (got == frame->total) {
        dl_p2p_end(receive, DL_OK);
        return;
    }
    receive->state = DL_MESSAGE_FILLING;
    dl_list_remove(&receive->node);
    dl_list_append(&receive->engine->filling, &receive->node);
}

static void
match(dl_message *receive, int source, const dl_frame *frame, const uint8_t *contents,
      size_t got)
{
    receive->peer = source;
    receive->work.source = source;
    if (!dl_p2p_is_in_place(receive)) {
        dl_frame answer = {.id = frame->id, .kind = DL_FRAME_STOP};
        dl_p2p_control(receive->engine, source, &answer, NULL);
    } else if (fits(&receive->tensor, frame)) {
        take_in(receive, frame, contents, got);
    } else {
        refuse(receive, frame);
    }
}

static dl_arrival *
arrival_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_arrival, node);
}

/* Publishes the number for senders of this host, which read it before they send. */
static void
count_kept(dl_p2p *engine, int source, uint64_t kept)
{
    dl_p2p_peer *peer = &engine->peers[source];

    peer->kept = kept;
    if (peer->link == NULL) {
        atomic_store_explicit(&peer->rings.in.words->kept, kept, memory_order_relaxed);
    }
}

static size_t
cost_of(const dl_arrival *arrival)
{
    return sizeof *arrival + arrival->room;
}

static void
drop(dl_p2p *engine, dl_arrival *arrival)
{
    count_kept(engine, arrival->source,
               engine->peers[arrival->source].kept - cost_of(arrival));
    dl_list_remove(&arrival->node);
    free(arrival);
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
    match(receive, arrival->source, &arrival->frame, arrival->contents, arrival->got);
    drop(receive->engine, arrival);
}

/* Returns the bytes of a message that may arrive before it is received. */
static size_t
room_for(const dl_p2p *engine, const dl_frame *frame)
{
    if (frame->size == 0) {
        return 0;
    }
    return min_size((size_t)frame->total, engine->window);
}

static dl_arrival *
keep(dl_p2p *engine, int source, const dl_received *message)
{
    const dl_frame *frame = message->frame;
    size_t room = room_for(engine, frame);
    dl_arrival *arrival = malloc(sizeof *arrival + room);

    if (arrival != NULL) {
        *arrival = (dl_arrival){
            .source = source, .frame = *frame, .room = room, .got = frame->size};
        memcpy(arrival->contents, message->contents, frame->size);
        dl_list_append(&engine->arrivals, &arrival->node);
        count_kept(engine, source, engine->peers[source].kept + cost_of(arrival));
    }
    return arrival;
}

/* Handles a frame that begins a message.  Returns false when there is no memory to keep
 * it; it then has to stay in the channel. */
static bool
match_frame(dl_p2p *engine, int source, const dl_received *message)
{
    const dl_frame *frame = message->frame;
    dl_list *posted = &engine->posted;

    for (dl_list *node = posted->next; node != posted; node = node->next) {
        dl_message *receive = message_of(node);
        if (receive->probed == NULL && is_for(receive, source, frame)) {
            match(receive, source, frame, message->contents, frame->size);
            return true;
        }
    }
    dl_arrival *arrival = keep(engine, source, message);
    if (arrival == NULL) {
        return false;
    }
    report_to_all(engine, arrival);
    return true;
}

static dl_arrival *
find_arrival(dl_p2p *engine, int source, uint64_t id)
{
    dl_list *arrivals = &engine->arrivals;

    for (dl_list *node = arrivals->next; node != arrivals; node = node->next) {
        dl_arrival *arrival = arrival_of(node);
        if (arrival->source == source && arrival->frame.id == id) {
            return arrival;
        }
    }
    return NULL;
}

static bool
flush_controls(dl_p2p *engine, int rank)
{
    dl_p2p_peer *peer = &engine->peers[rank];
    bool has_moved = false;

    while (peer->controls.size > 0) {
        dl_frame frame;
        memcpy(&frame, peer->controls.data, sizeof frame);
        if (!put_control(engine, rank, &frame, peer->controls.data + sizeof frame)) {
            break;
        }
        dl_buffer_consume(&peer->controls, sizeof frame + frame.size);
        has_moved = true;
    }
    return has_moved;
}

/* The first frame of a message. */
typedef struct opening {
    uint8_t kind;
    size_t size;    /* of its payload */
    size_t allowed; /* bytes that may follow at once, with these */
} opening;

/* Returns true if a send to the rank need not wait to be accepted: it is on this host,
 * and receives its messages as fast as they come. */
static bool
keeps_up(const dl_p2p_peer *peer)
{
    return dl_p2p_is_here(peer)
           && atomic_load_explicit(&peer->rings.out.words->kept, memory_order_relaxed)
                  <= MOST_KEPT;
}

static opening
opening_of(const dl_p2p *engine, const dl_message *send)
{
    size_t size = send->size;

    if (!keeps_up(&engine->peers[send->peer])) {
        size_t first = size <= engine->eager ? size : 0;
        return (opening){DL_FRAME_MESSAGE, first, first};
    }
    bool is_sent = size <= engine->window;
    size_t first = min_size(size, engine->chunk);
    return (opening){
        .kind = is_sent ? DL_FRAME_SENT : DL_FRAME_MESSAGE,
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
settle(dl_p2p *engine, dl_message *send)
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
        send->drained_at = peer->link->published;
        dl_list_remove(&send->node);
        dl_list_append(&peer->draining, &send->node);
    }
}

static dl_frame
head_of(const dl_tensor *tensor, int64_t tag, const opening *first)
{
    return (dl_frame){
        .tag = tag,
        .total = dl_tensor_size(tensor),
        .size = (uint16_t)first->size,
        .kind = first->kind,
        .dtype = (uint8_t)tensor->dtype,
        .code = tensor->opaque_code,
    };
}

static bool
is_blocked(const dl_p2p_peer *peer)
{
    return peer->controls.size > 0 || !dl_list_is_empty(&peer->queued)
           || !dl_list_is_empty(&peer->streaming) || !dl_list_is_empty(&peer->draining);
}

/* Puts the next bytes of a message into the channel; false if there is no room. */
static bool
put_part(dl_p2p *engine, int rank, const dl_tensor *tensor, size_t offset,
         const dl_frame *frame)
{
    uint8_t *contents = reserve(engine, rank, frame->size);

    if (contents == NULL) {
        return false;
    }
    if (frame->size > 0) {
        copy_out(&engine->peers[rank], tensor, offset, contents, frame->size);
    }
    publish(engine, rank, frame);
    return true;
}

/* The smallest part of a message that its sender waits for, and the most parts.  The
 * receiver copies a part out while the sender copies the next one in; more parts cost
 * more than that saves.  Where nobody waits for the send, the receive has usually been
 * posted, too, and each part costs it a search. */
#define LEAST_PART ((size_t)8 << 10)
#define LARGEST_PART ((size_t)32 << 10)
#define MOST_PARTS 4

/* Returns the bytes of each part but the last one. */
static size_t
part_of(const dl_p2p *engine, const dl_call *call)
{
    size_t size = dl_tensor_size(&call->tensor);
    size_t part = dl_round_up(size / MOST_PARTS, DL_LINE);

    if (!call->is_awaited) {
        return engine->chunk;
    }
    part = part < LEAST_PART ? LEAST_PART : min_size(part, LARGEST_PART);
    return min_size(part, engine->chunk);
}

bool
dl_p2p_send_at_once(dl_p2p *engine, const dl_call *call)
{
    dl_p2p_peer *peer = &engine->peers[call->peer];
    dl_ring *out = &peer->rings.out;
    size_t size = dl_tensor_size(&call->tensor);
    size_t part = part_of(engine, call);
    opening first = {DL_FRAME_SENT, min_size(size, part), size};

    if (size > engine->window || !keeps_up(peer) || is_blocked(peer)
        || !dl_ring_has_room(out, size, part)) {
        return false;
    }
    dl_frame frame = head_of(&call->tensor, call->tag, &first);
    frame.id = ++engine->last_id;
    for (size_t at = 0; size - at > part; at += part) {
        copy_out(peer, &call->tensor, at, dl_ring_reserve(out, part), part);
        dl_ring_channel_publish_part(&peer->rings, &frame);
        frame = (dl_frame){.id = frame.id,
                           .size = (uint16_t)min_size(size - at - part, part),
                           .kind = DL_FRAME_DATA};
    }
    (void)put_part(engine, call->peer, &call->tensor, size - frame.size, &frame);
    return true;
}

static bool
offer(dl_p2p *engine, dl_message *send)
{
    opening first = opening_of(engine, send);
    dl_frame frame = head_of(&send->tensor, send->tag, &first);

    frame.id = send->id;
    if (!put_part(engine, send->peer, &send->tensor, 0, &frame)) {
        return false;
    }
    send->moved = first.size;
    send->allowed = first.allowed;
    send->is_accepted = first.kind == DL_FRAME_SENT;
    settle(engine, send);
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
    size_t size = min_size(send->allowed - send->moved, engine->chunk);
    dl_frame frame = {.id = send->id, .size = (uint16_t)size, .kind = DL_FRAME_DATA};

    if (!put_part(engine, send->peer, &send->tensor, send->moved, &frame)) {
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
           && message_of(draining->next)->drained_at <= peer->link->flushed) {
        dl_p2p_end(message_of(draining->next), DL_OK);
        has_moved = true;
    }
    return has_moved;
}

/* Returns the number of chunks that are sent before some are received, or the reverse:
 * one for a message of a few chunks, which both sides are to move at the same time. */
static int
burst_of(const dl_p2p *engine, const dl_message *send)
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
        settle(engine, send);
    }
    return has_moved;
}

static void
take_accept(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_message *send = find(&engine->offered, source, frame->id);
    bool is_small = send != NULL && send->moved == send->size;

    send =
        send == NULL ? find(&engine->peers[source].streaming, source, frame->id) : send;
    if (send == NULL) {
        return; /* cancelled meanwhile: the CANCEL is on its way */
    }
    if (is_small) {
        dl_p2p_end(send, DL_OK);
        return;
    }
    send->is_accepted = true;
    send->allowed = send->size;
    settle(engine, send);
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
    bool is_ring = engine->peers[source].link == NULL;
    bool is_whole = frame->size == 0 || frame->size == frame->total;
    bool is_part = is_ring && frame->size <= room_for(engine, frame);
    bool is_good = frame->kind == DL_FRAME_MESSAGE
                       ? is_whole || is_part
                       : is_part && frame->total <= engine->window;

    return is_good ? match_frame(engine, source, received) : reject(engine, source);
}

/* Keeps a part of a message that is not received yet. */
static bool
keep_part(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    dl_arrival *arrival = find_arrival(engine, source, frame->id);

    if (arrival == NULL) {
        return true; /* of a message that was refused or given up */
    }
    if (frame->size > arrival->room - arrival->got) {
        return reject(engine, source);
    }
    memcpy(arrival->contents + arrival->got, received->contents, frame->size);
    arrival->got += frame->size;
    return true;
}

static bool
take_data(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    dl_message *receive = find(&engine->filling, source, frame->id);

    if (receive == NULL) {
        return keep_part(engine, source, received);
    }
    if (frame->size > receive->total - receive->moved) {
        return reject(engine, source);
    }
    if (!dl_p2p_is_in_place(receive)) {
        return true;
    }
    copy_in(receive->engine, &receive->tensor, receive->moved, received->contents,
            frame->size);
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
    dl_message *receive = find(&engine->filling, source, frame->id);
    dl_arrival *arrival = find_arrival(engine, source, frame->id);

    if (receive != NULL) {
        dl_p2p_end(receive, dl_p2p_fail_stopped(receive));
    } else if (arrival != NULL) {
        drop(engine, arrival);
    }
}

static bool
take_refuse(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    dl_message *send = find(&engine->offered, source, frame->id);
    dl_sent sent;

    send =
        send == NULL ? find(&engine->peers[source].streaming, source, frame->id) : send;
    engine->peers[source].refusals += frame->size > 0;
    if (send != NULL) {
        dl_p2p_end(send, dl_p2p_fail_refused(send, frame));
        return true;
    }
    if (frame->size == 0) {
        return true; /* cancelled meanwhile */
    }
    if (frame->size != sizeof sent || engine->peers[source].link != NULL) {
        return reject(engine, source);
    }
    memcpy(&sent, received->contents, sizeof sent);
    dl_p2p_tell_refusal(engine, source, frame, &sent);
    return true;
}

static bool
take(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    switch (frame->kind) {
    case DL_FRAME_MESSAGE:
    case DL_FRAME_SENT:
        return take_message(engine, source, received);
    case DL_FRAME_ACCEPT:
        take_accept(engine, source, frame);
        return true;
    case DL_FRAME_REFUSE:
        return take_refuse(engine, source, received);
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

/* Returns true if the next frame is to be left until a chunk has been sent to the same
 * rank, which waits for it meanwhile. */
static bool
is_turn_to_send(const dl_p2p *engine, int source, const dl_frame *last, int taken)
{
    dl_list *streaming = &engine->peers[source].streaming;

    return last->kind == DL_FRAME_DATA && !dl_list_is_empty(streaming)
           && taken + 1 >= burst_of(engine, message_of(streaming->next));
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
take_all(dl_p2p *engine, int source, bool may_stream)
{
    dl_channel *channel = channel_to(engine, source);
    dl_received received;
    bool is_last = false;
    int taken = 0;

    while (!is_last && !is_enough(engine, may_stream)
           && channel->ops->peek(channel, &received)) {
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

/* Takes the frame that dl_ring_peek() gave; false if it stays in the ring. */
static bool
take_next(dl_p2p *engine, int source)
{
    dl_channel *channel = channel_to(engine, source);
    dl_received received;

    if (!channel->ops->peek(channel, &received) || !take(engine, source, &received)) {
        return false;
    }
    channel->ops->release(channel);
    return true;
}

/* Returns the next frame of a ring if it is SENT, or NULL. */
static const dl_frame *
next_sent(const dl_p2p *engine, int source)
{
    const dl_ring *in = &engine->peers[source].rings.in;
    const dl_frame *frame =
        dl_p2p_is_here(&engine->peers[source]) ? dl_ring_peek(in) : NULL;

    return frame != NULL && frame->kind == DL_FRAME_SENT ? frame : NULL;
}

/* Takes what is SENT in one ring as long as `receive` waits for it. */
static void
take_sent_from(dl_p2p *engine, int source, const dl_message *receive)
{
    while (receive->state == DL_MESSAGE_POSTED && next_sent(engine, source) != NULL
           && take_next(engine, source)) {
    }
}

static bool
asks_for(const dl_call *call, int source, const dl_frame *frame)
{
    bool is_tag = call->tag == frame->tag
                  || (call->tag == DL_ANY_TAG && frame->tag != DL_OBJECT_TAG);

    return is_tag && (call->peer == DL_ANY_RANK || call->peer == source);
}

/* Returns true if a posted receive takes the message before any other. */
static bool
is_posted_for(const dl_p2p *engine, int source, const dl_frame *frame)
{
    const dl_list *posted = &engine->posted;

    for (dl_list *node = posted->next; node != posted; node = node->next) {
        if (message_of(node)->probed == NULL
            && is_for(message_of(node), source, frame)) {
            return true;
        }
    }
    return false;
}

/* How often a receive polls the ring for the next part of a message, which a sender that
 * runs has there within a few microseconds. */
#define PART_POLLS 2000

/* Reads the part of the message at the cursor, which may be about to arrive. */
static bool
read_part(const dl_ring *in, const dl_ring_cursor *cursor, int polls,
          dl_received *received)
{
    for (int i = 0; !dl_ring_read(in, cursor, received); i++) {
        if (i >= polls) {
            return false;
        }
    }
    return true;
}

/* Copies a message whose first part is the next frame of the ring, and then releases its
 * frames.  Returns false, and has released none, if the other parts do not follow at
 * once: the message may end with a CANCEL. */
static bool
give_parts(dl_p2p *engine, const dl_call *call, const dl_frame *first)
{
    dl_ring_channel *rings = &engine->peers[call->peer].rings;
    bool has_core = engine->options.board->waiter.spin > 0;
    int polls = call->is_awaited && has_core ? PART_POLLS : 0;
    dl_ring_cursor cursor = dl_ring_cursor_at(&rings->in);
    dl_received received;
    uint64_t id = first->id;
    size_t total = (size_t)first->total;

    if (!fits(&call->tensor, first) || total > engine->window) {
        return false;
    }
    for (size_t at = 0; at < total; at += received.frame->size) {
        bool is_read = read_part(&rings->in, &cursor, polls, &received);
        if (!is_read || received.frame->id != id || received.frame->size == 0
            || received.frame->size > total - at
            || (at > 0 && received.frame->kind != DL_FRAME_DATA)) {
            return false;
        }
        copy_in(engine, &call->tensor, at, received.contents, received.frame->size);
        dl_ring_skip(&rings->in, &cursor);
    }
    dl_ring_channel_release_before(rings, &cursor);
    return true;
}

/* Gives a whole message to the call, whose array has room for it. */
static bool
give(const dl_p2p *engine, const dl_call *call, int source, const dl_frame *frame,
     const uint8_t *contents, size_t got)
{
    if (call->probed != NULL) {
        *call->probed = probed_of(source, frame);
        return true;
    }
    if (frame->kind != DL_FRAME_SENT || got < frame->total
        || !fits(&call->tensor, frame)) {
        return false;
    }
    if (got > 0) {
        copy_in(engine, &call->tensor, 0, contents, got);
    }
    return true;
}

bool
dl_p2p_receive_at_once(dl_p2p *engine, const dl_call *call)
{
    const dl_ring *in = &engine->peers[call->peer].rings.in;
    dl_list *arrivals = &engine->arrivals;
    const dl_frame *frame;

    for (dl_list *node = arrivals->next; node != arrivals; node = node->next) {
        dl_arrival *arrival = arrival_of(node);
        if (asks_for(call, arrival->source, &arrival->frame)) {
            bool is_given = give(engine, call, arrival->source, &arrival->frame,
                                 arrival->contents, arrival->got);
            if (is_given && call->probed == NULL) {
                drop(engine, arrival);
            }
            return is_given;
        }
    }
    while ((frame = next_sent(engine, call->peer)) != NULL) {
        bool is_free = !is_posted_for(engine, call->peer, frame);
        if (is_free && asks_for(call, call->peer, frame)) {
            if (frame->size < frame->total) {
                return call->probed == NULL && give_parts(engine, call, frame);
            }
            bool is_given =
                give(engine, call, call->peer, frame, dl_ring_payload(in), frame->size);
            if (is_given && call->probed == NULL) {
                dl_channel *channel = channel_to(engine, call->peer);
                channel->ops->release(channel);
            }
            return is_given;
        }
        if (!take_next(engine, call->peer)) {
            return false;
        }
    }
    return false;
}

void
dl_p2p_take_sent(dl_p2p *engine, const dl_message *receive)
{
    if (receive->peer != DL_ANY_RANK) {
        take_sent_from(engine, receive->peer, receive);
        return;
    }
    for (int rank = 0; rank < engine->size; rank++) {
        take_sent_from(engine, rank, receive);
    }
}

void
dl_p2p_put(dl_p2p *engine, int rank)
{
    const dl_p2p_peer *peer = &engine->peers[rank];

    if (peer->link != NULL) {
        dl_p2p_begin(engine);
        return;
    }
    (void)put_all(engine, rank, false);
    if (is_blocked(peer)) {
        atomic_store_explicit(&engine->is_blocked, true, memory_order_relaxed);
    }
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
