/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/dial.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/deadline.h"
#include "base/environment.h"
#include "base/text.h"
#include "net/socket.h"

/* A listener disconnects callers that have not proved the token in time, or earlier to
 * make room.  A rank to which this happens, because it was stopped for a while or came
 * among many pending ones, connects again; if the listener's process has ended, that is
 * refused. */
#define REPEAT_AFTER (100 * DL_MILLISECOND)
#define REPEATS_LIMIT 3

#define HOST_TIMEOUT_SECONDS 5

/* Attempts that are further apart belong to different waits, between which the host may
 * have answered others. */
#define FORGOTTEN_AFTER (2 * DL_SECOND)

/* Seconds of silence after which the kernel asks for a sign of life, each second until
 * it comes. */
#define ASK_AFTER 2
#define ASK_AGAIN 1

/* Size of a refusal's text, which a process outside the job may have written. */
#define REFUSAL_LIMIT 512

static _Atomic int64_t host_timeout = HOST_TIMEOUT_SECONDS * DL_SECOND;

dl_status
dl_dial_configure(void)
{
    int64_t wanted;

    DL_TRY(dl_environment_seconds("DISTLITE_HEARTBEAT_TIMEOUT", 0.2,
                                  HOST_TIMEOUT_SECONDS, &wanted));
    atomic_store(&host_timeout, wanted);
    return DL_OK;
}

/* Has the kernel end a probe whose host has been silent for too long.  A link needs
 * another judge: with this option the kernel would also end the connection to a process
 * that does not read for as long, because it is late, or stopped. */
static void
limit_silence(int fd)
{
    int64_t limit = atomic_load(&host_timeout) / DL_MILLISECOND;

    dl_socket_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, ASK_AFTER);
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, ASK_AGAIN);
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)limit);
}

void
dl_link_options_aim(dl_link_options *options, const dl_tcp_contact *tcp, int index)
{
    options->address = tcp->addresses[index];
    memcpy(options->token, tcp->token, sizeof options->token);
    options->secret = tcp->secret;
    options->tls = tcp->tls;
    options->index = index;
}

dl_status
dl_dial_fail_lost(const dl_link_options *options, const char *what)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_peers_describe(&options->peers, options->peer, peer);
    return dl_fail(DL_PEER_LOST, "%s %s", peer, what);
}

static dl_status
fail_errno(const dl_link_options *options, int error)
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

dl_status
dl_dial_fail_stream(const dl_link_options *options, dl_status status, int error)
{
    char peer[DL_PEER_TEXT_SIZE];

    if (error != 0) {
        return fail_errno(options, error);
    }
    dl_peers_describe(&options->peers, options->peer, peer);
    dl_error cause = *dl_last_error();
    return dl_fail(status, "TLS between this rank and %s: %.1200s", peer, cause.text);
}

/* The listener's port belongs to its process as long as it lives, so an answer from
 * another process shows that it has ended, or that the address leads elsewhere. */
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
    dl_transport_close(&dial->transport);
    *dial = (dl_dial){
        .repeats = dial->repeats,
        .unanswered_since = dial->unanswered_since,
        .unanswered_until = dial->unanswered_until,
    };
}

dl_transport
dl_dial_take(dl_dial *dial)
{
    dl_transport transport = dial->transport;

    *dial = (dl_dial){.stage = DL_DIAL_NONE};
    return transport;
}

static bool
is_unreachable(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH;
}

static dl_status
fail_connect(dl_dial *dial, const dl_link_options *options, int error)
{
    if (error == ECONNREFUSED) { /* which is an answer of the host */
        dial->unanswered_since = 0;
    } else if (dial->unanswered_since == 0) {
        dial->unanswered_since = dial->since;
    }
    dial->unanswered_until = dl_now();
    dial->error = error;
    return fail_errno(options, error);
}

