/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stream of bytes between two ranks over all interfaces that both of them list: one
 * link for each, and the stream cut into stripes of equal size, which the links carry in
 * turn.  Both sides count the bytes, so that nothing but the stream itself is sent, and
 * nothing arrives out of order.  The kernel's buffers hold more than a stripe: while
 * one link sends, the next one is filled.
 *
 *      stream   | stripe 0 | stripe 1 | stripe 2 | stripe 3 | ...
 *      link          0          1          0          1
 *
 * With one interface it is that one link.  Like a link it never blocks, and knows bytes,
 * not frames, but for the last one. */
#ifndef DISTLITE_PG_CPU_TCP_BUNDLE_H
#define DISTLITE_PG_CPU_TCP_BUNDLE_H

#include "pg/cpu/tcp/link.h"

/* Half of a connection's smallest usual buffer, and large beside the cost of a call. */
#define DL_STRIPE_SIZE ((size_t)64 << 10)

/* Entries that dl_bundle_poll() fills at most. */
#define DL_BUNDLE_POLLS 2

typedef struct dl_bundle {
    dl_link *links;
    int count;
    bool is_open;     /* all links are */
    uint64_t written; /* bytes of the stream */
    uint64_t read;
} dl_bundle;

/* `options` are those of each link but for address and lane.  As many links as both
 * `way` and the listener, which is this rank's, have addresses. */
dl_status dl_bundle_init(dl_bundle *bundle, const dl_link_options *options,
                         const dl_way *way);
void dl_bundle_fini(dl_bundle *bundle);

/* In a forked child, whose descriptors are closed: frees memory only. */
void dl_bundle_forget(dl_bundle *bundle);

/* A step towards being open, as dl_link_open() for each. */
dl_status dl_bundle_open(dl_bundle *bundle);

/* As dl_link_write() and dl_link_read(), up to the end of a stripe: 0 bytes mean that
 * nothing could be moved.  They change the entries of `parts`. */
dl_status dl_bundle_write(dl_bundle *bundle, struct iovec *parts, int count,
                          size_t *size);
dl_status dl_bundle_read(dl_bundle *bundle, struct iovec *parts, int count,
                         size_t *size);

/* The last frame of the stream: why this rank ends it.  Best effort: it finds room in the
 * buffers of a connection that takes anything at all. */
void dl_bundle_farewell(dl_bundle *bundle, const dl_error *cause);

/* Nothing more will be written. */
void dl_bundle_shutdown(dl_bundle *bundle);

/* What to poll(2) for, at most DL_BUNDLE_POLLS entries; returns their number. */
int dl_bundle_poll(const dl_bundle *bundle, short events, struct pollfd *entries);

/* Whether it waits for the other rank's call, so that the listener is worth a look. */
bool dl_bundle_awaits_call(const dl_bundle *bundle);

static inline const dl_link_options *
dl_bundle_options(const dl_bundle *bundle)
{
    return &bundle->links[0].options;
}

#endif
