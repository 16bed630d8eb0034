/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/map.h"
#include "base/thread.h"
#include "net/socket.h"
#include "store/tcp/loop.h"
#include "store/tcp/relay_client.h"
#include "store/tcp/relay_frame.h"
#include "store/tcp/relay_link.h"
#include "store/tcp/relay_waits.h"

/* Size of one read. */
#define READ_SIZE (64u << 10)

/* Credit is given back in portions of this size, and not with a frame per reply. */
#define GRANT_SIZE (DL_RELAY_CREDIT / 4)

typedef struct client {
    dl_watch watch;
    dl_relay *relay;
    dl_list node;       /* in the relay's list */
    dl_list touched;    /* in the relay's list, until the end of the turn */
    dl_map_entry entry; /* in the relay's map, while its channel is open */
    uint32_t channel;
    uint32_t owed;   /* bytes sent to the client for which no credit was given yet */
    size_t out_sent; /* how many bytes of `out` have been sent */
    dl_buffer in;    /* not passed on yet; DL_RELAY_DATA_LIMIT at most */
    dl_buffer out;   /* replies not sent yet; DL_RELAY_CREDIT at most */
    dl_relay_waiter waiter;
    bool is_open;     /* its channel is */
    bool is_at_start; /* the next byte of `in` begins a request */
    bool awaits_ack;  /* DATA was passed on */
    bool has_left;    /* no more input comes, and no output is wanted */
    bool is_closing;  /* the server has ended the channel: close after `out` */
    bool is_watched;
} client;

struct dl_relay {
    /* fixed after start */
    pthread_t thread;
    uint32_t fork_generation;
    char name[DL_LOCAL_NAME_SIZE];
    dl_relay_link link;
    dl_loop *loop;
    atomic_bool is_connected;
    /* relay's thread only */
    dl_watch listener;
    dl_watch wake;
    dl_watch server;           /* the connection's */
    dl_connection *connection; /* NULL: none now */
    bool is_lost;              /* the connection has failed in this turn */
    bool is_starved;           /* no descriptors for more clients */
    dl_relay_reader reader;
    dl_buffer out; /* frames not sent yet */
    size_t out_sent;
    uint32_t next_channel;
    dl_map channels;
    dl_relay_waits waits;
    dl_list clients;
    dl_list touched;
    uint8_t input[READ_SIZE];
};

static const dl_loop_ops *const ops = &dl_loop_epoll_ops;

static void
touch(client *one)
{
    if (one->touched.next == NULL) {
        dl_list_append(&one->relay->touched, &one->touched);
    }
}

static void
unwatch(client *one)
{
    if (one->is_watched) {
        ops->remove(one->relay->loop, &one->watch);
        one->is_watched = false;
    }
}

static void
drop(client *one)
{
    dl_relay *relay = one->relay;

    unwatch(one);
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
        (void)ops->change(relay->loop, &relay->listener, DL_LOOP_READABLE);
    }
}

/* The client sees the end of the connection, and connects again. */
static void
give_up(client *one)
{
    one->has_left = true;
    dl_buffer_clear(&one->in);
    touch(one);
}

static void
read_client(dl_watch *watch, uint32_t events)
{
    client *one = DL_LIST_ENTRY(watch, client, watch);
    dl_relay *relay = one->relay;
    bool is_broken = (events & DL_LOOP_BROKEN) != 0;

    touch(one);
    /* What a client that has left had sent before, which may be its LEAVE, is read to the
     * end; a socket holds a limited amount. */
    while (((events & DL_LOOP_READABLE) != 0 || is_broken)
           && (is_broken || one->in.size < DL_RELAY_DATA_LIMIT)) {
        ssize_t size = recv(watch->fd, relay->input, READ_SIZE, MSG_DONTWAIT);
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
        unwatch(one);
    }
}

