/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/connection.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "net/address.h"
#include "net/socket.h"
#include "store/tcp/relay_client.h"

/* Copying a value smaller than this costs less than one more entry of the iovec. */
#define LARGE_VALUE 4096

/* Capacity that `out` may keep between requests. */
#define KEPT_CAPACITY 65536

/* A value is received in pieces of this size, and one above the maximum is refused, so
 * that an absurd size ends in an error and does not exhaust the host's memory. */
#define PIECE ((size_t)64 << 20)
#define VALUE_MAX (UINT64_C(1) << 40)

dl_status
dl_slot_draw(dl_slot *slot)
{
    slot->sequence = 1;
    return dl_random(slot->id, sizeof slot->id);
}

dl_status
dl_connection_new(int fd, dl_connection **connection)
{
    /* Not zeroed as a whole: `in` is large and its contents do not matter. */
    dl_connection *made = malloc(sizeof *made);
    dl_address peer;

    if (made == NULL) {
        dl_socket_close(fd);
        return dl_fail_no_memory();
    }
    memset(made, 0, offsetof(dl_connection, in));
    if (dl_slot_draw(&made->slot) != DL_OK) {
        dl_socket_close(fd);
        free(made);
        return dl_last_error()->status;
    }
    made->fd = fd;
    made->is_clean = true;
    if (dl_socket_peer_address(fd, &peer) == DL_OK) {
        dl_address_text(&peer, made->peer);
    }
    dl_socket_set_kernel_wait(fd);
    *connection = made;
    return DL_OK;
}

void
dl_connection_free(dl_connection *connection, bool is_inherited)
{
    if (connection == NULL) {
        return;
    }
    dl_tls_socket_free(connection->tls);
    if (!is_inherited) {
        dl_socket_close(connection->fd);
    }
    dl_buffer_fini(&connection->out);
    free(connection);
}

/* Writes the text of a failure of the connection; that of a closed one is torch's. */
static dl_status
describe_failure(const dl_connection *connection, dl_status status)
{
    switch (status) {
    case DL_CLOSED:
        return dl_fail(DL_NETWORK,
                       "Failed to recv, got 0 bytes. Connection was likely closed. Did "
                       "the remote server shutdown or crash? (%s)",
                       connection->peer);
    case DL_NETWORK:
        return dl_fail(DL_NETWORK, "%s (%s)", dl_last_error()->text, connection->peer);
    case DL_TIMEOUT:
        return dl_fail(DL_TIMEOUT, "the store's server at %s does not answer",
                       connection->peer);
    default:
        return status;
    }
}

/* Receives from a relay, which may be stopped while the server is well: it is asked for
 * a sign of life whenever nothing has come for a while. */
static dl_status
receive_relayed(dl_connection *connection, struct iovec room, size_t least,
                dl_deadline deadline, size_t *size)
{
    size_t got = 0;

    while (got < least) {
        struct iovec rest = {(uint8_t *)room.iov_base + got, room.iov_len - got};
        size_t more = 0;
        dl_status status =
            dl_socket_read(connection->fd, rest, 1,
                           dl_deadline_earlier(deadline, DL_RELAY_PATIENCE), &more);
        got += more;
        if (status == DL_TIMEOUT && !dl_deadline_passed(deadline)) {
            int fd = -1;
            status = dl_relay_connect(connection->relay, &fd);
            dl_socket_close(fd);
            if (status == DL_TIMEOUT) {
                status = dl_fail(DL_NETWORK, "%s", dl_last_error()->text);
                connection->is_relay_silent = true;
            }
            /* One that has ended is noticed by the end of the connection. */
            status = status == DL_NOT_FOUND ? DL_CLOSED : status;
        }
        DL_TRY(status);
    }
    *size = got;
    return DL_OK;
}

/* Sends the parts and empties `out`.  `may_be_done` stays false only when the kernel
 * took no byte at all: then a change may be repeated on any server. */
