/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/proof.h"

#include <string.h>

#include "store/tcp/wire.h"

#define NONCE_SIZE DL_PROOF_NONCE_SIZE

_Static_assert(DL_PROOF_SIZE == 1 + DL_PROOF_NONCE_SIZE
                   && DL_PROOF_SIZE == 1 + DL_MAC_SIZE,
               "all four messages have one size");

/* What a MAC is about: the protocol, the side, and the nonces of both, each of a fixed
 * size, so that no two different proofs have the same bytes. */
#define LABEL_SIZE 32
static const char client_label[LABEL_SIZE] = "distlite store 1 client";
static const char server_label[LABEL_SIZE] = "distlite store 1 server";

static dl_status
compute(const dl_proof *proof, const dl_secret *secret, const char label[LABEL_SIZE],
        uint8_t mac[DL_MAC_SIZE])
{
    uint8_t message[LABEL_SIZE + sizeof proof->nonces];

    memcpy(message, label, LABEL_SIZE);
    memcpy(message + LABEL_SIZE, proof->nonces, sizeof proof->nonces);
    return dl_secret_mac(secret, (dl_bytes){message, sizeof message}, mac);
}

static dl_status
fail_unasked(void)
{
    return dl_fail(DL_DENIED,
                   "this store asks for the job's token: set DISTLITE_TOKEN or "
                   "DISTLITE_TOKEN_FILE, or pass token=..., the same in every process");
}

static dl_status
fail_wrong(void)
{
    return dl_fail(DL_DENIED,
                   "the token is not the one of this store: every process of a job "
                   "needs the same DISTLITE_TOKEN, DISTLITE_TOKEN_FILE or token=...");
}

dl_status
dl_proof_fail_needless(void)
{
    return dl_fail(DL_DENIED,
                   "this store has no token, so it cannot prove that it belongs to the "
                   "job: start its server with the token, too, or unset DISTLITE_TOKEN "
                   "and DISTLITE_TOKEN_FILE here");
}

void
dl_proof_put_refusal(dl_buffer *out, uint8_t first)
{
    if ((first & DL_WIRE_CHECKED) != 0) {
        dl_wire_put_error(out);
    } else {
        dl_put_u32(out, DL_PROOF_REQUIRED);
        dl_put_bytes(out, dl_bytes_of(dl_last_error()->text));
    }
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

    DL_TRY(compute(proof, secret, client_label, expected));
    if (!dl_secret_mac_equal(mac, expected)) {
        return fail_wrong();
    }
    DL_TRY(compute(proof, secret, server_label, expected));
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
        status = fail_unasked();
    } else if (bytes.size < DL_PROOF_SIZE) {
        return 0;
    } else if (proof->stage == DL_PROOF_BEGIN) {
        status = answer_challenge(proof, bytes.data + 1, out);
    } else {
        status = answer_prove(proof, secret, bytes.data + 1, out);
    }
    if (status != DL_OK) {
        proof->stage = DL_PROOF_FAILED;
        dl_proof_put_refusal(out, bytes.data[0]);
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
    DL_TRY(compute(proof, secret, client_label, mac));
    dl_put_u8(out, DL_PROOF_PROVE);
    dl_buffer_put(out, (dl_bytes){mac, sizeof mac});
    return DL_OK;
}

dl_status
dl_proof_check(dl_proof *proof, const dl_secret *secret, const uint8_t mac[DL_MAC_SIZE])
{
    uint8_t expected[DL_MAC_SIZE];

    DL_TRY(compute(proof, secret, server_label, expected));
    if (!dl_secret_mac_equal(mac, expected)) {
        proof->stage = DL_PROOF_FAILED;
        return dl_fail(DL_DENIED,
                       "the server does not know the job's token, although it says so: "
                       "it may belong to somebody else");
    }
    proof->stage = DL_PROOF_DONE;
    return DL_OK;
}
