/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/text.h"
#include "net/tls_state.h"

const char *
dl_tls_take_error(int *reason)
{
    unsigned long code = dl_openssl.take_error();
    const char *text = code == 0 ? NULL : dl_openssl.reason_text(code);

    dl_openssl.clear_errors();
    *reason = (int)(code & DL_OPENSSL_REASON_BITS);
    return text == NULL ? "unknown reason" : text;
}

dl_status
dl_tls_fail_openssl(const char *what)
{
    int reason;
    const char *text = dl_tls_take_error(&reason);

    return dl_fail(DL_UNSUPPORTED, "OpenSSL %s: %s", what, text);
}

/* Keeps the reason for which OpenSSL is about to refuse the peer's certificate. */
int
dl_tls_keep_refusal(int is_valid, void *context)
{
    if (is_valid) {
        return is_valid;
    }
    void *ssl = dl_openssl.verify_data(context, dl_openssl.data_index());
    dl_tls_stream *stream = dl_openssl.data(ssl, DL_TLS_APP_DATA);
    void *certificate = dl_openssl.verify_certificate(context);
    char name[256] = "";
    size_t size = 0;

    if (certificate != NULL) {
        (void)dl_openssl.name_text(dl_openssl.subject(certificate), name, sizeof name);
    }
    stream->complaint[0] = '\0';
    dl_text_append_escaped(stream->complaint, sizeof stream->complaint, &size, name,
                           strlen(name));
    dl_text_append(stream->complaint, sizeof stream->complaint, &size, ": %s",
                   dl_openssl.verify_text(dl_openssl.verify_error(context)));
    return 0;
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
                 "authority (" DL_TLS_CA_FILE_VARIABLE ") has signed";
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

dl_status
dl_tls_fail_result(dl_tls_stream *stream, int result)
{
    int kind = dl_openssl.get_error(stream->ssl, result);
    int reason;

    if (stream->out.has_failed) {
        dl_openssl.clear_errors();
        return dl_fail_no_memory();
    }
    if (kind == DL_OPENSSL_WANT_READ) {
        return DL_OK;
    }
    if (kind == DL_OPENSSL_CLOSED) {
        dl_openssl.clear_errors();
        return dl_fail(DL_CLOSED, "the peer closed the connection");
    }
    const char *text = dl_tls_take_error(&reason);
    return stream->is_up ? fail_record(stream, reason, text)
                         : fail_handshake(stream, reason, text);
}

dl_status
dl_tls_fail_unproved(const dl_tls_stream *stream)
{
    return dl_fail(DL_DENIED, "the %s has not proved that it knows the token: %s",
                   peer_of(stream), remedy_of(stream));
}

dl_status
dl_tls_fail_greeting(const dl_tls_stream *stream)
{
    return dl_fail(
        DL_PROTOCOL,
        "the %s has sent %zu bytes without completing the TLS handshake; the "
        "limit is %u",
        peer_of(stream), stream->greeted, DL_TLS_HANDSHAKE_LIMIT);
}
