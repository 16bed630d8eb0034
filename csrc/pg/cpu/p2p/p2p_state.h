/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of an engine, which only the files of this folder know.  p2p.c creates the
 * engine and ends it.  post.c starts messages.  send.c puts them into the channels;
 * receive.c matches those that arrive with receives.  progress.c moves frames from and
 * to all ranks.  failures.c ends the messages that cannot complete, and describes why.
 * p2p_wait.c has the threads that drive the engine: those that wait, and the engine's
 * own. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_STATE_H
#define DISTLITE_PG_CPU_P2P_P2P_STATE_H

#include "base/buffer.h"
#include "pg/cpu/p2p/p2p.h"
#include "pg/cpu/p2p/link_channel.h"
#include "pg/cpu/p2p/ring.h"
#include "pg/cpu/shm/slot_writer.h"

/* Frames of all kinds have the id of the send. */
enum dl_frame_kind {
    /* With all of the payload, its beginning, or nothing of it. */
    DL_FRAME_RTS = 1,
    DL_FRAME_CTS = 2,    /* total: bytes of the sender's messages that are kept */
    DL_FRAME_REFUSE = 3, /* total, dtype and code: what the receive accepts */
    DL_FRAME_DATA = 4,   /* what follows of the payload */
    DL_FRAME_CANCEL = 5, /* the sender has cancelled it */
    DL_FRAME_STOP = 6,   /* the receiver has cancelled its receive */
    /* As RTS, of a send that ends when its bytes are in the ring, or in the kernel's
     * buffers: it is neither accepted nor refused. */
    DL_FRAME_EAGER = 7,
};

typedef enum dl_message_state {
    DL_MESSAGE_QUEUED,    /* send: not yet in the channel */
    DL_MESSAGE_OFFERED,   /* send: in the channel, not accepted yet */
    DL_MESSAGE_STREAMING, /* send: large, being copied into the channel */
    DL_MESSAGE_POSTED,    /* receive: not matched yet */
    DL_MESSAGE_FILLING,   /* receive: large, being copied out of the channel */
    DL_MESSAGE_ENDED,
} dl_message_state;

/* One send or receive.  Guarded by the engine's lock; linked into the list of its
 * state.  It is on the stack of its call until it is known to outlast that; `work` has
 * only operation and source then. */
typedef struct dl_message {
    dl_work work;
    dl_list node;
    dl_p2p *engine;
    dl_message_state state;
    int peer; /* DL_ANY_RANK until matched */
    int64_t tag;
    bool is_awaited; /* its caller waits for it at once */
    bool is_alone;   /* no other message was posted with it */
    uint64_t id;     /* the send's; of a receive: once it is matched */
    dl_tensor tensor;
    size_t size;  /* bytes of the tensor */
    size_t total; /* bytes of the message */
    size_t moved; /* bytes copied so far */
    /* of a send that has been offered */
    size_t allowed; /* bytes that may be copied before it is accepted */
    bool is_accepted;
    uint64_t sent_ahead; /* the peer's, at that time */
    /* send over a link: completes when link->flushed has reached this */
    uint64_t drained_at;
    const dl_guard *guard; /* NULL: none */
    dl_probed *probed;     /* of a probe, which is posted like a receive; else NULL */
    dl_deadline deadline;
    dl_status status; /* valid once it has ended */
    dl_error *error;  /* NULL: DL_OK, or out of memory */
    int64_t layout[]; /* shape and strides */
} dl_message;

/* A message that arrived before its receive was posted. */
typedef struct dl_arrival {
    dl_list node;
    int source;
    dl_frame frame;
    size_t room; /* bytes that are kept here at most */
    size_t got;  /* bytes that have arrived */
    uint8_t contents[];
} dl_arrival;

typedef struct dl_p2p_peer {
    dl_channel *channel; /* `rings` or `link`; NULL: another host, no link yet */
    dl_ring_channel rings;
    dl_slot_writer writer; /* for the outgoing ring */
    dl_link_channel *link; /* to another host; created when first wanted */
    dl_list queued;        /* sends, in the order of posting */
    dl_list streaming;     /* sends, in the order of acceptance */
    /* sends that are in the link channel as a whole, but not in the kernel yet */
    dl_list draining;
    dl_buffer controls; /* frames without payload that found no room */
    bool is_gone;       /* as of the last dl_p2p_end_failed() */
    uint64_t kept;      /* bytes of its messages in `arrivals` */
    /* Of messages over the link, in what they cost where they are kept: all that were
     * sent without being accepted, how many of these had been when a message was sent
     * that the rank has accepted, and what it kept then. */
    uint64_t sent_ahead, known_ahead, kept_there;
} dl_p2p_peer;

