/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TLS 1.3 by OpenSSL's libssl, which is loaded when the first dl_tls is made:
 * encryption of a connection, and authentication of both sides, by one of two means.
 *
 *   psk   a key computed from the job's token.  Whoever knows the token is trusted, and
 *         the handshake is a proof of it, so none is needed inside.  The key is combined
 *         with a fresh Diffie-Hellman exchange: whoever learns the token later cannot
 *         decrypt what was recorded before.
 *   cert  certificates.  Each side shows one of the job's CA; names in it do not matter.
 *
 * A stream is one connection's state: a function over bytes, which sends nothing and
 * waits for nothing.  Ciphertext of the peer goes in, ciphertext for the peer comes
 * out, and plaintext is read and written; net/tls_socket.h connects it to a socket.
 *
 *     peer's bytes --dl_tls_read()--> plaintext         handshake, alerts,
 *     plaintext --dl_tls_write()--> output <-------- updates of keys
 *
 * There are no session tickets, no early data and no versions before 1.3.  A stranger
 * costs at most DL_TLS_HANDSHAKE_LIMIT bytes of input until it has proved itself; how
 * long it may take is the caller's business.  The end of a stream is not authenticated:
 * protocols inside must say how long their messages are, as ours do. */
#ifndef DISTLITE_NET_TLS_H
#define DISTLITE_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "base/secret.h"
#include "base/status.h"

/* The variable with the setting for all of a job's connections: a mode's name. */
#define DL_TLS_VARIABLE "DISTLITE_TLS"

typedef enum dl_tls_mode {
    DL_TLS_OFF = 0, /* "off" */
    DL_TLS_PSK,     /* "psk": the job's token */
    DL_TLS_CERT,    /* "cert": certificates */
} dl_tls_mode;

/* Translates a mode's name.  DL_INVALID, with `name` in the text as that of `variable`:
 * there is no such mode. */
dl_status dl_tls_mode_from(const char *text, const char *name, dl_tls_mode *mode);

/* Returns "off", "psk" or "cert". */
const char *dl_tls_mode_name(dl_tls_mode mode);

/* Reads DISTLITE_TLS; unset or empty is "off". */
dl_status dl_tls_mode_find(dl_tls_mode *mode);

/* What a process needs for TLS: the key, or certificates.  Immutable and shared by
 * reference; any thread. */
typedef struct dl_tls dl_tls;

/* Prepares one side's or both sides' connections.  `purpose` ("store", "link") separates
 * the uses of one token: the two ends of a connection must agree on it.  `secret` is the
 * job's token, which only DL_TLS_PSK uses; it may be NULL otherwise.  `*tls` is NULL for
 * DL_TLS_OFF.
 *
 * DL_TLS_CERT reads torch's variables, of which the first two and one of the others must
 * be set:
 *
 *     GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY      file of the private key, PEM
 *     GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT      file of its certificate, and intermediates
 *     GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE   file of the certificates to be trusted
 *     GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_PATH   folder of such, as `openssl rehash` makes
 *
 * DL_INVALID: there is no token, a variable is unset, or its file cannot be used; the
 * text names variable, file and remedy.  DL_NOT_FOUND, DL_UNSUPPORTED: there is no
 * OpenSSL of version 1.1.1 or newer. */
dl_status dl_tls_new(dl_tls_mode mode, const char *purpose, const dl_secret *secret,
                     dl_tls **tls);

dl_tls *dl_tls_ref(dl_tls *tls); /* NULL is returned as it is */
void dl_tls_unref(dl_tls *tls);  /* NULL does nothing */

dl_tls_mode dl_tls_mode_of(const dl_tls *tls); /* NULL: DL_TLS_OFF */

/* Whether the handshake is the proof of the job's token, so that none is needed inside:
 * in mode psk. */
bool dl_tls_proves_token(const dl_tls *tls);

/* The first byte of a client's first message.  A server that reads another byte has a
 * client without TLS. */
#define DL_TLS_FIRST_BYTE 0x16

/* Most bytes of input before the handshake is complete: more than any chain of
 * certificates in use. */
#define DL_TLS_HANDSHAKE_LIMIT (64u << 10)

/* Largest plaintext of one record.  A stream holds at most so much of an incomplete
 * one. */
#define DL_TLS_RECORD_SIZE (16u << 10)

/* One connection; used by one thread at a time. */
typedef struct dl_tls_stream dl_tls_stream;

/* Makes a stream, which takes a reference to `tls`.  A client's first message is in the
 * output at once. */
dl_status dl_tls_stream_new(dl_tls *tls, bool is_server, dl_tls_stream **stream);

/* Frees the stream; NULL does nothing.  Sends nothing.  In a forked child OpenSSL's part
 * is left as it is, because another thread may have been in the middle of using it. */
void dl_tls_stream_free(dl_tls_stream *stream);

/* Whether the handshake is complete on this side, so that the peer is proved.  A
 * client's certificate is an exception: the server may still refuse it, with its first
 * bytes. */
bool dl_tls_is_up(const dl_tls_stream *stream);

/* Takes ciphertext off the front of `*cipher`, which may be empty, as long as there is
 * room for its plaintext, and continues the handshake.  `*size` is the number of bytes
 * of plaintext, 0 if more ciphertext is needed.  If it equals `room`, more may be held or
 * left in `*cipher`: call again.  All of `*cipher` is taken otherwise.
 *
 * Any call may produce output, also one that fails: an alert for the peer.  After a
 * failure only the output is left to send; every later call fails in the same way.
 *
 * DL_DENIED: the peer has not proved itself, or does not accept this side's proof.
 * DL_PROTOCOL: it does not speak TLS 1.3.  DL_NETWORK: bytes were changed on their way.
 * DL_CLOSED: the peer has ended the stream. */
dl_status dl_tls_read(dl_tls_stream *stream, dl_bytes *cipher, void *plain, size_t room,
                      size_t *size);

/* Whether the stream holds plaintext that the last read had no room for. */
bool dl_tls_holds_plain(const dl_tls_stream *stream);

/* Encrypts all of `plain` and appends it to the output.  Only when the stream is up.
 * The output grows by about the size of `plain`: give large data in pieces. */
dl_status dl_tls_write(dl_tls_stream *stream, dl_bytes plain);

/* The ciphertext to be sent to the peer; valid until the next call. */
dl_bytes dl_tls_output(const dl_tls_stream *stream);

/* Removes the first `size` bytes of the output, which have been sent. */
void dl_tls_sent(dl_tls_stream *stream, size_t size);

#endif
