/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Making a TCP connection to a host that may have several addresses, may not be up yet,
 * or may swallow packets.  A round resolves the name anew and tries every address of
 * both families: the next one starts when the one before has failed or kept silent for
 * a while, and the first to answer wins.  Rounds are spaced by exponential back-off
 * with jitter. */
#ifndef DISTLITE_NET_CONNECT_H
#define DISTLITE_NET_CONNECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* How long to wait before trying again.  Zeroed: the first wait. */
typedef struct dl_backoff {
    int64_t delay;
} dl_backoff;

/* Sleeps, each time longer.  DL_OK: try again.  DL_TIMEOUT (no text written, so that the
 * last try's stays): the deadline has passed.  DL_CANCELLED: `*cancelled` became true;
 * it may be NULL. */
dl_status dl_backoff_sleep(dl_backoff *backoff, dl_deadline deadline,
                           const atomic_bool *cancelled);

/* One round, which ends by itself after a few seconds of silence.  DL_NETWORK: may be
 * tried again; the text lists each address with its errno.  DL_CANCELLED as above. */
dl_status dl_socket_connect_once(const char *host, uint16_t port, dl_deadline deadline,
                                 const atomic_bool *cancelled, int *fd);

/* Rounds until the deadline. */
dl_status dl_socket_connect(const char *host, uint16_t port, dl_deadline deadline,
                            int *fd);

#endif
