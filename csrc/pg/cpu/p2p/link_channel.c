/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/link_channel.h"

#include <stdlib.h>
#include <string.h>

#include "pg/cpu/peer.h"

static dl_link_channel *
link_channel_of(dl_channel *channel)
{
    return (dl_link_channel *)(void *)channel;
}

/* Overwrites an earlier cause: a notice that is read after the connection broke has
 * more information than the break itself. */
static void
lose_link(dl_link_channel *self)
{
    self->is_lost = true;
    self->cause = *dl_last_error();
}

void
dl_link_channel_check_host(dl_link_channel *channel)
{
    if (!channel->is_lost && dl_bundle_check_host(&channel->link) != DL_OK) {
        lose_link(channel);
    }
}

/* Moves the bytes to the front of the buffer. */
static void
compact_bytes(dl_link_bytes *bytes)
{
    if (bytes->start > 0) {
        memmove(bytes->data, bytes->data + bytes->start, bytes->end - bytes->start);
        bytes->end -= bytes->start;
        bytes->start = 0;
    }
}

/* Writes what the kernel accepts; a later step sends the rest. */
static dl_status
flush_output(dl_link_channel *self)
{
    dl_link_bytes *out = &self->out;

    while (out->start < out->end) {
        struct iovec part = {out->data + out->start, out->end - out->start};
        size_t sent;
        DL_TRY(dl_bundle_write(&self->link, &part, 1, &sent));
        if (sent == 0) {
            return DL_OK;
        }
        out->start += sent;
        self->flushed += sent;
    }
    out->start = 0;
    out->end = 0;
    return DL_OK;
}

/* A lost channel always has room: what can no longer be sent is dropped. */
static uint8_t *
reserve_payload(dl_channel *channel, size_t size)
{
    dl_link_channel *self = link_channel_of(channel);
    size_t span = DL_HEAD_SIZE + size;

    if (self->is_lost) {
        self->out.start = 0;
        self->out.end = 0;
    }
    if (self->out.end + span > DL_LINK_ROOM) {
        compact_bytes(&self->out);
    }
    bool has_room = self->out.end + span <= DL_LINK_ROOM;
    return has_room ? self->out.data + self->out.end + DL_HEAD_SIZE : NULL;
}

static void
publish_frame(dl_channel *channel, const dl_frame *frame)
{
    dl_link_channel *self = link_channel_of(channel);

    dl_head_put(self->out.data + self->out.end, &(dl_head){
                                                    .kind = DL_HEAD_MESSAGE,
                                                    .detail = frame->kind,
                                                    .dtype = frame->dtype,
                                                    .size = frame->size,
                                                    .code = frame->code,
                                                    .id = frame->id,
                                                    .tag = frame->tag,
                                                    .total = frame->total,
                                                });
    self->out.end += DL_HEAD_SIZE + frame->size;
    self->published += DL_HEAD_SIZE + frame->size;
    if (!self->is_lost && flush_output(self) != DL_OK) {
        lose_link(self);
    }
}

static dl_status
fail_with_notice(const dl_link_channel *self, const dl_head *head, const uint8_t *text)
{
    const dl_link_options *options = dl_bundle_options(&self->link);
    char peer[DL_PEER_TEXT_SIZE];
    int size = head->size < DL_ERROR_TEXT_SIZE ? (int)head->size : 0;

    dl_peers_describe(&options->peers, options->peer, peer);
    if (head->root == DL_CLOSED) {
        return dl_fail(DL_CLOSED, "%s left the group", peer);
    }
    size_t named = strlen(peer);
    bool is_named = (size_t)size >= named && memcmp(text, peer, named) == 0;
    dl_status status = head->root == DL_PROTOCOL ? DL_PROTOCOL : DL_PEER_LOST;
    return is_named ? dl_fail(status, "%.*s", size, (const char *)text)
                    : dl_fail(status, "%s: %.*s", peer, size, (const char *)text);
}

void
dl_link_channel_reject(dl_link_channel *channel)
{
    (void)dl_link_fail_protocol(dl_bundle_options(&channel->link));
    dl_error error = *dl_last_error();
    dl_link_channel_notify(channel, &error);
    (void)dl_rethrow(&error);
    lose_link(channel);
    channel->in.start = channel->in.end;
}

/* Converts `head` into self->frame.  Returns false, and the channel is lost, when it is
 * a notice or not a frame at all. */
static bool
decode_head(dl_link_channel *self, const dl_head *head, const uint8_t *contents)
{
    if (head->kind == DL_HEAD_MESSAGE && head->detail != 0
        && head->size <= UINT16_MAX) {
        self->frame = (dl_frame){
            .id = head->id,
            .tag = head->tag,
            .total = head->total,
            .size = (uint16_t)head->size,
            .kind = head->detail,
            .dtype = head->dtype,
            .code = head->code,
        };
        return true;
    }
    if (head->kind == DL_HEAD_NOTICE) {
        (void)fail_with_notice(self, head, contents);
        lose_link(self);
    } else {
        dl_link_channel_reject(self);
    }
    return false;
}

