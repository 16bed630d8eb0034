/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/socket.h"
#include "store/tcp/relay_client.h"

/* Credit is given back in portions of this size, and not with a frame per reply. */
#define GRANT_SIZE (DL_RELAY_CREDIT / 4)

void
dl_relay_touch(dl_relay_channel *one)
{
    if (one->touched.next == NULL) {
        dl_list_append(&one->relay->touched, &one->touched);
    }
}

static void
unwatch_client(dl_relay_channel *one)
{
    if (one->is_watched) {
        DL_RELAY_LOOP->remove(one->relay->loop, &one->watch);
        one->is_watched = false;
    }
}

void
dl_relay_drop(dl_relay_channel *one)
{
    dl_relay *relay = one->relay;

    unwatch_client(one);
    dl_socket_close(one->watch.fd);
    dl_relay_waits_leave(&relay->waits, &one->waiter);
    if (one->is_open) {
        dl_map_remove(&relay->channels, &one->entry);
    }
    dl_list_remove(&one->node);
    dl_list_remove(&one->touched);
    dl_buffer_fini(&one->in);
    dl_buffer_fini(&one->out);
    free(one);
    if (relay->is_starved) {
        relay->is_starved = false;
        (void)DL_RELAY_LOOP->change(relay->loop, &relay->listener, DL_LOOP_READABLE);
    }
}

/* The client sees the end of the connection, and connects again. */
static void
give_up(dl_relay_channel *one)
{
    one->has_left = true;
    dl_buffer_clear(&one->in);
    dl_relay_touch(one);
}

static void
read_client(dl_watch *watch, uint32_t events)
{
    dl_relay_channel *one = DL_LIST_ENTRY(watch, dl_relay_channel, watch);
    dl_relay *relay = one->relay;
    bool is_broken = (events & DL_LOOP_BROKEN) != 0;

    dl_relay_touch(one);
    /* What a client that has left had sent before, which may be its LEAVE, is read to the
     * end; a socket holds a limited amount. */
    while (((events & DL_LOOP_READABLE) != 0 || is_broken)
           && (is_broken || one->in.size < DL_RELAY_DATA_LIMIT)) {
        ssize_t size = recv(watch->fd, relay->input, DL_RELAY_READ_SIZE, MSG_DONTWAIT);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0 && errno == EAGAIN) {
            break;
        }
        if (size <= 0) {
            one->has_left = true;
            break;
        }
        dl_buffer_put(&one->in, (dl_bytes){relay->input, (size_t)size});
        if (!is_broken) {
            break;
        }
    }
    one->has_left |= is_broken;
    if (one->has_left) {
        unwatch_client(one);
    }
}

void
dl_relay_accept(dl_watch *watch, uint32_t events)
{
    dl_relay *relay = DL_LIST_ENTRY(watch, dl_relay, listener);
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)events;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            relay->is_starved = true;
            (void)DL_RELAY_LOOP->change(relay->loop, watch, 0);
            dl_log(DL_LOG_WARNING,
                   "store relay: accepting connections: %s; new ones wait",
                   strerror(errno));
        }
        return;
    }
    dl_socket_prepare(fd);
    dl_relay_channel *made =
        dl_local_service_check(fd) == DL_OK ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) {
        dl_socket_close(fd);
        return;
    }
    made->relay = relay;
    made->watch =
        (dl_watch){.fd = fd, .events = DL_LOOP_READABLE, .ready = read_client};
    if (DL_RELAY_LOOP->add(relay->loop, &made->watch) != DL_OK) {
        dl_socket_close(fd);
        free(made);
        return;
    }
    made->is_watched = true;
    dl_put_u8(&made->out, DL_RELAY_ALIVE);
    dl_list_append(&relay->clients, &made->node);
    dl_relay_touch(made);
}

static void
open_channel(dl_relay_channel *one)
{
    dl_relay *relay = one->relay;
    dl_address local = {0}, peer = {0};

    one->number = relay->next_channel++ & ~DL_RELAY_SHARED;
    one->is_open = true;
    one->awaits_ack = false;
    dl_map_insert(&relay->channels, &one->entry,
                  (dl_bytes){(const uint8_t *)&one->number, sizeof one->number});
    dl_relay_put_head(&relay->out, DL_RELAY_OPEN, one->number, 0);
    (void)dl_socket_local_address(relay->connection->fd, &local);
    (void)dl_socket_peer_address(relay->connection->fd, &peer);
    dl_buffer_put(&one->out,
                  (dl_bytes){(const uint8_t *)&local.socket, sizeof local.socket});
    dl_buffer_put(&one->out,
                  (dl_bytes){(const uint8_t *)&peer.socket, sizeof peer.socket});
}

/* The reply to a cancelled wait, after its status. */
static const uint8_t cancelled[] = {DL_OK, DL_WIRE_CANCELLED};

/* Begins or cancels a wait that is shared.  Returns false for any other input, which is
 * passed on: a client of ours sends nothing else before it has the reply, so that a
 * request that came with others is none of these.  Nor is a wait shared while the server
 * does not read: it would not bound what a client that waits and cancels may send, as the
 * client's own channel does. */
