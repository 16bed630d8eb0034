/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/tls.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/text.h"
#include "base/thread.h"
#include "net/openssl_table.h"

#define KEY_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY"
#define CERT_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT"
#define CA_FILE_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE"
#define CA_PATH_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_PATH"

/* The key of a token is bound to SHA-256, so psk can use only these. */
#define PSK_CIPHERS "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define CERT_CIPHERS PSK_CIPHERS ":TLS_AES_256_GCM_SHA384"

#define IDENTITY_SIZE 64

/* After how many bytes the sender changes its key.  AES-GCM is safe for thousands of
 * times as many; a change costs microseconds, and frequent changes keep the code for
 * them exercised. */
#define KEY_BYTES ((uint64_t)64 << 20)

/* Capacity that an output keeps when all of it is sent. */
#define KEPT_CAPACITY ((size_t)64 << 10)

/* What a record adds: a head, a type and the code that authenticates it. */
#define RECORD_EXTRA (5 + 1 + 16)

/* Where SSL_set_app_data() keeps its argument. */
#define APP_DATA 0

struct dl_tls {
    atomic_size_t references;
    /* fixed after init */
    dl_tls_mode mode;
    void *context;
    uint32_t fork_generation;
    char identity[IDENTITY_SIZE]; /* the key's name, which the client tells */
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

static const dl_openssl_table *openssl; /* set before the first dl_tls exists */
static void *bio_methods;

static const char *const mode_names[] = {"off", "psk", "cert"};

const char *
dl_tls_mode_name(dl_tls_mode mode)
{
    return mode_names[mode];
}

dl_status
dl_tls_mode_from(const char *text, const char *name, dl_tls_mode *mode)
{
    for (size_t i = 0; i < sizeof mode_names / sizeof *mode_names; i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            *mode = (dl_tls_mode)i;
            return DL_OK;
        }
    }
    return dl_fail(DL_INVALID,
                   "%s is '%.100s'; it can be 'off', 'psk' (TLS with a key made of the "
                   "job's token) or 'cert' (TLS with certificates)",
                   name, text);
}

dl_status
dl_tls_mode_find(dl_tls_mode *mode)
{
    const char *text = getenv(DL_TLS_VARIABLE);

    *mode = DL_TLS_OFF;
    return text == NULL || *text == '\0'
               ? DL_OK
               : dl_tls_mode_from(text, DL_TLS_VARIABLE, mode);
}

static dl_tls_stream *
stream_of(const void *ssl)
{
    return openssl->data(ssl, APP_DATA);
}

/* The BIO through which OpenSSL reads the caller's bytes and writes to the output, so
 * that no byte is buffered in between. */
static int
bio_read(void *bio, char *data, int room)
{
    dl_tls_stream *stream = openssl->bio_data(bio);
    size_t size = stream->in.size < (size_t)room ? stream->in.size : (size_t)room;

    openssl->bio_clear_flags(bio, DL_OPENSSL_BIO_RETRY_BITS);
    if (size == 0) {
        openssl->bio_set_flags(bio, DL_OPENSSL_BIO_RETRY_READ);
        return -1;
    }
    memcpy(data, stream->in.data, size);
    stream->in = (dl_bytes){stream->in.data + size, stream->in.size - size};
    return (int)size;
}

static int
bio_write(void *bio, const char *data, int size)
{
    dl_tls_stream *stream = openssl->bio_data(bio);

    openssl->bio_clear_flags(bio, DL_OPENSSL_BIO_RETRY_BITS);
    dl_buffer_put(&stream->out, (dl_bytes){(const uint8_t *)data, (size_t)size});
    return stream->out.has_failed ? -1 : size;
}