/* Also serves a lost channel: frames that came before the end of the connection are
 * delivered. */
static bool
peek_frame(dl_channel *channel, dl_received *received)
{
    dl_link_channel *self = link_channel_of(channel);
    const uint8_t *bytes = self->in.data + self->in.start;
    size_t ready = self->in.end - self->in.start;
    dl_head head;

    if (ready < DL_HEAD_SIZE) {
        return false;
    }
    if (!dl_head_take(bytes, &head) || head.size > DL_LINK_ROOM - DL_HEAD_SIZE) {
        /* A head that cannot be read is treated like one of a wrong kind, which
         * decode_head() rejects. */
        head = (dl_head){.kind = DL_HEAD_HELLO};
    }
    self->span = DL_HEAD_SIZE + head.size;
    if (ready < self->span || !decode_head(self, &head, bytes + DL_HEAD_SIZE)) {
        return false;
    }
    *received = (dl_received){&self->frame, bytes + DL_HEAD_SIZE};
    return true;
}

static void
release_channel(dl_channel *channel)
{
    dl_link_channel *self = link_channel_of(channel);

    self->in.start += self->span;
}

static const dl_channel_ops link_ops = {
    .reserve = reserve_payload,
    .publish = publish_frame,
    .peek = peek_frame,
    .release = release_channel,
};

/* Allocates the buffers at once: later, there is no caller to return a failure to. */
dl_status
dl_link_channel_new(const dl_link_options *options, const dl_tcp_contact *tcp,
                    dl_link_channel **channel)
{
    dl_link_channel *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->base.ops = &link_ops;
    made->out.data = malloc(DL_LINK_ROOM);
    made->in.data = malloc(DL_LINK_ROOM);
    if (made->out.data == NULL || made->in.data == NULL
        || dl_bundle_init(&made->link, options, tcp) != DL_OK) {
        dl_link_channel_free(made, false);
        return dl_fail_no_memory();
    }
    *channel = made;
    return DL_OK;
}

void
dl_link_channel_free(dl_link_channel *channel, bool is_inherited)
{
    if (channel == NULL) {
        return;
    }
    if (is_inherited) {
        dl_bundle_forget(&channel->link);
    } else {
        dl_bundle_fini(&channel->link);
    }
    free(channel->out.data);
    free(channel->in.data);
    free(channel);
}

/* Reads at most what the buffer has room for: a peer that sends faster than its
 * messages are matched is throttled by the kernel's buffers. */
static dl_status
receive_bytes(dl_link_channel *self)
{
    size_t got = 0;

    compact_bytes(&self->in);
    struct iovec part = {self->in.data + self->in.end, DL_LINK_ROOM - self->in.end};
    if (part.iov_len > 0) {
        DL_TRY(dl_bundle_read(&self->link, &part, 1, &got));
    }
    self->in.end += got;
    return DL_OK;
}

void
dl_link_channel_step(dl_link_channel *channel)
{
    if (channel->is_lost || !channel->is_wanted) {
        return;
    }
    if (dl_bundle_open(&channel->link) != DL_OK) {
        lose_link(channel);
        return;
    }
    /* A failed write is reported only after the read: data that came before the end
     * still counts. */
    dl_status status = flush_output(channel);
    dl_error error = *dl_last_error();
    if (receive_bytes(channel) != DL_OK) {
        lose_link(channel);
    } else if (status != DL_OK) {
        (void)dl_rethrow(&error);
        lose_link(channel);
    }
}

bool
dl_link_channel_is_free(const dl_link_channel *channel)
{
    return channel->link.is_open && !channel->is_lost
           && channel->out.start == channel->out.end;
}

size_t
dl_link_channel_owed(const dl_link_channel *channel)
{
    return channel->is_lost ? 0 : channel->out.end - channel->out.start;
}

/* Best effort: a peer that does not get the reason sees the connection end.  Nothing
 * can be sent in the middle of a frame. */
void
dl_link_channel_notify(dl_link_channel *channel, const dl_error *cause)
{
    if (channel->is_lost || !channel->link.is_open || flush_output(channel) != DL_OK) {
        return;
    }
    if (channel->out.start == channel->out.end) {
        dl_bundle_notify(&channel->link, cause);
    }
    dl_bundle_shutdown(&channel->link);
}

int
dl_link_channel_poll(const dl_link_channel *channel, struct pollfd *entries)
{
    bool has_output = channel->out.start < channel->out.end;

    if (channel->is_lost || !channel->is_wanted) {
        return 0;
    }
    return dl_bundle_poll(&channel->link,
                          (short)(has_output ? POLLIN | POLLOUT : POLLIN), entries);
}
