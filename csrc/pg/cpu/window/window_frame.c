/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_frame.h"

#include <string.h>

#include "pg/window_part.h"
#include "tensor/reduce.h"

/* What the requests for an access carry, by their kind. */
static const struct {
    dl_access_kind access;
    int inputs; /* of the access's size each */
    bool has_output;
} accesses[] = {
    [DL_WINDOW_PUT] = {DL_ACCESS_PUT, 1, false},
    [DL_WINDOW_GET] = {DL_ACCESS_GET, 0, true},
    [DL_WINDOW_UPDATE] = {DL_ACCESS_UPDATE, 1, false},
    [DL_WINDOW_FETCH] = {DL_ACCESS_UPDATE, 1, true},
    [DL_WINDOW_SWAP] = {DL_ACCESS_SWAP, 2, true},
};

bool
dl_window_frame_is_answered(uint8_t kind)
{
    return kind > DL_WINDOW_SWAP || accesses[kind].has_output;
}

bool
dl_window_frame_is_request(const dl_head *head)
{
    return head->kind == DL_HEAD_WINDOW && head->detail >= DL_WINDOW_PUT
           && head->detail <= DL_WINDOW_FLUSH;
}

size_t
dl_window_frame_put_closed(uint8_t frame[DL_HEAD_SIZE])
{
    dl_head_put(frame, &(dl_head){.kind = DL_HEAD_WINDOW,
                                  .detail = DL_WINDOW_FAILED,
                                  .root = DL_CLOSED});
    return DL_HEAD_SIZE;
}

static uint8_t
frame_of(const dl_access *access)
{
    uint8_t kind = DL_WINDOW_PUT;

    while (accesses[kind].access != access->kind
           || (kind == DL_WINDOW_UPDATE && access->output != NULL)) {
        kind++;
    }
    return kind;
}

static uint64_t
payload_size(const dl_access *access)
{
    uint64_t size = access->size;

    return (access->input == NULL ? 0 : size) + (access->compared == NULL ? 0 : size);
}

dl_head
dl_window_frame_of(const dl_access *access)
{
    dl_head head = {
        .kind = DL_HEAD_WINDOW,
        .detail = frame_of(access),
        .size = (uint32_t)payload_size(access),
        .tag = (int64_t)access->offset,
        .total = access->size,
    };

    if (access->kind == DL_ACCESS_UPDATE) {
        head.root = (uint32_t)access->update;
        memcpy(&head.length, &access->factor, sizeof head.length);
    }
    return head;
}

/* Returns whether the dtype has this update. */
static bool
is_update(uint32_t update, const dl_window_memory *memory)
{
    if (update == DL_UPDATE_REPLACE || update == DL_UPDATE_NOTHING) {
        return true;
    }
    return update < DL_REDUCE_OP_COUNT && update != DL_AVG
           && !dl_reduce_op_has_reducer((dl_reduce_op)update)
           && dl_reduce_kernel((dl_reduce_op)update, dl_reduce_dtype(memory->dtype))
                  != NULL;
}

/* The bounds of an access, and its size in elements where these stay whole. */
static bool
is_inside(const dl_head *head, const dl_window_memory *memory)
{
    uint64_t offset = (uint64_t)head->tag;
    size_t item = memory->item_size;
    bool is_whole = head->detail == DL_WINDOW_PUT || head->detail == DL_WINDOW_GET
                    || (item > 0 && offset % item == 0 && head->total % item == 0);

    return is_whole && head->tag >= 0 && head->total > 0 && head->total <= DL_PART_LIMIT
           && offset <= memory->size && head->total <= memory->size - offset;
}

static bool
is_sound(const dl_head *head, const dl_window_memory *memory)
{
    dl_access_kind kind = accesses[head->detail].access;
    uint64_t expected = (uint64_t)accesses[head->detail].inputs * head->total;

    if (kind == DL_ACCESS_UPDATE && !is_update(head->root, memory)) {
        return false;
    }
    if (kind == DL_ACCESS_UPDATE && head->root == DL_UPDATE_NOTHING) {
        expected = 0;
    }
    if (kind == DL_ACCESS_SWAP && head->total != memory->item_size) {
        return false;
    }
    return head->size == expected && is_inside(head, memory);
}

dl_status
dl_window_frame_access(const dl_head *head, const uint8_t *payload,
                       const dl_window_memory *memory, dl_access *access)
{
    if (!is_sound(head, memory)) {
        return dl_fail(DL_PROTOCOL,
                       "a request for %llu bytes of a window of %llu is not valid: the "
                       "ranks run different versions of distlite",
                       (unsigned long long)head->total,
                       (unsigned long long)memory->size);
    }
    *access = (dl_access){
        .kind = accesses[head->detail].access,
        .rank = memory->owner,
        .offset = (uint64_t)head->tag,
        .size = (size_t)head->total,
        .input = head->size == 0 ? NULL : payload,
        .compared = head->detail == DL_WINDOW_SWAP ? payload + head->total : NULL,
        .update = (int)head->root,
    };
    memcpy(&access->factor, &head->length, sizeof access->factor);
    return DL_OK;
}
