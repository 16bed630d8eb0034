/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "net/tls_state.h"

/* After how many bytes the sender changes its key.  AES-GCM is safe for thousands of
 * times as many; a change costs microseconds, and frequent changes keep the code for
 * them exercised. */
#define KEY_BYTES ((uint64_t)64 << 20)

/* Capacity that an output keeps when all of it is sent. */
#define KEPT_CAPACITY ((size_t)64 << 10)

/* What a record adds: a head, a type and the code that authenticates it. */
#define RECORD_EXTRA (5 + 1 + 16)

static dl_status
continue_handshake(dl_tls_stream *stream)
{
    size_t before = stream->in.size;

    dl_openssl.clear_errors();
    int result = dl_openssl.handshake(stream->ssl);
    stream->greeted += before - stream->in.size;
    if (result == 1) {
        /* Only a safeguard: OpenSSL has no other way to complete a handshake in this
         * mode. */
        if (stream->tls->mode == DL_TLS_PSK && dl_openssl.used_psk(stream->ssl) != 1) {
            return dl_tls_fail_unproved(stream);
        }
        stream->is_up = true;
        return DL_OK;
    }
    DL_TRY(dl_tls_fail_result(stream, result));
    return stream->greeted > DL_TLS_HANDSHAKE_LIMIT ? dl_tls_fail_greeting(stream)
                                                    : DL_OK;
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
    dl_status status = dl_tls_open(made);
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
    if (stream->ssl != NULL && !dl_tls_is_inherited(stream->tls)) {
        dl_openssl.free(stream->ssl); /* and its BIO */
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
        dl_openssl.clear_errors();
        int result = dl_openssl.read(stream->ssl, plain + *size, room - *size, &got);
        if (result != 1) {
            return dl_tls_fail_result(stream, result);
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
    dl_openssl.free(stream->ssl);
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
        return dl_rethrow(stream->failure);
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
    return stream->failure == NULL && dl_openssl.pending(stream->ssl) > 0;
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
    return dl_openssl.key_update(stream->ssl, DL_OPENSSL_KEY_UPDATE_OWN) == 1
               ? DL_OK
               : dl_tls_fail_openssl("failed to change the key");
}

static dl_status
write_some(dl_tls_stream *stream, dl_bytes plain, size_t *size)
{
    dl_openssl.clear_errors();
    int result = dl_openssl.write(stream->ssl, plain.data, plain.size, size);
    if (result == 1) {
        return count_written(stream, *size);
    }
    DL_TRY(dl_tls_fail_result(stream, result));
    return dl_fail(DL_INTERNAL, "OpenSSL requires input before it encrypts");
}

dl_status
dl_tls_write(dl_tls_stream *stream, dl_bytes plain)
{
    if (stream->failure != NULL) {
        return dl_rethrow(stream->failure);
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
