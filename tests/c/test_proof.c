/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/proof.h"

#include "base/reader.h"
#include "session_fixture.h"

#define REPLY_SIZE DL_PROOF_SIZE

static dl_secret *
secret_of(const char *token)
{
    dl_secret *secret = NULL;

    CHECK_OK(dl_secret_new(dl_bytes_of(token), &secret));
    return secret;
}

/* Both ends of a conversation, and what each has sent last. */
typedef struct ends {
    dl_secret *client_secret;
    dl_secret *server_secret;
    dl_proof client;
    dl_proof server;
    dl_buffer asked;
    dl_buffer answered;
} ends;

static void
begin(ends *e, const char *client_token, const char *server_token)
{
    *e = (ends){.client_secret = secret_of(client_token),
                .server_secret = secret_of(server_token),
                .client.terms = &dl_wire_proof,
                .server.terms = &dl_wire_proof};
    CHECK_OK(dl_proof_put_challenge(&e->client, &e->asked));
    CHECK_EQUAL(e->asked.size, DL_PROOF_SIZE);
}

static void
end(ends *e)
{
    dl_secret_unref(e->client_secret);
    dl_secret_unref(e->server_secret);
    dl_buffer_fini(&e->asked);
    dl_buffer_fini(&e->answered);
}

/* The server serves `bytes` after every shorter beginning of them, each of which it
 * must find incomplete; returns as dl_proof_answer() does for the whole. */
static int
answer(ends *e, dl_bytes bytes)
{
    size_t size = 0;

    dl_buffer_clear(&e->answered);
    for (size_t i = 0; i < bytes.size && i < DL_PROOF_SIZE; i++) {
        dl_bytes part = {bytes.data, i};
        CHECK_EQUAL(
            dl_proof_answer(&e->server, e->server_secret, part, &size, &e->answered),
            0);
        CHECK_EQUAL(e->answered.size, 0);
    }
    int taken =
        dl_proof_answer(&e->server, e->server_secret, bytes, &size, &e->answered);
    CHECK(taken != 1 || size == DL_PROOF_SIZE);
    CHECK(taken != -1 || dl_last_error()->status == DL_DENIED);
    return taken;
}

/* The exchange of nonces; leaves PROVE in `asked`. */
static void
exchange_nonces(ends *e)
{
    CHECK_EQUAL(answer(e, dl_buffer_bytes(&e->asked)), 1);
    CHECK_EQUAL(e->answered.size, REPLY_SIZE);
    CHECK_EQUAL(e->answered.data[0], DL_OK);
    dl_buffer_clear(&e->asked);
    CHECK_OK(dl_proof_put_prove(&e->client, e->client_secret, e->answered.data + 1,
                                &e->asked));
    CHECK_EQUAL(e->asked.size, DL_PROOF_SIZE);
}

/* The client was refused, and this side has sent it no answer. */
static void
check_denied(const ends *e, const char *text)
{
    CHECK_EQUAL(dl_last_error()->status, DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, text);
    CHECK_EQUAL(e->answered.size, 0);
    CHECK_EQUAL(e->server.stage, DL_PROOF_FAILED);
}

CHECK_CASE(both_sides_prove)
{
    ends e;

    begin(&e, "token", "token");
    exchange_nonces(&e);
    CHECK_EQUAL(e.server.stage, DL_PROOF_ASKED);
    CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), 1);
    CHECK_EQUAL(e.server.stage, DL_PROOF_DONE);
    CHECK_EQUAL(e.answered.size, REPLY_SIZE);
    CHECK_EQUAL(e.answered.data[0], DL_OK);
    CHECK_OK(dl_proof_check(&e.client, e.client_secret, e.answered.data + 1));
    CHECK_EQUAL(e.client.stage, DL_PROOF_DONE);
    end(&e);
}

CHECK_CASE(a_wrong_token_is_denied_on_both_sides)
{
    ends e;

    begin(&e, "wrong", "token");
    exchange_nonces(&e);
    CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), -1);
    check_denied(&e, "the token is not the one of this store");
    end(&e);
    /* A server that accepts everybody, and proves with another token. */
    begin(&e, "token", "wrong");
    exchange_nonces(&e);
    dl_secret_unref(e.client_secret);
    e.client_secret = secret_of("wrong");
    dl_buffer_clear(&e.asked);
    CHECK_OK(
        dl_proof_put_prove(&e.client, e.client_secret, e.answered.data + 1, &e.asked));
    CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), 1);
    dl_secret_unref(e.client_secret);
    e.client_secret = secret_of("token");
    CHECK_STATUS(dl_proof_check(&e.client, e.client_secret, e.answered.data + 1),
                 DL_DENIED);
    CHECK_EQUAL(e.client.stage, DL_PROOF_FAILED);
    end(&e);
}