static dl_status
send_parts(dl_connection *connection, struct iovec *parts, int count,
           dl_deadline deadline)
{
    /* Writing consumes the parts: the first one's size tells afterwards whether any
     * byte was sent. */
    size_t size = parts[0].iov_len;

    connection->is_clean = false;
    dl_status status = dl_buffer_check(&connection->out);
    if (status == DL_OK) {
        status = connection->tls == NULL
                     ? dl_socket_write(connection->fd, parts, count, deadline)
                     : dl_tls_socket_write(connection->tls, parts, count, deadline);
        if (connection->is_changing && (status == DL_OK || parts[0].iov_len != size)) {
            connection->may_be_done = true;
        }
    }
    if (connection->out.capacity > KEPT_CAPACITY) {
        dl_buffer_fini(&connection->out);
    }
    dl_buffer_clear(&connection->out);
    return describe_failure(connection, status);
}

dl_status
dl_connection_send(dl_connection *connection, dl_deadline deadline)
{
    struct iovec part = {connection->out.data, connection->out.size};

    return send_parts(connection, &part, 1, deadline);
}

static bool
has_no_reply(dl_opcode op)
{
    return dl_request_kinds[op].reply == DL_REPLY_NONE;
}

/* Each PING has a nonce of its own, so that no reply is taken for another one's. */
static void
put_ping(dl_connection *connection)
{
    dl_store_request ping = {.op = DL_OP_PING, .number = ++connection->nonce};

    dl_wire_put_request(&connection->out, &ping, DL_LITERAL(""));
}

/* Encodes the request, and what confirms it at torch's server; the bytes of its value only
 * if `has_bytes`.  Returns where these belong in `out`. */
static size_t
put_request(dl_connection *connection, dl_store_request *request, dl_bytes key_prefix,
            bool has_bytes)
{
    request->is_checked = connection->is_distlite;
    connection->is_changing |= dl_request_kinds[request->op].is_change;
    bool has_value = dl_wire_put_request_head(&connection->out, request, key_prefix);
    size_t at = connection->out.size;
    if (has_value && has_bytes) {
        dl_buffer_put(&connection->out, request->value);
    }
    if (has_no_reply(request->op) && !connection->is_distlite) {
        put_ping(connection);
    }
    return at;
}

void
dl_connection_put(dl_connection *connection, dl_store_request *request,
                  dl_bytes key_prefix)
{
    (void)put_request(connection, request, key_prefix, true);
}

dl_status
dl_connection_ask(dl_connection *connection, dl_store_request *request,
                  dl_bytes key_prefix, dl_deadline deadline)
{
    bool is_large = request->value.size >= LARGE_VALUE && has_no_reply(request->op);
    size_t at = put_request(connection, request, key_prefix, !is_large);

    if (!is_large) {
        return dl_connection_send(connection, deadline);
    }
    struct iovec parts[] = {
        {connection->out.data, at},
        {(void *)request->value.data, request->value.size},
        {connection->out.data + at, connection->out.size - at},
    };
    return send_parts(connection, parts, connection->is_distlite ? 2 : 3, deadline);
}

static dl_status
receive_bytes(dl_connection *connection, struct iovec room, size_t least,
              dl_deadline deadline, size_t *size)
{
    return describe_failure(
        connection,
        connection->is_relayed
            ? receive_relayed(connection, room, least, deadline, size)
        : connection->tls == NULL
            ? dl_socket_read(connection->fd, room, least, deadline, size)
            : dl_tls_socket_read(connection->tls, room, least, deadline, size));
}

/* Unread bytes are moved to the front only when there is no room behind them: at most
 * the size field of a value is moved, and not once per value. */
dl_status
dl_connection_await(dl_connection *connection, uint32_t size, dl_deadline deadline)
{
    /* The usual case: the previous reply was read to its end. */
    if (connection->first == connection->last) {
        connection->first = 0;
        connection->last = 0;
    } else if (connection->first + size > DL_CONNECTION_ROOM) {
        connection->last -= connection->first;
        memmove(connection->in, connection->in + connection->first, connection->last);
        connection->first = 0;
    }
    while (connection->last - connection->first < size) {
        struct iovec room = {connection->in + connection->last,
                             DL_CONNECTION_ROOM - connection->last};
        size_t got;
        DL_TRY(receive_bytes(connection, room, 1, deadline, &got));
        connection->last += (uint32_t)got;
    }
    return DL_OK;
}

/* Takes the next `size` bytes; `*bytes` is valid until the next take. */
static dl_status
take_next(dl_connection *connection, uint32_t size, dl_deadline deadline,
          const uint8_t **bytes)
{
    DL_TRY(dl_connection_await(connection, size, deadline));
    *bytes = connection->in + connection->first;
    connection->first += size;
    return DL_OK;
}

