/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of collectives over one link, in both directions at the same time: those to be
 * sent and those expected stand in queues and move when the link lets them.  A message
 * is cut into parts, each with a head that says which operation it belongs to: so both
 * sides find out when they are not in the same one, and a word of farewell can come
 * between two parts.
 *
 * Large parts are read straight into their place, small ones along with the heads around
 * them: an exchange of a few bytes is one system call for each direction. */
#ifndef DISTLITE_PG_CPU_TCP_ROUTE_H
#define DISTLITE_PG_CPU_TCP_ROUTE_H

#include "pg/backend.h"
#include "pg/cpu/tcp/bundle.h"

/* Transfers queued in one direction: what an algorithm may have under way, of one round
 * or of several. */
#define DL_ROUTE_QUEUE 24

/* Bytes read ahead: heads and small messages come in one system call. */
#define DL_ROUTE_AHEAD 16384

typedef struct dl_cargo {
    uint8_t *data;
    size_t size;
    size_t done;
    uint32_t stage;
    bool is_begun; /* a part of it was, of none if it is empty */
} dl_cargo;

typedef struct dl_queue {
    dl_cargo cargos[DL_ROUTE_QUEUE];
    uint64_t first;
    uint64_t end;
} dl_queue;

typedef struct dl_route {
    dl_bundle link;
    const dl_op_context *op; /* the one that is under way */
    dl_queue out;
    dl_queue in;
    /* of the part that is being sent */
    uint8_t head[DL_HEAD_SIZE];
    size_t head_left;
    size_t part_left;
    /* of the one that comes in */
    size_t in_left;
    size_t start; /* in `ahead` */
    size_t end;
    bool is_told;   /* the other rank has failed, and said so to all */
    uint64_t heard; /* the last operation that the other rank was seen in */
    uint8_t ahead[DL_ROUTE_AHEAD];
} dl_route;

static inline bool
dl_queue_is_empty(const dl_queue *queue)
{
    return queue->first == queue->end;
}

static inline dl_cargo *
dl_queue_front(dl_queue *queue)
{
    return &queue->cargos[queue->first % DL_ROUTE_QUEUE];
}

/* There must be room. */
void dl_queue_push(dl_queue *queue, void *data, size_t size, uint32_t stage);

/* Moves what can be moved without waiting.  DL_MISMATCH: the other rank called something
 * else, or has another size in mind.  Texts say whose fault it is, not in which
 * operation. */
dl_status dl_route_step(dl_route *route, bool *has_moved);

/* What to wait for, if anything: at most DL_BUNDLE_POLLS entries, whose number it
 * returns. */
int dl_route_poll(const dl_route *route, struct pollfd *entries);

/* The last frame of a connection, after the rest of the part that is under way if the
 * deadline allows.  The link is of no use afterwards. */
void dl_route_farewell(dl_route *route, const dl_error *cause, dl_deadline deadline);

#endif
