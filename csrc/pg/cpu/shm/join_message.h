/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The messages of a join in bytes.  Each begins with a magic number and its kind; a take
 * answers false for anything but a whole message of its kind. */
#ifndef DISTLITE_PG_CPU_SHM_JOIN_MESSAGE_H
#define DISTLITE_PG_CPU_SHM_JOIN_MESSAGE_H

#include "base/bytes.h"
#include "base/buffer.h"
#include "pg/cpu/cores.h"
#include "pg/cpu/endpoint.h"

typedef struct dl_invite {
    dl_bytes group_name;
    uint32_t rank; /* the member's */
    uint8_t token[DL_TOKEN_SIZE];
} dl_invite;

/* With the lifelines of ranks `first` to `first + count - 1`; the one that begins with
 * rank 0 carries the memory before them. */
typedef struct dl_welcome {
    uint64_t memory_size;
    uint32_t first;
    uint32_t count;
} dl_welcome;

typedef struct dl_refusal {
    uint32_t status; /* dl_status */
    dl_bytes text;
} dl_refusal;

void dl_put_invite(dl_buffer *buffer, const dl_invite *invite);
void dl_put_answer(dl_buffer *buffer, const dl_cores *cores);
void dl_put_welcome(dl_buffer *buffer, const dl_welcome *welcome);
void dl_put_refusal(dl_buffer *buffer, const dl_refusal *refusal);

/* Borrow from `bytes`. */
bool dl_take_invite(dl_bytes bytes, dl_invite *invite);
bool dl_take_answer(dl_bytes bytes, dl_cores *cores);
bool dl_take_welcome(dl_bytes bytes, dl_welcome *welcome);
bool dl_take_refusal(dl_bytes bytes, dl_refusal *refusal);

#endif
