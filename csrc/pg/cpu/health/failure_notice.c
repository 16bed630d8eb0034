/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/failure_notice.h"

#include <string.h>

dl_head
dl_failure_notice_head(const dl_error *cause)
{
    return (dl_head){.kind = DL_HEAD_FAREWELL,
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
dl_failure_notice_fail(const dl_peer *peer, int rank, const dl_head *head,
                       const uint8_t *text)
{
    uint32_t limit = DL_ERROR_TEXT_SIZE - 1;
    bool is_failure = head->root != DL_OK && head->root <= DL_INTERNAL;
    dl_error cause = {.status = is_failure ? (dl_status)head->root : DL_PROTOCOL};
    char name[DL_PEER_TEXT_SIZE];

    memcpy(cause.text, text, head->size < limit ? head->size : limit);
    if (cause.status == DL_CLOSED) {
        dl_peer_describe(peer, rank, name);
        return dl_fail(DL_PEER_LOST, "%s left the group", name);
    }
    return dl_peer_fail_gave_up(peer, rank, &cause);
}