static void
accept_client(dl_watch *watch, uint32_t events)
{
    dl_relay *relay = DL_LIST_ENTRY(watch, dl_relay, listener);
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)events;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            relay->is_starved = true;
            (void)ops->change(relay->loop, watch, 0);
            dl_log(DL_LOG_WARNING,
                   "store relay: accepting connections: %s; new ones wait",
                   strerror(errno));
        }
        return;
    }
    dl_socket_prepare(fd);
    client *made = dl_local_service_check(fd) == DL_OK ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) {
        dl_socket_close(fd);
        return;
    }
    made->relay = relay;
    made->watch =
        (dl_watch){.fd = fd, .events = DL_LOOP_READABLE, .ready = read_client};
    if (ops->add(relay->loop, &made->watch) != DL_OK) {
        dl_socket_close(fd);
        free(made);
        return;
    }
    made->is_watched = true;
    dl_put_u8(&made->out, DL_RELAY_ALIVE);
    dl_list_append(&relay->clients, &made->node);
    touch(made);
}

static void
put_address(dl_buffer *out, dl_status status, const dl_address *address)
{
    dl_bytes bytes = {(const uint8_t *)&address->socket,
                      status == DL_OK ? address->size : 0};

    dl_put_u8(out, (uint8_t)bytes.size);
    dl_buffer_put(out, bytes);
}

static void
open_channel(client *one)
{
    dl_relay *relay = one->relay;
    dl_address local = {0}, peer = {0};

    one->channel = relay->next_channel++ & ~DL_RELAY_ONCE;
    one->is_open = true;
    one->awaits_ack = false;
    dl_map_insert(&relay->channels, &one->entry,
                  (dl_bytes){(const uint8_t *)&one->channel, sizeof one->channel});
    dl_relay_put_head(&relay->out, DL_RELAY_OPEN, one->channel, 0);
    dl_status status = dl_socket_local_address(relay->connection->fd, &local);
    put_address(&one->out, status, &local);
    status = dl_socket_peer_address(relay->connection->fd, &peer);
    put_address(&one->out, status, &peer);
}

/* The reply to a cancelled wait, after its status. */
static const uint8_t cancelled[] = {DL_OK, DL_WIRE_CANCELLED};

/* Begins or cancels a wait that is shared.  Returns false for any other input, which is
 * passed on: a client of ours sends nothing else before it has the reply, so that a
 * request that came with others is none of these.  Nor is a wait shared while the server
 * does not read: it would not bound what a client that waits and cancels may send, as the
 * client's own channel does. */
static bool
wait_or_cancel(client *one)
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

static void
give_reply(dl_relay_waiter *waiter, dl_bytes reply)
{
    client *one = DL_LIST_ENTRY(waiter, client, waiter);

    dl_buffer_put(&one->out, reply);
    if (reply.size == 0) {
        give_up(one);
    }
    touch(one);
}

static void
pass_on(client *one)
{
    dl_buffer *out = &one->relay->out;

    if (wait_or_cancel(one)) {
        return;
    }
    while (one->in.size > 0 && !one->awaits_ack) {
        size_t size =
            one->in.size < DL_RELAY_DATA_LIMIT ? one->in.size : DL_RELAY_DATA_LIMIT;
        dl_relay_put_head(out, DL_RELAY_DATA, one->channel, (uint32_t)size);
        dl_buffer_put(out, (dl_bytes){one->in.data, size});
        dl_buffer_consume(&one->in, size);
        one->awaits_ack = true;
    }
    if (one->in.size == 0 && one->in.capacity > READ_SIZE) {
        dl_buffer_fini(&one->in);
    }
}

static void
close_channel(client *one)
{
    if (one->is_open) {
        dl_relay_put_head(&one->relay->out, DL_RELAY_CLOSE, one->channel, 0);
    }
    drop(one);
}

/* Removes what was sent, not with every write, and gives memory back. */
static void
drop_sent(dl_buffer *out, size_t *sent)
{
    if (*sent == out->size && out->capacity > READ_SIZE) {
        dl_buffer_fini(out);
        *sent = 0;
    } else if (*sent == out->size || *sent >= READ_SIZE) {
        dl_buffer_consume(out, *sent);
        *sent = 0;
    }
}

/* Sends what the client accepts, and gives the server credit for it. */
static void
send_replies(client *one)
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
    drop_sent(&one->out, &one->out_sent);
}

/* The first bytes that a client gets are the relay's own, for which there is no credit;
 * `owed` counts the server's when they arrive here. */
