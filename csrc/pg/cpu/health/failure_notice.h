/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The last words of a rank to one of another host: why it gives up a group.  They come as
 * the last frame of a link, or as news.  A failure passes through several hosts, and its
 * text must not grow at each: who is to blame is named where it was first known. */
#ifndef DISTLITE_PG_CPU_HEALTH_FAILURE_NOTICE_H
#define DISTLITE_PG_CPU_HEALTH_FAILURE_NOTICE_H

#include "base/deadline.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/frame.h"

/* Of the largest one. */
#define DL_FAILURE_NOTICE_SIZE (DL_HEAD_SIZE + DL_ERROR_TEXT_SIZE)

/* The frame's head, for the text of `cause` as payload; other fields are the caller's. */
dl_head dl_failure_notice_head(const dl_error *cause);

/* Head and text as a frame; returns its size. */
size_t dl_failure_notice_put(uint8_t frame[DL_FAILURE_NOTICE_SIZE],
                             const dl_error *cause);

/* In words for the rank that hears them from `rank`.  `head` may hold anything. */
dl_status dl_failure_notice_fail(const dl_peer *peer, int rank, const dl_head *head,
                                 const uint8_t *text);

#endif
