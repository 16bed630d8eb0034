/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Strangers before the listener of a rank.  Bit 0 of the first byte says whether the job
 * has a token.  The rest is a list of pieces, each two bytes and up to 255 bytes of
 * noise, whose number is in the second byte.  Bits 0 and 1 of the first one say which of
 * four connections speaks.  With bit 2 it says what an honest caller would say next, with
 * the noise added bit by bit, else it says the noise alone; with bit 3 it is reset
 * afterwards.  Only who knows the listener's own token, and has proved the job's, is ever
 * taken for a rank, and an honest caller always is. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/reader.h"
#include "pg/cpu/tcp/listener.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONNECTIONS 4

typedef struct caller {
    int fd; /* 0: it has not called yet */
    dl_proof proof;
    bool is_asked; /* the listener's nonce has come */
    bool has_proved;
    bool has_said_hello;
    bool is_changed; /* something that it has said was not honest */
    bool is_reset;
    dl_buffer said;
} caller;

typedef struct room {
    dl_listener listener;
    dl_secret *secret;
    caller callers[CONNECTIONS];
} room;

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
open_room(room *r, bool has_token)
{
    dl_tcp_contact tcp = {.count = 1};
    dl_address *here = &tcp.addresses[0];

    here->size = sizeof here->socket.ip4;
    here->socket.ip4.sin_family = AF_INET;
    here->socket.ip4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    require(dl_random(tcp.token, sizeof tcp.token) == DL_OK);
    if (has_token) {
        require(dl_secret_new(DL_LITERAL("token"), &r->secret) == DL_OK);
        tcp.secret = r->secret;
    }
    require(dl_listener_open(&r->listener, &tcp) == DL_OK);
}

static void
call(const room *r, caller *self)
{
    const dl_address *to = &r->listener.tcp.addresses[0];

    self->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(self->fd > 0 && connect(self->fd, &to->socket.any, to->size) == 0);
    self->proof = (dl_proof){
        .terms = &dl_link_proof,
        .context = {r->listener.tcp.token, sizeof r->listener.tcp.token},
    };
}

static void
reset(caller *self)
{
    const struct linger at_once = {.l_onoff = 1};

    if (self->fd != 0 && !self->is_reset) {
        (void)setsockopt(self->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(self->fd);
    }
    self->is_reset = true;
}

/* What an honest caller says now; nothing if it waits, or has said all. */
static void
put_honest(const room *r, caller *self, dl_buffer *said)
{
    if (r->secret != NULL && self->proof.stage == DL_PROOF_BEGIN) {
        require(dl_proof_put_challenge(&self->proof, said) == DL_OK);
        return;
    }
    if ((r->secret != NULL && !self->is_asked) || self->has_said_hello) {
        return;
    }
    if (r->secret != NULL) {
        const uint8_t *nonce = self->proof.nonces + DL_PROOF_NONCE_SIZE;
        uint8_t copy[DL_PROOF_NONCE_SIZE];
        memcpy(copy, nonce, sizeof copy);
        require(dl_proof_put_prove(&self->proof, r->secret, copy, said) == DL_OK);
        self->has_proved = true;
    }
    const dl_hello hello = {.group = "group", .use = DL_FOR_COLLECTIVES, .caller = 1};
    require(dl_hello_put(said, &hello, r->listener.tcp.token, false) == DL_OK);
    self->has_said_hello = true;
}

/* Reads what the listener says; the first message of a size of the proof's has its nonce
 * behind a status. */
static void
hear(caller *self)
{
    uint8_t bytes[4096];
    ssize_t got = recv(self->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (got == DL_PROOF_SIZE && bytes[0] == DL_OK && !self->is_asked) {
        memcpy(self->proof.nonces + DL_PROOF_NONCE_SIZE, bytes + 1,
               DL_PROOF_NONCE_SIZE);
        self->is_asked = true;
    }
}

static void
say(room *r, caller *self, uint8_t how, dl_bytes noise)
{
    dl_buffer said = {0};

    if (self->fd == 0) {
        call(r, self);
    }
    if ((how & 4) != 0) {
        put_honest(r, self, &said);
        for (size_t i = 0; i < noise.size && i < said.size; i++) {
            said.data[i] ^= noise.data[i];
            self->is_changed |= noise.data[i] != 0;
        }
    } else {
        dl_buffer_put(&said, noise);
        self->is_changed |= noise.size > 0;
    }
    require(dl_buffer_check(&said) == DL_OK);
    dl_buffer_put(&self->said, dl_buffer_bytes(&said));
    (void)!send(self->fd, said.data, said.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    dl_buffer_fini(&said);
    (void)dl_listener_poll(&r->listener);
    hear(self);
    if ((how & 8) != 0) {
        reset(self);
    }
}

/* Whether the caller can have said the right hello. */
static bool
may_be_known(const room *r, const caller *self)
{
    const uint8_t *token = r->listener.tcp.token;

    return self->said.size > 0
           && memmem(self->said.data, self->said.size, token, DL_TOKEN_SIZE) != NULL
           && (r->secret == NULL || self->has_proved);
}

static void
take_all(room *r)
{
    int known = 0;
    int honest = 0;
    int taken = 0;

    for (int i = 0; i < CONNECTIONS; i++) {
        const caller *self = &r->callers[i];
        known += may_be_known(r, self);
        honest += self->has_said_hello && !self->is_changed && !self->is_reset;
    }
    for (int use = DL_FOR_COLLECTIVES; use <= DL_FOR_WINDOWS; use++) {
        dl_hello hello = {.group = "group", .use = (dl_hello_use)use};
        dl_transport transport = {0};
        while (dl_listener_take_any(&r->listener, &hello, &transport)) {
            taken++;
            dl_transport_close(&transport);
        }
    }
    require(honest <= taken && taken <= known);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    room r = {0};

    if (size < 1) {
        return 0;
    }
    open_room(&r, (data[0] & 1) != 0);
    dl_bytes input = {data + 1, size - 1};
    while (input.size >= 2) {
        uint8_t how = input.data[0];
        size_t most = input.size - 2;
        size_t count = input.data[1] < most ? input.data[1] : most;
        caller *self = &r.callers[how % CONNECTIONS];
        if (!self->is_reset) {
            say(&r, self, how, (dl_bytes){input.data + 2, count});
        }
        require(r.listener.pending_count <= CONNECTIONS);
        input = (dl_bytes){input.data + 2 + count, most - count};
    }
    take_all(&r);
    for (int i = 0; i < CONNECTIONS; i++) {
        reset(&r.callers[i]);
        dl_buffer_fini(&r.callers[i].said);
    }
    dl_listener_fini(&r.listener);
    dl_secret_unref(r.secret);
    return 0;
}
