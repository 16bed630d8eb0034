/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_frame.h"

#include <string.h>

#define QUESTION_KEY DL_LITERAL("distlite/relay")

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

void
dl_relay_put_question(dl_buffer *out)
{
    const dl_bytes key = QUESTION_KEY;
    const dl_store_request check = {.op = DL_OP_CHECK, .keys = &key, .count = 1};

    dl_wire_put_request(out, &check, DL_LITERAL(""));
}

bool
dl_relay_is_question(const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes key;

    return request->op == DL_OP_CHECK && !request->is_checked && request->count == 1
           && dl_key_walk_next(&walk, &key, NULL) && dl_bytes_equal(key, QUESTION_KEY);
}

void
dl_relay_put_answer(dl_buffer *out, const uint8_t identity[DL_IDENTITY_SIZE])
{
    dl_put_u8(out, DL_WIRE_READY);
    dl_buffer_put(out, (dl_bytes){identity, DL_IDENTITY_SIZE});
}
