/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/peer.h"

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "net/address.h"
#include "net/local.h"
#include "net/socket.h"
#include "store/tcp/carrier.h"
#include "store/tcp/wire.h"

/* How many bytes a refused client may still send.  They are read and discarded, since
 * closing a socket with unread input sends a reset, which would lose the error on its
 * way to the client.  No single request has more bytes behind an invalid field. */
#define PATIENCE (16u << 20)

/* An opcode and a number. */
#define VALIDATE_SIZE 5

/* Most parts of one sendmsg(2). */
#define PARTS 64

/* Limits of one turn: the number of sends and their bytes.  A client that reads as fast
 * as the server writes, or has large buffers, must not monopolise the server.  The loop
 * comes back, since the socket is still writable. */
#define TURNS 8
#define TURN_SIZE (1u << 20)

/* How many bytes of output are encrypted at once, which bounds the memory of a stream.
 * Encrypted bytes that the socket does not accept are kept in the stream. */
#define SEALED_SIZE (48u << 10)

#define SEND_FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)

void
dl_peer_init(dl_peer *peer, dl_hub *hub, int fd, bool is_local)
{
    *peer = (dl_peer){.fd = fd, .is_local = is_local};
    dl_session_init(&peer->session, hub);
    hub->unix_clients += is_local;
}

void
dl_peer_fini(dl_peer *peer)
{
    const dl_session *session = &peer->session;

    dl_carrier_free(peer->carrier);
    peer->carrier = NULL;
    dl_tls_stream_free(peer->tls);
    peer->tls = NULL;
    if (session->hub != NULL) {
        session->hub->unix_clients -= peer->is_local;
    }
    dl_session_fini(&peer->session);
}

/* Once the client has left, its address is not known any more. */
static void
log_refusal(const dl_peer *peer)
{
    char name[DL_ADDRESS_TEXT_SIZE] = "a client that has left";
    dl_address address;

    if (peer->is_local) {
        snprintf(name, sizeof name, "process %d of this host",
                 dl_local_service_peer(peer->fd));
    } else if (dl_socket_peer_address(peer->fd, &address) == DL_OK) {
        dl_address_text(&address, name);
    }
    dl_hub_log_refusal(peer->session.hub, name);
}

/* Removes bytes that were sent, or encrypted, from the session's output. */
static void
consume_sent(dl_peer *peer, size_t size)
{
    dl_output_consume(&peer->session.output, size);
    if (!dl_session_has_output(&peer->session)) {
        dl_session_sent(&peer->session);
    }
}

/* Encrypts the beginning of the session's output. */
static dl_status
encrypt_output(dl_peer *peer)
{
    struct iovec parts[PARTS];
    size_t room = SEALED_SIZE;

    while (room > 0 && dl_session_has_output(&peer->session)) {
        int count = dl_output_gather(&peer->session.output, parts, PARTS, room);
        size_t done = 0;
        for (int i = 0; i < count; i++) {
            DL_TRY(dl_tls_write(peer->tls,
                                (dl_bytes){parts[i].iov_base, parts[i].iov_len}));
            done += parts[i].iov_len;
        }
        room -= done;
        consume_sent(peer, done);
    }
    return DL_OK;
}

/* Sends at most `left` bytes of the output, with TLS of what it is encrypted to; returns
 * as send(2) does. */
