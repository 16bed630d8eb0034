/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parts of net/tls.h share: tls_context.c, the key or the certificates, and how
 * OpenSSL is set up with them; tls_stream.c, the bytes of a stream; tls_failure.c, the
 * errors. */
#ifndef DISTLITE_NET_TLS_STATE_H
#define DISTLITE_NET_TLS_STATE_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/openssl.h"
#include "net/tls.h"

/* The file of the certificates that are trusted. */
#define DL_TLS_CA_FILE_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE"

#define DL_TLS_IDENTITY_SIZE 64

/* Where SSL_set_app_data() keeps its argument, the stream. */
#define DL_TLS_APP_DATA 0

struct dl_tls {
    atomic_uint references;
    /* fixed after init */
    dl_tls_mode mode;
    void *context;
    uint32_t fork_generation;
    char identity[DL_TLS_IDENTITY_SIZE]; /* the key's name, which the client tells */
    uint8_t key[DL_MAC_SIZE];
};

struct dl_tls_stream {
    dl_tls *tls;
    void *ssl;
    bool is_server;
    bool is_up;
    dl_error *failure; /* what every later call fails with */
    dl_bytes in; /* valid during a call: ciphertext that OpenSSL has not taken yet */
    dl_buffer out;
    size_t out_sent;
    uint64_t written;    /* bytes since the last change of the key */
    size_t greeted;      /* bytes taken during the handshake */
    char complaint[384]; /* why the peer's certificate is refused */
};

/* Whether this process is a forked child of the one that made it.  OpenSSL's locks may
 * have been held at the moment of the fork, by a thread that does not exist here. */
bool dl_tls_is_inherited(const dl_tls *tls);

/* Makes OpenSSL's part of the stream, for its side. */
dl_status dl_tls_open(dl_tls_stream *stream);

/* Keeps the reason for which OpenSSL is about to refuse the peer's certificate; it calls
 * this. */
int dl_tls_keep_refusal(int is_valid, void *context);

/* Takes the first error of OpenSSL's queue, which is the most specific one, and leaves
 * the queue empty. */
const char *dl_tls_take_error(int *reason);

/* Fails with OpenSSL's reason: "OpenSSL <what>: <reason>". */
dl_status dl_tls_fail_openssl(const char *what);

/* Translates the result of an OpenSSL call that did not succeed.  DL_OK: it needs more
 * input. */
dl_status dl_tls_fail_result(dl_tls_stream *stream, int result);

/* Fail a handshake with DL_DENIED, because the peer has not proved that it knows the token;
 * or with DL_PROTOCOL, because it has sent too much. */
dl_status dl_tls_fail_unproved(const dl_tls_stream *stream);
dl_status dl_tls_fail_greeting(const dl_tls_stream *stream);

#endif
