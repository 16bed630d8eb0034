/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A channel to a rank of the same host: one ring in each direction, and the doorbell at
 * which the other rank sleeps. */
#ifndef DISTLITE_PG_CPU_P2P_RING_CHANNEL_H
#define DISTLITE_PG_CPU_P2P_RING_CHANNEL_H

#include "pg/cpu/p2p/ring.h"

/* What the waiting threads of one rank sleep on; in shared memory. */
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

/* Initialises a channel whose two rings are already open. */
void dl_ring_channel_init(dl_ring_channel *channel, dl_doorbell *bell);

/* Wakes the threads that sleep at the bell. */
void dl_doorbell_ring(dl_doorbell *bell);

#endif
