/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The calls and constants of OpenSSL's libssl, and of the libcrypto that it brings, for
 * the job's secret and for TLS, declared here so that no headers are needed.  All of them
 * are in every version since 1.1.1, under these names. */
#ifndef DISTLITE_BASE_OPENSSL_H
#define DISTLITE_BASE_OPENSSL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    DL_OPENSSL_TLS_1_3 = 0x0304,
    DL_OPENSSL_FILE_PEM = 1,
    /* commands of ctx_ctrl */
    DL_OPENSSL_SET_MODE = 33,
    DL_OPENSSL_SET_SESSION_CACHE = 44,
    DL_OPENSSL_SET_LEAST_VERSION = 123,
    DL_OPENSSL_SET_LAST_VERSION = 124,
    /* bits of SET_MODE */
    DL_OPENSSL_RELEASE_BUFFERS = 0x10,
    /* kinds of verification */
    DL_OPENSSL_VERIFY_NONE = 0,
    DL_OPENSSL_VERIFY_PEER = 1,
    DL_OPENSSL_VERIFY_DEMAND = 2, /* a server insists on a certificate */
    /* results of get_error */
    DL_OPENSSL_WANT_READ = 2,
    DL_OPENSSL_CLOSED = 6,
    DL_OPENSSL_KEY_UPDATE_OWN = 0, /* the peer's key need not change */
    /* of BIOs */
    DL_OPENSSL_BIO_SOURCE_SINK = 0x0400,
    DL_OPENSSL_BIO_FLUSH = 11,
    DL_OPENSSL_BIO_RETRY_READ = 0x01 | 0x08,
    DL_OPENSSL_BIO_RETRY_BITS = 0x0f,
    /* reasons of errors; ALERT plus the number of an alert that the peer sent */
    DL_OPENSSL_REASON_BITS = 0xfff,
    DL_OPENSSL_NO_KEY_SHARE = 101,
    DL_OPENSSL_NO_SIGNATURE_ALGORITHM = 118,
    DL_OPENSSL_VERIFY_FAILED = 134,
    DL_OPENSSL_NO_SHARED_CIPHER = 193,
    DL_OPENSSL_NO_CERTIFICATE = 199,
    DL_OPENSSL_BAD_BINDER = 253,
    DL_OPENSSL_BAD_RECORD = 281,
    DL_OPENSSL_NO_SHARED_ALGORITHMS = 376,
    DL_OPENSSL_ALERT = 1000,
};

/* Neither tickets nor renegotiation; the latter is part of older versions only. */
#define DL_OPENSSL_NO_TICKET (UINT64_C(1) << 14)
#define DL_OPENSSL_NO_RENEGOTIATION (UINT64_C(1) << 30)

/* The texts of errors, and OPENSSL_INIT_NO_ATEXIT: a server's thread may still compute
 * while the process exits, and must not find the library's state freed. */
#define DL_OPENSSL_INIT UINT64_C(0x00280002)

typedef int (*dl_openssl_find_psk_fn)(void *ssl, const unsigned char *identity,
                                      size_t size, void **session);
typedef int (*dl_openssl_use_psk_fn)(void *ssl, const void *digest,
                                     const unsigned char **identity, size_t *size,
                                     void **session);
typedef int (*dl_openssl_verify_fn)(int is_valid, void *context);

