/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/deadline.h"
#include "base/text.h"
#include "net/socket.h"

/* A listener disconnects those who have not proved the token in time, or before that to
 * make room.  A rank to which this happens, because it was stopped for a while or came
 * among many strangers, calls again; one whose process has ended refuses that. */
#define REPEAT_AFTER (100 * DL_MILLISECOND)
#define REPEATS_LIMIT 3

/* Size of a refusal's text, which a stranger may have written. */
#define REFUSAL_LIMIT 512

void
dl_link_options_aim(dl_link_options *options, const dl_way *way, int lane)
{
    options->address = way->addresses[lane];
    memcpy(options->token, way->token, sizeof options->token);
    options->secret = way->secret;
    options->lane = lane;
}

dl_status
dl_dial_fail_lost(const dl_link_options *options, const char *what)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peer_describe(options->there, options->peer, peer);
    return dl_fail(DL_PEER_LOST, "%s %s", peer, what);
}

dl_status
dl_dial_fail_errno(const dl_link_options *options, int error)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char what[256];

    dl_address_text(&options->address, address);
    if (error == ECONNRESET || error == EPIPE) {
        return dl_dial_fail_lost(options,
                                 "exited or was killed: it closed the connection");
    }
    if (error == ECONNREFUSED) {
        snprintf(what, sizeof what, "exited or was killed: no process listens at %s",
                 address);
    } else {
        snprintf(what, sizeof what, "cannot be reached at %s: %s", address,
                 strerror(error));
    }
    return dl_dial_fail_lost(options, what);
}

/* The listener's port belongs to its process as long as it lives, so that whoever
 * answers in its place shows that it has ended, or that the address leads elsewhere. */
static dl_status
fail_stranger(const dl_link_options *options, const char *why)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char what[REFUSAL_LIMIT + 256];

    dl_address_text(&options->address, address);
    snprintf(what, sizeof what,
             "cannot be reached at %s: the process there does not prove that it knows "
             "the job's token%s",
             address, why);
    return dl_dial_fail_lost(options, what);
}

void
dl_dial_close(dl_dial *dial)
{
    if (dial->stage != DL_DIAL_NONE) {
        dl_socket_close(dial->fd);
    }
    *dial = (dl_dial){.repeats = dial->repeats};
}

int
dl_dial_take(dl_dial *dial)
{
    int fd = dial->fd;

    *dial = (dl_dial){.stage = DL_DIAL_NONE};
    return fd;
}

/* Starts to connect, and does not wait for the result: has_answered() checks it. */
static dl_status
begin(dl_dial *dial, const dl_link_options *options)
{
    const dl_address *address = &options->address;

    if (!dl_socket_open(address->socket.any.sa_family, &dial->fd)) {
        return dl_fail(DL_INTERNAL, "opening a socket: %s", strerror(errno));
    }
    dial->stage = DL_DIAL_CONNECTING;
    dial->since = dl_now();
    if (connect(dial->fd, &address->socket.any, address->size) != 0
        && errno != EINPROGRESS && errno != EINTR) {
        return dl_dial_fail_errno(options, errno);
    }
    return DL_OK;
}

