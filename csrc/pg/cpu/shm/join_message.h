/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The messages of a join in bytes.  Each begins with a magic number and its kind.  The
 * take functions return false for anything but a complete message of their kind. */
#ifndef DISTLITE_PG_CPU_SHM_JOIN_MESSAGE_H
#define DISTLITE_PG_CPU_SHM_JOIN_MESSAGE_H

#include "base/bytes.h"
#include "base/buffer.h"
#include "net/local.h"
#include "pg/cpu/cores.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/listener.h"

typedef struct dl_invite {
    dl_bytes group_name;
    uint32_t rank; /* of the member */
    uint8_t token[DL_TOKEN_SIZE];
} dl_invite;

/* Comes with the lifelines of ranks `first` to `first + count - 1`; the message that
 * begins with rank 0 carries the memory's descriptor before them. */
typedef struct dl_welcome {
    uint64_t memory_size;
    uint32_t first;
    uint32_t count;
} dl_welcome;

/* Also used as a report; DL_OK means that the rank has joined. */
typedef struct dl_refusal {
    uint32_t status; /* dl_status */
    dl_bytes text;
} dl_refusal;

void dl_put_invite(dl_buffer *buffer, const dl_invite *invite);
void dl_put_answer(dl_buffer *buffer, const dl_cores *cores,
                   const dl_records_digest *digest);
void dl_put_welcome(dl_buffer *buffer, const dl_welcome *welcome);
void dl_put_refusal(dl_buffer *buffer, const dl_refusal *refusal);

/* The results borrow from `bytes`. */
bool dl_take_invite(dl_bytes bytes, dl_invite *invite);
bool dl_take_answer(dl_bytes bytes, dl_cores *cores, dl_records_digest *digest);
bool dl_take_welcome(dl_bytes bytes, dl_welcome *welcome);
bool dl_take_refusal(dl_bytes bytes, dl_refusal *refusal);

#endif