/* Starts to connect, and does not wait for the result: has_answered() checks it. */
static dl_status
start_connect(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    const dl_address *address = &options->address;
    int fd;

    if (!dl_socket_open(address->socket.any.sa_family, &fd)) {
        return dl_fail(DL_INTERNAL, "opening a socket: %s", strerror(errno));
    }
    if (is_probe) {
        limit_silence(fd);
    }
    DL_TRY(dl_transport_open(&dial->transport, fd, options->tls, false));
    dial->stage = DL_DIAL_CONNECTING;
    dial->since = dl_now();
    if (dial->since > dial->unanswered_until + FORGOTTEN_AFTER) {
        dial->unanswered_since = 0;
    }
    if (connect(fd, &address->socket.any, address->size) != 0 && errno != EINPROGRESS
        && errno != EINTR) {
        return fail_connect(dial, options, errno);
    }
    return DL_OK;
}

/* Sets `*is_there` if the connection is established; fails if it never will be. */
static dl_status
has_answered(dl_dial *dial, const dl_link_options *options, bool is_probe,
             bool *is_there)
{
    struct pollfd entry = {.fd = dial->transport.fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;

    *is_there = poll(&entry, 1, 0) > 0;
    if (*is_there
        && (getsockopt(dial->transport.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0
            || error != 0)) {
        return fail_connect(dial, options, error == 0 ? errno : error);
    }
    /* The kernel's limit is for connections that are established. */
    int64_t since = dial->unanswered_since == 0 ? dial->since : dial->unanswered_since;
    if (!*is_there && is_probe && dl_now() > since + atomic_load(&host_timeout)) {
        return fail_connect(dial, options, ETIMEDOUT);
    }
    if (*is_there) {
        dial->unanswered_since = 0;
    }
    return DL_OK;
}

/* Connects once more, in place of the connection that has ended. */
static dl_status
connect_again(dl_dial *dial, const dl_link_options *options, dl_status status,
              int error)
{
    bool may_repeat = error != 0 && error != ETIMEDOUT && dial->repeats < REPEATS_LIMIT
                      && dl_now() > dial->since + REPEAT_AFTER;

    if (!may_repeat) {
        dial->error = error;
        return dl_dial_fail_stream(options, status, error);
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
        struct iovec part = {bytes->data, bytes->size};
        size_t sent = 0;
        int error = ENOBUFS;
        status = dl_transport_write(&dial->transport, &part, 1, &sent, &error);
        if (status != DL_OK || sent != bytes->size) {
            status = dl_dial_fail_stream(options, status, error);
        }
    }
    dl_buffer_fini(bytes);
    return status;
}

static dl_status
send_hello(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    dl_hello contents = {
        .group = options->group,
        .caller = options->rank,
        .callee = options->peer,
        .index = options->index,
        .use = options->use,
        .own = options->listener == NULL ? NULL : options->listener->tcp.token,
    };
    dl_buffer hello = {0};
    dl_status status = dl_hello_put(&hello, &contents, options->token, is_probe);

    DL_TRY(send_all(dial, options, status, &hello));
    dial->stage = DL_DIAL_OPEN;
    dial->repeats = 0;
    return DL_OK;
}

static dl_status
send_challenge(dl_dial *dial, const dl_link_options *options)
{
    dl_buffer challenge = {0};

    dial->proof = (dl_proof){.terms = &dl_link_proof};
    dl_status status = dl_proof_put_challenge(&dial->proof, &challenge);
    DL_TRY(send_all(dial, options, status, &challenge));
    dial->stage = DL_DIAL_ASKED;
    return DL_OK;
}

/* The token of the other rank's record identifies that rank to both sides: a proof for
 * one rank is not valid for another.  Set anew each time, because a link may be
 * moved. */
static void
set_context(dl_dial *dial, const dl_link_options *options)
{
    dial->proof.context = (dl_bytes){options->token, sizeof options->token};
}

static dl_status
send_prove(dl_dial *dial, const dl_link_options *options)
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
 * it as is there.  A listener sends it in one segment. */
static dl_status
fail_refused(dl_dial *dial, const dl_link_options *options)
{
    uint8_t bytes[REFUSAL_LIMIT];
    char why[2 * REFUSAL_LIMIT] = ": ";
    size_t used = 2;
    size_t size = dial->got;

    struct iovec room = {bytes + size, sizeof bytes - size};
    size_t got = 0;
    int error;

    memcpy(bytes, dial->bytes, size);
    (void)dl_transport_read(&dial->transport, &room, 1, &got, &error);
    size += got;
    if (size <= DL_LINK_REFUSAL_HEAD) {
        return fail_stranger(options, "");
    }
    dl_text_append_escaped(why, REFUSAL_LIMIT, &used,
                           (const char *)bytes + DL_LINK_REFUSAL_HEAD,
                           size - DL_LINK_REFUSAL_HEAD);
    return fail_stranger(options, why);
}

/* Receives the listener's next message; `*is_whole` is whether all of it has come. */
static dl_status
receive_reply(dl_dial *dial, const dl_link_options *options, bool *is_whole)
{
    struct iovec room = {dial->bytes + dial->got, sizeof dial->bytes - dial->got};
    size_t got;
    int error;

    *is_whole = false;
    dl_status status = dl_transport_read(&dial->transport, &room, 1, &got, &error);
    if (status != DL_OK) {
        return connect_again(dial, options, status, error);
    }
    if (got == 0) {
        return DL_OK;
    }
    dial->got += (uint8_t)got;
    if (dial->bytes[0] != DL_OK) {
        return fail_refused(dial, options);
    }
    *is_whole = dial->got == sizeof dial->bytes;
    return DL_OK;
}

static dl_status
exchange_proofs(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    while (dial->stage == DL_DIAL_ASKED || dial->stage == DL_DIAL_PROVED) {
        bool is_whole;
        DL_TRY(receive_reply(dial, options, &is_whole));
        if (!is_whole) {
            return DL_OK;
        }
        dial->got = 0;
        if (dial->stage == DL_DIAL_ASKED) {
            DL_TRY(send_prove(dial, options));
        } else {
            DL_TRY(check_proof(dial, options));
            DL_TRY(send_hello(dial, options, is_probe));
        }
    }
    return DL_OK;
}

static dl_status
continue_handshake(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    bool is_up = false;
    int error;
    dl_status status = dl_transport_greet(&dial->transport, &is_up, &error);

    if (status != DL_OK) {
        return connect_again(dial, options, status, error);
    }
    if (!is_up) {
        return DL_OK;
    }
    return options->secret == NULL ? send_hello(dial, options, is_probe)
                                   : send_challenge(dial, options);
}

dl_status
dl_dial_advance(dl_dial *dial, const dl_link_options *options, bool is_probe)
{
    bool is_there = false;

    if (dial->stage == DL_DIAL_NONE) {
        DL_TRY(start_connect(dial, options, is_probe));
    }
    if (dial->stage == DL_DIAL_CONNECTING) {
        DL_TRY(has_answered(dial, options, is_probe, &is_there));
        dial->stage = is_there ? DL_DIAL_GREETING : DL_DIAL_CONNECTING;
    }
    if (dial->stage == DL_DIAL_GREETING) {
        DL_TRY(continue_handshake(dial, options, is_probe));
    }
    return exchange_proofs(dial, options, is_probe);
}

bool
dl_dial_is_host_lost(const dl_dial *dial)
{
    bool was_connected = dial->stage > DL_DIAL_CONNECTING;

    return dial->error == ETIMEDOUT
           || (is_unreachable(dial->error)
               && (was_connected
                   || dl_now() > dial->unanswered_since + atomic_load(&host_timeout)));
}

struct pollfd
dl_dial_poll(const dl_dial *dial)
{
    if (dial->stage == DL_DIAL_NONE) {
        return (struct pollfd){.fd = -1};
    }
    return (struct pollfd){
        .fd = dial->transport.fd,
        .events = dial->stage == DL_DIAL_CONNECTING
                      ? POLLOUT
                      : dl_transport_events(&dial->transport, POLLIN),
    };
}
