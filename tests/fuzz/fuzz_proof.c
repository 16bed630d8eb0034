/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Strangers before a server with a token.  The input is a list of pieces, each a byte
 * with its size and its bytes, which a client says behind VALIDATE.  A piece of size
 * 255 is the client's proof, as far as it has got, with the bytes of the piece added to
 * it bit by bit: it may become a right one.  Nobody is admitted without one, and none
 * makes the server hold more than a message. */
#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "store/tcp/session.h"
#include "store/tcp/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct room {
    dl_hub hub;
    dl_session session;
    dl_secret *secret;
    dl_proof proof;
    uint8_t nonce[DL_PROOF_NONCE_SIZE]; /* the server's */
    bool is_asked;
    bool has_proved;
} room;

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Takes all output; of the reply to a CHALLENGE keeps the nonce. */
static void
read_all(room *r)
{
    dl_output *output = &r->session.output;
    struct iovec part;

    if (!dl_session_has_output(&r->session)) {
        return;
    }
    require(dl_output_gather(output, &part, 1, SIZE_MAX) == 1);
    const uint8_t *bytes = part.iov_base;
    if (!r->is_asked && part.iov_len >= DL_PROOF_SIZE && bytes[0] == DL_OK
        && r->session.proof != NULL && r->session.proof->stage >= DL_PROOF_ASKED) {
        memcpy(r->nonce, bytes + 1, sizeof r->nonce);
        r->is_asked = true;
    }
    dl_output_consume(output, dl_output_size(output));
    dl_session_sent(&r->session);
}

/* What an honest client would say now, with `noise` added. */
static void
put_honest(room *r, dl_bytes noise, dl_buffer *said)
{
    size_t start = said->size;

    if (!r->is_asked) {
        require(dl_proof_put_challenge(&r->proof, said) == DL_OK);
    } else {
        require(dl_proof_put_prove(&r->proof, r->secret, r->nonce, said) == DL_OK);
    }
    bool is_changed = false;
    for (size_t i = 0; i < noise.size && start + i < said->size; i++) {
        said->data[start + i] ^= noise.data[i];
        is_changed |= noise.data[i] != 0;
    }
    r->has_proved |= r->is_asked && !is_changed;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const dl_bytes validate = {(const uint8_t *)"\0\xce\xf7\x85\x3c", 5};
    room r = {.proof.terms = &dl_wire_proof};
    dl_bytes input = {data, size};
    dl_status status;

    require(dl_secret_new(DL_LITERAL("token"), &r.secret) == DL_OK);
    dl_hub_init(&r.hub);
    r.hub.secret = dl_secret_ref(r.secret);
    dl_session_init(&r.session, &r.hub);
    status = dl_session_feed(&r.session, validate);
    while (status == DL_OK && input.size >= 1
           && r.session.client.phase < DL_PHASE_SERVING) {
        bool is_honest = input.data[0] == 255;
        size_t most = input.size - 1;
        size_t want = is_honest ? DL_PROOF_SIZE : input.data[0];
        dl_bytes piece = {input.data + 1, want < most ? want : most};
        dl_buffer said = {0};
        input = (dl_bytes){piece.data + piece.size, most - piece.size};
        if (is_honest) {
            put_honest(&r, piece, &said);
        } else {
            dl_buffer_put(&said, piece);
        }
        status = dl_session_feed(&r.session, dl_buffer_bytes(&said));
        read_all(&r);
        dl_buffer_fini(&said);
        require(r.session.client.phase >= DL_PHASE_SERVING
                    ? r.has_proved
                    : r.session.client.timed.next != NULL);
        require(r.hub.pending < 4096 && r.hub.table.value_count == 0);
    }
    dl_session_fini(&r.session);
    dl_hub_fini(&r.hub);
    dl_secret_unref(r.secret);
    return 0;
}
