/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/carrier.h"

#include <stdlib.h>

#include "base/map.h"
#include "store/tcp/relay_frame.h"

struct dl_carrier {
    dl_session *session; /* of the connection */
    dl_map channels;
    dl_list waiting; /* channels whose output waits for room in the connection's */
    dl_relay_reader reader;
};

typedef struct channel {
    dl_session session;
    dl_map_entry node; /* in the carrier's map, by `id` */
    dl_list waiting;   /* in the carrier's list */
    uint32_t id;
    uint32_t credit; /* bytes that the relay has room for */
    bool owes_ack;
} channel;

/* Parts of an output that are copied at once. */
#define PARTS 64

dl_session *
dl_carrier_sender(dl_session *session)
{
    return session->carrier != NULL ? session->carrier->session : session;
}

dl_status
dl_carrier_new(dl_session *session, dl_carrier **carrier)
{
    dl_carrier *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->session = session;
    dl_list_init(&made->waiting);
    session->hub->relays++;
    *carrier = made;
    return DL_OK;
}

static void
end_channel(channel *ended)
{
    dl_carrier *carrier = ended->session.carrier;

    carrier->session->hub->relayed_clients--;
    dl_list_remove(&ended->waiting);
    dl_map_remove(&carrier->channels, &ended->node);
    dl_session_fini(&ended->session);
    free(ended);
}

void
dl_carrier_free(dl_carrier *carrier)
{
    dl_map_entry *node;

    if (carrier == NULL) {
        return;
    }
    while ((node = dl_map_first(&carrier->channels)) != NULL) {
        end_channel(DL_MAP_ENTRY(node, channel, node));
    }
    dl_map_fini(&carrier->channels);
    carrier->session->hub->relays--;
    free(carrier);
}

/* Puts a frame's head into the connection's output, which does not wait for the journal:
 * that of a channel has done so. */
static void
put_frame_head(dl_carrier *carrier, dl_relay_kind kind, uint32_t id, size_t size)
{
    dl_relay_put_head(&carrier->session->output.bytes, kind, id, (uint32_t)size);
}

/* Moves at most `most` bytes of the channel's output into one frame. */
static void
put_data(channel *from, size_t most)
{
    dl_session *session = &from->session;
    dl_output *source = &session->output;
    size_t size = dl_output_size(source) < most ? dl_output_size(source) : most;
    struct iovec parts[PARTS];

    size = size < DL_RELAY_DATA_LIMIT ? size : DL_RELAY_DATA_LIMIT;
    put_frame_head(session->carrier, DL_RELAY_DATA, from->id, size);
    for (size_t left = size; left > 0;) {
        int count = dl_output_gather(source, parts, PARTS, left);
        size_t done = 0;
        for (int i = 0; i < count; i++) {
            dl_buffer_put(&session->carrier->session->output.bytes,
                          (dl_bytes){parts[i].iov_base, parts[i].iov_len});
            done += parts[i].iov_len;
        }
        left -= done;
        dl_output_consume(source, done);
    }
    if (dl_output_size(source) == 0) {
        dl_session_sent(session);
    }
}

/* Sends as much of the channel's output as the relay and the connection have room for,
 * and acknowledges the latest DATA once it is served. */
static void
drain_channel(channel *from)
{
    dl_session *session = &from->session;
    dl_carrier *carrier = session->carrier;

    while (dl_session_has_output(session) && dl_session_may_send(session)
           && from->credit > 0) {
        if (dl_output_is_full(&carrier->session->output)) {
            if (from->waiting.next == NULL) {
                dl_list_append(&carrier->waiting, &from->waiting);
            }
            return;
        }
        size_t before = dl_output_size(&session->output);
        put_data(from, from->credit);
        from->credit -= (uint32_t)(before - dl_output_size(&session->output));
    }
    if (from->owes_ack && !dl_session_has_output(session)
        && session->client.phase == DL_PHASE_SERVING) {
        from->owes_ack = false;
        put_frame_head(carrier, DL_RELAY_ACK, from->id, session->partial == NULL);
    }
}