static long
bio_ctrl(void *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == DL_OPENSSL_BIO_FLUSH;
}

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static dl_status
load_locked(void)
{
    if (bio_methods != NULL) {
        return DL_OK;
    }
    DL_TRY(dl_openssl_load(&openssl));
    void *made = openssl->bio_meth_new(
        openssl->bio_index() | DL_OPENSSL_BIO_SOURCE_SINK, "distlite bytes");
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    (void)openssl->bio_meth_set_read(made, bio_read);
    (void)openssl->bio_meth_set_write(made, bio_write);
    (void)openssl->bio_meth_set_ctrl(made, bio_ctrl);
    bio_methods = made;
    return DL_OK;
}

static dl_status
load_openssl(void)
{
    pthread_mutex_lock(&load_lock);
    dl_status status = load_locked();
    pthread_mutex_unlock(&load_lock);
    return status;
}

/* Takes the first error of OpenSSL's queue, which is the most specific one, and leaves
 * the queue empty. */
static const char *
take_error(int *reason)
{
    unsigned long code = openssl->take_error();
    const char *text = code == 0 ? NULL : openssl->reason_text(code);

    openssl->clear_errors();
    *reason = (int)(code & DL_OPENSSL_REASON_BITS);
    return text == NULL ? "unknown reason" : text;
}

/* The session from which TLS 1.3 takes the key of a token; the caller owns it. */
static void *
make_session(void *ssl)
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const dl_tls *tls = stream_of(ssl)->tls;
    const void *cipher = openssl->find_cipher(ssl, aes_128_gcm_sha256);
    void *session = openssl->session_new();

    if (session != NULL && cipher != NULL
        && openssl->session_set_key(session, tls->key, sizeof tls->key) == 1
        && openssl->session_set_cipher(session, cipher) == 1
        && openssl->session_set_version(session, DL_OPENSSL_TLS_1_3) == 1) {
        return session;
    }
    openssl->session_free(session);
    return NULL;
}

static int
find_psk(void *ssl, const unsigned char *identity, size_t size, void **session)
{
    dl_bytes own = dl_bytes_of(stream_of(ssl)->tls->identity);

    *session = NULL;
    if (!dl_bytes_equal((dl_bytes){identity, size}, own)) {
        return 1; /* another job's or another purpose's: goes on without, and fails */
    }
    *session = make_session(ssl);
    return *session != NULL;
}

static int
use_psk(void *ssl, const void *digest, const unsigned char **identity, size_t *size,
        void **session)
{
    dl_bytes own = dl_bytes_of(stream_of(ssl)->tls->identity);

    (void)digest; /* all ciphers that are allowed have the one of the key */
    *identity = own.data;
    *size = own.size;
    *session = make_session(ssl);
    return *session != NULL;
}

/* Keeps the reason for which OpenSSL is about to refuse the peer's certificate. */
static int
keep_refusal(int is_valid, void *context)
{
    if (is_valid) {
        return is_valid;
    }
    void *ssl = openssl->verify_data(context, openssl->data_index());
    dl_tls_stream *stream = stream_of(ssl);
    void *certificate = openssl->verify_certificate(context);
    char name[256] = "";
    size_t size = 0;

    if (certificate != NULL) {
        (void)openssl->name_text(openssl->subject(certificate), name, sizeof name);
    }
    stream->complaint[0] = '\0';
    dl_text_append_escaped(stream->complaint, sizeof stream->complaint, &size, name,
                           strlen(name));
    dl_text_append(stream->complaint, sizeof stream->complaint, &size, ": %s",
                   openssl->verify_text(openssl->verify_error(context)));
    return 0;
}

/* Refuses a private key that is encrypted; OpenSSL would ask for its password on the
 * terminal, and wait. */
static int
refuse_password(char *password, int room, int is_writing, void *unused)
{
    (void)password;
    (void)room;
    (void)is_writing;
    (void)unused;
    return -1;
}

