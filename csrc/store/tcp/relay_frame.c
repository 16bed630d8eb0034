/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_frame.h"

#include <string.h>

void
dl_relay_put_head(dl_buffer *out, dl_relay_kind kind, uint32_t channel, uint32_t size)
{
    dl_put_u32(out, channel);
    dl_put_u8(out, (uint8_t)kind);
    dl_put_u32(out, size);
}

dl_status
dl_relay_take_head(const uint8_t *bytes, dl_relay_head *head)
{
    dl_reader reader = dl_reader_of((dl_bytes){bytes, DL_RELAY_HEAD_SIZE});

    dl_take_u32(&reader, &head->channel);
    dl_take_u8(&reader, &head->kind);
    dl_take_u32(&reader, &head->size);
    if (head->kind < DL_RELAY_OPEN || head->kind > DL_RELAY_CLOSE
        || head->size > (head->kind == DL_RELAY_ACK ? 1 : DL_RELAY_DATA_LIMIT)
        || (head->kind != DL_RELAY_ACK
            && (head->size > 0)
                   != (head->kind == DL_RELAY_DATA || head->kind == DL_RELAY_GRANT))) {
        return dl_fail(DL_PROTOCOL, "a malformed frame of a relay: kind %u, size %u",
                       head->kind, head->size);
    }
    return DL_OK;
}

int
dl_relay_next(dl_relay_reader *reader, dl_bytes *bytes, dl_bytes *piece)
{
    if (bytes->size == 0) {
        return 0;
    }
    size_t wanted = reader->left > 0 ? reader->left
                                     : DL_RELAY_HEAD_SIZE - (size_t)reader->held_size;
    size_t size = bytes->size < wanted ? bytes->size : wanted;
    *piece = (dl_bytes){bytes->data, size};
    *bytes = (dl_bytes){bytes->data + size, bytes->size - size};
    if (reader->left > 0) {
        reader->left -= (uint32_t)size;
        return 1;
    }
    memcpy(reader->held + reader->held_size, piece->data, size);
    reader->held_size = (uint8_t)(reader->held_size + size);
    *piece = (dl_bytes){0};
    if (reader->held_size < DL_RELAY_HEAD_SIZE) {
        return 0;
    }
    reader->held_size = 0;
    if (dl_relay_take_head(reader->held, &reader->head) != DL_OK) {
        return -1;
    }
    reader->left = reader->head.kind == DL_RELAY_DATA ? reader->head.size : 0;
    return 1;
}
