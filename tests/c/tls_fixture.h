/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TLS configurations with the key of a token, and pairs of streams over memory. */
#ifndef DISTLITE_TESTS_TLS_FIXTURE_H
#define DISTLITE_TESTS_TLS_FIXTURE_H

#include "base/buffer.h"
#include "check.h"
#include "net/tls.h"

DL_CHECK_UNUSED static dl_tls *
tls_of(const char *token, const char *purpose)
{
    dl_secret *secret = NULL;
    dl_tls *tls = NULL;

    CHECK_OK(dl_secret_new(dl_bytes_of(token), &secret));
    CHECK_OK(dl_tls_new(DL_TLS_PSK, purpose, secret, &tls));
    dl_secret_unref(secret);
    return tls;
}

typedef struct ends {
    dl_tls_stream *client;
    dl_tls_stream *server;
} ends;

/* Takes over both references. */
DL_CHECK_UNUSED static ends
ends_of(dl_tls *client, dl_tls *server)
{
    ends made = {0};

    CHECK_OK(dl_tls_stream_new(client, false, &made.client));
    CHECK_OK(dl_tls_stream_new(server, true, &made.server));
    dl_tls_unref(client);
    dl_tls_unref(server);
    return made;
}

DL_CHECK_UNUSED static void
free_ends(ends pair)
{
    dl_tls_stream_free(pair.client);
    dl_tls_stream_free(pair.server);
}

/* Carries what `from` has to send to `to`, and appends the plaintext to `plain`, which
 * may be NULL if there is none. */
DL_CHECK_UNUSED static dl_status
carry(dl_tls_stream *from, dl_tls_stream *to, dl_buffer *plain)
{
    static uint8_t room[64 << 10];
    dl_bytes cipher = dl_tls_output(from);
    size_t all = cipher.size;
    size_t size;

    do {
        DL_TRY(dl_tls_read(to, &cipher, room, sizeof room, &size));
        if (plain != NULL) {
            dl_buffer_put(plain, (dl_bytes){room, size});
        } else {
            CHECK_EQUAL(size, 0);
        }
    } while (size == sizeof room);
    CHECK_EQUAL(cipher.size, 0);
    dl_tls_sent(from, all);
    return DL_OK;
}

/* Completes the handshake. */
DL_CHECK_UNUSED static ends
joined_ends(void)
{
    ends pair = ends_of(tls_of("token", "store"), tls_of("token", "store"));

    CHECK_OK(carry(pair.client, pair.server, NULL));
    CHECK_OK(carry(pair.server, pair.client, NULL));
    CHECK(dl_tls_is_up(pair.client) && !dl_tls_is_up(pair.server));
    CHECK_OK(carry(pair.client, pair.server, NULL));
    CHECK(dl_tls_is_up(pair.server));
    return pair;
}

#endif
