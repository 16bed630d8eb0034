/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/p2p/p2p_state.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

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

/* Both lists are in the order of time, and both sides take the first match: messages
 * from one source with one tag are received in the order in which they were sent. */

static bool
is_for(const dl_message *receive, int source, const dl_frame *frame)
{
    bool is_tag = receive->tag == frame->tag
                  || (receive->tag == DL_ANY_TAG && !dl_is_own_tag(frame->tag));

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
end_probe(dl_message *probe, const dl_arrival *arrival)
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
        dl_message *probe = dl_p2p_message_of(node);
        node = node->next;
        if (probe->probed != NULL && is_for(probe, arrival->source, &arrival->frame)) {
            end_probe(probe, arrival);
        }
    }
}

static bool
fits_tensor(const dl_tensor *tensor, const dl_frame *frame)
{
    return frame->total <= dl_tensor_size(tensor)
           && frame->dtype == (uint8_t)tensor->dtype
           && frame->code == tensor->opaque_code;
}

/* The send of an EAGER message has ended, or ends by itself: its receive alone fails. */
static void
refuse_message(dl_message *receive, const dl_frame *frame)
{
    dl_frame answer = {
        .id = frame->id,
        .total = receive->size,
        .kind = DL_FRAME_REFUSE,
        .dtype = (uint8_t)receive->tensor.dtype,
        .code = receive->tensor.opaque_code,
    };

    if (frame->kind == DL_FRAME_RTS) {
        dl_p2p_control(receive->engine, receive->peer, &answer);
    }
    dl_p2p_end(receive, dl_p2p_fail_refused(receive, frame));
}

/* `got` bytes of the message have arrived. */
static void
take_in(dl_message *receive, const dl_frame *frame, const uint8_t *contents, size_t got)
{
    receive->total = frame->total;
    receive->id = frame->id;
    if (frame->kind == DL_FRAME_RTS) {
        dl_frame answer = {
            .id = frame->id,
            .kind = DL_FRAME_CTS,
            .total = receive->engine->peers[receive->peer].kept,
        };
        dl_p2p_control(receive->engine, receive->peer, &answer);
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
match_receive(dl_message *receive, int source, const dl_frame *frame,
              const uint8_t *contents, size_t got)
{
    receive->peer = source;
    receive->work.source = source;
    if (!dl_p2p_is_in_place(receive)) {
        dl_frame answer = {.id = frame->id, .kind = DL_FRAME_STOP};
        dl_p2p_control(receive->engine, source, &answer);
    } else if (fits_tensor(&receive->tensor, frame)) {
        take_in(receive, frame, contents, got);
    } else {
        refuse_message(receive, frame);
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
drop_arrival(dl_p2p *engine, dl_arrival *arrival)
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
        end_probe(receive, arrival);
        return;
    }
    match_receive(receive, arrival->source, &arrival->frame, arrival->contents,
                  arrival->got);
    drop_arrival(receive->engine, arrival);
}

/* Returns the bytes of a message that may arrive before it is received. */
static size_t
room_for(const dl_p2p *engine, const dl_frame *frame)
{
    if (frame->size == 0) {
        return 0;
    }
    return dl_min_size((size_t)frame->total, engine->window);
}

static dl_arrival *
keep_arrival(dl_p2p *engine, int source, const dl_received *message)
{
    const dl_frame *frame = message->frame;
    size_t room = room_for(engine, frame);
    /* Another host has fewer ranks, and so larger frames. */
    room = room < frame->size ? frame->size : room;
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
        dl_message *receive = dl_p2p_message_of(node);
        if (receive->probed == NULL && is_for(receive, source, frame)) {
            match_receive(receive, source, frame, message->contents, frame->size);
            return true;
        }
    }
    dl_arrival *arrival = keep_arrival(engine, source, message);
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

bool
dl_p2p_take_message(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    bool is_ring = engine->peers[source].link == NULL;
    bool is_whole = frame->size == 0 || frame->size == frame->total;
    bool is_part = is_ring && frame->size <= room_for(engine, frame);
    bool is_eager = is_ring ? is_part && frame->total <= engine->window
                            : frame->size == frame->total;
    bool is_good = frame->kind == DL_FRAME_RTS ? is_whole || is_part : is_eager;

    return is_good ? match_frame(engine, source, received)
                   : dl_p2p_reject(engine, source);
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
        return dl_p2p_reject(engine, source);
    }
    memcpy(arrival->contents + arrival->got, received->contents, frame->size);
    arrival->got += frame->size;
    return true;
}

bool
dl_p2p_take_data(dl_p2p *engine, int source, const dl_received *received)
{
    const dl_frame *frame = received->frame;
    dl_message *receive = dl_p2p_find(&engine->filling, source, frame->id);

    if (receive == NULL) {
        return keep_part(engine, source, received);
    }
    if (frame->size > receive->total - receive->moved) {
        return dl_p2p_reject(engine, source);
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

void
dl_p2p_take_cancel(dl_p2p *engine, int source, const dl_frame *frame)
{
    dl_message *receive = dl_p2p_find(&engine->filling, source, frame->id);
    dl_arrival *arrival = find_arrival(engine, source, frame->id);

    if (receive != NULL) {
        dl_p2p_end(receive, dl_p2p_fail_stopped(receive));
    } else if (arrival != NULL) {
        drop_arrival(engine, arrival);
    }
}
