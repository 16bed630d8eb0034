/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What an engine of messages is made of.  p2p.c makes it and starts operations,
 * progress.c moves frames, matching.c finds the receive for a message, failures.c says
 * what went wrong, p2p_wait.c waits, and p2p_runner.c is the thread. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_STATE_H
#define DISTLITE_PG_CPU_P2P_P2P_STATE_H

#include "base/buffer.h"
#include "pg/cpu/p2p/p2p.h"
#include "pg/cpu/p2p/link_channel.h"
#include "pg/cpu/p2p/ring_channel.h"

enum dl_frame_kind {
    DL_FRAME_MESSAGE = 1, /* id of the send; with its contents if they are small */
    DL_FRAME_ACCEPT = 2,  /* id of the send; tag: id for its data */
    DL_FRAME_REFUSE =
        3, /* id of the send; total, dtype and code: what the receive takes */
    DL_FRAME_DATA = 4,   /* id from the ACCEPT */
    DL_FRAME_CANCEL = 5, /* id of the send: the sender gave up */
    DL_FRAME_STOP = 6,   /* id of the send: the receiver gave up */
};

typedef enum dl_message_state {
    DL_MESSAGE_QUEUED,    /* send: not yet in the ring */
    DL_MESSAGE_OFFERED,   /* send: in the ring, not accepted */
    DL_MESSAGE_STREAMING, /* send: large, being copied into the ring */
    DL_MESSAGE_POSTED,    /* receive: not matched */
    DL_MESSAGE_FILLING,   /* receive: large, being copied out of the ring */
    DL_MESSAGE_ENDED,
} dl_message_state;

/* One send or receive.  Guarded by the engine's lock; in the list of its state. */
typedef struct dl_message {
    dl_work work;
    dl_list node;
    dl_p2p *engine;
    dl_message_state state;
    int peer; /* DL_ANY_RANK until matched */
    int64_t tag;
    uint64_t id;      /* of a send, or for the data of a receive */
    uint64_t peer_id; /* the other side's */
    dl_tensor tensor;
    size_t size;  /* of the tensor */
    size_t total; /* of the message */
    size_t moved;
    uint64_t drained_at;   /* of a send: what the link channel has to have flushed */
    const dl_guard *guard; /* NULL: none */
    dl_deadline deadline;
    dl_status status; /* once ended */
    dl_error *error;  /* NULL: DL_OK, or there was no memory */
    int64_t layout[]; /* shape and strides */
} dl_message;

/* A message that came before its receive. */
typedef struct dl_arrival {
    dl_list node;
    int source;
    dl_frame frame;
    uint8_t contents[];
} dl_arrival;

typedef struct dl_p2p_peer {
    dl_channel *channel; /* one of the next two; NULL: this rank itself */
    dl_ring_channel rings;
    dl_link_channel *link; /* to another host */
    dl_list queued;        /* sends, in order */
    dl_list streaming;     /* sends, in order of their acceptance */
    dl_list
        draining; /* sends, in order: all is in the link channel, not in the kernel */
    dl_buffer controls; /* frames without contents that found no room */
    bool is_gone;       /* as last seen */
} dl_p2p_peer;

struct dl_p2p {
    atomic_uint references; /* the backend's and one per message */
    /* fixed after init */
    dl_p2p_options options;
    int place; /* this rank's, on its host */
    uint32_t fork_generation;
    int rank;
    int size;
    size_t eager; /* bytes that come with the MESSAGE */
    size_t chunk; /* bytes of a DATA frame */
    dl_doorbell *bells;
    dl_p2p_peer *peers;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t left; /* a driver left, for those who wait until there is none */
    dl_list offered;
    dl_list posted;
    dl_list filling;
    dl_list arrivals;
    dl_list ended; /* to be finished without the lock */
    uint64_t last_id;
    int pending;             /* messages that have not ended */
    bool is_owing;           /* frames of ended ones have not gone; never too few */
    int wake;                /* an event for sleepers at links; -1: no other hosts */
    atomic_bool wants_links; /* some link is; read by all */
    atomic_bool is_blocked;  /* something waits for room in a ring; read by all */
    int drivers;             /* threads that use the memory, the runner's apart */
    bool is_aborted;
    bool is_closed;
    dl_error cause; /* of the abort */
    struct dl_p2p_runner *runner;
};

void dl_p2p_unref(dl_p2p *engine);

/* All with the lock held; those without are in p2p_wait.h. */

/* Moves what can be moved without waiting: whether anything did. */
bool dl_p2p_progress(dl_p2p *engine);

/* Whether somebody has to drive the engine. */
bool dl_p2p_has_work(const dl_p2p *engine);

/* Bytes of frames that have not gone. */
size_t dl_p2p_owed(const dl_p2p *engine);

/* A frame without contents; kept without room. */
void dl_p2p_control(dl_p2p *engine, int peer, const dl_frame *frame);

/* What it ends with where the two sides differ, and where the other one gave up. */
dl_status dl_p2p_fail_refused(const dl_message *message, const dl_frame *frame);
dl_status dl_p2p_fail_stopped(const dl_message *message);

/* Whether the array is where it was; if not, the message is given up.  Before its elements
 * are touched. */
bool dl_p2p_is_in_place(dl_message *message);

/* Ends it; an error is the thread's last one. */
void dl_p2p_end(dl_message *message, dl_status status);

/* The same for one that the other side still counts on, which is told. */
void dl_p2p_give_up(dl_message *message, dl_status status);

/* A receive was posted: takes what has arrived for it. */
void dl_p2p_match_posted(dl_message *receive);

/* A MESSAGE came.  False: no memory to keep it, leave it where it is. */
bool dl_p2p_match_frame(dl_p2p *engine, int source, const dl_received *message);

/* Forgets a message whose sender has given up. */
void dl_p2p_drop_arrival(dl_p2p *engine, int source, uint64_t id);

/* Ends what cannot succeed any more: aborted, peers gone, out of time. */
void dl_p2p_judge(dl_p2p *engine);

#endif
