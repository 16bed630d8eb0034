/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One connection to a rank on another host, for one use in one group, so that bytes of
 * different uses need not be distinguished.  It is made when it is first needed: the
 * higher of the two ranks connects, the lower accepts.  While the lower rank waits for
 * the connection, it checks with a probe, a second connection, whether the other rank
 * is alive; so does a rank that has waited long for bytes of an open link.  A link never
 * blocks, and knows bytes, not frames. */
#ifndef DISTLITE_PG_CPU_TCP_LINK_H
#define DISTLITE_PG_CPU_TCP_LINK_H

#include <poll.h>
#include <sys/uio.h>

#include "pg/cpu/tcp/dial.h"

/* Limit of a sleep in poll(2) while a link waits for the peer's call: another thread of
 * this process may accept that call without waking the sleeper. */
#define DL_OPENING_SLICE (5 * DL_MILLISECOND)

typedef struct dl_link {
    dl_link_options options;
    dl_transport transport; /* closed until the link is open */
    bool is_open;           /* it is connected, and the hello was sent or received */
    dl_dial call;           /* of the higher rank, until the link is open */
    dl_dial probe;          /* of the lower rank, until then */
    int64_t wanted_since;   /* 0: not wanted yet */
    int64_t left_at;        /* when the probe was told so; 0: it was not */
    int64_t ended_at;       /* when the probe found that it has ended; 0: it did not */
    int end_error;          /* of errno, or 0; how it found that */
    bool is_told;           /* the probe was told a reason */
    int64_t quiet_since;    /* first dl_link_check_host() since bytes came; 0: none */
    int64_t check_after;    /* time of the next probe, after one that has failed */
} dl_link;

void dl_link_init(dl_link *link, const dl_link_options *options);
void dl_link_fini(dl_link *link);

/* Advances the opening of the link, which is complete when link->is_open is true.
 * DL_PEER_LOST: the other rank has ended, or cannot be reached.  DL_CLOSED: it has left
 * the group in order.  DL_INTERNAL: no descriptor is available.  Any other failure is
 * the reason why the other rank has given up the group. */
dl_status dl_link_open(dl_link *link);

/* The two parts of dl_link_open(), which takes the one of this rank's role.
 * dl_link_call() calls the other rank, and opens the link.  dl_link_probe() checks by a
 * probe whether the other process is alive, and never opens the link. */
dl_status dl_link_call(dl_link *link);
dl_status dl_link_probe(dl_link *link);

/* Opens the link if any rank has connected to this one for its group and use, and sets
 * its peer, which may be no rank of the group, and its lane.  Returns whether it did. */
bool dl_link_take_any(dl_link *link);

/* Move as many bytes of the parts as is possible without blocking; `*size` is their
 * number, 0 while the link is not open.  A write of which not all was taken is repeated
 * with the same bytes (net/transport.h).  DL_PEER_LOST: the connection has ended.
 * DL_DENIED, DL_NETWORK, DL_PROTOCOL: TLS has failed. */
dl_status dl_link_write(dl_link *link, struct iovec *parts, int count, size_t *size);
dl_status dl_link_read(dl_link *link, struct iovec *parts, int count, size_t *size);

/* For a wait to which the open link has nothing to give, about once in DL_WAIT_SLICE.
 * After half a second it begins to check by a probe whether the other rank's host answers.
 * DL_PEER_LOST: it has not for DISTLITE_HEARTBEAT_TIMEOUT.  A rank that is late, or
 * stopped, is not lost, because its kernel answers. */
dl_status dl_link_check_host(dl_link *link);

/* Returns whether a write was taken in part and has not returned its size yet, so that
 * nothing else can be written. */
bool dl_link_is_between(const dl_link *link);

/* Fails with DL_PROTOCOL because the other rank has sent something unintelligible. */
dl_status dl_link_fail_protocol(const dl_link_options *options);

/* Returns true if the link waits for the other rank's call, so that the listener has to
 * be polled as well. */
bool dl_link_awaits_call(const dl_link *link);

/* Returns the entry of poll(2) for the link.  The caller adds the listener's descriptor
 * itself. */
struct pollfd dl_link_poll(const dl_link *link, short events);

#endif