dl_status
dl_connection_take_u8(dl_connection *connection, dl_deadline deadline, uint8_t *value)
{
    const uint8_t *bytes;

    DL_TRY(take_next(connection, 1, deadline, &bytes));
    *value = *bytes;
    return DL_OK;
}

dl_status
dl_connection_take_flag(dl_connection *connection, dl_deadline deadline, bool *is_ready)
{
    uint8_t answer;

    DL_TRY(dl_connection_take_u8(connection, deadline, &answer));
    *is_ready = answer == DL_WIRE_READY;
    return *is_ready || answer == DL_WIRE_NOT_READY
               ? DL_OK
               : dl_fail(DL_PROTOCOL, "ready or not_ready response expected from %s",
                         connection->peer);
}

dl_status
dl_connection_take_i64(dl_connection *connection, dl_deadline deadline, int64_t *value)
{
    const uint8_t *bytes;

    DL_TRY(take_next(connection, sizeof *value, deadline, &bytes));
    dl_reader reader = dl_reader_of((dl_bytes){bytes, sizeof *value});
    dl_take_i64(&reader, value);
    return DL_OK;
}

/* Receives the last `left` bytes of a value directly into `value`. */
static dl_status
take_rest(dl_connection *connection, dl_deadline deadline, size_t left,
          dl_buffer *value)
{
    while (left > 0) {
        size_t piece = left < PIECE ? left : PIECE;
        size_t got;
        DL_TRY(dl_buffer_reserve(value, piece));
        struct iovec room = {value->data + value->size, piece};
        DL_TRY(receive_bytes(connection, room, piece, deadline, &got));
        value->size += got;
        left -= got;
    }
    return DL_OK;
}

dl_status
dl_connection_take_blob(dl_connection *connection, dl_deadline deadline,
                        dl_buffer *value)
{
    int64_t size;

    DL_TRY(dl_connection_take_i64(connection, deadline, &size));
    if (size < 0 || (uint64_t)size > VALUE_MAX) {
        return dl_fail(
            DL_PROTOCOL,
            "a value of %llu bytes, which is over the limit, was announced by %s",
            (unsigned long long)size, connection->peer);
    }
    size_t here = connection->last - connection->first;
    here = here < (size_t)size ? here : (size_t)size;
    dl_buffer_clear(value);
    DL_TRY(dl_buffer_reserve(value, (size_t)size < PIECE ? (size_t)size : PIECE));
    dl_buffer_put(value, (dl_bytes){connection->in + connection->first, here});
    connection->first += (uint32_t)here;
    return take_rest(connection, deadline, (size_t)size - here, value);
}

/* The longest text of a refused handshake that is read: the peer has proved nothing
 * yet. */
#define REFUSAL_LIMIT 1024

static dl_status
take_refusal(dl_connection *connection, const char *before, dl_deadline deadline)
{
    char text[DL_ERROR_TEXT_SIZE / 2] = "";
    size_t used = 0;
    const uint8_t *bytes;
    int64_t size;

    DL_TRY(dl_connection_take_i64(connection, deadline, &size));
    if (size < 0 || size > REFUSAL_LIMIT) {
        return dl_fail(DL_PROTOCOL, "a refusal of %llu bytes was announced by %s",
                       (unsigned long long)size, connection->peer);
    }
    DL_TRY(take_next(connection, (uint32_t)size, deadline, &bytes));
    dl_text_append_escaped(text, sizeof text, &used, (const char *)bytes, (size_t)size);
    return dl_fail(DL_DENIED, "%s%s (%s)", before, text, connection->peer);
}

/* A refusal is a complete reply: no byte of it is outstanding afterwards. */
dl_status
dl_connection_take_status(dl_connection *connection, dl_deadline deadline)
{
    uint8_t byte = DL_OK;
    dl_buffer text = {0};

    if (connection->is_distlite) {
        DL_TRY(dl_connection_take_u8(connection, deadline, &byte));
    }
    if (byte == DL_OK) {
        return DL_OK;
    }
    dl_status status = dl_connection_take_blob(connection, deadline, &text);
    if (status == DL_OK) {
        dl_connection_end_reply(connection);
        status = dl_fail(byte <= DL_STATUS_LAST ? (dl_status)byte : DL_PROTOCOL, "%.*s",
                         (int)text.size, (const char *)text.data);
    }
    dl_buffer_fini(&text);
    return status;
}