static void
grant(client *one)
{
    if (one->is_open && !one->has_left && one->owed >= GRANT_SIZE
        && one->out.size - one->out_sent < GRANT_SIZE) {
        dl_relay_put_head(&one->relay->out, DL_RELAY_GRANT, one->channel, one->owed);
        one->owed = 0;
    }
}

/* Does all that can be done for one client; may drop it. */
static void
serve(client *one)
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
    grant(one);
    if (dl_buffer_check(&one->in) != DL_OK || dl_buffer_check(&one->out) != DL_OK) {
        give_up(one);
    }
    /* The server executes what a client has sent before it left, as long as the replies,
     * which nobody reads, need no more credit. */
    if ((one->has_left
         && (one->in.size == 0 || !one->is_open || one->owed >= GRANT_SIZE))
        || (one->is_closing && one->out.size == 0)) {
        close_channel(one);
        return;
    }
    uint32_t wanted =
        (one->in.size < DL_RELAY_DATA_LIMIT ? (uint32_t)DL_LOOP_READABLE : 0u)
        | (one->out.size > 0 ? (uint32_t)DL_LOOP_WRITABLE : 0u);
    if (one->is_watched && wanted != one->watch.events
        && ops->change(relay->loop, &one->watch, wanted) != DL_OK) {
        unwatch(one);
        give_up(one);
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
    if ((head->channel & DL_RELAY_ONCE) != 0) {
        dl_relay_waits_take(&relay->waits, head, piece);
        return DL_OK;
    }
    if (entry == NULL) {
        return DL_OK;
    }
    client *to = DL_MAP_ENTRY(entry, client, entry);
    touch(to);
    switch ((dl_relay_kind)head->kind) {
    case DL_RELAY_DATA:
        to->owed += (uint32_t)piece.size;
        if (!to->has_left) {
            dl_buffer_put(&to->out, piece);
        }
        return DL_OK;
    case DL_RELAY_ACK:
        to->awaits_ack = false;
        to->is_at_start = head->size == 1;
        return DL_OK;
    default:
        dl_map_remove(&relay->channels, &to->entry);
        dl_relay_waits_leave(&relay->waits, &to->waiter);
        to->is_open = false;
        to->is_closing = true;
        return DL_OK;
    }
}

