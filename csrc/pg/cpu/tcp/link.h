/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One connection to a rank on another host, for one use in one group, so that no bytes of
 * different uses have to be told apart.  Made when it is first needed: of the two ranks the
 * higher calls, the lower is called; while it waits for that, it looks by a probe
 * whether the other still lives.  Never blocks; knows bytes, not frames. */
#ifndef DISTLITE_PG_CPU_TCP_LINK_H
#define DISTLITE_PG_CPU_TCP_LINK_H

#include <poll.h>
#include <sys/uio.h>

#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/listener.h"

typedef struct dl_link_options {
    const char *group; /* its name; these three are borrowed */
    const dl_peer *there;
    dl_listener *listener; /* this process's */
    dl_address address;    /* the other's */
    uint64_t family;       /* the group's (pg/cpu/family.h) */
    uint8_t token[DL_TOKEN_SIZE];
    int rank; /* this one */
    int peer; /* the other */
    int lane; /* of several links between the two, for the same use */
    dl_call_use use;
} dl_link_options;

typedef struct dl_link {
    dl_link_options options;
    int fd; /* -1: none yet */
    int probe;
    bool is_open;         /* `fd` is, and has been introduced */
    bool is_looking;      /* the probe was tried */
    int64_t wanted_since; /* 0: not wanted yet */
} dl_link;

void dl_link_init(dl_link *link, const dl_link_options *options);
void dl_link_fini(dl_link *link);

/* A step towards being open, as link->is_open says.  DL_PEER_LOST: the other has ended,
 * or cannot be reached; DL_CLOSED: it has left the group, in order; DL_INTERNAL: no
 * descriptors; else: why it has given up the group. */
dl_status dl_link_open(dl_link *link);

/* The two ways to it, of which dl_link_open() takes the one that is this rank's.  To call
 * the other: open in the end; and to look, by a probe, whether its process lives, which
 * never opens the link. */
dl_status dl_link_call(dl_link *link);
dl_status dl_link_look(dl_link *link);

/* What of the parts could be moved without waiting; nothing before the link is open.
 * DL_PEER_LOST: the connection ended. */
dl_status dl_link_write(dl_link *link, struct iovec *parts, int count, size_t *size);
dl_status dl_link_read(dl_link *link, struct iovec *parts, int count, size_t *size);

/* What to poll(2) for on behalf of the link; the listener's is one entry more, of the
 * caller. */
struct pollfd dl_link_poll(const dl_link *link, short events);

#endif