CHECK_CASE(every_bit_of_a_proof_counts)
{
    ends e;

    for (size_t i = 0; i < 8 * DL_MAC_SIZE; i++) {
        begin(&e, "token", "token");
        exchange_nonces(&e);
        e.asked.data[1 + i / 8] ^= (uint8_t)(1u << i % 8);
        CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), -1);
        end(&e);
    }
}

/* A proof of one side is not valid as a proof of the other side. */
CHECK_CASE(proofs_are_not_reflected)
{
    ends e;
    uint8_t proved[DL_MAC_SIZE];

    begin(&e, "token", "token");
    exchange_nonces(&e);
    memcpy(proved, e.asked.data + 1, sizeof proved);
    CHECK_STATUS(dl_proof_check(&e.client, e.client_secret, proved), DL_DENIED);
    CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), 1);
    /* The server's, as if a client had sent it in the same conversation. */
    dl_proof same = e.server;
    same.stage = DL_PROOF_ASKED;
    memcpy(proved, e.answered.data + 1, sizeof proved);
    e.server = same;
    dl_buffer_clear(&e.asked);
    dl_put_u8(&e.asked, DL_PROOF_PROVE);
    dl_buffer_put(&e.asked, (dl_bytes){proved, sizeof proved});
    CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), -1);
    end(&e);
}

CHECK_CASE(proofs_are_not_replayed)
{
    ends first;
    ends second;

    begin(&first, "token", "token");
    dl_buffer challenge = {0};
    dl_buffer_put(&challenge, dl_buffer_bytes(&first.asked));
    exchange_nonces(&first);
    begin(&second, "token", "token");
    /* The same CHALLENGE again: the server's nonce is another. */
    CHECK_EQUAL(answer(&second, dl_buffer_bytes(&challenge)), 1);
    CHECK_EQUAL(answer(&second, dl_buffer_bytes(&first.asked)), -1);
    check_denied(&second, "the token is not the one of this store");
    /* A server's earlier proof is not valid for a client with another nonce. */
    CHECK_EQUAL(answer(&first, dl_buffer_bytes(&first.asked)), 1);
    CHECK_STATUS(
        dl_proof_check(&second.client, second.client_secret, first.answered.data + 1),
        DL_DENIED);
    dl_buffer_fini(&challenge);
    end(&first);
    end(&second);
}

/* Neither a proof of another protocol counts, nor one that is about something else. */
CHECK_CASE(protocol_and_context_have_to_agree)
{
    static const dl_proof_terms other = {.protocol = "distlite other 1",
                                         .wrong = "not that one"};
    const dl_bytes contexts[] = {DL_LITERAL("to rank 1"), DL_LITERAL("to rank 2"),
                                 DL_LITERAL("to rank")};
    ends e;

    begin(&e, "token", "token");
    e.server.terms = &other;
    exchange_nonces(&e);
    CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), -1);
    check_denied(&e, "not that one: every process");
    end(&e);
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        begin(&e, "token", "token");
        e.client.context = contexts[0];
        e.server.context = contexts[i];
        exchange_nonces(&e);
        CHECK_EQUAL(answer(&e, dl_buffer_bytes(&e.asked)), i == 0 ? 1 : -1);
        end(&e);
    }
}

CHECK_CASE(messages_have_an_order)
{
    ends e;
    uint8_t prove[DL_PROOF_SIZE] = {DL_PROOF_PROVE};

    begin(&e, "token", "token");
    size_t size = 0;
    CHECK_EQUAL(dl_proof_answer(&e.server, e.server_secret,
                                (dl_bytes){prove, sizeof prove}, &size, &e.answered),
                -1);
    check_denied(&e, "asks for the job's token");
    end(&e);
    begin(&e, "token", "token");
    dl_buffer challenge = {0};
    dl_buffer_put(&challenge, dl_buffer_bytes(&e.asked));
    exchange_nonces(&e);
    dl_buffer_clear(&e.answered);
    /* A second CHALLENGE, by its first byte. */
    CHECK_EQUAL(dl_proof_answer(&e.server, e.server_secret,
                                (dl_bytes){challenge.data, 1}, &size, &e.answered),
                -1);
    check_denied(&e, "asks for the job's token");
    dl_buffer_fini(&challenge);
    end(&e);
}

/* In a session: what comes instead of the proof ends it, and nothing is executed. */
static dl_session *
open_with_secret(fixture *f, dl_secret *secret)
{
    *f = (fixture){0};
    dl_hub_init(&f->hub);
    f->hub.secret = dl_secret_ref(secret);
    dl_session_init(&f->sessions[0], &f->hub);
    CHECK_OK(dl_session_feed(&f->sessions[0], DL_LITERAL(VALIDATE)));
    return &f->sessions[0];
}

