/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A man in the middle of a TLS connection.  The input is a list of pieces, each a byte and
 * up to 63 bytes of noise: bit 0 of the first byte says to which side it goes (1: the
 * server), bits 1 to 6 how much noise there is.  With bit 7 the piece is what the other
 * side has to say, and the noise is an offset of two bytes and what is added to the
 * message there bit by bit; else it is the noise alone.  No side ever reads anything but
 * the beginning of what the other one has written. */
#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "net/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROUNDS 64

typedef struct side {
    dl_tls_stream *stream;
    dl_bytes text; /* what it writes once it is up */
    bool has_written;
    size_t heard; /* bytes of the other side's text */
} side;

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static dl_tls *
shared_tls(void)
{
    static dl_tls *tls;
    dl_secret *secret = NULL;

    if (tls == NULL) {
        require(dl_secret_new(DL_LITERAL("token"), &secret) == DL_OK);
        require(dl_tls_new(DL_TLS_PSK, "store", secret, &tls) == DL_OK);
        dl_secret_unref(secret);
    }
    return tls;
}

static void
hear(side *to, const side *from, dl_bytes cipher)
{
    uint8_t plain[64];
    size_t size;

    do {
        if (dl_tls_read(to->stream, &cipher, plain, sizeof plain, &size) != DL_OK) {
            return;
        }
        require(to->heard + size <= from->text.size);
        require(size == 0 || memcmp(from->text.data + to->heard, plain, size) == 0);
        to->heard += size;
    } while (size == sizeof plain);
}

/* Takes what `from` has to say, with `noise` added. */
static void
take_message(side *from, dl_bytes noise, dl_buffer *message)
{
    if (dl_tls_is_up(from->stream) && !from->has_written) {
        from->has_written = true;
        (void)dl_tls_write(from->stream, from->text);
    }
    dl_bytes output = dl_tls_output(from->stream);
    dl_buffer_put(message, output);
    dl_tls_sent(from->stream, output.size);
    size_t offset = noise.size < 2 ? 0 : (size_t)noise.data[0] << 8 | noise.data[1];
    for (size_t i = 2; i < noise.size && offset + i - 2 < message->size; i++) {
        message->data[offset + i - 2] ^= noise.data[i];
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    side sides[] = {{.text = DL_LITERAL("the answer")},
                    {.text = DL_LITERAL("question")}};
    dl_buffer message = {0};

    require(dl_tls_stream_new(shared_tls(), true, &sides[0].stream) == DL_OK);
    require(dl_tls_stream_new(shared_tls(), false, &sides[1].stream) == DL_OK);
    for (int i = 0; i < ROUNDS && size > 0; i++) {
        uint8_t head = data[0];
        size_t most = (head >> 1) & 63;
        dl_bytes noise = {data + 1, most < size - 1 ? most : size - 1};
        side *to = &sides[(head & 1) == 0];
        side *from = &sides[(head & 1) != 0];
        data += 1 + noise.size;
        size -= 1 + noise.size;
        dl_buffer_clear(&message);
        if ((head & 0x80) != 0) {
            take_message(from, noise, &message);
        } else {
            dl_buffer_put(&message, noise);
        }
        hear(to, from, dl_buffer_bytes(&message));
    }
    dl_buffer_fini(&message);
    dl_tls_stream_free(sides[0].stream);
    dl_tls_stream_free(sides[1].stream);
    return 0;
}
