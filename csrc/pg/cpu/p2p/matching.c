/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "pg/cpu/p2p/p2p_state.h"
#include "tensor/strided.h"

/* Both lists are in the order of time, and both sides take the first match: messages
 * from one source with one tag are received in the order in which they were sent. */

static bool
is_for(const dl_message *receive, int source, const dl_frame *frame)
{
    return receive->tag == frame->tag
           && (receive->peer == DL_ANY_RANK || receive->peer == source);
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
    if (frame->size > 0 && receive->tensor.is_contiguous) {
        memcpy(receive->tensor.data, contents, frame->size);
    } else if (frame->size > 0) {
        dl_strided_scatter_part(&receive->tensor, contents, 0, frame->size);
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

    for (dl_list *node = arrivals->next; node != arrivals; node = node->next) {
        dl_arrival *arrival = arrival_of(node);
        if (is_for(receive, arrival->source, &arrival->frame)) {
            dl_list_remove(node);
            match(receive, arrival->source, &arrival->frame, arrival->contents);
            free(arrival);
            return;
        }
    }
}

bool
dl_p2p_match_frame(dl_p2p *engine, int source, const dl_received *message)
{
    const dl_frame *frame = message->frame;
    dl_list *posted = &engine->posted;

    for (dl_list *node = posted->next; node != posted; node = node->next) {
        dl_message *receive = DL_LIST_ENTRY(node, dl_message, node);
        if (is_for(receive, source, frame)) {
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
    return true;
}

void
dl_p2p_drop_arrival(dl_p2p *engine, int source, uint64_t id)
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
