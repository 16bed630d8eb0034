/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a client and a server prove to each other that they know the job's token, before
 * anything else is sent on their connection:
 *
 *     client                                                    server
 *        | CHALLENGE 0xC0, nonce of the client                    |
 *        |------------------------------------------------------->|
 *        |                               0, nonce of the server   |
 *        |<-------------------------------------------------------|
 *        | PROVE 0xC1, HMAC(token, "client", both nonces)         |
 *        |------------------------------------------------------->|
 *        |                    0, HMAC(token, "server", both nonces)
 *        |<-------------------------------------------------------|
 *
 * Each side contributes a nonce, so that no recorded conversation can be replayed, and
 * each proof names its side, so that none can be sent back.  The client proves first: a
 * client that merely connects receives nothing against which guessed tokens could be
 * tested.  A proof also names its protocol, so that a proof for a store is not valid
 * for a rank.
 *
 * Codec and state only: functions over bytes, which send nothing and wait for nothing.
 * The protocol around it decides how a refusal is reported. */
#ifndef DISTLITE_BASE_PROOF_H
#define DISTLITE_BASE_PROOF_H

#include "base/buffer.h"
#include "base/secret.h"

#define DL_PROOF_CHALLENGE 0xC0
#define DL_PROOF_PROVE 0xC1
#define DL_PROOF_NONCE_SIZE 32

/* Sizes of a message of either side: an opcode or a status, then a nonce or a MAC. */
#define DL_PROOF_SIZE (1 + 32)

/* The most bytes of a context. */
#define DL_PROOF_CONTEXT_LIMIT 32

/* One protocol that begins with a proof. */
typedef struct dl_proof_terms {
    const char *protocol; /* its name and version, the same on both sides */
    /* Beginnings of the error texts for a missing proof and for a wrong one. */
    const char *asked;
    const char *wrong;
} dl_proof_terms;

typedef enum dl_proof_stage {
    DL_PROOF_BEGIN = 0, /* the server expects CHALLENGE */
    DL_PROOF_ASKED,     /* the nonces are exchanged: PROVE comes next */
    DL_PROOF_DONE,      /* proved, to the server or by it */
    DL_PROOF_FAILED,
} dl_proof_stage;

/* One conversation, of either side.  All but the first two members are zero at its
 * beginning. */
typedef struct dl_proof {
    const dl_proof_terms *terms;
    /* What else both sides know, such as which server is meant, and have to agree on;
     * borrowed, and empty if there is nothing. */
    dl_bytes context;
    dl_proof_stage stage;
    uint8_t nonces[2 * DL_PROOF_NONCE_SIZE]; /* the client's, then the server's */
} dl_proof;

/* The server's side.  Serves the message at the start of `bytes`, whose first byte
 * tells which it is, and appends the reply to `out`.  Returns 1 when it is served, with
 * its size in `*size`; 0 when more bytes are needed; -1 when the client is refused:
 * dl_last_error() has the reason, with DL_DENIED, and nothing is appended.  `secret` is
 * not NULL. */
int dl_proof_answer(dl_proof *proof, const dl_secret *secret, dl_bytes bytes,
                    size_t *size, dl_buffer *out);

/* The client's side.  Appends CHALLENGE; then takes the body of each of the server's
 * replies, which follows a status of 0, and after the first appends PROVE.  DL_DENIED:
 * the server does not know the token. */
dl_status dl_proof_put_challenge(dl_proof *proof, dl_buffer *out);
dl_status dl_proof_put_prove(dl_proof *proof, const dl_secret *secret,
                             const uint8_t nonce[DL_PROOF_NONCE_SIZE], dl_buffer *out);
dl_status dl_proof_check(dl_proof *proof, const dl_secret *secret,
                         const uint8_t mac[DL_MAC_SIZE]);

#endif