/* A field of the table, the symbol, and its return and argument types. */
#define DL_OPENSSL_SYMBOLS(X)                                                         \
    X(init, OPENSSL_init_ssl, int, (uint64_t, const void *))                          \
    X(sha256, EVP_sha256, const void *, (void))                                       \
    X(hmac, HMAC, unsigned char *,                                                    \
      (const void *, const void *, int, const unsigned char *, size_t,                \
       unsigned char *, unsigned *))                                                  \
    X(compare, CRYPTO_memcmp, int, (const void *, const void *, size_t))              \
    X(method, TLS_method, const void *, (void))                                       \
    X(ctx_new, SSL_CTX_new, void *, (const void *))                                   \
    X(ctx_free, SSL_CTX_free, void, (void *))                                         \
    X(ctx_ctrl, SSL_CTX_ctrl, long, (void *, int, long, void *))                      \
    X(ctx_set_options, SSL_CTX_set_options, uint64_t, (void *, uint64_t))             \
    X(ctx_set_ciphers, SSL_CTX_set_ciphersuites, int, (void *, const char *))         \
    X(ctx_set_tickets, SSL_CTX_set_num_tickets, int, (void *, size_t))                \
    X(ctx_set_find_psk, SSL_CTX_set_psk_find_session_callback, void,                  \
      (void *, dl_openssl_find_psk_fn))                                               \
    X(ctx_set_use_psk, SSL_CTX_set_psk_use_session_callback, void,                    \
      (void *, dl_openssl_use_psk_fn))                                                \
    X(ctx_set_password, SSL_CTX_set_default_passwd_cb, void,                          \
      (void *, int (*)(char *, int, int, void *)))                                    \
    X(ctx_use_chain, SSL_CTX_use_certificate_chain_file, int, (void *, const char *)) \
    X(ctx_use_key, SSL_CTX_use_PrivateKey_file, int, (void *, const char *, int))     \
    X(ctx_check_key, SSL_CTX_check_private_key, int, (const void *))                  \
    X(ctx_load_ca, SSL_CTX_load_verify_locations, int,                                \
      (void *, const char *, const char *))                                           \
    X(ctx_certificate, SSL_CTX_get0_certificate, void *, (const void *))              \
    X(new, SSL_new, void *, (void *))                                                 \
    X(free, SSL_free, void, (void *))                                                 \
    X(set_bio, SSL_set_bio, void, (void *, void *, void *))                           \
    X(set_accept, SSL_set_accept_state, void, (void *))                               \
    X(set_connect, SSL_set_connect_state, void, (void *))                             \
    X(set_verify, SSL_set_verify, void, (void *, int, dl_openssl_verify_fn))          \
    X(set_data, SSL_set_ex_data, int, (void *, int, void *))                          \
    X(data, SSL_get_ex_data, void *, (const void *, int))                             \
    X(data_index, SSL_get_ex_data_X509_STORE_CTX_idx, int, (void))                    \
    X(handshake, SSL_do_handshake, int, (void *))                                     \
    X(read, SSL_read_ex, int, (void *, void *, size_t, size_t *))                     \
    X(write, SSL_write_ex, int, (void *, const void *, size_t, size_t *))             \
    X(pending, SSL_pending, int, (const void *))                                      \
    X(get_error, SSL_get_error, int, (const void *, int))                             \
    X(key_update, SSL_key_update, int, (void *, int))                                 \
    X(used_psk, SSL_session_reused, int, (const void *))                              \
    X(find_cipher, SSL_CIPHER_find, const void *, (void *, const unsigned char *))    \
    X(session_new, SSL_SESSION_new, void *, (void))                                   \
    X(session_free, SSL_SESSION_free, void, (void *))                                 \
    X(session_set_key, SSL_SESSION_set1_master_key, int,                              \
      (void *, const unsigned char *, size_t))                                        \
    X(session_set_cipher, SSL_SESSION_set_cipher, int, (void *, const void *))        \
    X(session_set_version, SSL_SESSION_set_protocol_version, int, (void *, int))      \
    X(bio_index, BIO_get_new_index, int, (void))                                      \
    X(bio_meth_new, BIO_meth_new, void *, (int, const char *))                        \
    X(bio_meth_set_read, BIO_meth_set_read, int,                                      \
      (void *, int (*)(void *, char *, int)))                                         \
    X(bio_meth_set_write, BIO_meth_set_write, int,                                    \
      (void *, int (*)(void *, const char *, int)))                                   \
    X(bio_meth_set_ctrl, BIO_meth_set_ctrl, int,                                      \
      (void *, long (*)(void *, int, long, void *)))                                  \
    X(bio_new, BIO_new, void *, (const void *))                                       \
    X(bio_set_init, BIO_set_init, void, (void *, int))                                \
    X(bio_set_data, BIO_set_data, void, (void *, void *))                             \
    X(bio_data, BIO_get_data, void *, (void *))                                       \
    X(bio_set_flags, BIO_set_flags, void, (void *, int))                              \
    X(bio_clear_flags, BIO_clear_flags, void, (void *, int))                          \
    X(clear_errors, ERR_clear_error, void, (void))                                    \
    X(take_error, ERR_get_error, unsigned long, (void))                               \
    X(reason_text, ERR_reason_error_string, const char *, (unsigned long))            \
    X(verify_error, X509_STORE_CTX_get_error, int, (const void *))                    \
    X(verify_certificate, X509_STORE_CTX_get_current_cert, void *, (const void *))    \
    X(verify_data, X509_STORE_CTX_get_ex_data, void *, (const void *, int))           \
    X(verify_text, X509_verify_cert_error_string, const char *, (long))               \
    X(subject, X509_get_subject_name, void *, (const void *))                         \
    X(name_text, X509_NAME_oneline, char *, (const void *, char *, int))              \
    X(not_before, X509_get0_notBefore, const void *, (const void *))                  \
    X(not_after, X509_get0_notAfter, const void *, (const void *))                    \
    X(compare_with_now, X509_cmp_current_time, int, (const void *))

typedef struct dl_openssl_table {
#define X(field, symbol, result, arguments) result(*field) arguments;
    DL_OPENSSL_SYMBOLS(X)
#undef X
} dl_openssl_table;

/* Filled by the first dl_openssl_load() that succeeds. */
extern dl_openssl_table dl_openssl;

/* Loads and initialises the libraries unless that is done.  DL_NOT_FOUND,
 * DL_UNSUPPORTED: there is none that can be used. */
dl_status dl_openssl_load(void);

#endif
