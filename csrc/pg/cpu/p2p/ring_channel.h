/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A channel to a rank of the same host: a ring in each direction, and the bell that the
 * other rank sleeps at. */
#ifndef DISTLITE_PG_CPU_P2P_RING_CHANNEL_H
#define DISTLITE_PG_CPU_P2P_RING_CHANNEL_H

#include "pg/cpu/p2p/ring.h"

/* Where a rank sleeps; shared. */
typedef struct dl_doorbell {
    _Alignas(DL_LINE) _Atomic uint32_t rings;
    _Atomic uint32_t sleepers;
} dl_doorbell;

typedef struct dl_ring_channel {
    dl_channel base;
    dl_ring out;
    dl_ring in;
    dl_doorbell *bell; /* the other rank's */
} dl_ring_channel;

/* Over two rings that are open. */
void dl_ring_channel_init(dl_ring_channel *channel, dl_doorbell *bell);

/* Wakes who sleeps there. */
void dl_doorbell_ring(dl_doorbell *bell);

#endif
