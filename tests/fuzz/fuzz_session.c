/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Four clients of one hub.  The input is a list of pieces: a byte that says who (two
 * bits) and what (two bits: speak, speak and read nothing, speak and let two seconds pass
 * for each byte, leave and speak), a byte with the piece's size, the piece.  Afterwards
 * one client says all of it but STATS again, once in one go and once byte by byte: both
 * times it must hear the same. */
#include <stdlib.h>

#include "base/deadline.h"
#include "base/reader.h"
#include "store/tcp/session.h"

#define CLIENTS 4

static const dl_bytes VALIDATE = {(const uint8_t *)"\0\xce\xf7\x85\x3c", 5};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct room {
    dl_hub hub;
    dl_session sessions[CLIENTS];
} room;

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* Takes all output, as a socket would; `heard` may be NULL. */
static void
read_all(dl_session *session, dl_buffer *heard)
{
    dl_output *output = &session->output;

    while (dl_session_has_output(session)) {
        struct iovec parts[4];
        int count = dl_output_gather(output, parts, 4, SIZE_MAX);
        size_t size = 0;
        require(count > 0);
        for (int i = 0; i < count; i++) {
            if (heard != NULL) {
                dl_buffer_put(heard, (dl_bytes){parts[i].iov_base, parts[i].iov_len});
            }
            size += parts[i].iov_len;
        }
        dl_output_consume(output, size);
        if (!dl_session_has_output(session)) {
            dl_session_sent(session);
        }
    }
}

static void
leave(room *r, int who)
{
    dl_session_fini(&r->sessions[who]);
    dl_session_init(&r->sessions[who], &r->hub);
    require(dl_session_feed(&r->sessions[who], VALIDATE) == DL_OK);
}

static void
settle(room *r)
{
    dl_session *session;

    for (size_t left = r->hub.changed_count; left > 0; left--) {
        if ((session = dl_session_take_changed(&r->hub)) == NULL) {
            return;
        }
        if (dl_session_resume(session) != DL_OK) {
            leave(r, (int)(session - r->sessions));
        }
    }
}

static void
speak(room *r, int who, dl_bytes bytes)
{
    dl_session *session = &r->sessions[who];

    if (dl_session_wants_input(session) && dl_session_feed(session, bytes) != DL_OK) {
        read_all(session, NULL);
        leave(r, who);
    }
}

static void
open_room(room *r)
{
    dl_hub_init(&r->hub);
    for (int who = 0; who < CLIENTS; who++) {
        dl_session_init(&r->sessions[who], &r->hub);
        require(dl_session_feed(&r->sessions[who], VALIDATE) == DL_OK);
    }
}

static void
close_room(room *r)
{
    for (int who = 0; who < CLIENTS; who++) {
        dl_session_fini(&r->sessions[who]);
    }
    require(dl_list_is_empty(&r->hub.changed) && r->hub.changed_count == 0);
    dl_hub_fini(&r->hub);
}

/* Plays the input with all clients; `said` is everything, in order. */
static void
play(dl_bytes input, dl_buffer *said)
{
    room r;

    open_room(&r);
    while (input.size >= 2) {
        int who = input.data[0] & 3;
        int what = input.data[0] >> 2 & 3;
        size_t size = input.data[1] < input.size - 2 ? input.data[1] : input.size - 2;
        dl_bytes piece = {input.data + 2, size};
        input = (dl_bytes){input.data + 2 + size, input.size - 2 - size};
        dl_buffer_put(said, piece);
        if (what == 3) {
            leave(&r, who);
        }
        speak(&r, who, piece);
        settle(&r);
        if (what != 1) {
            read_all(&r.sessions[who], NULL);
        }
        if (what == 2) {
            dl_session_wake(&r.hub, dl_now() + (int64_t)size * 2 * DL_SECOND);
            settle(&r);
        }
    }
    close_room(&r);
}

/* What one client hears that says `said` in pieces of `step`. */
static void
monologue(dl_bytes said, size_t step, dl_buffer *heard)
{
    room r;
    dl_status status = DL_OK;

    open_room(&r);
    for (size_t i = 0; i < said.size && status == DL_OK; i += step) {
        size_t size = said.size - i < step ? said.size - i : step;
        status = dl_session_feed(&r.sessions[0], (dl_bytes){said.data + i, size});
        do {
            if (dl_session_take_changed(&r.hub) != NULL && status == DL_OK) {
                status = dl_session_resume(&r.sessions[0]);
            }
            read_all(&r.sessions[0], heard);
        } while (r.hub.changed_count > 0);
    }
    dl_put_u8(heard, (uint8_t)status);
    close_room(&r);
}

/* Turns every STATS, whose reply tells of time and of bytes that wait, into something
 * else. */
static void
leave_out_time(dl_buffer *said)
{
    for (size_t i = 0; i < said->size; i++) {
        if (said->data[i] == (DL_OP_STATS | DL_WIRE_CHECKED)) {
            said->data[i] = DL_OP_BARRIER | DL_WIRE_CHECKED;
        }
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_buffer said = {0};
    dl_buffer at_once = {0};
    dl_buffer bytewise = {0};

    play((dl_bytes){data, size}, &said);
    leave_out_time(&said);
    monologue(dl_buffer_bytes(&said), said.size + 1, &at_once);
    monologue(dl_buffer_bytes(&said), 1, &bytewise);
    require(dl_bytes_equal(dl_buffer_bytes(&at_once), dl_buffer_bytes(&bytewise)));
    dl_buffer_fini(&said);
    dl_buffer_fini(&at_once);
    dl_buffer_fini(&bytewise);
    return 0;
}