/* Reads the reply to a PING, whose nonce must be the one sent, or the refusal that a server
 * which asks for a token sends in place of the first. */
static dl_status
take_pong(dl_connection *connection, dl_deadline deadline)
{
    const uint8_t *bytes;
    uint32_t got;

    DL_TRY(take_next(connection, sizeof got, deadline, &bytes));
    dl_reader reader = dl_reader_of((dl_bytes){bytes, sizeof got});
    dl_take_u32(&reader, &got);
    if (got == connection->nonce) {
        return DL_OK;
    }
    return got == DL_WIRE_PROOF_REQUIRED
               ? take_refusal(connection, "", deadline)
               : dl_fail(DL_PROTOCOL,
                         "Ping failed, invalid value returned from server. Expected: "
                         "%u, Got: %u",
                         connection->nonce, got);
}

dl_status
dl_connection_take_echo(dl_connection *connection, dl_deadline deadline)
{
    return connection->is_distlite ? DL_OK : take_pong(connection, deadline);
}

void
dl_connection_end_reply(dl_connection *connection)
{
    if (connection->is_changing) {
        connection->slot.sequence++;
        connection->is_changing = false;
        connection->may_be_done = false;
    }
    /* Bytes that no request asked for belong to no reply: the stream cannot be
     * trusted. */
    connection->is_clean =
        connection->first == connection->last
        && (connection->tls == NULL || !dl_tls_socket_holds_input(connection->tls));
}

/* Writes the text for a server that does not answer the beginning of the handshake but
 * closes the connection, as torch's does.  Ours does so only when it ends, hence not
 * DL_DENIED, nor DL_NETWORK, for which the caller would try again for ever. */
static dl_status
describe_silence(const dl_connection *connection, const char *request,
                 const char *cause, dl_status status)
{
    return status != DL_CLOSED && status != DL_NETWORK && status != DL_TIMEOUT
               ? status
               : dl_fail(status == DL_TIMEOUT ? DL_TIMEOUT : DL_PROTOCOL,
                         "the store's server at %s %s %s: it has ended, "
                         "or it "
                         "is torch's or %s",
                         connection->peer,
                         status == DL_TIMEOUT ? "does not answer"
                                              : "has closed the connection",
                         request, cause);
}

dl_status
dl_connection_tls(const char *name, const dl_secret *secret, dl_tls **tls)
{
    dl_tls_mode mode;

    *tls = NULL;
    DL_TRY(name != NULL ? dl_tls_mode_from(name, "tls", &mode)
                        : dl_tls_mode_find(&mode));
    return dl_tls_new(mode, "store", secret, tls);
}

dl_status
dl_connection_secure(dl_connection *connection, dl_tls *tls, dl_deadline deadline)
{
    if (tls == NULL) {
        return DL_OK;
    }
    DL_TRY(dl_tls_socket_new(tls, false, connection->fd, &connection->tls));
    dl_status status = dl_tls_socket_greet(connection->tls, deadline);
    return status == DL_DENIED || status == DL_PROTOCOL
               ? dl_fail(status, "TLS with the store's server at %s: %s",
                         connection->peer, dl_last_error()->text)
               : describe_silence(connection, "when asked to speak TLS",
                                  dl_tls_proves_token(tls)
                                      ? "runs without DISTLITE_TLS=psk"
                                      : "runs without DISTLITE_TLS=cert",
                                  status);
}

/* Takes a message of the server: a nonce or a MAC, or its refusal. */
static dl_status
take_proof(dl_connection *connection, dl_deadline deadline, const uint8_t **bytes)
{
    uint8_t status;

    DL_TRY(dl_connection_take_u8(connection, deadline, &status));
    if (status == DL_OK) {
        return take_next(connection, DL_PROOF_SIZE - 1, deadline, bytes);
    }
    return take_refusal(
        connection,
        status == DL_DENIED ? "" : "asked for a proof of the job's token: ", deadline);
}

/* Leaves PROVE in `out`, so that it travels with the rest of the handshake, whose
 * requests tell a false server nothing. */