static ssize_t
send_some(dl_peer *peer, size_t left)
{
    struct iovec parts[PARTS];
    int count = 1;

    if (peer->tls == NULL) {
        count = dl_output_gather(&peer->session.output, parts, PARTS, left);
    } else {
        if (dl_tls_output(peer->tls).size == 0 && encrypt_output(peer) != DL_OK) {
            errno = ENOMEM;
            return -1;
        }
        dl_bytes sealed = dl_tls_output(peer->tls);
        parts[0] = (struct iovec){(void *)sealed.data,
                                  sealed.size < left ? sealed.size : left};
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    /* Most replies are one part, and send(2) costs the kernel less than sendmsg(2). */
    ssize_t sent = count == 1
                       ? send(peer->fd, parts->iov_base, parts->iov_len, SEND_FLAGS)
                       : sendmsg(peer->fd, &message, SEND_FLAGS);
    if (sent > 0 && peer->tls == NULL) {
        consume_sent(peer, (size_t)sent);
    } else if (sent > 0) {
        dl_tls_sent(peer->tls, (size_t)sent);
    }
    return sent;
}

static bool
has_output(const dl_peer *peer)
{
    return dl_session_has_output(&peer->session)
           || (peer->tls != NULL && dl_tls_output(peer->tls).size > 0);
}

/* Returns whether there is something to send, which a carrier's channels may have held
 * back until there was room. */
static bool
refill_output(dl_peer *peer)
{
    if (!has_output(peer) && peer->carrier != NULL) {
        dl_carrier_refill(peer->carrier);
    }
    return has_output(peer);
}

bool
dl_peer_send(dl_peer *peer)
{
    size_t left = TURN_SIZE;

    if (!dl_session_may_send(&peer->session)) {
        return true;
    }
    dl_hub_busy(peer->session.hub);
    for (int turn = 0; turn < TURNS && left > 0 && refill_output(peer); turn++) {
        ssize_t sent = send_some(peer, left);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (sent < 0) {
            return false;
        }
        left -= (size_t)sent;
    }
    if (peer->is_refused && !has_output(peer)) {
        shutdown(peer->fd, SHUT_WR);
    }
    if (has_output(peer) || peer->is_refused) {
        dl_session_owes(&peer->session, left < TURN_SIZE);
    } else {
        dl_session_owes_nothing(&peer->session);
    }
    return true;
}

/* Makes close(2) reset the connection and discard what the client has not acknowledged:
 * otherwise the kernel would keep these bytes and the connection for minutes. */
static void
forget_sent(int fd)
{
    const struct linger at_once = {.l_onoff = 1};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* Sends the replies after the session was served with the result `status`.  After the
 * first failure, which is logged, the client is refused, and its connection is closed
 * once the last replies are sent. */
static bool
follow_up(dl_peer *peer, dl_status status)
{
    if (status != DL_OK && peer->is_refused) {
        return false;
    }
    if (status != DL_OK) {
        log_refusal(peer);
        peer->is_refused = true;
        if (status == DL_TIMEOUT) {
            forget_sent(peer->fd);
            return false;
        }
        if (!has_output(peer)) {
            return false;
        }
    }
    return dl_peer_send(peer);
}

/* Refuses a store's client without TLS in the plain protocol, as one that has not
 * proved the token: the opcode behind its VALIDATE tells which kind of reply it
 * expects.  The connection of any other client is only closed. */
static dl_status
refuse_plain(dl_peer *peer, dl_bytes bytes)
{
    dl_hub *hub = peer->session.hub;
    uint8_t next = bytes.size > VALIDATE_SIZE ? bytes.data[VALIDATE_SIZE] : DL_OP_PING;

    if (bytes.data[0] != DL_OP_VALIDATE) {
        return dl_fail(DL_PROTOCOL,
                       "the first byte is 0x%02x: neither TLS nor a store client",
                       bytes.data[0]);
    }
    (void)dl_fail(DL_DENIED,
                  "this store's server speaks TLS only, and the client spoke without: "
                  "set DISTLITE_TLS=%s for both",
                  dl_tls_mode_name(dl_tls_mode_of(hub->tls)));
    dl_wire_put_refusal(&peer->session.output.bytes, next);
    return DL_DENIED;
}

/* Gives received bytes to the session or, once it is a carrier, to its channels. */
static dl_status
feed_session(dl_peer *peer, dl_bytes bytes)
{
    dl_session *session = &peer->session;

    if (peer->carrier != NULL) {
        return dl_carrier_feed(peer->carrier, bytes);
    }
    DL_TRY(dl_session_feed(session, bytes));
    return session->is_carrier ? dl_carrier_new(session, &peer->carrier) : DL_OK;
}

/* Decrypts `cipher` and feeds it to the session.  Bytes of a large value are decrypted
 * directly into the memory of that value. */
static dl_status
decrypt_input(dl_peer *peer, dl_bytes cipher, uint8_t *plain)
{
    dl_session *session = &peer->session;
    const size_t most = DL_PEER_READ_SIZE + DL_TLS_RECORD_SIZE;
    size_t size;
    bool has_more;

    if (peer->tls == NULL) {
        if (cipher.data[0] != DL_TLS_FIRST_BYTE) {
            return refuse_plain(peer, cipher);
        }
        DL_TRY(dl_tls_stream_new(session->hub->tls, true, &peer->tls));
    }
    do {
        uint8_t *data = plain;
        size_t room = most;
        (void)dl_session_room(session, &data, &room);
        DL_TRY(dl_tls_read(peer->tls, &cipher, data, room, &size));
        DL_TRY(feed_session(peer, (dl_bytes){data, size}));
        /* `plain` has room for all remaining plaintext; a value's memory may not. */
        has_more = data != plain && size == room;
    } while (has_more);
    return DL_OK;
}

static bool
receive_encrypted(dl_peer *peer, uint8_t *input, size_t size)
{
    dl_session *session = &peer->session;

    dl_status status =
        decrypt_input(peer, (dl_bytes){input, size}, input + DL_PEER_READ_SIZE);
    if (status == DL_CLOSED) {
        return false;
    }
    /* After a failure of TLS no reply can be encrypted; only the alert is sent. */
    if (status != DL_OK && peer->tls != NULL && !dl_session_is_over(session)) {
        dl_output_fini(&session->output);
    }
    return follow_up(peer, status);
}

bool
dl_peer_receive(dl_peer *peer, uint8_t *input)
{
    bool is_encrypted = peer->session.hub->tls != NULL;
    uint8_t *data = input;
    size_t room = DL_PEER_READ_SIZE;

    dl_hub_busy(peer->session.hub);
    if (!is_encrypted) {
        (void)dl_session_room(&peer->session, &data, &room);
    }
    /* One read per turn, so that a client that sends without pause does not keep the
     * others waiting; the loop comes back while there is more. */
    ssize_t size = recv(peer->fd, data, room, MSG_DONTWAIT);
    if (size < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    if (peer->is_refused) {
        peer->swallowed += (uint32_t)size;
        return size > 0 && peer->swallowed <= PATIENCE;
    }
    if (is_encrypted && size > 0) {
        return receive_encrypted(peer, input, (size_t)size);
    }
    return size > 0
           && follow_up(peer, feed_session(peer, (dl_bytes){data, (size_t)size}));
}

bool
dl_peer_resume(dl_peer *peer)
{
    dl_hub_busy(peer->session.hub);
    /* The last replies of a client that was refused have waited for the journal. */
    if (peer->is_refused && !dl_client_is_late(&peer->session.client)
        && peer->session.client.phase != DL_PHASE_UNSAVED) {
        return dl_peer_send(peer);
    }
    return follow_up(peer, dl_session_resume(&peer->session));
}

bool
dl_peer_wants_input(const dl_peer *peer)
{
    return peer->is_refused || dl_session_wants_input(&peer->session);
}

bool
dl_peer_wants_room(const dl_peer *peer)
{
    return has_output(peer) && dl_session_may_send(&peer->session);
}

void
dl_acceptor_init(dl_acceptor *acceptor, int fd, bool is_local, dl_hub *hub)
{
    const dl_limits *limits = &hub->limits;

    *acceptor = (dl_acceptor){.fd = fd, .is_local = is_local, .hub = hub};
    if (is_local) {
        return;
    }
    /* Inherited by accepted sockets: the kernel drops a connection whose host no longer
     * acknowledges.  Twice our own limit, because ours reports its reason and the
     * kernel's does not. */
    int64_t limit = 2 * limits->stall / DL_MILLISECOND;
    dl_socket_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                         limit < INT_MAX ? (int)limit : INT_MAX);
}

/* Marks the acceptor as starved, and logs that once per period in which clients
 * wait. */
static void
mark_starved(dl_acceptor *acceptor, const char *reason)
{
    acceptor->is_starved = true;
    acceptor->hub->refused[DL_LIMIT_CONNECTIONS]++;
    if (!acceptor->is_logged) {
        acceptor->is_logged = true;
        dl_log_limited(&acceptor->log, DL_LOG_WARNING,
                       "store server: accepting connections: %s; new ones wait",
                       reason);
    }
}

/* Returns whether the client of a Unix socket belongs to this user; otherwise closes
 * its connection without reading from it.  Other users can connect by TCP. */
static bool
is_welcome(const dl_acceptor *acceptor, int fd)
{
    dl_hub *hub = acceptor->hub;

    if (!acceptor->is_local || dl_local_service_check(fd) == DL_OK) {
        return true;
    }
    hub->closed[DL_DENIED]++;
    dl_log_limited(&hub->refusals[DL_DENIED], DL_LOG_WARNING,
                   "store server: closing the connection of %s to the Unix socket @%s",
                   dl_last_error()->text, hub->shortcut.name);
    close(fd);
    return false;
}

int
dl_acceptor_next(dl_acceptor *acceptor)
{
    dl_hub *hub = acceptor->hub;

    dl_hub_busy(hub);
    acceptor->is_starved = false;
    if (hub->clients - hub->relayed_clients >= hub->limits.connections) {
        mark_starved(acceptor,
                     "there are as many as DISTLITE_STORE_CONNECTIONS allows");
        return -1;
    }
    for (;;) {
        int fd = accept4(acceptor->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0 && !is_welcome(acceptor, fd)) {
            /* The clients are served before the next connection is accepted. */
            return -1;
        }
        if (fd >= 0) {
            dl_socket_prepare(fd);
            return fd;
        }
        if (errno == EAGAIN) {
            acceptor->is_logged = false;
            return -1;
        }
        /* It also reports the errors of a connection that failed before it was
         * accepted. */
        if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
            mark_starved(acceptor, strerror(errno));
            return -1;
        }
    }
}
