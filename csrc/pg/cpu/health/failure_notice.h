/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A failure notice is the frame with which a rank tells a rank of another host why it
 * gives up a group.  It is the last frame of a link, or arrives as news (news.h).  A
 * failure may pass through several hosts, and its text must not grow at each of them:
 * the rank at fault is named where the failure was first known. */
#ifndef DISTLITE_PG_CPU_HEALTH_FAILURE_NOTICE_H
#define DISTLITE_PG_CPU_HEALTH_FAILURE_NOTICE_H

#include "base/deadline.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/frame.h"

/* Size of the largest notice in bytes. */
#define DL_FAILURE_NOTICE_SIZE (DL_HEAD_SIZE + DL_ERROR_TEXT_SIZE)

/* Returns the frame's head; the text of `cause` is the payload.  The fields that a
 * notice does not use are zero, for the caller to set. */
dl_head dl_failure_notice_head(const dl_error *cause);

/* Writes the head and the text of `cause` to `frame`; returns the size of both in
 * bytes. */
size_t dl_failure_notice_put(uint8_t frame[DL_FAILURE_NOTICE_SIZE],
                             const dl_error *cause);

/* Fails with what the notice of `rank` says: DL_PEER_LOST if that rank left the group
 * in order, else the status and text of its cause.  `head` comes from the network;
 * `text` has at least `head->size` bytes. */
dl_status dl_failure_notice_fail(const dl_peer *peer, int rank, const dl_head *head,
                                 const uint8_t *text);

#endif
