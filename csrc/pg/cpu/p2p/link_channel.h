/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A channel to a rank of another host: a buffer of outgoing and one of incoming frames
 * around a bundle of links, which is opened once the channel is wanted (`is_wanted`).
 * All functions require the engine's lock.
 *
 * Payloads are copied once on each side, into and out of these buffers.  Frames are
 * small and the kernel copies them anyway, so that a second copy within the cache costs
 * little compared with the network. */
#ifndef DISTLITE_PG_CPU_P2P_LINK_CHANNEL_H
#define DISTLITE_PG_CPU_P2P_LINK_CHANNEL_H

#include "pg/cpu/p2p/channel.h"
#include "pg/cpu/tcp/bundle.h"

/* Bytes of buffer in each direction: several frames of the largest size. */
#define DL_LINK_ROOM ((size_t)256 << 10)

typedef struct dl_link_bytes {
    uint8_t *data;
    size_t start;
    size_t end;
} dl_link_bytes;

typedef struct dl_link_channel {
    dl_channel base;
    dl_bundle link;
    bool is_wanted;
    bool is_lost;
    dl_error cause; /* why it was lost */
    dl_link_bytes out;
    dl_link_bytes in;
    uint64_t published; /* bytes published so far */
    uint64_t flushed;   /* how many of them the kernel has accepted */
    dl_frame frame;     /* the frame that was peeked at */
    size_t span;        /* its bytes in `in`, with the head */
} dl_link_channel;

/* Creates a channel that is neither wanted nor open.  `options` and `way` are as for
 * dl_bundle_init(). */
dl_status dl_link_channel_new(const dl_link_options *options, const dl_tcp_contact *tcp,
                              dl_link_channel **channel);

/* Does nothing for NULL.  In a forked child (`is_inherited`) it only frees memory. */
void dl_link_channel_free(dl_link_channel *channel, bool is_inherited);

/* Opens the link, and sends and receives what is possible without blocking.  A failure
 * marks the channel as lost. */
void dl_link_channel_step(dl_link_channel *channel);

/* Returns true if the kernel probably accepts the next frame. */
bool dl_link_channel_is_free(const dl_link_channel *channel);

/* Returns the number of bytes that the kernel has not accepted yet. */
size_t dl_link_channel_owed(const dl_link_channel *channel);

/* Sends the reason why this rank ends the stream, and shuts the link down for writing.
 * Frames that are published afterwards are not sent. */
void dl_link_channel_notify(dl_link_channel *channel, const dl_error *cause);

/* Marks the channel as lost if the other rank's host does not answer. */
void dl_link_channel_check_host(dl_link_channel *channel);

/* Marks the channel as lost with DL_PROTOCOL, and tells the peer: what it has sent
 * cannot be understood, and the rest is discarded. */
void dl_link_channel_reject(dl_link_channel *channel);

/* Fills what to poll(2) for, at most DL_BUNDLE_POLLS entries, and returns their
 * number. */
int dl_link_channel_poll(const dl_link_channel *channel, struct pollfd *entries);

#endif