static bool
wait_or_cancel(dl_relay_channel *one)
{
    dl_relay_waits *waits = &one->relay->waits;
    dl_bytes in = dl_buffer_bytes(&one->in);

    if (!one->is_at_start || one->awaits_ack || in.size == 0) {
        return false;
    }
    if (one->waiter.wait != NULL && in.size == 1
        && in.data[0] == (DL_OP_CANCEL_WAIT | DL_WIRE_CHECKED)) {
        dl_relay_waits_leave(waits, &one->waiter);
        dl_buffer_put(&one->out, (dl_bytes){cancelled, sizeof cancelled});
    } else if (in.size <= DL_RELAY_DATA_LIMIT / 2
               && one->relay->out.size < DL_RELAY_DATA_LIMIT && dl_relay_is_wait(in)) {
        dl_relay_waits_leave(waits, &one->waiter);
        if (dl_relay_waits_join(waits, &one->waiter, in) != DL_OK) {
            return false;
        }
    } else {
        return false;
    }
    dl_buffer_clear(&one->in);
    return true;
}

void
dl_relay_give_reply(dl_relay_waiter *waiter, dl_bytes reply)
{
    dl_relay_channel *one = DL_LIST_ENTRY(waiter, dl_relay_channel, waiter);

    dl_buffer_put(&one->out, reply);
    if (reply.size == 0) {
        give_up(one);
    }
    dl_relay_touch(one);
}

static void
pass_on(dl_relay_channel *one)
{
    dl_buffer *out = &one->relay->out;

    if (wait_or_cancel(one)) {
        return;
    }
    while (one->in.size > 0 && !one->awaits_ack) {
        size_t size =
            one->in.size < DL_RELAY_DATA_LIMIT ? one->in.size : DL_RELAY_DATA_LIMIT;
        dl_relay_put_head(out, DL_RELAY_DATA, one->number, (uint32_t)size);
        dl_buffer_put(out, (dl_bytes){one->in.data, size});
        dl_buffer_consume(&one->in, size);
        one->awaits_ack = true;
    }
    if (one->in.size == 0 && one->in.capacity > DL_RELAY_READ_SIZE) {
        dl_buffer_fini(&one->in);
    }
}

/* Sends what the client accepts, and gives the server credit for it. */
static void
send_replies(dl_relay_channel *one)
{
    size_t left = one->out.size - one->out_sent;

    if (left == 0) {
        return;
    }
    ssize_t sent = send(one->watch.fd, one->out.data + one->out_sent, left,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            give_up(one);
        }
        return;
    }
    one->out_sent += (size_t)sent;
    dl_relay_drop_sent(&one->out, &one->out_sent);
}

void
dl_relay_serve(dl_relay_channel *one)
{
    dl_relay *relay = one->relay;

    if (relay->connection == NULL && atomic_load(&relay->link.is_refused)) {
        give_up(one);
    }
    if (relay->connection != NULL && !one->is_open && !one->is_closing
        && !one->has_left) {
        open_channel(one);
    }
    if (one->is_open) {
        pass_on(one);
    }
    if (!one->has_left) {
        send_replies(one);
    }
    /* The first bytes that a client gets are the relay's own, for which there is no
     * credit; `owed` counts the server's when they arrive here. */
    if (one->is_open && !one->has_left && one->owed >= GRANT_SIZE
        && one->out.size - one->out_sent < GRANT_SIZE) {
        dl_relay_put_head(&relay->out, DL_RELAY_GRANT, one->number, one->owed);
        one->owed = 0;
    }
    if (dl_buffer_check(&one->in) != DL_OK || dl_buffer_check(&one->out) != DL_OK) {
        give_up(one);
    }
    /* The server executes what a client has sent before it left, as long as the replies,
     * which nobody reads, need no more credit. */
    if ((one->has_left
         && (one->in.size == 0 || !one->is_open || one->owed >= GRANT_SIZE))
        || (one->is_closing && one->out.size == 0)) {
        if (one->is_open) {
            dl_relay_put_head(&relay->out, DL_RELAY_CLOSE, one->number, 0);
        }
        dl_relay_drop(one);
        return;
    }
    uint32_t wanted =
        (one->in.size < DL_RELAY_DATA_LIMIT ? (uint32_t)DL_LOOP_READABLE : 0u)
        | (one->out.size > 0 ? (uint32_t)DL_LOOP_WRITABLE : 0u);
    if (one->is_watched && wanted != one->watch.events
        && DL_RELAY_LOOP->change(relay->loop, &one->watch, wanted) != DL_OK) {
        unwatch_client(one);
        give_up(one);
    }
}

void
dl_relay_take_reply(dl_relay_channel *one, dl_relay_kind kind, uint32_t size,
                    dl_bytes piece)
{
    dl_relay_touch(one);
    switch (kind) {
    case DL_RELAY_DATA:
        one->owed += (uint32_t)piece.size;
        if (!one->has_left) {
            dl_buffer_put(&one->out, piece);
        }
        break;
    case DL_RELAY_ACK:
        one->awaits_ack = false;
        one->is_at_start = size == 1;
        break;
    default:
        dl_map_remove(&one->relay->channels, &one->entry);
        dl_relay_waits_leave(&one->relay->waits, &one->waiter);
        one->is_open = false;
        one->is_closing = true;
    }
}
