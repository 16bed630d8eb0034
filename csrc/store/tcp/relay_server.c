/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_state.h"

#include "base/log.h"

void
dl_relay_drop_sent(dl_buffer *out, size_t *sent)
{
    if (*sent == out->size && out->capacity > DL_RELAY_READ_SIZE) {
        dl_buffer_fini(out);
        *sent = 0;
    } else if (*sent == out->size || *sent >= DL_RELAY_READ_SIZE) {
        dl_buffer_consume(out, *sent);
        *sent = 0;
    }
}

/* Takes a frame, or a piece of one, from the server.  Of a channel that was closed here
 * there may be more. */
static dl_status
take_frame(dl_relay *relay, dl_bytes piece)
{
    const dl_relay_head *head = &relay->reader.head;
    dl_map_entry *entry =
        dl_map_find(&relay->channels,
                    (dl_bytes){(const uint8_t *)&head->channel, sizeof head->channel});

    if (head->kind == DL_RELAY_OPEN || head->kind == DL_RELAY_GRANT) {
        return dl_fail(DL_PROTOCOL, "the server sends a relay's frame");
    }
    if ((head->channel & DL_RELAY_SHARED) != 0) {
        dl_relay_waits_take(&relay->waits, head, piece);
    } else if (entry != NULL) {
        dl_relay_take_reply(DL_MAP_ENTRY(entry, dl_relay_channel, entry),
                            (dl_relay_kind)head->kind, head->size, piece);
    }
    return DL_OK;
}

static dl_status
read_frames(dl_relay *relay)
{
    struct iovec part = {relay->input, DL_RELAY_READ_SIZE};
    size_t size;
    int error;

    do {
        dl_bytes piece;
        int taken;
        DL_TRY(dl_transport_read(&relay->transport, &part, 1, &size, &error));
        dl_bytes bytes = {relay->input, size};
        while ((taken = dl_relay_next(&relay->reader, &bytes, &piece)) > 0) {
            DL_TRY(take_frame(relay, piece));
        }
        if (taken < 0) {
            return dl_last_error()->status;
        }
        /* The loop knows nothing of bytes that TLS holds. */
    } while (size > 0 && relay->connection->tls != NULL
             && dl_tls_socket_holds_input(relay->connection->tls));
    return DL_OK;
}

static void
lose_connection(dl_relay *relay)
{
    if (!relay->is_lost) {
        relay->is_lost = true;
        dl_log(DL_LOG_INFO, "store relay: lost the connection to (%s, %u): %s",
               relay->link.pool.host, relay->link.pool.port, dl_last_error()->text);
    }
}

static void
read_server(dl_watch *watch, uint32_t events)
{
    dl_relay *relay = DL_LIST_ENTRY(watch, dl_relay, server);

    if ((events & (DL_LOOP_READABLE | DL_LOOP_BROKEN)) != 0
        && read_frames(relay) != DL_OK) {
        lose_connection(relay);
    }
    if ((events & DL_LOOP_BROKEN) != 0 && !relay->is_lost) {
        (void)dl_fail(DL_NETWORK, "the connection was lost");
        lose_connection(relay);
    }
}

static void
touch_all(dl_relay *relay)
{
    for (dl_list *node = relay->clients.next; node != &relay->clients;
         node = node->next) {
        dl_relay_touch(DL_LIST_ENTRY(node, dl_relay_channel, node));
    }
}

void
dl_relay_take_connection(dl_watch *watch, uint32_t events)
{
    dl_relay *relay = DL_LIST_ENTRY(watch, dl_relay, wake);
    dl_connection *made = dl_relay_link_take(&relay->link);

    (void)events;
    if (made == NULL) {
        touch_all(relay); /* it was refused */
        return;
    }
    relay->server =
        (dl_watch){.fd = made->fd, .events = DL_LOOP_READABLE, .ready = read_server};
    if (DL_RELAY_LOOP->add(relay->loop, &relay->server) != DL_OK) {
        dl_relay_link_replace(&relay->link, made);
        return;
    }
    relay->connection = made;
    relay->transport =
        (dl_transport){.is_open = true, .fd = made->fd, .tls = made->tls};
    atomic_store(&relay->is_connected, true);
    touch_all(relay);
}

void
dl_relay_end_connection(dl_relay *relay)
{
    dl_list *next;

    DL_RELAY_LOOP->remove(relay->loop, &relay->server);
    dl_relay_link_replace(&relay->link, relay->connection);
    relay->connection = NULL;
    relay->is_lost = false;
    atomic_store(&relay->is_connected, false);
    relay->reader = (dl_relay_reader){0};
    for (dl_list *node = relay->clients.next; node != &relay->clients; node = next) {
        dl_relay_channel *one = DL_LIST_ENTRY(node, dl_relay_channel, node);
        next = node->next;
        if (one->is_open) {
            dl_relay_drop(one);
        }
    }
    dl_relay_waits_fini(&relay->waits);
    dl_buffer_fini(&relay->out);
    relay->out_sent = 0;
}

static dl_status
try_to_send(dl_relay *relay)
{
    dl_buffer *out = &relay->out;

    DL_TRY(dl_buffer_check(out));
    for (size_t size = 1; size > 0 && relay->out_sent < out->size;) {
        struct iovec part = {out->data + relay->out_sent, out->size - relay->out_sent};
        int error;
        DL_TRY(dl_transport_write(&relay->transport, &part, 1, &size, &error));
        relay->out_sent += size;
    }
    dl_relay_drop_sent(out, &relay->out_sent);
    uint32_t events =
        DL_LOOP_READABLE | (out->size > 0 ? (uint32_t)DL_LOOP_WRITABLE : 0u);
    return events == relay->server.events
               ? DL_OK
               : DL_RELAY_LOOP->change(relay->loop, &relay->server, events);
}

void
dl_relay_send_frames(dl_relay *relay)
{
    if (relay->connection != NULL && try_to_send(relay) != DL_OK) {
        lose_connection(relay);
    }
}
