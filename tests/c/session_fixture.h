/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A hub with a few sessions and no sockets: requests go in as structs or bytes, replies
 * come out as bytes. */
#ifndef DISTLITE_TESTS_SESSION_FIXTURE_H
#define DISTLITE_TESTS_SESSION_FIXTURE_H

#include <stdlib.h>

#include "check.h"
#include "store/tcp/session.h"
#include "store/tcp/wire.h"

#define U64(low) low "\0\0\0\0\0\0\0"
#define VALIDATE "\x00\xce\xf7\x85\x3c"
#define CLIENTS 4

typedef struct fixture {
    dl_hub hub;
    dl_session sessions[CLIENTS];
    dl_buffer replies[CLIENTS];
} fixture;

/* Does what a server does after each round of input, until no session has changed. */
DL_CHECK_UNUSED static void
settle(fixture *f)
{
    dl_session *session;

    while ((session = dl_session_take_changed(&f->hub)) != NULL) {
        CHECK_OK(dl_session_resume(session));
    }
}

/* Takes up to `size` bytes off the session's output, as a socket would. */
DL_CHECK_UNUSED static void
send_some(fixture *f, int client, size_t size)
{
    dl_session *session = &f->sessions[client];
    struct iovec part;

    while (size > 0 && dl_output_gather(&session->output, &part, 1, SIZE_MAX) == 1) {
        size_t taken = part.iov_len < size ? part.iov_len : size;
        dl_buffer_put(&f->replies[client], (dl_bytes){part.iov_base, taken});
        dl_output_consume(&session->output, taken);
        size -= taken;
        if (!dl_session_has_output(session)) {
            dl_session_sent(session);
            return;
        }
    }
}

DL_CHECK_UNUSED static void
send_all(fixture *f)
{
    do {
        settle(f);
        for (int i = 0; i < CLIENTS; i++) {
            send_some(f, i, SIZE_MAX);
        }
    } while (f->hub.changed_count > 0);
}

DL_CHECK_UNUSED static void
put_bytes(fixture *f, int client, dl_bytes bytes)
{
    CHECK_OK(dl_session_feed(&f->sessions[client], bytes));
    send_all(f);
}

/* Returns all bytes sent to the client since the last call; valid until the next
 * call. */
DL_CHECK_UNUSED static dl_bytes
heard(fixture *f, int client)
{
    static uint8_t copy[1 << 16];
    dl_buffer *reply = &f->replies[client];
    size_t size = reply->size;

    CHECK(size <= sizeof copy);
    memcpy(copy, reply->data == NULL ? copy : reply->data, size);
    dl_buffer_clear(reply);
    return (dl_bytes){copy, size};
}

DL_CHECK_UNUSED static dl_bytes
ask(fixture *f, int client, dl_store_request request)
{
    dl_buffer bytes = {0};

    dl_wire_put_request(&bytes, &request, (dl_bytes){0});
    put_bytes(f, client, dl_buffer_bytes(&bytes));
    dl_buffer_fini(&bytes);
    return heard(f, client);
}

/* Sends a hello with the slot of this id, which has 16 characters; returns the
 * reply, but for the shortcut. */
DL_CHECK_UNUSED static dl_bytes
greet(fixture *f, int client, const char *id, uint64_t sequence)
{
    dl_buffer bytes = {0};
    dl_slot slot = {.sequence = sequence};

    memcpy(slot.id, id, sizeof slot.id);
    dl_wire_put_hello(&bytes, &slot);
    put_bytes(f, client, dl_buffer_bytes(&bytes));
    dl_buffer_fini(&bytes);
    dl_bytes reply = heard(f, client);
    CHECK(reply.size == 0 || reply.size == 1 + DL_WIRE_WELCOME_SIZE);
    return (dl_bytes){reply.data, reply.size == 0 ? 0 : 1 + DL_IDENTITY_SIZE + 1};
}

DL_CHECK_UNUSED static void
open_fixture(fixture *f)
{
    *f = (fixture){0};
    dl_hub_init(&f->hub);
    for (int i = 0; i < CLIENTS; i++) {
        dl_session_init(&f->sessions[i], &f->hub);
        put_bytes(f, i, DL_LITERAL(VALIDATE));
    }
}

DL_CHECK_UNUSED static void
close_fixture(fixture *f)
{
    for (int i = 0; i < CLIENTS; i++) {
        dl_session_fini(&f->sessions[i]);
        dl_buffer_fini(&f->replies[i]);
    }
    dl_hub_fini(&f->hub);
}

#define KEY(text) .key = DL_LITERAL(text)
#define VALUE(text) .value = DL_LITERAL(text)
#define ASK(client, ...) ask(&f, client, (dl_store_request){__VA_ARGS__})
#define SET(client, name, text) \
    CHECK_BYTES(ASK(client, .op = DL_OP_SET, KEY(name), VALUE(text)), "")

#endif