static dl_status
begin_proof(dl_connection *connection, const dl_secret *secret, dl_proof *proof,
            dl_deadline deadline)
{
    const uint8_t *nonce;

    DL_TRY(dl_proof_put_challenge(proof, &connection->out));
    DL_TRY(dl_connection_send(connection, deadline));
    DL_TRY(describe_silence(connection,
                            "when asked to prove that it knows the job's token",
                            "of an older version, which do not support tokens",
                            take_proof(connection, deadline, &nonce)));
    return dl_proof_put_prove(proof, secret, nonce, &connection->out);
}

static dl_status
end_proof(dl_connection *connection, const dl_secret *secret, dl_proof *proof,
          dl_deadline deadline)
{
    const uint8_t *mac;

    DL_TRY(take_proof(connection, deadline, &mac));
    dl_status status = dl_proof_check(proof, secret, mac);
    return status != DL_DENIED
               ? status
               : dl_fail(DL_DENIED, "%s (%s)", dl_last_error()->text, connection->peer);
}

/* Reads the reply to the hello, to which torch's server answers that the key does not
 * exist. */
static dl_status
take_welcome(dl_connection *connection, dl_deadline deadline)
{
    const uint8_t *bytes;

    DL_TRY(dl_connection_take_flag(connection, deadline, &connection->is_distlite));
    if (connection->is_distlite) {
        DL_TRY(take_next(connection, DL_WIRE_WELCOME_SIZE, deadline, &bytes));
        dl_wire_take_welcome(bytes, &connection->server);
    }
    return DL_OK;
}

/* Without a secret all requests are sent before any reply is read, so that the
 * handshake takes one round trip; a proof adds one.  VALIDATE and PING are what torch's
 * client begins with; to torch's server the CHECK asks about a key that does not
 * exist. */
dl_status
dl_connection_greet(dl_connection *connection, const dl_secret *secret,
                    const dl_store_request *first, dl_deadline deadline)
{
    const dl_store_request validate = {.op = DL_OP_VALIDATE, .number = DL_WIRE_MAGIC};
    dl_buffer *out = &connection->out;
    dl_proof proof = {.terms = &dl_wire_proof};

    /* As torch's client does: in a capture of the traffic the first nonce identifies
     * the process. */
    connection->nonce = (uint32_t)getpid();
    dl_wire_put_request(out, &validate, DL_LITERAL(""));
    if (secret != NULL) {
        DL_TRY(begin_proof(connection, secret, &proof, deadline));
    }
    put_ping(connection);
    dl_wire_put_hello(out, &connection->slot);
    if (first != NULL) {
        connection->is_changing = dl_request_kinds[first->op].is_change;
        dl_wire_put_request(out, first, DL_LITERAL(""));
    }
    DL_TRY(dl_connection_send(connection, deadline));
    if (secret != NULL) {
        DL_TRY(end_proof(connection, secret, &proof, deadline));
    }
    DL_TRY(take_pong(connection, deadline));
    DL_TRY(take_welcome(connection, deadline));
    connection->is_clean = first == NULL;
    return DL_OK;
}

dl_status
dl_connection_take_addresses(dl_connection *connection, dl_deadline deadline,
                             dl_address *local, dl_address *peer)
{
    const size_t size = sizeof local->socket;
    const uint8_t *bytes;

    DL_TRY(take_next(connection, 2 * size, deadline, &bytes));
    *local = (dl_address){.size = (socklen_t)size};
    *peer = *local;
    memcpy(&local->socket, bytes, size);
    memcpy(&peer->socket, bytes + size, size);
    return DL_OK;
}

/* MSG_MORE lets the byte travel with the FIN of the close that follows, which wakes the
 * server once. */
void
dl_connection_leave(const dl_connection *connection)
{
    uint8_t byte = DL_WIRE_LEAVE;
    struct iovec part = {&byte, 1};

    if (!connection->is_distlite || !connection->is_clean) {
        return;
    }
    if (connection->tls == NULL) {
        (void)!send(connection->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE);
        return;
    }
    /* Without waiting for room, and without effect on the caller's error. */
    dl_error error = *dl_last_error();
    if (dl_tls_socket_write(connection->tls, &part, 1, dl_deadline_after(0)) != DL_OK) {
        (void)dl_rethrow(&error);
    }
}