static inline dl_message *
dl_p2p_message_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_message, node);
}

/* Returns true for a rank of this host. */
static inline bool
dl_p2p_is_here(const dl_p2p_peer *peer)
{
    return peer->rings.in.words != NULL;
}

struct dl_p2p {
    atomic_uint references; /* one of the backend, one per message */
    /* fixed after init */
    dl_p2p_options options;
    int local_rank; /* index of this rank among those of its host */
    uint32_t fork_generation;
    int rank;
    size_t chunk;  /* largest payload of a frame */
    size_t window; /* the largest message that is EAGER */
    size_t large;  /* arrays of as many bytes are written past the caches */
    dl_doorbell *bells;
    /* fixed after dl_p2p_open() */
    int size; /* 0 before */
    dl_p2p_peer *peers;
    atomic_int wake; /* eventfd for threads that poll links; -1: one host */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t left; /* signalled when `drivers` becomes 0 */
    dl_list offered;
    dl_list posted;
    dl_list filling;
    dl_list arrivals;
    dl_list ended; /* to be finished once the lock is released */
    uint64_t last_id;
    int pending;             /* messages that have not ended */
    bool is_owing;           /* frames of ended messages may still be unsent */
    atomic_bool wants_links; /* some link is wanted; read without the lock */
    atomic_bool is_blocked;  /* some frame waits for room; read without the lock */
    int drivers;             /* waiting threads that use the memory, not the engine's */
    dl_core_sharing sharing;
    bool is_aborted;
    bool is_closed;
    dl_error cause; /* of the abort */
    struct dl_p2p_thread *thread;
};

/* The functions below require the engine's lock, unless stated otherwise. */

/* Opens the channels, unless they are: many groups never have a message, and those of
 * large ones take much memory. */
dl_status dl_p2p_open(dl_p2p *engine);

/* As dl_p2p_abort(), with the thread's last error as the cause, and aborts the board: for
 * an engine that cannot go on. */
void dl_p2p_break(dl_p2p *engine);

/* Moves frames that can be moved without blocking.  Returns true if any moved: then
 * there may be more, for which no thread will be woken. */
bool dl_p2p_progress(dl_p2p *engine);

/* As dl_p2p_progress(), but takes all frames that have arrived, and leaves the parts of
 * large sends to the threads that wait.  For the thread that posts: it may be about to
 * post a receive for which the peer waits. */
void dl_p2p_begin(dl_p2p *engine);

/* Puts what finds room of a send that was just posted into its channel, and takes nothing
 * from a ring: what has arrived may be for a receive that is posted next, and then goes
 * straight into its array. */
void dl_p2p_put(dl_message *send);

/* The same for the sends to a rank that wait for room; parts of large ones only if it
 * may stream.  Returns true if any moved. */
bool dl_p2p_send_more(dl_p2p *engine, int rank, bool may_stream);

/* Returns true if sends or controls to the peer wait for room. */
bool dl_p2p_is_sending(const dl_p2p_peer *peer);

/* Returns the number of chunks that are sent before some are received, or the reverse. */
int dl_p2p_burst_of(const dl_p2p *engine, const dl_message *send);

/* Takes the EAGER frames that have arrived in rings for `receive`, which was just
 * posted, until it has ended or a frame of another kind comes: a message that is not
 * EAGER may have been cancelled by a later frame. */
void dl_p2p_take_eager(dl_message *receive);

/* Matches a receive or a probe that was just posted with the messages that have already
 * arrived. */
void dl_p2p_match_posted(dl_message *receive);

/* Handle a frame that has arrived.  Those that may keep it return false when it has to
 * stay in the channel. */
bool dl_p2p_take_message(dl_p2p *engine, int source, const dl_received *received);
bool dl_p2p_take_data(dl_p2p *engine, int source, const dl_received *received);
void dl_p2p_take_cancel(dl_p2p *engine, int source, const dl_frame *frame);
void dl_p2p_take_cts(dl_p2p *engine, int source, const dl_frame *frame);
void dl_p2p_take_refuse(dl_p2p *engine, int source, const dl_frame *frame);
void dl_p2p_take_stop(dl_p2p *engine, int source, const dl_frame *frame);

