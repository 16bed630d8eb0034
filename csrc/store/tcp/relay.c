/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "net/socket.h"
#include "store/tcp/relay_state.h"

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

static void
take_connection(dl_watch *watch, uint32_t events)
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

static void
end_connection(dl_relay *relay)
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

static void
send_frames(dl_relay *relay)
{
    if (relay->connection != NULL && try_to_send(relay) != DL_OK) {
        lose_connection(relay);
    }
}

static dl_deadline
end_turn(void *context)
{
    dl_relay *relay = context;
    dl_list touched;

    if (relay->is_lost) {
        end_connection(relay);
    }
    dl_list_init(&touched);
    dl_list_move(&relay->touched, &touched);
    while (!dl_list_is_empty(&touched)) {
        dl_relay_channel *one = DL_LIST_ENTRY(touched.next, dl_relay_channel, touched);
        dl_list_remove(&one->touched);
        dl_relay_serve(one);
    }
    send_frames(relay);
    return relay->is_lost || !dl_list_is_empty(&relay->touched) ? (dl_deadline){0}
                                                                : dl_deadline_after(-1);
}

static void *
run_relay(void *argument)
{
    dl_relay *relay = argument;

    DL_RELAY_LOOP->run(relay->loop, end_turn, relay);
    return NULL;
}

static void
free_relay(dl_relay *relay)
{
    while (!dl_list_is_empty(&relay->clients)) {
        dl_relay_drop(DL_LIST_ENTRY(relay->clients.next, dl_relay_channel, node));
    }
    if (relay->connection != NULL) {
        DL_RELAY_LOOP->remove(relay->loop, &relay->server);
    }
    if (relay->listener.ready != NULL) {
        DL_RELAY_LOOP->remove(relay->loop, &relay->listener);
    }
    if (relay->wake.ready != NULL) {
        DL_RELAY_LOOP->remove(relay->loop, &relay->wake);
    }
    dl_relay_link_stop(&relay->link);
    if (relay->loop != NULL) {
        DL_RELAY_LOOP->close(relay->loop);
    }
    dl_socket_close(relay->listener.fd);
    dl_map_fini(&relay->channels);
    dl_relay_waits_fini(&relay->waits);
    dl_buffer_fini(&relay->out);
    free(relay);
}

static dl_status
listen_by_name(dl_relay *relay, const char *name)
{
    if (name == NULL) {
        return dl_local_service_listen(relay->name, &relay->listener.fd);
    }
    if (!dl_local_service_is_name(dl_bytes_of(name))) {
        return dl_fail(DL_INVALID,
                       "the name of a store's relay must be that of an "
                       "earlier one, \"distlite-\" and 32 hexadecimal digits");
    }
    memcpy(relay->name, name, DL_LOCAL_NAME_SIZE);
    return dl_local_service_listen_at(name, &relay->listener.fd);
}

static dl_status
watch_descriptor(dl_relay *relay, dl_watch *one, void (*ready)(dl_watch *, uint32_t))
{
    one->events = DL_LOOP_READABLE;
    one->ready = ready;
    dl_status status = DL_RELAY_LOOP->add(relay->loop, one);
    if (status != DL_OK) {
        one->ready = NULL;
    }
    return status;
}

static dl_status
start(dl_relay *relay, const dl_relay_options *options)
{
    DL_TRY(listen_by_name(relay, options->name));
    DL_TRY(DL_RELAY_LOOP->open(&relay->loop));
    DL_TRY(watch_descriptor(relay, &relay->listener, dl_relay_accept));
    DL_TRY(dl_relay_link_start(&relay->link, options->host, options->port,
                               options->secret, options->tls));
    relay->wake.fd = relay->link.wake_fd;
    DL_TRY(watch_descriptor(relay, &relay->wake, take_connection));
    return dl_thread_start(&relay->thread, run_relay, relay);
}

dl_status
dl_relay_start(const dl_relay_options *options, dl_relay **started)
{
    dl_relay *relay = calloc(1, sizeof *relay);

    if (relay == NULL) {
        return dl_fail_no_memory();
    }
    relay->fork_generation = dl_fork_generation();
    relay->listener.fd = -1;
    dl_list_init(&relay->clients);
    dl_list_init(&relay->touched);
    relay->waits.out = &relay->out;
    relay->waits.reply = dl_relay_give_reply;
    dl_status status = start(relay, options);
    if (status != DL_OK) {
        free_relay(relay);
        return status;
    }
    *started = relay;
    return DL_OK;
}

void
dl_relay_stop(dl_relay *relay)
{
    if (relay->fork_generation != dl_fork_generation()) {
        return;
    }
    DL_RELAY_LOOP->stop(relay->loop);
    pthread_join(relay->thread, NULL);
    free_relay(relay);
}

const char *
dl_relay_name(const dl_relay *relay)
{
    return relay->name;
}

bool
dl_relay_is_connected(const dl_relay *relay)
{
    return atomic_load(&relay->is_connected);
}
