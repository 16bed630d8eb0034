/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/tls_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/socket.h"

/* Bytes encrypted before they are sent: enough to be worth a system call, and few
 * enough to be in the cache still. */
#define PIECE ((size_t)128 << 10)

dl_status
dl_tls_socket_new(dl_tls *tls, bool is_server, int fd, dl_tls_socket **made)
{
    /* Not zeroed as a whole: `in` is large and its contents do not matter. */
    dl_tls_socket *self = malloc(sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    memset(self, 0, offsetof(dl_tls_socket, in));
    self->fd = fd;
    dl_status status = dl_tls_stream_new(tls, is_server, &self->stream);
    if (status != DL_OK) {
        free(self);
        return status;
    }
    *made = self;
    return DL_OK;
}

void
dl_tls_socket_free(dl_tls_socket *self)
{
    if (self != NULL) {
        dl_tls_stream_free(self->stream);
        free(self);
    }
}

bool
dl_tls_socket_wants_room(const dl_tls_socket *self)
{
    return dl_tls_output(self->stream).size > 0;
}

bool
dl_tls_socket_holds_input(const dl_tls_socket *self)
{
    return self->first < self->last || dl_tls_holds_plain(self->stream);
}

static dl_status
fail_errno(dl_tls_socket *self, int error)
{
    self->error = error;
    return dl_fail(DL_NETWORK, "%s", strerror(error));
}

dl_status
dl_tls_socket_flush(dl_tls_socket *self)
{
    dl_bytes left;

    while ((left = dl_tls_output(self->stream)).size > 0) {
        ssize_t sent =
            send(self->fd, left.data, left.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) {
            return DL_OK;
        }
        if (sent < 0 && errno != EINTR) {
            return fail_errno(self, errno);
        }
        dl_tls_sent(self->stream, sent > 0 ? (size_t)sent : 0);
    }
    return DL_OK;
}

/* Decrypts what is held.  After a failure the alert is sent as far as that is possible,
 * and the failure is returned. */
static dl_status
decrypt_held(dl_tls_socket *self, void *data, size_t room, size_t *size)
{
    dl_bytes cipher = {self->in + self->first, self->last - self->first};

    dl_status status = dl_tls_read(self->stream, &cipher, data, room, size);
    self->first = self->last - (uint32_t)cipher.size;
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        (void)dl_tls_socket_flush(self);
        self->error = 0;
        return dl_rethrow(&error);
    }
    return DL_OK;
}

/* Sends all of the output. */
static dl_status
send_output(dl_tls_socket *self, dl_deadline deadline)
{
    dl_bytes left = dl_tls_output(self->stream);
    struct iovec part = {(void *)left.data, left.size};

    if (left.size == 0) {
        return DL_OK;
    }
    dl_status status = dl_socket_write(self->fd, &part, 1, deadline);
    /* Writing consumes the part, also if it fails in the middle. */
    dl_tls_sent(self->stream, left.size - part.iov_len);
    return status;
}

/* Waits for ciphertext; what is held has been decrypted. */
static dl_status
receive_ciphertext(dl_tls_socket *self, dl_deadline deadline)
{
    struct iovec room = {self->in, sizeof self->in};
    size_t size;

    DL_TRY(dl_socket_read(self->fd, room, 1, deadline, &size));
    self->first = 0;
    self->last = (uint32_t)size;
    return DL_OK;
}

/* Reads up to an alert, which the peer may have sent before it closed the connection,
 * and returns its meaning; otherwise the failure to send, which tells less. */
static dl_status
prefer_alert(dl_tls_socket *self, dl_status status)
{
    dl_error error = *dl_last_error();
    uint8_t unused[256];
    size_t size;

    while (status == DL_NETWORK) {
        do {
            DL_TRY(decrypt_held(self, unused, sizeof unused, &size));
        } while (size > 0);
        if (receive_ciphertext(self, dl_deadline_after(0)) != DL_OK) {
            break;
        }
    }
    return dl_rethrow(&error);
}

dl_status
dl_tls_socket_greet(dl_tls_socket *self, dl_deadline deadline)
{
    uint8_t unused;
    size_t size;

    while (!dl_tls_is_up(self->stream)) {
        dl_status status = send_output(self, deadline);
        if (status != DL_OK) {
            return prefer_alert(self, status);
        }
        DL_TRY(receive_ciphertext(self, deadline));
        DL_TRY(decrypt_held(self, &unused, 0, &size));
    }
    return DL_OK;
}

/* Sends what dl_tls_socket_write() has encrypted, and marks that in the first part. */
static dl_status
send_piece(dl_tls_socket *self, struct iovec *parts, dl_deadline deadline)
{
    size_t size = dl_tls_output(self->stream).size;

    dl_status status = send_output(self, deadline);
    if (dl_tls_output(self->stream).size < size) {
        parts[0].iov_len = 0;
    }
    return status == DL_OK ? DL_OK : prefer_alert(self, status);
}

dl_status
dl_tls_socket_write(dl_tls_socket *self, struct iovec *parts, int count,
                    dl_deadline deadline)
{
    size_t room = PIECE;

    for (int i = 0; i < count; i++) {
        dl_bytes left = {parts[i].iov_base, parts[i].iov_len};
        while (left.size > 0) {
            size_t size = left.size < room ? left.size : room;
            DL_TRY(dl_tls_write(self->stream, (dl_bytes){left.data, size}));
            left = (dl_bytes){left.data + size, left.size - size};
            room -= size;
            if (room == 0) {
                DL_TRY(send_piece(self, parts, deadline));
                room = PIECE;
            }
        }
    }
    return send_piece(self, parts, deadline);
}

dl_status
dl_tls_socket_read(dl_tls_socket *self, struct iovec room, size_t least,
                   dl_deadline deadline, size_t *size)
{
    size_t got = 0;

    while (got < least) {
        size_t more = 0;
        DL_TRY(
            decrypt_held(self, (char *)room.iov_base + got, room.iov_len - got, &more));
        got += more;
        if (got < least) {
            DL_TRY(send_output(self, deadline));
            DL_TRY(receive_ciphertext(self, deadline));
        }
    }
    *size = got;
    return DL_OK;
}

dl_status
dl_tls_socket_receive(dl_tls_socket *self, void *data, size_t room, size_t *size)
{
    for (;;) {
        DL_TRY(decrypt_held(self, data, room, size));
        DL_TRY(dl_tls_socket_flush(self));
        if (*size > 0) {
            return DL_OK;
        }
        ssize_t got = recv(self->fd, self->in, sizeof self->in, MSG_DONTWAIT);
        if (got == 0) {
            return dl_fail(DL_CLOSED, "the peer closed the connection");
        }
        if (got < 0 && errno == EAGAIN) {
            return DL_OK;
        }
        if (got < 0 && errno != EINTR) {
            return fail_errno(self, errno);
        }
        self->first = 0;
        self->last = got > 0 ? (uint32_t)got : 0;
    }
}

dl_status
dl_tls_socket_send(dl_tls_socket *self, const struct iovec *parts, int count,
                   size_t *size)
{
    *size = 0;
    DL_TRY(dl_tls_socket_flush(self));
    if (!dl_tls_is_up(self->stream) || dl_tls_socket_wants_room(self)) {
        return DL_OK;
    }
    for (int i = 0; i < count && *size < PIECE; i++) {
        size_t most = PIECE - *size;
        size_t taken = parts[i].iov_len < most ? parts[i].iov_len : most;
        DL_TRY(dl_tls_write(self->stream, (dl_bytes){parts[i].iov_base, taken}));
        *size += taken;
    }
    return dl_tls_socket_flush(self);
}
