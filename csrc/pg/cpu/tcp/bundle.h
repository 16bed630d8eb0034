/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stream of bytes between two ranks over all interfaces that both of them list: one
 * link per interface.  The stream is cut into stripes of equal size, which the links
 * carry in turn.  Both sides count the bytes, so that only the stream itself is sent,
 * and it arrives in order.  The kernel's buffers hold more than a stripe: while one
 * link sends, the next one is filled.
 *
 *      stream   | stripe 0 | stripe 1 | stripe 2 | stripe 3 | ...
 *      link          0          1          0          1
 *
 * With one interface the bundle is a single link.  Like a link it never blocks, and
 * knows bytes, not frames, except for the notice. */
#ifndef DISTLITE_PG_CPU_TCP_BUNDLE_H
#define DISTLITE_PG_CPU_TCP_BUNDLE_H

#include "pg/cpu/tcp/link.h"

/* Half of the smallest usual buffer of a connection, and large compared with the cost
 * of a system call. */
#define DL_STRIPE_SIZE ((size_t)64 << 10)

/* Most entries that dl_bundle_poll() fills. */
#define DL_BUNDLE_POLLS 2

typedef struct dl_bundle {
    dl_link *links;
    int count;
    bool is_open;     /* all links are open */
    uint64_t written; /* bytes of the stream so far */
    uint64_t read;
} dl_bundle;

/* Initialises a bundle of as many links as both `tcp`, the peer's, and the listener,
 * this rank's, have addresses.  `options` are those of each link, which is aimed
 * here. */
dl_status dl_bundle_init(dl_bundle *bundle, const dl_link_options *options,
                         const dl_tcp_contact *tcp);
void dl_bundle_fini(dl_bundle *bundle);

/* Frees memory in a forked child, where the descriptors are closed already. */
void dl_bundle_forget(dl_bundle *bundle);

/* Advances the opening of each link, as dl_link_open() does. */
dl_status dl_bundle_open(dl_bundle *bundle);

/* Write and read like dl_link_write() and dl_link_read(), up to the end of the current
 * stripe; `*size` is 0 if nothing could be moved.  Both change the entries of
 * `parts`. */
dl_status dl_bundle_write(dl_bundle *bundle, struct iovec *parts, int count,
                          size_t *size);
dl_status dl_bundle_read(dl_bundle *bundle, struct iovec *parts, int count,
                         size_t *size);

/* As dl_link_check_host(): the links of a bundle end at the same host. */
dl_status dl_bundle_check_host(dl_bundle *bundle);

/* Writes the last frame of the stream, with the reason why this rank ends it.  Best
 * effort: a connection that accepts data at all has room for it. */
void dl_bundle_notify(dl_bundle *bundle, const dl_error *cause);

/* Returns the number of bytes sent that the other rank's host has not acknowledged. */
size_t dl_bundle_unacknowledged(const dl_bundle *bundle);

/* Shuts the links down for writing. */
void dl_bundle_shutdown(dl_bundle *bundle);

/* Fills entries for poll(2), at most DL_BUNDLE_POLLS, and returns their number. */
int dl_bundle_poll(const dl_bundle *bundle, short events, struct pollfd *entries);

/* Returns true if the bundle waits for the other rank's call, so that the listener has
 * to be polled as well. */
bool dl_bundle_awaits_call(const dl_bundle *bundle);

static inline const dl_link_options *
dl_bundle_options(const dl_bundle *bundle)
{
    return &bundle->links[0].options;
}

#endif
