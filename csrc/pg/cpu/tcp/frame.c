/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/tcp/frame.h"

#include <assert.h>
#include <string.h>

#include "base/reader.h"

void
dl_head_put(uint8_t bytes[DL_HEAD_SIZE], const dl_head *head)
{
    /* Large enough from the start, so that nothing is allocated. */
    dl_buffer buffer = {.data = bytes, .capacity = DL_HEAD_SIZE};

    dl_put_u32(&buffer, DL_HEAD_MAGIC);
    dl_put_u8(&buffer, head->kind);
    dl_put_u8(&buffer, head->detail);
    dl_put_u8(&buffer, head->dtype);
    dl_put_u8(&buffer, 0);
    dl_put_u32(&buffer, head->size);
    dl_put_u32(&buffer, head->root);
    dl_put_u32(&buffer, head->code);
    dl_put_u64(&buffer, head->id);
    dl_put_i64(&buffer, head->tag);
    dl_put_u64(&buffer, head->total);
    dl_put_u64(&buffer, head->length);
    assert(buffer.data == bytes && buffer.size == DL_HEAD_SIZE);
}

bool
dl_head_take(const uint8_t bytes[DL_HEAD_SIZE], dl_head *head)
{
    dl_reader reader = dl_reader_of((dl_bytes){bytes, DL_HEAD_SIZE});
    uint32_t magic;
    uint8_t unused;

    return dl_take_u32(&reader, &magic) && magic == DL_HEAD_MAGIC
           && dl_take_u8(&reader, &head->kind) && dl_take_u8(&reader, &head->detail)
           && dl_take_u8(&reader, &head->dtype) && dl_take_u8(&reader, &unused)
           && unused == 0 && dl_take_u32(&reader, &head->size)
           && dl_take_u32(&reader, &head->root) && dl_take_u32(&reader, &head->code)
           && dl_take_u64(&reader, &head->id) && dl_take_i64(&reader, &head->tag)
           && dl_take_u64(&reader, &head->total) && dl_take_u64(&reader, &head->length)
           && head->kind > 0 && head->kind < DL_HEAD_KIND_COUNT
           && head->size <= DL_PART_LIMIT;
}

dl_head
dl_failure_notice_head(const dl_error *cause)
{
    return (dl_head){.kind = DL_HEAD_NOTICE,
                     .size = (uint32_t)strlen(cause->text),
                     .root = (uint32_t)cause->status};
}

size_t
dl_failure_notice_put(uint8_t frame[DL_FAILURE_NOTICE_SIZE], const dl_error *cause)
{
    dl_head head = dl_failure_notice_head(cause);

    dl_head_put(frame, &head);
    memcpy(frame + DL_HEAD_SIZE, cause->text, head.size);
    return DL_HEAD_SIZE + head.size;
}

dl_status
dl_failure_notice_fail(const dl_peers *peers, int rank, const dl_head *head,
                       const uint8_t *text)
{
    uint32_t limit = DL_ERROR_TEXT_SIZE - 1;
    bool is_failure = head->root != DL_OK && head->root <= DL_STATUS_LAST;
    dl_error cause = {.status = is_failure ? (dl_status)head->root : DL_PROTOCOL};
    dl_peer peer = dl_peers_find(peers, rank);
    char name[DL_PEER_TEXT_SIZE];

    memcpy(cause.text, text, head->size < limit ? head->size : limit);
    if (cause.status == DL_CLOSED) {
        dl_peer_describe(&peer, rank, name);
        return dl_fail(DL_PEER_LOST, "%s left the group", name);
    }
    return dl_peer_fail_gave_up(&peer, rank, &cause);
}