void
dl_carrier_refill(dl_carrier *carrier)
{
    dl_list waiting;

    dl_list_init(&waiting);
    dl_list_move(&carrier->waiting, &waiting);
    while (!dl_list_is_empty(&waiting)) {
        channel *next = DL_LIST_ENTRY(waiting.next, channel, waiting);
        dl_list_remove(&next->waiting);
        drain_channel(next);
    }
}

/* Sends the replies after the channel was served with the result `status`.  After a
 * failure its last replies are sent, whatever the credit, and the channel ends. */
static void
follow_up(channel *served, dl_status status)
{
    dl_session *session = &served->session;
    dl_carrier *carrier = session->carrier;

    if (status == DL_OK) {
        drain_channel(served);
        return;
    }
    dl_hub_log_refusal(session->hub, "a client behind a relay");
    while (dl_session_has_output(session) && dl_session_may_send(session)) {
        put_data(served, SIZE_MAX);
    }
    put_frame_head(carrier, DL_RELAY_CLOSE, served->id, 0);
    end_channel(served);
}

dl_status
dl_carrier_resume(dl_session *session)
{
    const dl_carrier *carrier = session->carrier;

    follow_up(DL_LIST_ENTRY(session, channel, session), dl_session_resume(session));
    return dl_output_check(&carrier->session->output);
}

static channel *
find_channel(const dl_carrier *carrier, uint32_t id)
{
    const dl_bytes key = {(const uint8_t *)&id, sizeof id};
    dl_map_entry *node = dl_map_find(&carrier->channels, key);

    return node == NULL ? NULL : DL_MAP_ENTRY(node, channel, node);
}

static dl_status
open_channel(dl_carrier *carrier, uint32_t id)
{
    bool is_full =
        carrier->channels.count >= DL_CARRIER_CHANNELS
        || carrier->session->hub->relayed_clients >= DL_CARRIER_CHANNELS_OF_ALL;

    if (is_full || find_channel(carrier, id) != NULL) {
        return dl_fail(DL_PROTOCOL, "a relay opens channel %u %s", id,
                       is_full ? "beyond the limit" : "twice");
    }
    channel *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_session_init(&made->session, carrier->session->hub);
    made->session.carrier = carrier;
    made->id = id;
    made->credit = DL_RELAY_CREDIT;
    dl_map_insert(&carrier->channels, &made->node,
                  (dl_bytes){(const uint8_t *)&made->id, sizeof made->id});
    carrier->session->hub->relayed_clients++;
    return DL_OK;
}

/* Serves a head, or a piece of DATA.  The channel of a frame may have ended
 * meanwhile. */
static dl_status
serve_piece(dl_carrier *carrier, dl_bytes piece)
{
    const dl_relay_head *head = &carrier->reader.head;
    channel *to = find_channel(carrier, head->channel);

    if (head->kind == DL_RELAY_OPEN) {
        return open_channel(carrier, head->channel);
    }
    if (head->kind == DL_RELAY_ACK) {
        return dl_fail(DL_PROTOCOL, "a relay sends a server's frame");
    }
    if (to == NULL) {
        return DL_OK;
    }
    switch ((dl_relay_kind)head->kind) {
    case DL_RELAY_DATA:
        if (piece.size == 0) {
            if (to->owes_ack) {
                return dl_fail(DL_PROTOCOL, "a relay sends before the acknowledgement");
            }
            return DL_OK;
        }
        to->owes_ack = carrier->reader.left == 0;
        follow_up(to, dl_session_feed(&to->session, piece));
        return DL_OK;
    case DL_RELAY_GRANT:
        if (head->size > DL_RELAY_CREDIT - to->credit) {
            return dl_fail(DL_PROTOCOL, "a relay grants %u bytes beyond the limit",
                           head->size);
        }
        to->credit += head->size;
        drain_channel(to);
        return DL_OK;
    default:
        end_channel(to);
        return DL_OK;
    }
}

dl_status
dl_carrier_feed(dl_carrier *carrier, dl_bytes bytes)
{
    dl_bytes piece;
    int taken;

    while ((taken = dl_relay_next(&carrier->reader, &bytes, &piece)) > 0) {
        DL_TRY(serve_piece(carrier, piece));
    }
    if (taken < 0) {
        return dl_last_error()->status;
    }
    return dl_output_check(&carrier->session->output);
}
