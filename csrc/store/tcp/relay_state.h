/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parts of a relay: its clients, each with a channel (relay_channel.c), and the
 * connection to the server that carries them (relay.c).  All of it runs on the
 * relay's thread. */
#ifndef DISTLITE_STORE_TCP_RELAY_STATE_H
#define DISTLITE_STORE_TCP_RELAY_STATE_H

#include "base/map.h"
#include "net/local.h"
#include "net/transport.h"
#include "store/tcp/loop.h"
#include "store/tcp/relay_frame.h"
#include "store/tcp/relay_link.h"
#include "store/tcp/relay_waits.h"

typedef struct dl_relay dl_relay; /* relay.h */

/* Size of one read. */
#define DL_RELAY_READ_SIZE (64u << 10)

/* A client, and its channel if that is open. */
typedef struct dl_relay_channel {
    dl_watch watch;
    dl_relay *relay;
    dl_list node;       /* in the relay's list */
    dl_list touched;    /* in the relay's list, until the end of the turn */
    dl_map_entry entry; /* in the relay's map, while its channel is open */
    uint32_t number;
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
} dl_relay_channel;

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
    dl_transport transport; /* its descriptor and its TLS, for calls that never block */
    bool is_lost;           /* the connection has failed in this turn */
    bool is_starved;        /* no descriptors for more clients */
    dl_relay_reader reader;
    dl_buffer out; /* frames not sent yet */
    size_t out_sent;
    uint32_t next_channel;
    dl_map channels;
    dl_relay_waits waits;
    dl_list clients;
    dl_list touched;
    uint8_t input[DL_RELAY_READ_SIZE];
};

#define DL_RELAY_LOOP (&dl_loop_epoll_ops)

/* Accepts a client: of the watch `listener`. */
void dl_relay_accept(dl_watch *watch, uint32_t events);

/* Serves the client at the end of the turn. */
void dl_relay_touch(dl_relay_channel *one);

/* Does all that can be done for one client; may drop it. */
void dl_relay_serve(dl_relay_channel *one);

/* Takes a frame, or a piece of one, that the server has sent over the channel. */
void dl_relay_take_reply(dl_relay_channel *one, dl_relay_kind kind, uint32_t size,
                         dl_bytes piece);

/* Gives a waiter the reply to a wait that is shared; an empty one ends its client's
 * connection. */
void dl_relay_give_reply(dl_relay_waiter *waiter, dl_bytes reply);

void dl_relay_drop(dl_relay_channel *one);

/* Removes what was sent, not with every write, and gives memory back. */
void dl_relay_drop_sent(dl_buffer *out, size_t *sent);

#endif
