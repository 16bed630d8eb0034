/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A dial is a connection that this process makes to the listener of another rank, up to
 * the hello that states its use:
 *
 *     caller                                                    listener
 *        | connects                                                |
 *        | with TLS: its handshake (net/tls.h)                     |
 *        |<------------------------------------------------------->|
 *        | with a token: both prove that they know it (proof.h),   |
 *        | unless TLS has proved it                                |
 *        |<------------------------------------------------------->|
 *        | HELLO or PROBE (frame.h)                                |
 *        |-------------------------------------------------------->|
 *
 * Nothing that belongs to a link is sent before the other side has proved itself.  A
 * dial never blocks. */
#ifndef DISTLITE_PG_CPU_TCP_DIAL_H
#define DISTLITE_PG_CPU_TCP_DIAL_H

#include <poll.h>

#include "net/transport.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/listener.h"

typedef struct dl_link_options {
    const char *group; /* borrowed */
    dl_peers peers;
    dl_listener *listener; /* of this process; borrowed */
    int rank;              /* this rank */
    int peer;              /* the other rank */
    dl_hello_use use;
    /* The next five are set by dl_link_options_aim(). */
    dl_address address; /* of the other rank */
    uint8_t token[DL_TOKEN_SIZE];
    const dl_secret *secret; /* borrowed; NULL: nothing is proved inside */
    dl_tls *tls;             /* borrowed; NULL: plain */
    int index;               /* index among the links of the same use between the two */
} dl_link_options;

/* Sets the members that depend on the other rank's contact, for one of the links. */
void dl_link_options_aim(dl_link_options *options, const dl_tcp_contact *tcp,
                         int index);

typedef enum dl_dial_stage {
    DL_DIAL_NONE = 0,   /* there is no connection */
    DL_DIAL_CONNECTING, /* connect(2) was called */
    DL_DIAL_GREETING,   /* the handshake of TLS is under way */
    DL_DIAL_ASKED,      /* CHALLENGE was sent: the listener's nonce comes next */
    DL_DIAL_PROVED,     /* PROVE was sent: the listener's proof comes next */
    DL_DIAL_OPEN,       /* the hello was sent */
} dl_dial_stage;

/* Zeroed memory is a dial that was not begun. */
typedef struct dl_dial {
    dl_dial_stage stage;
    dl_transport transport; /* open unless the stage is DL_DIAL_NONE */
    int64_t since;
    int repeats; /* connections that ended before they were proved */
    int error;   /* errno that has ended it, until it is closed */
    /* of the attempts that found no host, one soon after the other; 0: none */
    int64_t unanswered_since; /* begin of the first */
    int64_t unanswered_until; /* end of the last */
    dl_proof proof;
    uint8_t got;
    uint8_t bytes[DL_PROOF_SIZE];
} dl_dial;

/* Reads DISTLITE_HEARTBEAT_TIMEOUT, the time after which a host that answers no probe
 * of this process is lost.  Without this call it is five seconds.  DL_INVALID: its text
 * is not a number. */
dl_status dl_dial_configure(void);

/* Returns whether a probe has failed because nothing has answered at the other rank's
 * host for that time, as opposed to a process there that has ended.  A host to which
 * there is no route for less than that may come back. */
bool dl_dial_is_host_lost(const dl_dial *dial);

/* Advances the dial, from a connection that is not begun to DL_DIAL_OPEN. DL_PEER_LOST:
 * the other rank has ended or cannot be reached, or the process at its address does not
 * know the job's token.  DL_DENIED, DL_PROTOCOL: the two sides' TLS settings do not
 * match, and the text says how.  DL_INTERNAL: no descriptor is available. */
dl_status dl_dial_advance(dl_dial *dial, const dl_link_options *options, bool is_probe);

/* Returns what to poll(2) for while the dial is not open. */
struct pollfd dl_dial_poll(const dl_dial *dial);

/* Closes the connection; the dial can be begun anew. */
void dl_dial_close(dl_dial *dial);

/* Returns the connection of an open dial, which the caller then owns. */
dl_transport dl_dial_take(dl_dial *dial);

/* Fails with DL_PEER_LOST and a text of the other rank and `what`. */
dl_status dl_dial_fail_lost(const dl_link_options *options, const char *what);

/* Fails for a stream of the other rank that has failed with `status` and `error`. */
dl_status dl_dial_fail_stream(const dl_link_options *options, dl_status status,
                              int error);

#endif
