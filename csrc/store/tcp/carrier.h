/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server's end of a relay's connection (relay_frame.h): a session for each channel,
 * like that of a client with a connection of its own, except that it need not prove the
 * token, which the relay has done.  Frames are put into the output of the connection's
 * session, whose peer sends them.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_CARRIER_H
#define DISTLITE_STORE_TCP_CARRIER_H

#include "store/tcp/session.h"

/* Most channels of one relay: the processes of one host, with some connections each; and
 * of all relays, whose sessions then take about a hundred megabytes. */
#define DL_CARRIER_CHANNELS 16384
#define DL_CARRIER_CHANNELS_OF_ALL (16 * DL_CARRIER_CHANNELS)

typedef struct dl_carrier dl_carrier;

/* `session` is that of the relay's connection, and outlives the carrier. */
dl_status dl_carrier_new(dl_session *session, dl_carrier **carrier);

/* Ends all channels, as if their clients had been lost; NULL does nothing. */
void dl_carrier_free(dl_carrier *carrier);

/* Serves frames.  A failure ends the connection; that of one channel does not. */
dl_status dl_carrier_feed(dl_carrier *carrier, dl_bytes bytes);

/* Continues a channel's session that dl_session_take_changed() has returned, which may
 * end it.  Send the connection's output then; a failure ends the connection. */
dl_status dl_carrier_resume(dl_session *session);

/* Puts output that waited until the connection's output was sent. */
void dl_carrier_refill(dl_carrier *carrier);

/* Returns the session of the connection by which the session's output is sent. */
dl_session *dl_carrier_sender(dl_session *session);

#endif
