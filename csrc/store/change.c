/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/change.h"

#include "base/deadline.h"

static bool
has_value(dl_change_kind kind)
{
    switch (kind) {
    case DL_CHANGE_SET:
    case DL_CHANGE_APPEND:
    case DL_CHANGE_PUSH:
    case DL_CHANGE_PUT_BACK:
    case DL_CHANGE_REPLY:
    case DL_CHANGE_END:
        return true;
    case DL_CHANGE_DELETE:
    case DL_CHANGE_POP:
    case DL_CHANGE_EMPTY:
    case DL_CHANGE_FORGET:
        break;
    }
    return false;
}

void
dl_change_put(dl_buffer *out, dl_change_kind kind, dl_bytes key, dl_bytes value)
{
    dl_put_u8(out, (uint8_t)kind);
    dl_put_bytes(out, key);
    if (has_value(kind)) {
        dl_put_bytes(out, value);
    }
}

void
dl_change_put_end(dl_buffer *out, dl_bytes key, int64_t at)
{
    dl_put_u8(out, DL_CHANGE_END);
    dl_put_bytes(out, key);
    dl_put_u64(out, sizeof at);
    dl_put_i64(out, (at + dl_wall_clock() - dl_now()) / DL_MILLISECOND);
}

int64_t
dl_change_end(const dl_change *change)
{
    dl_reader reader = dl_reader_of(change->value);
    int64_t at;

    if (!dl_take_i64(&reader, &at) || dl_reader_left(&reader) > 0 || at < 0
        || at > INT64_MAX / DL_MILLISECOND) {
        return -1;
    }
    at = at * DL_MILLISECOND + dl_now() - dl_wall_clock();
    return at > 0 ? at : 1;
}

int
dl_change_take(dl_reader *reader, dl_change *change)
{
    uint8_t kind;

    *change = (dl_change){0};
    if (!dl_take_u8(reader, &kind)) {
        return 0;
    }
    if (kind < DL_CHANGE_SET || kind > DL_CHANGE_LAST) {
        return -1;
    }
    change->kind = (dl_change_kind)kind;
    /* The map counts the bytes of a key in 32 bits. */
    if (dl_take_bytes(reader, UINT32_MAX, &change->key) != 1
        || (has_value(change->kind)
            && dl_take_bytes(reader, SIZE_MAX, &change->value) != 1)) {
        return -1;
    }
    return 1;
}