/* Sets `*is_there` if the connection is established; fails if it never will be. */
static dl_status
has_answered(const dl_dial *dial, const dl_link_options *options, bool *is_there)
{
    struct pollfd entry = {.fd = dial->fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;

    *is_there = poll(&entry, 1, 0) > 0;
    if (*is_there
        && (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0
            || error != 0)) {
        return dl_dial_fail_errno(options, error == 0 ? errno : error);
    }
    return DL_OK;
}

/* Calls once more, instead of the connection that has ended. */
static dl_status
repeat(dl_dial *dial, const dl_link_options *options, int error)
{
    bool may_repeat =
        dial->repeats < REPEATS_LIMIT && dl_now() > dial->since + REPEAT_AFTER;

    if (!may_repeat) {
        return dl_dial_fail_errno(options, error);
    }
    dl_dial_close(dial);
    dial->repeats++;
    return DL_OK;
}

/* Sends and frees `bytes`.  The first bytes of a connection always fit into its
 * buffers. */
static dl_status
send_all(dl_dial *dial, const dl_link_options *options, dl_status status,
         dl_buffer *bytes)
{
    if (status == DL_OK) {
        status = dl_buffer_check(bytes);
    }
    if (status == DL_OK) {
        ssize_t sent =
            send(dial->fd, bytes->data, bytes->size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent != (ssize_t)bytes->size) {
            status = dl_dial_fail_errno(options, sent < 0 ? errno : ENOBUFS);
        }
    }
    dl_buffer_fini(bytes);
    return status;
}

static dl_status
say_hello(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    dl_hello contents = {
        .group = options->group,
        .family = options->family,
        .caller = options->rank,
        .callee = options->peer,
        .lane = options->lane,
        .use = options->use,
    };
    dl_buffer hello = {0};
    dl_status status = dl_hello_put(&hello, &contents, options->token, is_probe);

    DL_TRY(send_all(dial, options, status, &hello));
    dial->stage = DL_DIAL_OPEN;
    dial->repeats = 0;
    return DL_OK;
}

static dl_status
say_challenge(dl_dial *dial, const dl_link_options *options)
{
    dl_buffer challenge = {0};

    dial->proof = (dl_proof){.terms = &dl_link_proof};
    dl_status status = dl_proof_put_challenge(&dial->proof, &challenge);
    DL_TRY(send_all(dial, options, status, &challenge));
    dial->stage = DL_DIAL_ASKED;
    return DL_OK;
}

/* The token of the other rank's record is what both sides mean by that rank: a proof to
 * one rank is none to another.  Set anew each time, because a link may be moved. */
static void
set_context(dl_dial *dial, const dl_link_options *options)
{
    dial->proof.context = (dl_bytes){options->token, sizeof options->token};
}

static dl_status
say_prove(dl_dial *dial, const dl_link_options *options)
{
    dl_buffer prove = {0};

    set_context(dial, options);
    dl_status status =
        dl_proof_put_prove(&dial->proof, options->secret, dial->bytes + 1, &prove);
    DL_TRY(send_all(dial, options, status, &prove));
    dial->stage = DL_DIAL_PROVED;
    return DL_OK;
}

static dl_status
check_proof(dl_dial *dial, const dl_link_options *options)
{
    set_context(dial, options);
    dl_status status = dl_proof_check(&dial->proof, options->secret, dial->bytes + 1);
    return status == DL_DENIED ? fail_stranger(options, "") : status;
}

/* Fails with the text of a refusal, the first bytes of which were received: as much of
 * it as is there.  It is one segment, unless somebody else has written it. */
static dl_status
fail_refused(const dl_dial *dial, const dl_link_options *options)
{
    uint8_t bytes[REFUSAL_LIMIT];
    char why[2 * REFUSAL_LIMIT] = ": ";
    size_t used = 2;
    size_t size = dial->got;

    memcpy(bytes, dial->bytes, size);
    ssize_t got = recv(dial->fd, bytes + size, sizeof bytes - size, MSG_DONTWAIT);
    size += got > 0 ? (size_t)got : 0;
    if (size <= DL_LINK_REFUSAL_HEAD) {
        return fail_stranger(options, "");
    }
    dl_text_append_escaped(why, REFUSAL_LIMIT, &used,
                           (const char *)bytes + DL_LINK_REFUSAL_HEAD,
                           size - DL_LINK_REFUSAL_HEAD);
    return fail_stranger(options, why);
}

/* Receives the listener's next message; `*is_whole` tells whether it is there. */
static dl_status
listen_on(dl_dial *dial, const dl_link_options *options, bool *is_whole)
{
    ssize_t got = recv(dial->fd, dial->bytes + dial->got,
                       sizeof dial->bytes - dial->got, MSG_DONTWAIT);

    *is_whole = false;
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR)
                   ? DL_OK
                   : repeat(dial, options, got == 0 ? ECONNRESET : errno);
    }
    dial->got += (uint8_t)got;
    if (dial->bytes[0] != DL_OK) {
        return fail_refused(dial, options);
    }
    *is_whole = dial->got == sizeof dial->bytes;
    return DL_OK;
}

static dl_status
prove(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    while (dial->stage == DL_DIAL_ASKED || dial->stage == DL_DIAL_PROVED) {
        bool is_whole;
        DL_TRY(listen_on(dial, options, &is_whole));
        if (!is_whole) {
            return DL_OK;
        }
        dial->got = 0;
        if (dial->stage == DL_DIAL_ASKED) {
            DL_TRY(say_prove(dial, options));
        } else {
            DL_TRY(check_proof(dial, options));
            DL_TRY(say_hello(dial, options, is_probe));
        }
    }
    return DL_OK;
}

dl_status
dl_dial_advance(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    bool is_there = false;

    if (dial->stage == DL_DIAL_NONE) {
        DL_TRY(begin(dial, options));
    }
    if (dial->stage == DL_DIAL_CONNECTING) {
        DL_TRY(has_answered(dial, options, &is_there));
        if (is_there) {
            DL_TRY(options->secret == NULL ? say_hello(dial, options, is_probe)
                                           : say_challenge(dial, options));
        }
    }
    return prove(dial, options, is_probe);
}

struct pollfd
dl_dial_poll(const dl_dial *dial)
{
    return (struct pollfd){
        .fd = dial->stage == DL_DIAL_NONE ? -1 : dial->fd,
        .events = dial->stage == DL_DIAL_CONNECTING ? POLLOUT : POLLIN,
    };
}