static dl_status
read_frames(dl_relay *relay)
{
    size_t size;

    do {
        dl_bytes piece;
        int taken;
        DL_TRY(dl_relay_link_read(relay->connection, relay->input, READ_SIZE, &size));
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
lose(dl_relay *relay)
{
    if (!relay->is_lost) {
        relay->is_lost = true;
        dl_log(DL_LOG_INFO, "store relay: lost the connection to (%s, %u): %s",
               relay->link.host, relay->link.port, dl_last_error()->text);
    }
}

static void
read_server(dl_watch *watch, uint32_t events)
{
    dl_relay *relay = DL_LIST_ENTRY(watch, dl_relay, server);

    if ((events & (DL_LOOP_READABLE | DL_LOOP_BROKEN)) != 0
        && read_frames(relay) != DL_OK) {
        lose(relay);
    }
    if ((events & DL_LOOP_BROKEN) != 0 && !relay->is_lost) {
        (void)dl_fail(DL_NETWORK, "the connection was lost");
        lose(relay);
    }
}

static void
touch_all(dl_relay *relay)
{
    for (dl_list *node = relay->clients.next; node != &relay->clients;
         node = node->next) {
        touch(DL_LIST_ENTRY(node, client, node));
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
    if (ops->add(relay->loop, &relay->server) != DL_OK) {
        dl_connection_free(made, false);
        dl_relay_link_want(&relay->link);
        return;
    }
    relay->connection = made;
    atomic_store(&relay->is_connected, true);
    touch_all(relay);
}

/* Drops the clients that have used the lost connection, which connect again; those that
 * wait for one go on waiting. */
static void
end_connection(dl_relay *relay)
{
    dl_list *next;

    ops->remove(relay->loop, &relay->server);
    dl_connection_free(relay->connection, false);
    relay->connection = NULL;
    relay->is_lost = false;
    atomic_store(&relay->is_connected, false);
    relay->reader = (dl_relay_reader){0};
    for (dl_list *node = relay->clients.next; node != &relay->clients; node = next) {
        client *one = DL_LIST_ENTRY(node, client, node);
        next = node->next;
        if (one->is_open) {
            drop(one);
        }
    }
    dl_relay_waits_fini(&relay->waits);
    dl_buffer_fini(&relay->out);
    relay->out_sent = 0;
    dl_relay_link_want(&relay->link);
}

static dl_status
send_frames(dl_relay *relay)
{
    dl_buffer *out = &relay->out;

    DL_TRY(dl_buffer_check(out));
    for (size_t size = 1; size > 0 && relay->out_sent < out->size;) {
        DL_TRY(dl_relay_link_write(
            relay->connection,
            (dl_bytes){out->data + relay->out_sent, out->size - relay->out_sent},
            &size));
        relay->out_sent += size;
    }
    drop_sent(out, &relay->out_sent);
    bool wants_room = out->size > 0;
    if (relay->connection->tls != NULL) {
        DL_TRY(dl_tls_socket_flush(relay->connection->tls));
        wants_room |= dl_tls_socket_wants_room(relay->connection->tls);
    }
    uint32_t events = DL_LOOP_READABLE | (wants_room ? (uint32_t)DL_LOOP_WRITABLE : 0u);
    return events == relay->server.events
               ? DL_OK
               : ops->change(relay->loop, &relay->server, events);
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
        client *one = DL_LIST_ENTRY(touched.next, client, touched);
        dl_list_remove(&one->touched);
        serve(one);
    }
    if (relay->connection != NULL && send_frames(relay) != DL_OK) {
        lose(relay);
    }
    return relay->is_lost || !dl_list_is_empty(&relay->touched) ? (dl_deadline){0}
                                                                : dl_deadline_after(-1);
}

static void *
run(void *argument)
{
    dl_relay *relay = argument;

    ops->run(relay->loop, end_turn, relay);
    return NULL;
}

static void
free_relay(dl_relay *relay)
{
    while (!dl_list_is_empty(&relay->clients)) {
        drop(DL_LIST_ENTRY(relay->clients.next, client, node));
    }
    if (relay->connection != NULL) {
        ops->remove(relay->loop, &relay->server);
        dl_connection_free(relay->connection, false);
    }
    if (relay->listener.ready != NULL) {
        ops->remove(relay->loop, &relay->listener);
    }
    if (relay->wake.ready != NULL) {
        ops->remove(relay->loop, &relay->wake);
    }
    if (relay->loop != NULL) {
        ops->close(relay->loop);
    }
    dl_socket_close(relay->listener.fd);
    dl_map_fini(&relay->channels);
    dl_relay_waits_fini(&relay->waits);
    dl_buffer_fini(&relay->out);
    free(relay);
}

static dl_status
listen_at(dl_relay *relay, const char *name)
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
watch(dl_relay *relay, dl_watch *one, void (*ready)(dl_watch *, uint32_t))
{
    one->events = DL_LOOP_READABLE;
    one->ready = ready;
    dl_status status = ops->add(relay->loop, one);
    if (status != DL_OK) {
        one->ready = NULL;
    }
    return status;
}

static dl_status
prepare(dl_relay *relay, const dl_relay_options *options)
{
    DL_TRY(listen_at(relay, options->name));
    DL_TRY(ops->open(&relay->loop));
    return watch(relay, &relay->listener, accept_client);
}

static dl_status
start_threads(dl_relay *relay, const dl_relay_options *options)
{
    DL_TRY(dl_relay_link_start(&relay->link, options->host, options->port,
                               options->secret, options->tls));
    relay->wake.fd = relay->link.wake_fd;
    dl_status status = watch(relay, &relay->wake, take_connection);
    if (status == DL_OK) {
        status = dl_thread_start(&relay->thread, run, relay);
    }
    if (status != DL_OK) {
        dl_relay_link_stop(&relay->link);
        relay->wake.ready = NULL;
    }
    return status;
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
    relay->waits.reply = give_reply;
    dl_status status = prepare(relay, options);
    if (status == DL_OK) {
        status = start_threads(relay, options);
    }
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
    ops->stop(relay->loop);
    pthread_join(relay->thread, NULL);
    ops->remove(relay->loop, &relay->wake);
    relay->wake.ready = NULL;
    dl_relay_link_stop(&relay->link);
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
