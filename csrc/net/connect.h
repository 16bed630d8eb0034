/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes a TCP connection to a host that may have several addresses, may not be up yet,
 * or may drop packets.  A round resolves the name anew and tries every address of both
 * families: the next attempt starts when the one before has failed or has not answered
 * for a while, and the first connection wins.  Rounds are spaced by exponential
 * back-off with jitter. */
#ifndef DISTLITE_NET_CONNECT_H
#define DISTLITE_NET_CONNECT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* The delay before the next attempt; zeroed memory is the initial state. */
typedef struct dl_backoff {
    int64_t delay;
} dl_backoff;

/* Sleeps, longer with each call.  DL_OK: try again.  DL_TIMEOUT: the deadline has
 * passed (no text is written, so that the last attempt's remains).  DL_CANCELLED:
 * `*cancelled` became true; `cancelled` may be NULL. */
dl_status dl_backoff_sleep(dl_backoff *backoff, dl_deadline deadline,
                           const atomic_bool *cancelled);

/* Runs one round, which takes a few seconds at most if no address answers.  On success
 * the caller owns `*fd`.  DL_NETWORK: the caller may try again; the text lists each
 * address with its errno.  DL_CANCELLED as above. */
dl_status dl_socket_connect_once(const char *host, uint16_t port, dl_deadline deadline,
                                 const atomic_bool *cancelled, int *fd);

#endif
