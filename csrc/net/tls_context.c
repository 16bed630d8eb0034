/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/references.h"
#include "base/thread.h"
#include "net/tls_state.h"

#define KEY_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY"
#define CERT_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT"
#define CA_PATH_VARIABLE "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_PATH"

/* The key of a token is bound to SHA-256, so psk can use only these. */
#define PSK_CIPHERS "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define CERT_CIPHERS PSK_CIPHERS ":TLS_AES_256_GCM_SHA384"

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
    return dl_openssl.data(ssl, DL_TLS_APP_DATA);
}

/* The BIO through which OpenSSL reads the caller's bytes and writes to the output, so
 * that no byte is buffered in between. */
static int
bio_read(void *bio, char *data, int room)
{
    dl_tls_stream *stream = dl_openssl.bio_data(bio);
    size_t size = stream->in.size < (size_t)room ? stream->in.size : (size_t)room;

    dl_openssl.bio_clear_flags(bio, DL_OPENSSL_BIO_RETRY_BITS);
    if (size == 0) {
        dl_openssl.bio_set_flags(bio, DL_OPENSSL_BIO_RETRY_READ);
        return -1;
    }
    memcpy(data, stream->in.data, size);
    stream->in = (dl_bytes){stream->in.data + size, stream->in.size - size};
    return (int)size;
}

static int
bio_write(void *bio, const char *data, int size)
{
    dl_tls_stream *stream = dl_openssl.bio_data(bio);

    dl_openssl.bio_clear_flags(bio, DL_OPENSSL_BIO_RETRY_BITS);
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
    DL_TRY(dl_openssl_load());
    void *made = dl_openssl.bio_meth_new(
        dl_openssl.bio_index() | DL_OPENSSL_BIO_SOURCE_SINK, "distlite bytes");
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    (void)dl_openssl.bio_meth_set_read(made, bio_read);
    (void)dl_openssl.bio_meth_set_write(made, bio_write);
    (void)dl_openssl.bio_meth_set_ctrl(made, bio_ctrl);
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

/* The session from which TLS 1.3 takes the key of a token; the caller owns it. */
static void *
make_session(void *ssl)
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const dl_tls *tls = stream_of(ssl)->tls;
    const void *cipher = dl_openssl.find_cipher(ssl, aes_128_gcm_sha256);
    void *session = dl_openssl.session_new();

    if (session != NULL && cipher != NULL
        && dl_openssl.session_set_key(session, tls->key, sizeof tls->key) == 1
        && dl_openssl.session_set_cipher(session, cipher) == 1
        && dl_openssl.session_set_version(session, DL_OPENSSL_TLS_1_3) == 1) {
        return session;
    }
    dl_openssl.session_free(session);
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
    dl_openssl.ctx_set_find_psk(tls->context, find_psk);
    dl_openssl.ctx_set_use_psk(tls->context, use_psk);
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
    const char *text = dl_tls_take_error(&reason);

    return dl_fail(DL_INVALID, "%s=%.500s %s: %s", variable, path, what, text);
}

/* Every peer would refuse an expired certificate, and this side would only see an
 * alert. */
