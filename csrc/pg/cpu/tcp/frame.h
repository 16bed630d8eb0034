/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The frames that are sent over the TCP connections between ranks, each a head of fixed
 * size and a payload.  This is the only file that knows the layout of a head in bytes
 * (docs/wire.md).  The meaning of its fields depends on the kind; it is documented
 * here, and used elsewhere.
 *
 * A failure notice is the frame with which a rank informs a rank of another host why it
 * gives up a group.  It is the last frame of a link, or has a connection of its
 * own (health/notices.h).  A failure may pass through several hosts, and its text must not
 * grow at each of them: the rank at fault is named where the failure was first
 * known. */
#ifndef DISTLITE_PG_CPU_TCP_FRAME_H
#define DISTLITE_PG_CPU_TCP_FRAME_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "pg/cpu/peer.h"

#define DL_HEAD_SIZE 52u

/* "DLF2": the last byte is the version. */
#define DL_HEAD_MAGIC 0x32464c44u

/* Largest payload: longer messages are cut, so that another frame can be sent in
 * between. */
#define DL_PART_LIMIT (1u << 20)

/* The numbers never change. */
typedef enum dl_head_kind {
    DL_HEAD_HELLO = 1,   /* first on a connection: the caller, the callee and the use */
    DL_HEAD_PROBE = 2,   /* like HELLO, from a caller that only waits for the end */
    DL_HEAD_DATA = 3,    /* part of a collective's message, with its fingerprint */
    DL_HEAD_NOTICE = 4,  /* last on a connection: the reason for its end */
    DL_HEAD_MESSAGE = 5, /* a frame of sends and receives */
    DL_HEAD_WINDOW = 6,  /* a request of a window, or its answer */
    DL_HEAD_KIND_COUNT = 7,
} dl_head_kind;

/*           HELLO, PROBE     DATA             NOTICE      MESSAGE
 * detail    use              note             -           kind of frame
 * dtype     -                dtype            -           dtype
 * size      bytes of payload: token, group name; elements; text; contents
 * root      callee's rank    root             dl_status   -
 * code      -                detail           -           opaque dtype's code
 * id        caller's rank    sequence number  -           id
 * tag       -                op, stage        -           tag
 * total     -                count            -           total
 * length    -                of the message   -           -
 *
 * The fields of WINDOW are in pg/cpu/window/window_session.h. */
typedef struct dl_head {
    uint8_t kind;
    uint8_t detail;
    uint8_t dtype;
    uint32_t size;
    uint32_t root;
    uint32_t code;
    uint64_t id;
    int64_t tag;
    uint64_t total;
    uint64_t length;
} dl_head;

void dl_head_put(uint8_t bytes[DL_HEAD_SIZE], const dl_head *head);

/* Returns false if the bytes are not a head of this version, or the payload is larger
 * than allowed. */
bool dl_head_take(const uint8_t bytes[DL_HEAD_SIZE], dl_head *head);

/* Size of the largest notice in bytes. */
#define DL_FAILURE_NOTICE_SIZE (DL_HEAD_SIZE + DL_ERROR_TEXT_SIZE)

/* Returns the frame's head; the text of `cause` is the payload.  The fields that a
 * notice does not use are zero, for the caller to set. */
dl_head dl_failure_notice_head(const dl_error *cause);

/* Writes the head and the text of `cause` to `frame`; returns the size of both in
 * bytes. */
size_t dl_failure_notice_put(uint8_t frame[DL_FAILURE_NOTICE_SIZE],
                             const dl_error *cause);

/* Fails with the contents of the notice of `rank`: DL_PEER_LOST if that rank left the
 * group in order, else the status and text of its cause.  `head` comes from the
 * network; `text` has at least `head->size` bytes. */
dl_status dl_failure_notice_fail(const dl_peers *peers, int rank, const dl_head *head,
                                 const uint8_t *text);

#endif