static dl_status
prepare_psk(dl_tls *tls, const char *purpose, const dl_secret *secret)
{
    if (secret == NULL) {
        return dl_fail(DL_INVALID,
                       "TLS in mode 'psk' takes its key from the job's token, and "
                       "there is none: set DISTLITE_TOKEN or DISTLITE_TOKEN_FILE, or "
                       "use mode 'cert'");
    }
    /* The name of the key is also the label from which the key is computed. */
    snprintf(tls->identity, sizeof tls->identity, "distlite tls 1 %.32s", purpose);
    DL_TRY(dl_secret_mac(secret, dl_bytes_of(tls->identity), tls->key));
    openssl->ctx_set_find_psk(tls->context, find_psk);
    openssl->ctx_set_use_psk(tls->context, use_psk);
    return DL_OK;
}

/* Reads the path in a variable.  The file is opened here only to name what is wrong:
 * OpenSSL says less. */
static dl_status
take_path(const char *variable, const char **path)
{
    *path = getenv(variable);
    if (*path != NULL && **path == '\0') {
        *path = NULL;
    }
    if (*path != NULL && access(*path, R_OK) != 0) {
        return dl_fail(DL_INVALID, "%s=%.500s cannot be read: %s", variable, *path,
                       strerror(errno));
    }
    return DL_OK;
}

static dl_status
fail_unset(const char *variable, const char *what)
{
    return dl_fail(DL_INVALID,
                   "TLS with certificates needs %s: set %s to its path, or use mode "
                   "'psk' with the job's token",
                   what, variable);
}

static dl_status
fail_file(const char *variable, const char *path, const char *what)
{
    int reason;
    const char *text = take_error(&reason);

    return dl_fail(DL_INVALID, "%s=%.500s %s: %s", variable, path, what, text);
}

/* Every peer would refuse an expired certificate, and this side would only see an
 * alert. */
static dl_status
check_dates(void *context, const char *path)
{
    const void *certificate = openssl->ctx_certificate(context);

    if (openssl->compare_with_now(openssl->not_after(certificate)) < 0) {
        return dl_fail(DL_INVALID, CERT_VARIABLE "=%.500s: the certificate has expired",
                       path);
    }
    if (openssl->compare_with_now(openssl->not_before(certificate)) > 0) {
        return dl_fail(DL_INVALID,
                       CERT_VARIABLE "=%.500s: the certificate is not valid yet; check "
                                     "this host's clock",
                       path);
    }
    return DL_OK;
}

static dl_status
prepare_cert(dl_tls *tls)
{
    const char *key = NULL;
    const char *chain = NULL;
    const char *ca_file = NULL;
    const char *ca_path = NULL;

    DL_TRY(take_path(KEY_VARIABLE, &key));
    DL_TRY(take_path(CERT_VARIABLE, &chain));
    DL_TRY(take_path(CA_FILE_VARIABLE, &ca_file));
    DL_TRY(take_path(CA_PATH_VARIABLE, &ca_path));
    if (key == NULL) {
        return fail_unset(KEY_VARIABLE, "this process's private key");
    }
    if (chain == NULL) {
        return fail_unset(CERT_VARIABLE, "this process's certificate");
    }
    if (ca_file == NULL && ca_path == NULL) {
        return fail_unset(CA_FILE_VARIABLE,
                          "the certificate of the authority that signs those of the "
                          "job");
    }
    openssl->ctx_set_password(tls->context, refuse_password);
    if (openssl->ctx_use_chain(tls->context, chain) != 1) {
        return fail_file(CERT_VARIABLE, chain, "is not a certificate in PEM format");
    }
    DL_TRY(check_dates(tls->context, chain));
    if (openssl->ctx_use_key(tls->context, key, DL_OPENSSL_FILE_PEM) != 1) {
        return fail_file(KEY_VARIABLE, key,
                         "is not a private key in PEM format, without a password, that "
                         "belongs to the certificate");
    }
    if (openssl->ctx_check_key(tls->context) != 1) {
        return fail_file(KEY_VARIABLE, key, "does not belong to the certificate");
    }
    if (openssl->ctx_load_ca(tls->context, ca_file, ca_path) != 1) {
        return fail_file(ca_file != NULL ? CA_FILE_VARIABLE : CA_PATH_VARIABLE,
                         ca_file != NULL ? ca_file : ca_path,
                         "has no certificates in PEM format");
    }
    return DL_OK;
}