static dl_status
check_dates(void *context, const char *path)
{
    const void *certificate = dl_openssl.ctx_certificate(context);

    if (dl_openssl.compare_with_now(dl_openssl.not_after(certificate)) < 0) {
        return dl_fail(DL_INVALID, CERT_VARIABLE "=%.500s: the certificate has expired",
                       path);
    }
    if (dl_openssl.compare_with_now(dl_openssl.not_before(certificate)) > 0) {
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
    DL_TRY(take_path(DL_TLS_CA_FILE_VARIABLE, &ca_file));
    DL_TRY(take_path(CA_PATH_VARIABLE, &ca_path));
    if (key == NULL) {
        return fail_unset(KEY_VARIABLE, "this process's private key");
    }
    if (chain == NULL) {
        return fail_unset(CERT_VARIABLE, "this process's certificate");
    }
    if (ca_file == NULL && ca_path == NULL) {
        return fail_unset(DL_TLS_CA_FILE_VARIABLE,
                          "the certificate of the authority that signs those of the "
                          "job");
    }
    dl_openssl.ctx_set_password(tls->context, refuse_password);
    if (dl_openssl.ctx_use_chain(tls->context, chain) != 1) {
        return fail_file(CERT_VARIABLE, chain, "is not a certificate in PEM format");
    }
    DL_TRY(check_dates(tls->context, chain));
    if (dl_openssl.ctx_use_key(tls->context, key, DL_OPENSSL_FILE_PEM) != 1) {
        return fail_file(KEY_VARIABLE, key,
                         "is not a private key in PEM format, without a password, that "
                         "belongs to the certificate");
    }
    if (dl_openssl.ctx_check_key(tls->context) != 1) {
        return fail_file(KEY_VARIABLE, key, "does not belong to the certificate");
    }
    if (dl_openssl.ctx_load_ca(tls->context, ca_file, ca_path) != 1) {
        return fail_file(ca_file != NULL ? DL_TLS_CA_FILE_VARIABLE : CA_PATH_VARIABLE,
                         ca_file != NULL ? ca_file : ca_path,
                         "has no certificates in PEM format");
    }
    return DL_OK;
}

static dl_status
configure_context(dl_tls *tls, const char *purpose, const dl_secret *secret)
{
    bool is_psk = tls->mode == DL_TLS_PSK;

    dl_openssl.clear_errors();
    tls->context = dl_openssl.ctx_new(dl_openssl.method());
    if (tls->context == NULL) {
        return dl_tls_fail_openssl("failed to make a context");
    }
    /* Set on both ends, because the system's openssl.cnf may have set either. */
    if (dl_openssl.ctx_ctrl(tls->context, DL_OPENSSL_SET_LEAST_VERSION,
                            DL_OPENSSL_TLS_1_3, NULL)
            != 1
        || dl_openssl.ctx_ctrl(tls->context, DL_OPENSSL_SET_LAST_VERSION,
                               DL_OPENSSL_TLS_1_3, NULL)
               != 1
        || dl_openssl.ctx_set_ciphers(tls->context, is_psk ? PSK_CIPHERS : CERT_CIPHERS)
               != 1) {
        return dl_tls_fail_openssl("does not support TLS 1.3");
    }
    (void)dl_openssl.ctx_set_options(tls->context, DL_OPENSSL_NO_TICKET
                                                       | DL_OPENSSL_NO_RENEGOTIATION);
    (void)dl_openssl.ctx_set_tickets(tls->context, 0);
    (void)dl_openssl.ctx_ctrl(tls->context, DL_OPENSSL_SET_SESSION_CACHE, 0, NULL);
    /* Saves 34 KiB for each of a server's idle connections. */
    (void)dl_openssl.ctx_ctrl(tls->context, DL_OPENSSL_SET_MODE,
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
        dl_reference_take(&tls->references);
    }
    return tls;
}

bool
dl_tls_is_inherited(const dl_tls *tls)
{
    return tls->fork_generation != dl_fork_generation();
}

void
dl_tls_unref(dl_tls *tls)
{
    if (tls == NULL || !dl_reference_drop(&tls->references)) {
        return;
    }
    if (tls->context != NULL && !dl_tls_is_inherited(tls)) {
        dl_openssl.ctx_free(tls->context);
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

dl_status
dl_tls_open(dl_tls_stream *stream)
{
    bool is_cert = stream->tls->mode == DL_TLS_CERT;

    dl_openssl.clear_errors();
    stream->ssl = dl_openssl.new(stream->tls->context);
    if (stream->ssl == NULL
        || dl_openssl.set_data(stream->ssl, DL_TLS_APP_DATA, stream) != 1) {
        return dl_fail_no_memory();
    }
    void *bio = dl_openssl.bio_new(bio_methods);
    if (bio == NULL) {
        return dl_fail_no_memory();
    }
    dl_openssl.bio_set_data(bio, stream);
    dl_openssl.bio_set_init(bio, 1);
    dl_openssl.set_bio(stream->ssl, bio, bio);
    if (stream->is_server) {
        dl_openssl.set_verify(stream->ssl,
                              is_cert
                                  ? DL_OPENSSL_VERIFY_PEER | DL_OPENSSL_VERIFY_DEMAND
                                  : DL_OPENSSL_VERIFY_NONE,
                              dl_tls_keep_refusal);
        dl_openssl.set_accept(stream->ssl);
    } else {
        /* In psk mode as well: no authority is trusted there, so a server that presents
         * a certificate in place of the key is refused. */
        dl_openssl.set_verify(stream->ssl, DL_OPENSSL_VERIFY_PEER, dl_tls_keep_refusal);
        dl_openssl.set_connect(stream->ssl);
    }
    return DL_OK;
}
