/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a client and the server of a TCP store prove to each other that they know the
 * job's token, right behind VALIDATE, before any other request:
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
 * each proof names its side, so that none can be sent back.  The client proves first:
 * whoever merely connects to a server gets nothing with which tokens can be tried out.
 *
 * A refusal is the reply to a checked request that failed (wire.h).  To a client that
 * begins with a plain request, the first reply of which is the nonce of its PING, it is
 * DL_PROOF_REQUIRED in place of the nonce, and a blob with the text.
 *
 * Codec and state only: functions over bytes, which send nothing and wait for
 * nothing. */
#ifndef DISTLITE_STORE_TCP_PROOF_H
#define DISTLITE_STORE_TCP_PROOF_H

#include "base/buffer.h"
#include "base/secret.h"

#define DL_PROOF_CHALLENGE 0xC0
#define DL_PROOF_PROVE 0xC1
#define DL_PROOF_NONCE_SIZE 32

/* Sizes of a message of either side: an opcode or a status, then a nonce or a MAC. */
#define DL_PROOF_SIZE (1 + 32)

/* The first PING of a client carries the number of its process, which is never this. */
#define DL_PROOF_REQUIRED 0xFFFFFFFFu

typedef enum dl_proof_stage {
    DL_PROOF_BEGIN = 0, /* the server expects CHALLENGE */
    DL_PROOF_ASKED,     /* the nonces are exchanged: PROVE comes next */
    DL_PROOF_DONE,      /* proved, to the server or by it */
    DL_PROOF_FAILED,
} dl_proof_stage;

/* One conversation, of either side; zeroed at its beginning. */
typedef struct dl_proof {
    dl_proof_stage stage;
    uint8_t nonces[2 * DL_PROOF_NONCE_SIZE]; /* the client's, then the server's */
} dl_proof;

/* The server's side.  Serves the message at the start of `bytes`, whose first byte
 * tells which it is, and appends the reply to `out`.  Returns 1 when it is served, with
 * its size in `*size`; 0 when more bytes are needed; -1 when the client is refused:
 * dl_last_error() tells why, with DL_DENIED, and `out` has the refusal for the client.
 * `secret` is not NULL. */
int dl_proof_answer(dl_proof *proof, const dl_secret *secret, dl_bytes bytes,
                    size_t *size, dl_buffer *out);

/* Refuses, with the text of the thread's last error, a client whose message begins with
 * the byte `first`. */
void dl_proof_put_refusal(dl_buffer *out, uint8_t first);

/* Sets the error for a CHALLENGE to a server that has no token, and returns it. */
dl_status dl_proof_fail_needless(void);

/* The client's side.  Appends CHALLENGE; then takes the body of each of the server's
 * replies, which follows a status of 0, and after the first appends PROVE.  DL_DENIED:
 * the server does not know the token. */
dl_status dl_proof_put_challenge(dl_proof *proof, dl_buffer *out);
dl_status dl_proof_put_prove(dl_proof *proof, const dl_secret *secret,
                             const uint8_t nonce[DL_PROOF_NONCE_SIZE], dl_buffer *out);
dl_status dl_proof_check(dl_proof *proof, const dl_secret *secret,
                         const uint8_t mac[DL_MAC_SIZE]);

#endif