static dl_status
fail_openssl(const char *what)
{
    int reason;
    const char *text = take_error(&reason);

    return dl_fail(DL_UNSUPPORTED, "OpenSSL %s: %s", what, text);
}

static dl_status
configure_context(dl_tls *tls, const char *purpose, const dl_secret *secret)
{
    bool is_psk = tls->mode == DL_TLS_PSK;

    openssl->clear_errors();
    tls->context = openssl->ctx_new(openssl->method());
    if (tls->context == NULL) {
        return fail_openssl("failed to make a context");
    }
    /* Set on both ends, because the system's openssl.cnf may have set either. */
    if (openssl->ctx_ctrl(tls->context, DL_OPENSSL_SET_LEAST_VERSION,
                          DL_OPENSSL_TLS_1_3, NULL)
            != 1
        || openssl->ctx_ctrl(tls->context, DL_OPENSSL_SET_LAST_VERSION,
                             DL_OPENSSL_TLS_1_3, NULL)
               != 1
        || openssl->ctx_set_ciphers(tls->context, is_psk ? PSK_CIPHERS : CERT_CIPHERS)
               != 1) {
        return fail_openssl("does not support TLS 1.3");
    }
    (void)openssl->ctx_set_options(tls->context,
                                   DL_OPENSSL_NO_TICKET | DL_OPENSSL_NO_RENEGOTIATION);
    (void)openssl->ctx_set_tickets(tls->context, 0);
    (void)openssl->ctx_ctrl(tls->context, DL_OPENSSL_SET_SESSION_CACHE, 0, NULL);
    /* Saves 34 KiB for each of a server's idle connections. */
    (void)openssl->ctx_ctrl(tls->context, DL_OPENSSL_SET_MODE,
                            DL_OPENSSL_RELEASE_BUFFERS, NULL);
    return is_psk ? prepare_psk(tls, purpose, secret) : prepare_cert(tls);
}

dl_status
dl_tls_new(dl_tls_mode mode, const char *purpose, const dl_secret *secret, dl_tls **tls)
{
    *tls = NULL;
    if (mode == DL_TLS_OFF) {
        return DL_OK;
    }
    DL_TRY(load_openssl());
    dl_tls *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&made->references, 1);
    made->mode = mode;
    made->fork_generation = dl_fork_generation();
    dl_status status = configure_context(made, purpose, secret);
    if (status != DL_OK) {
        dl_tls_unref(made);
        return status;
    }
    *tls = made;
    return DL_OK;
}

dl_tls *
dl_tls_ref(dl_tls *tls)
{
    if (tls != NULL) {
        atomic_fetch_add_explicit(&tls->references, 1, memory_order_relaxed);
    }
    return tls;
}

/* Whether this process is a forked child of the one that made it.  OpenSSL's locks may
 * have been held at the moment of the fork, by a thread that does not exist here. */
static bool
is_inherited(const dl_tls *tls)
{
    return tls->fork_generation != dl_fork_generation();
}