static void
close_with_secret(fixture *f)
{
    CHECK_EQUAL(f->hub.table.value_count, 0);
    dl_session_fini(&f->sessions[0]);
    dl_buffer_fini(&f->replies[0]);
    dl_hub_fini(&f->hub);
}

CHECK_CASE(a_session_admits_peers_that_have_proved)
{
    fixture f;
    dl_secret *secret = secret_of("token");
    dl_session *session = open_with_secret(&f, secret);
    dl_proof proof = {.terms = &dl_wire_proof};
    dl_buffer asked = {0};

    CHECK(session->client.phase < DL_PHASE_SERVING
          && session->client.timed.next != NULL);
    CHECK_OK(dl_proof_put_challenge(&proof, &asked));
    for (size_t i = 0; i < asked.size; i++) {
        put_bytes(&f, 0, (dl_bytes){asked.data + i, 1});
    }
    dl_bytes nonce = heard(&f, 0);
    CHECK_EQUAL(nonce.size, REPLY_SIZE);
    dl_buffer_clear(&asked);
    CHECK_OK(dl_proof_put_prove(&proof, secret, nonce.data + 1, &asked));
    CHECK(session->client.phase < DL_PHASE_SERVING
          && session->client.timed.next != NULL);
    /* What follows in the same segment is served, as if nothing had been asked. */
    dl_put_u8(&asked, DL_OP_PING);
    dl_put_u32(&asked, 7);
    put_bytes(&f, 0, dl_buffer_bytes(&asked));
    dl_bytes heard_last = heard(&f, 0);
    CHECK(session->client.phase == DL_PHASE_SERVING
          && session->client.timed.next == NULL);
    CHECK_EQUAL(heard_last.size, REPLY_SIZE + 4);
    CHECK_EQUAL(heard_last.data[REPLY_SIZE], 7);
    CHECK_OK(dl_proof_check(&proof, secret, heard_last.data + 1));
    /* Once is enough. */
    dl_buffer_clear(&asked);
    CHECK_OK(dl_proof_put_challenge(&proof, &asked));
    CHECK_STATUS(dl_session_feed(session, dl_buffer_bytes(&asked)), DL_PROTOCOL);
    dl_buffer_fini(&asked);
    close_with_secret(&f);
    dl_secret_unref(secret);
}

CHECK_CASE(a_session_serves_no_other_peer)
{
    static const char set[] = "\x01" U64("\x01") "k" U64("\x01") "v";
    dl_secret *secret = secret_of("token");

    for (int byte = 0; byte < 256; byte++) {
        fixture f;
        dl_buffer asked = {0};
        dl_session *session = open_with_secret(&f, secret);
        if (byte == DL_PROOF_CHALLENGE) {
            close_with_secret(&f);
            continue;
        }
        /* One byte is enough, whatever follows it. */
        dl_put_u8(&asked, (uint8_t)byte);
        dl_buffer_put(&asked, (dl_bytes){(const uint8_t *)set, sizeof set - 1});
        CHECK_STATUS(dl_session_feed(session, (dl_bytes){asked.data, 1}), DL_DENIED);
        send_some(&f, 0, SIZE_MAX);
        dl_bytes refusal = heard(&f, 0);
        CHECK(refusal.size > 12);
        CHECK_EQUAL(refusal.data[0], byte < 0x80 ? 0xff : DL_DENIED);
        CHECK_OK(dl_session_feed(session, dl_buffer_bytes(&asked)));
        CHECK(!dl_session_has_output(session)
              && session->client.phase < DL_PHASE_SERVING);
        dl_buffer_fini(&asked);
        close_with_secret(&f);
    }
    dl_secret_unref(secret);
}

CHECK_CASE(a_session_without_a_secret_asks_for_nothing)
{
    fixture f;
    dl_proof proof = {.terms = &dl_wire_proof};
    dl_buffer asked = {0};

    open_fixture(&f);
    CHECK(f.sessions[0].client.phase == DL_PHASE_SERVING);
    CHECK_OK(dl_proof_put_challenge(&proof, &asked));
    CHECK_STATUS(dl_session_feed(&f.sessions[0], dl_buffer_bytes(&asked)), DL_DENIED);
    CHECK_CONTAINS(dl_last_error()->text, "this store has no token");
    send_some(&f, 0, SIZE_MAX);
    CHECK_EQUAL(heard(&f, 0).data[0], DL_DENIED);
    dl_buffer_fini(&asked);
    close_fixture(&f);
}
