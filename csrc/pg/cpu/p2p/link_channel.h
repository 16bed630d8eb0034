/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A channel to a rank of another host: frames in front of and behind a bundle of links,
 * which is made once the channel is wanted.  All with the engine's lock.
 *
 * Contents are copied once on each side, into and out of the bytes here: frames are small,
 * and the kernel copies them in any case, so that a second copy in a cache does not show
 * beside the network. */
#ifndef DISTLITE_PG_CPU_P2P_LINK_CHANNEL_H
#define DISTLITE_PG_CPU_P2P_LINK_CHANNEL_H

#include "pg/cpu/channel.h"
#include "pg/cpu/tcp/bundle.h"

/* Frames on their way in one direction: several of the largest. */
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
    dl_error cause; /* why it is */
    dl_link_bytes out;
    dl_link_bytes in;
    uint64_t published; /* bytes, ever */
    uint64_t flushed;   /* of these, those that the kernel has taken */
    dl_frame frame;     /* the one that was peeked at */
    size_t span;        /* bytes of it in `in` */
} dl_link_channel;

/* Options and way as for a bundle. */
dl_status dl_link_channel_new(const dl_link_options *options, const dl_way *way,
                              dl_link_channel **channel);

/* NULL does nothing.  In a forked child it frees memory only. */
void dl_link_channel_free(dl_link_channel *channel, bool is_inherited);

/* Opens, sends and receives what it can; a failure makes it lost. */
void dl_link_channel_step(dl_link_channel *channel);

/* Bytes that wait for the kernel to take them. */
size_t dl_link_channel_owed(const dl_link_channel *channel);

/* The last word: what is published behind it is not sent. */
void dl_link_channel_farewell(dl_link_channel *channel, const dl_error *cause);

/* At most DL_BUNDLE_POLLS entries; returns their number. */
int dl_link_channel_poll(const dl_link_channel *channel, struct pollfd *entries);

#endif