/* Handles a frame that no rank of this version sends.  A link is lost by it.  Returns
 * whether the frame is to be released. */
bool dl_p2p_reject(dl_p2p *engine, int source);

/* Returns the message of a list with this peer and id, or NULL. */
dl_message *dl_p2p_find(dl_list *list, int peer, uint64_t id);

/* Returns true if some thread has to drive the engine. */
bool dl_p2p_has_work(const dl_p2p *engine);

/* Returns the number of bytes in frames that have not been sent yet. */
size_t dl_p2p_owed(const dl_p2p *engine);

/* Returns room for the payload of the next frame to the rank, or NULL if there is none
 * yet; sends the frame whose payload was reserved last. */
uint8_t *dl_p2p_reserve(const dl_p2p *engine, int rank, size_t size);
void dl_p2p_publish(const dl_p2p *engine, int rank, const dl_frame *frame);

/* Sends a frame without payload, or keeps it while the channel has no room.  Aborts the
 * engine when there is no memory to keep it. */
void dl_p2p_control(dl_p2p *engine, int rank, const dl_frame *frame);

/* Sets the error of a message whose two sides disagree in size or dtype (`frame` is the
 * other side's), or which the other side has cancelled. */
dl_status dl_p2p_fail_refused(const dl_message *message, const dl_frame *frame);
dl_status dl_p2p_fail_stopped(const dl_message *message);

/* Returns true if the array of `message` is where it was when the operation was posted;
 * otherwise gives the message up.  To be called before its elements are touched. */
bool dl_p2p_is_in_place(dl_message *message);

/* Ends `message`.  An error other than DL_OK is the thread's last one. */
void dl_p2p_end(dl_message *message, dl_status status);

/* Ends the message, after a frame to the peer if that knows of it. */
void dl_p2p_give_up(dl_message *message, dl_status status);

/* Prefixes the thread's last error with a description of the message. */
dl_status dl_p2p_fail_described(const dl_message *message);

/* Ends the message if it cannot complete any more. */
void dl_p2p_end_if_failed(dl_message *message);

/* Returns true if a rank of this host is gone: a send would otherwise succeed, in a ring
 * that no process reads. */
bool dl_p2p_is_gone_here(dl_p2p *engine, int rank);

/* Has links to `peer` opened and polled from now on; DL_ANY_RANK stands for all ranks.
 * Links take memory, so each is created when it is first used. */
dl_status dl_p2p_open_links(dl_p2p *engine, int peer);

/* Drops a reference to the engine, which is freed with the last one. */
void dl_p2p_unref(dl_p2p *engine);

/* Ends all messages that cannot complete any more: the engine was aborted, the peer has
 * ended or left, or the deadline has passed.  Returns true if frames have moved, as
 * dl_p2p_progress() does. */
bool dl_p2p_end_failed(dl_p2p *engine);

/* Releases the engine's lock, and then finishes the works that have ended. */
void dl_p2p_unlock_and_finish(dl_p2p *engine);

/* Waits for a message.  The thread drives the engine: first awake, for a bounded time,
 * then asleep at the doorbell and in poll(2) on the links.  To be called without the
 * lock. */
dl_status dl_p2p_wait(dl_work *work, dl_deadline deadline);

/* Drives the engine until no frames are unsent, the deadline has passed, or the peers
 * have accepted nothing for a second.  Releases the lock while it sleeps, and looks for
 * signals then if `may_check` says that the caller holds no other lock: returns
 * DL_INTERRUPTED or DL_OK. */
dl_status dl_p2p_flush(dl_p2p *engine, dl_deadline deadline, bool may_check);

/* The engine's own thread.  It drives the engine while operations are pending that no
 * thread waits for, or frames of completed operations have not been sent.  It is
 * started by the first of them, does nothing while other threads drive the engine, and
 * sleeps when there is no work. */

/* Starts the thread or wakes it: an operation is posted that no thread waits for. */
dl_status dl_p2p_thread_want(dl_p2p *engine);

/* Wakes the thread if it sleeps. */
void dl_p2p_thread_nudge(dl_p2p *engine);

/* Stops and joins the thread, if there is one.  To be called without the lock. */
void dl_p2p_thread_stop(dl_p2p *engine);

#endif
