/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/proof.h"

#include <stdio.h>
#include <string.h>

#include "base/reader.h"

#define NONCE_SIZE DL_PROOF_NONCE_SIZE

_Static_assert(DL_PROOF_SIZE == 1 + DL_PROOF_NONCE_SIZE
                   && DL_PROOF_SIZE == 1 + DL_MAC_SIZE,
               "all four messages have one size");

/* The message that a MAC authenticates: the protocol, the side, and both nonces, each
 * of a fixed size, and the context behind them, so that no two different proofs have
 * the same bytes. */
#define LABEL_SIZE 32
#define MESSAGE_SIZE (LABEL_SIZE + 2 * NONCE_SIZE)

static dl_status
compute_tag(const dl_proof *proof, const dl_secret *secret, const char *side,
            uint8_t mac[DL_MAC_SIZE])
{
    uint8_t message[MESSAGE_SIZE + DL_PROOF_CONTEXT_LIMIT] = {0};
    dl_bytes context = proof->context;

    if (context.size > DL_PROOF_CONTEXT_LIMIT) {
        return dl_fail(DL_INTERNAL, "the context of a proof has %zu bytes",
                       context.size);
    }
    snprintf((char *)message, LABEL_SIZE, "%s %s", proof->terms->protocol, side);
    memcpy(message + LABEL_SIZE, proof->nonces, sizeof proof->nonces);
    if (context.size > 0) {
        memcpy(message + MESSAGE_SIZE, context.data, context.size);
    }
    return dl_secret_mac(secret, (dl_bytes){message, MESSAGE_SIZE + context.size}, mac);
}

static dl_status
answer_challenge(dl_proof *proof, const uint8_t *nonce, dl_buffer *out)
{
    memcpy(proof->nonces, nonce, NONCE_SIZE);
    DL_TRY(dl_random(proof->nonces + NONCE_SIZE, NONCE_SIZE));
    dl_put_u8(out, DL_OK);
    dl_buffer_put(out, (dl_bytes){proof->nonces + NONCE_SIZE, NONCE_SIZE});
    proof->stage = DL_PROOF_ASKED;
    return DL_OK;
}

static dl_status
answer_prove(dl_proof *proof, const dl_secret *secret, const uint8_t *mac,
             dl_buffer *out)
{
    uint8_t expected[DL_MAC_SIZE];

    DL_TRY(compute_tag(proof, secret, "client", expected));
    if (!dl_secret_mac_equal(mac, expected)) {
        return dl_fail(DL_DENIED,
                       "%s: every process of a job needs the same DISTLITE_TOKEN, "
                       "DISTLITE_TOKEN_FILE or token=...",
                       proof->terms->wrong);
    }
    DL_TRY(compute_tag(proof, secret, "server", expected));
    dl_put_u8(out, DL_OK);
    dl_buffer_put(out, (dl_bytes){expected, sizeof expected});
    proof->stage = DL_PROOF_DONE;
    return DL_OK;
}

int
dl_proof_answer(dl_proof *proof, const dl_secret *secret, dl_bytes bytes, size_t *size,
                dl_buffer *out)
{
    dl_status status;

    if (bytes.size == 0) {
        return 0;
    }
    /* A wrong first byte is refused without waiting for more. */
    bool is_expected =
        bytes.data[0]
        == (proof->stage == DL_PROOF_BEGIN ? DL_PROOF_CHALLENGE : DL_PROOF_PROVE);
    if (!is_expected || proof->stage > DL_PROOF_ASKED) {
        status = dl_fail(DL_DENIED,
                         "%s: set DISTLITE_TOKEN or DISTLITE_TOKEN_FILE, or pass "
                         "token=..., the same in every process",
                         proof->terms->asked);
    } else if (bytes.size < DL_PROOF_SIZE) {
        return 0;
    } else if (proof->stage == DL_PROOF_BEGIN) {
        status = answer_challenge(proof, bytes.data + 1, out);
    } else {
        status = answer_prove(proof, secret, bytes.data + 1, out);
    }
    if (status != DL_OK) {
        proof->stage = DL_PROOF_FAILED;
        return -1;
    }
    *size = DL_PROOF_SIZE;
    return 1;
}

dl_status
dl_proof_put_challenge(dl_proof *proof, dl_buffer *out)
{
    DL_TRY(dl_random(proof->nonces, NONCE_SIZE));
    dl_put_u8(out, DL_PROOF_CHALLENGE);
    dl_buffer_put(out, (dl_bytes){proof->nonces, NONCE_SIZE});
    proof->stage = DL_PROOF_ASKED;
    return DL_OK;
}

dl_status
dl_proof_put_prove(dl_proof *proof, const dl_secret *secret,
                   const uint8_t nonce[NONCE_SIZE], dl_buffer *out)
{
    uint8_t mac[DL_MAC_SIZE];

    memcpy(proof->nonces + NONCE_SIZE, nonce, NONCE_SIZE);
    DL_TRY(compute_tag(proof, secret, "client", mac));
    dl_put_u8(out, DL_PROOF_PROVE);
    dl_buffer_put(out, (dl_bytes){mac, sizeof mac});
    return DL_OK;
}

dl_status
dl_proof_check(dl_proof *proof, const dl_secret *secret, const uint8_t mac[DL_MAC_SIZE])
{
    uint8_t expected[DL_MAC_SIZE];

    DL_TRY(compute_tag(proof, secret, "server", expected));
    if (!dl_secret_mac_equal(mac, expected)) {
        proof->stage = DL_PROOF_FAILED;
        return dl_fail(DL_DENIED,
                       "the server does not know the job's token, although it says so: "
                       "it may belong to somebody else");
    }
    proof->stage = DL_PROOF_DONE;
    return DL_OK;
}
