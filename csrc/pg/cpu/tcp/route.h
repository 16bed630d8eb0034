/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of collectives over one bundle of links, in both directions at the same
 * time: messages to be sent and messages expected are queued, and move when the link
 * permits.  A message is cut into parts, each with a head that says which operation it
 * belongs to.  So both sides detect that they are in different operations, and a
 * notice can be sent between two parts.
 *
 * Large parts are read straight into place, small ones together with the heads around
 * them: exchanging a few bytes takes one system call in each direction.
 *
 * A rank that only sends in an operation may be ahead of the one that receives.  The
 * latter sends a greeting if it waits for long, a head that belongs to no message, so
 * that two ranks that wait for each other learn how their calls differ. */
#ifndef DISTLITE_PG_CPU_TCP_ROUTE_H
#define DISTLITE_PG_CPU_TCP_ROUTE_H

#include "pg/backend.h"
#include "pg/cpu/tcp/bundle.h"

/* Most transfers queued in one direction: an algorithm may have those of several rounds
 * in flight. */
#define DL_ROUTE_QUEUE 24

/* Operations whose calls a rank remembers: more than it may be ahead of another one. */
#define DL_ROUTE_HISTORY 64u

/* The largest note in a head (hosts/slots.c): a number of bits in a size. */
#define DL_NOTE_LIMIT 64

/* Bytes that are read ahead: heads and small messages arrive in one system call. */
#define DL_ROUTE_AHEAD 16384

/* One message to be sent or received. */
typedef struct dl_cargo {
    uint8_t *data;
    size_t size;
    size_t done;
    uint32_t stage;
    bool is_begun;    /* its first head was sent or received */
    bool is_greeting; /* it has no data, and belongs to no stage of the other rank */
} dl_cargo;

/* A ring of messages, of which `first` is being moved. */
typedef struct dl_queue {
    dl_cargo cargos[DL_ROUTE_QUEUE];
    uint64_t first;
    uint64_t end;
} dl_queue;

typedef struct dl_route {
    dl_bundle link;
    const dl_op_context *op; /* the current operation */
    /* The calls of the last DL_ROUTE_HISTORY operations, by sequence number modulo
     * that; borrowed. */
    const dl_fingerprint *called;
    /* Sent in each head, at most DL_NOTE_LIMIT, and set to the largest received;
     * borrowed. */
    uint8_t *note;
    dl_queue out;
    dl_queue in;
    /* of the part that is being sent */
    uint8_t head[DL_HEAD_SIZE];
    size_t head_left;
    size_t part_left;
    /* of the part that is being received */
    size_t in_left;
    size_t start; /* of the unread bytes in `ahead` */
    size_t end;
    bool is_told;   /* the other rank has reported a failure, also to all others */
    bool is_quiet;  /* the other rank may have greeted: to be read before a send */
    uint64_t heard; /* last operation that the other rank was seen in */
    uint64_t told;  /* last operation in which something was queued for it */
    int64_t used_at;
    uint8_t ahead[DL_ROUTE_AHEAD];
} dl_route;

static inline bool
dl_queue_is_empty(const dl_queue *queue)
{
    return queue->first == queue->end;
}

static inline dl_cargo *
dl_queue_front(const dl_queue *queue)
{
    return (dl_cargo *)(uintptr_t)&queue->cargos[queue->first % DL_ROUTE_QUEUE];
}

/* Appends a message to a queue that is not full. */
void dl_queue_push(dl_queue *queue, void *data, size_t size, uint32_t stage);

/* Queues a greeting, unless something has been queued in this operation. */
void dl_route_greet(dl_route *route, uint32_t stage);

/* Reads a greeting of a rank with which nothing is exchanged in this operation.
 * DL_MISMATCH: it has called a different one.  Any other failure is left for the
 * operation that needs the rank. */
dl_status dl_route_read_call(dl_route *route);

/* Moves what can be moved without blocking.  DL_MISMATCH: the other rank has called a
 * different operation, or expects a different size.  Error texts name the rank at
 * fault, but not the operation. */
dl_status dl_route_step(dl_route *route, bool *has_moved);

/* Fills entries for poll(2), at most DL_BUNDLE_POLLS, and returns their number; 0 if
 * both queues are empty. */
int dl_route_poll(const dl_route *route, struct pollfd *entries);

/* Sends the last frame of the connection, after the rest of the current part if the
 * deadline permits.  The link cannot be used afterwards. */
void dl_route_notify(dl_route *route, const dl_error *cause, dl_deadline deadline);

#endif
