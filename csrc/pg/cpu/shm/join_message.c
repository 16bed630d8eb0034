/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/join_message.h"

#include <string.h>

#include "base/reader.h"

#define MAGIC 0x314a4c44u /* "DLJ1" */

enum message_kind {
    INVITE = 1,
    ANSWER = 2,
    WELCOME = 3,
    REFUSAL = 4,
};

static void
put_join_head(dl_buffer *buffer, uint8_t kind)
{
    dl_put_u32(buffer, MAGIC);
    dl_put_u8(buffer, kind);
}

static bool
take_head(dl_reader *reader, dl_bytes bytes, uint8_t kind)
{
    uint32_t magic;
    uint8_t got;

    *reader = dl_reader_of(bytes);
    return dl_take_u32(reader, &magic) && dl_take_u8(reader, &got) && magic == MAGIC
           && got == kind;
}

static bool
is_at_end(const dl_reader *reader)
{
    return dl_reader_left(reader) == 0;
}

void
dl_put_invite(dl_buffer *buffer, const dl_invite *invite)
{
    put_join_head(buffer, INVITE);
    dl_put_bytes(buffer, invite->group_name);
    dl_put_u32(buffer, invite->rank);
    dl_put_bytes(buffer, (dl_bytes){invite->token, sizeof invite->token});
}

bool
dl_take_invite(dl_bytes bytes, dl_invite *invite)
{
    dl_reader reader;
    dl_bytes token;

    if (!take_head(&reader, bytes, INVITE)
        || dl_take_bytes(&reader, DL_PARCEL_SIZE, &invite->group_name) != 1
        || !dl_take_u32(&reader, &invite->rank)
        || dl_take_bytes(&reader, DL_TOKEN_SIZE, &token) != 1
        || token.size != DL_TOKEN_SIZE || !is_at_end(&reader)) {
        return false;
    }
    memcpy(invite->token, token.data, token.size);
    return true;
}

void
dl_put_answer(dl_buffer *buffer, const dl_cores *cores, const dl_records_digest *digest)
{
    put_join_head(buffer, ANSWER);
    dl_put_i64(buffer, cores->quota);
    for (int i = 0; i < DL_CORES_WORDS; i++) {
        dl_put_u64(buffer, cores->mask[i]);
    }
    for (int i = 0; i < DL_DIGEST_PARTS; i++) {
        dl_put_u64(buffer, digest->sums[i]);
        dl_put_u64(buffer, digest->weighted[i]);
    }
}

bool
dl_take_answer(dl_bytes bytes, dl_cores *cores, dl_records_digest *digest)
{
    dl_reader reader;

    if (!take_head(&reader, bytes, ANSWER) || !dl_take_i64(&reader, &cores->quota)) {
        return false;
    }
    for (int i = 0; i < DL_CORES_WORDS; i++) {
        if (!dl_take_u64(&reader, &cores->mask[i])) {
            return false;
        }
    }
    for (int i = 0; i < DL_DIGEST_PARTS; i++) {
        if (!dl_take_u64(&reader, &digest->sums[i])
            || !dl_take_u64(&reader, &digest->weighted[i])) {
            return false;
        }
    }
    return is_at_end(&reader);
}

void
dl_put_welcome(dl_buffer *buffer, const dl_welcome *welcome)
{
    put_join_head(buffer, WELCOME);
    dl_put_u64(buffer, welcome->memory_size);
    dl_put_u32(buffer, welcome->first);
    dl_put_u32(buffer, welcome->count);
}

bool
dl_take_welcome(dl_bytes bytes, dl_welcome *welcome)
{
    dl_reader reader;

    return take_head(&reader, bytes, WELCOME)
           && dl_take_u64(&reader, &welcome->memory_size)
           && dl_take_u32(&reader, &welcome->first)
           && dl_take_u32(&reader, &welcome->count) && is_at_end(&reader);
}

void
dl_put_refusal(dl_buffer *buffer, const dl_refusal *refusal)
{
    put_join_head(buffer, REFUSAL);
    dl_put_u32(buffer, refusal->status);
    dl_put_bytes(buffer, refusal->text);
}

bool
dl_take_refusal(dl_bytes bytes, dl_refusal *refusal)
{
    dl_reader reader;

    return take_head(&reader, bytes, REFUSAL) && dl_take_u32(&reader, &refusal->status)
           && dl_take_bytes(&reader, DL_ERROR_TEXT_SIZE, &refusal->text) == 1
           && is_at_end(&reader);
}