void
dl_tls_unref(dl_tls *tls)
{
    if (tls == NULL
        || atomic_fetch_sub_explicit(&tls->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (tls->context != NULL && !is_inherited(tls)) {
        openssl->ctx_free(tls->context);
    }
    explicit_bzero(tls->key, sizeof tls->key);
    free(tls);
}

dl_tls_mode
dl_tls_mode_of(const dl_tls *tls)
{
    return tls == NULL ? DL_TLS_OFF : tls->mode;
}

bool
dl_tls_proves_token(const dl_tls *tls)
{
    return dl_tls_mode_of(tls) == DL_TLS_PSK;
}

static dl_status
open_ssl(dl_tls_stream *stream)
{
    bool is_cert = stream->tls->mode == DL_TLS_CERT;

    openssl->clear_errors();
    stream->ssl = openssl->new (stream->tls->context);
    if (stream->ssl == NULL || openssl->set_data(stream->ssl, APP_DATA, stream) != 1) {
        return dl_fail_no_memory();
    }
    void *bio = openssl->bio_new(bio_methods);
    if (bio == NULL) {
        return dl_fail_no_memory();
    }
    openssl->bio_set_data(bio, stream);
    openssl->bio_set_init(bio, 1);
    openssl->set_bio(stream->ssl, bio, bio);
    if (stream->is_server) {
        openssl->set_verify(stream->ssl,
                            is_cert ? DL_OPENSSL_VERIFY_PEER | DL_OPENSSL_VERIFY_DEMAND
                                    : DL_OPENSSL_VERIFY_NONE,
                            keep_refusal);
        openssl->set_accept(stream->ssl);
    } else {
        /* In psk mode as well: no authority is trusted there, so a server that presents
         * a certificate in place of the key is refused. */
        openssl->set_verify(stream->ssl, DL_OPENSSL_VERIFY_PEER, keep_refusal);
        openssl->set_connect(stream->ssl);
    }
    return DL_OK;
}

static const char *
peer_of(const dl_tls_stream *stream)
{
    return stream->is_server ? "client" : "server";
}

/* The remedy, for the end of an error text. */
static const char *
remedy_of(const dl_tls_stream *stream)
{
    return stream->tls->mode == DL_TLS_PSK
               ? "both sides need DISTLITE_TLS=psk and the same token (DISTLITE_TOKEN)"
               : "both sides need DISTLITE_TLS=cert, and certificates that the other's "
                 "authority (" CA_FILE_VARIABLE ") has signed";
}

static bool
is_about_certificates(int alert)
{
    return (alert >= 41 && alert <= 46) || alert == 48 || alert == 49
           || (alert >= 111 && alert <= 116);
}

/* Fails with the text for a failed handshake, for which OpenSSL has given `reason` and
 * `text`. */
static dl_status
fail_handshake(dl_tls_stream *stream, int reason, const char *text)
{
    const char *peer = peer_of(stream);
    const char *remedy = remedy_of(stream);
    bool is_psk = stream->tls->mode == DL_TLS_PSK;
    int alert = reason - DL_OPENSSL_ALERT;

    if (reason == DL_OPENSSL_VERIFY_FAILED) {
        return is_psk
                   ? dl_fail(DL_DENIED,
                             "the server presents a certificate in place of the job's "
                             "token: %s",
                             remedy)
                   : dl_fail(DL_DENIED, "the certificate of the %s is refused (%s): %s",
                             peer, stream->complaint, remedy);
    }
    if (reason == DL_OPENSSL_NO_CERTIFICATE) {
        return dl_fail(DL_DENIED, "the client presents no certificate: %s", remedy);
    }
    if (reason == DL_OPENSSL_BAD_BINDER || reason == DL_OPENSSL_BAD_RECORD) {
        return dl_fail(
            DL_DENIED,
            "the %s has another key: %s; or a third party changes what goes over "
            "the network",
            peer, remedy);
    }
    if (reason == DL_OPENSSL_NO_SHARED_CIPHER || reason == DL_OPENSSL_NO_KEY_SHARE
        || reason == DL_OPENSSL_NO_SIGNATURE_ALGORITHM
        || reason == DL_OPENSSL_NO_SHARED_ALGORITHMS) {
        return dl_fail(DL_DENIED, "the %s proves itself by other means: %s", peer,
                       remedy);
    }
    if (alert == 47 || alert == 51 || alert == 20 || alert == 40 || alert == 115
        || is_about_certificates(alert)) {
        return dl_fail(DL_DENIED, "the %s refuses this process's %s (%s): %s", peer,
                       is_psk ? "key" : "certificate", text, remedy);
    }
    return dl_fail(DL_PROTOCOL, "what the %s sends is not TLS 1.3 (%s): %s", peer, text,
                   remedy);
}

static dl_status
fail_record(dl_tls_stream *stream, int reason, const char *text)
{
    const char *peer = peer_of(stream);
    int alert = reason - DL_OPENSSL_ALERT;

    if (is_about_certificates(alert)) {
        return fail_handshake(stream, reason, text);
    }
    if (reason == DL_OPENSSL_BAD_RECORD || alert == 20) {
        return dl_fail(
            DL_NETWORK,
            "bytes of the TLS connection were changed on their way %s the %s "
            "(%s)",
            alert == 20 ? "to" : "from", peer, text);
    }
    return dl_fail(DL_PROTOCOL, "the TLS connection has failed (%s)", text);
}

/* Translates the result of an OpenSSL call that did not succeed.  DL_OK: it needs more
 * input. */
static dl_status
take_failure(dl_tls_stream *stream, int result)
{
    int kind = openssl->get_error(stream->ssl, result);
    int reason;

    if (stream->out.has_failed) {
        openssl->clear_errors();
        return dl_fail_no_memory();
    }
    if (kind == DL_OPENSSL_WANT_READ) {
        return DL_OK;
    }
    if (kind == DL_OPENSSL_CLOSED) {
        openssl->clear_errors();
        return dl_fail(DL_CLOSED, "the peer closed the connection");
    }
    const char *text = take_error(&reason);
    return stream->is_up ? fail_record(stream, reason, text)
                         : fail_handshake(stream, reason, text);
}

/* Only a safeguard: OpenSSL has no other way to complete a handshake in this mode. */
static dl_status
check_psk(dl_tls_stream *stream)
{
    return stream->tls->mode != DL_TLS_PSK || openssl->used_psk(stream->ssl) == 1
               ? DL_OK
               : dl_fail(DL_DENIED, "the %s has not proved that it knows the token: %s",
                         peer_of(stream), remedy_of(stream));
}

static dl_status
continue_handshake(dl_tls_stream *stream)
{
    size_t before = stream->in.size;

    openssl->clear_errors();
    int result = openssl->handshake(stream->ssl);
    stream->greeted += before - stream->in.size;
    if (result == 1) {
        DL_TRY(check_psk(stream));
        stream->is_up = true;
        return DL_OK;
    }
    DL_TRY(take_failure(stream, result));
    if (stream->greeted > DL_TLS_HANDSHAKE_LIMIT) {
        return dl_fail(DL_PROTOCOL,
                       "the %s has sent %zu bytes without completing the TLS "
                       "handshake; the limit is %u",
                       peer_of(stream), stream->greeted, DL_TLS_HANDSHAKE_LIMIT);
    }
    return DL_OK;
}

dl_status
dl_tls_stream_new(dl_tls *tls, bool is_server, dl_tls_stream **stream)
{
    dl_tls_stream *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->tls = dl_tls_ref(tls);
    made->is_server = is_server;
    dl_status status = open_ssl(made);
    if (status == DL_OK && !is_server) {
        status = continue_handshake(made);
    }
    if (status != DL_OK) {
        dl_tls_stream_free(made);
        return status;
    }
    *stream = made;
    return DL_OK;
}

void
dl_tls_stream_free(dl_tls_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    if (stream->ssl != NULL && !is_inherited(stream->tls)) {
        openssl->free(stream->ssl); /* and its BIO */
    }
    dl_buffer_fini(&stream->out);
    free(stream->failure);
    dl_tls_unref(stream->tls);
    free(stream);
}

bool
dl_tls_is_up(const dl_tls_stream *stream)
{
    return stream->is_up;
}

static dl_status
read_all(dl_tls_stream *stream, uint8_t *plain, size_t room, size_t *size)
{
    if (!stream->is_up) {
        DL_TRY(continue_handshake(stream));
    }
    while (stream->is_up && *size < room) {
        size_t got = 0;
        openssl->clear_errors();
        int result = openssl->read(stream->ssl, plain + *size, room - *size, &got);
        if (result != 1) {
            return take_failure(stream, result);
        }
        *size += got;
    }
    return DL_OK;
}

/* Keeps the failure for later calls, and returns it.  OpenSSL's part is released: it
 * may hold tens of KiB, and a peer that is refused may stay for a while. */
static dl_status
keep_failure(dl_tls_stream *stream)
{
    stream->failure = malloc(sizeof *stream->failure);
    if (stream->failure == NULL) {
        return dl_fail_no_memory();
    }
    *stream->failure = *dl_last_error();
    openssl->free(stream->ssl);
    stream->ssl = NULL;
    return stream->failure->status;
}

/* What was decrypted before a failure is returned first, and the failure by the next
 * call. */
dl_status
dl_tls_read(dl_tls_stream *stream, dl_bytes *cipher, void *plain, size_t room,
            size_t *size)
{
    *size = 0;
    if (stream->failure != NULL) {
        return dl_fail_again(stream->failure);
    }
    stream->in = *cipher;
    dl_status status = read_all(stream, plain, room, size);
    *cipher = stream->in;
    stream->in = (dl_bytes){0};
    if (status == DL_OK) {
        return DL_OK;
    }
    status = keep_failure(stream);
    return *size > 0 && stream->failure != NULL ? DL_OK : status;
}

bool
dl_tls_holds_plain(const dl_tls_stream *stream)
{
    return stream->failure == NULL && openssl->pending(stream->ssl) > 0;
}

/* Changes the key when enough was written.  The peer learns of it from the record that
 * precedes the next data. */
static dl_status
count_written(dl_tls_stream *stream, size_t size)
{
    stream->written += size;
    if (stream->written < KEY_BYTES) {
        return DL_OK;
    }
    stream->written = 0;
    return openssl->key_update(stream->ssl, DL_OPENSSL_KEY_UPDATE_OWN) == 1
               ? DL_OK
               : fail_openssl("failed to change the key");
}

static dl_status
write_some(dl_tls_stream *stream, dl_bytes plain, size_t *size)
{
    openssl->clear_errors();
    int result = openssl->write(stream->ssl, plain.data, plain.size, size);
    if (result == 1) {
        return count_written(stream, *size);
    }
    DL_TRY(take_failure(stream, result));
    return dl_fail(DL_INTERNAL, "OpenSSL requires input before it encrypts");
}

dl_status
dl_tls_write(dl_tls_stream *stream, dl_bytes plain)
{
    if (stream->failure != NULL) {
        return dl_fail_again(stream->failure);
    }
    /* At once: the output would otherwise grow, and be copied, record by record. */
    size_t records = plain.size / DL_TLS_RECORD_SIZE + 1;
    (void)dl_buffer_reserve(&stream->out, plain.size + records * RECORD_EXTRA);
    while (plain.size > 0) {
        size_t taken = 0;
        if (write_some(stream, plain, &taken) != DL_OK) {
            return keep_failure(stream);
        }
        plain = (dl_bytes){plain.data + taken, plain.size - taken};
    }
    return DL_OK;
}

dl_bytes
dl_tls_output(const dl_tls_stream *stream)
{
    size_t size = stream->out.size - stream->out_sent;

    return size == 0 ? (dl_bytes){0}
                     : (dl_bytes){stream->out.data + stream->out_sent, size};
}

void
dl_tls_sent(dl_tls_stream *stream, size_t size)
{
    stream->out_sent += size;
    if (stream->out_sent < stream->out.size) {
        return;
    }
    stream->out_sent = 0;
    dl_buffer_clear(&stream->out);
    if (stream->out.capacity > KEPT_CAPACITY) {
        dl_buffer_fini(&stream->out);
    }
}
