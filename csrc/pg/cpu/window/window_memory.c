/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_memory.h"

#include <string.h>

#include "pg/window_part.h"
#include "tensor/copy.h"
#include "tensor/reduce.h"

#define PAGE ((size_t)4096)

/* Bytes that are updated under one hold of the latch: some microseconds, after which
 * others get their turn. */
#define PIECE ((size_t)65536)

/* Elements that are widened, or scaled, at a time. */
#define TILE ((size_t)1024)

size_t
dl_window_head_size(int ranks)
{
    size_t size = sizeof(dl_window_head) + (size_t)ranks * sizeof(dl_lock_queue_entry);

    return dl_round_up(size, PAGE);
}

dl_status
dl_window_memory_check(const dl_window_memory *memory, const dl_window_ranks *ranks)
{
    DL_TRY(dl_window_ranks_check(ranks, memory->owner));
    return atomic_load_explicit(&memory->head->is_open, memory_order_acquire)
               ? DL_OK
               : dl_window_ranks_fail_closed(ranks, memory->owner);
}

/* The pages of an owner that has left while this rank waited are zeros, and so is the
 * queue. */
dl_status
dl_window_memory_lock(const dl_window_memory *memory, const dl_window_ranks *ranks,
                      const dl_lock_request *request)
{
    dl_lock_queue *queue = &memory->head->queue;

    DL_TRY(dl_window_memory_check(memory, ranks));
    DL_TRY(dl_lock_queue_take(queue, ranks, memory->owner, request));
    dl_status status = dl_window_memory_check(memory, ranks);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        (void)dl_lock_queue_leave(queue, ranks, memory->owner, request->asker,
                                  request->deadline);
        return dl_rethrow(&error);
    }
    return DL_OK;
}

/* Copies between the caller's memory and a window, which overlap if the caller passes a
 * part of its own window. */
static void
move_bytes(const dl_window_memory *memory, const dl_window_ranks *ranks, void *target,
           const void *source, size_t size)
{
    if (memory->owner == ranks->rank) {
        memmove(target, source, size);
    } else {
        dl_copy(target, source, size);
    }
}

/* Reduces a tile of a dtype that is computed in float32. */
static void
reduce_short_tile(const dl_window_memory *memory, const dl_access *access,
                  dl_reduce_fn kernel, uint8_t *target, const uint8_t *input,
                  size_t count)
{
    float left[TILE];
    float right[TILE];

    dl_reduce_widen(left, memory->dtype, target, count);
    dl_reduce_widen(right, memory->dtype, input, count);
    if (access->update == DL_PREMUL_SUM) {
        dl_reduce_scale(right, DL_FLOAT32, right, count, access->factor);
    }
    kernel(left, left, right, count);
    dl_reduce_narrow(target, memory->dtype, left, count);
}

static void
reduce_tile(const dl_window_memory *memory, const dl_access *access,
            dl_reduce_fn kernel, uint8_t *target, const uint8_t *input, size_t count)
{
    _Alignas(64) uint8_t scaled[TILE * 16];

    if (access->update == DL_PREMUL_SUM) {
        dl_reduce_scale(scaled, memory->dtype, input, count, access->factor);
        input = scaled;
    }
    kernel(target, target, input, count);
}

static void
reduce_into(const dl_window_memory *memory, const dl_access *access, uint8_t *target,
            const uint8_t *input, size_t size)
{
    dl_dtype computed = dl_reduce_dtype(memory->dtype);
    bool is_short = computed != memory->dtype;
    dl_reduce_fn kernel = dl_reduce_kernel((dl_reduce_op)access->update, computed);
    size_t count = size / memory->item_size;

    if (!is_short && access->update != DL_PREMUL_SUM) {
        kernel(target, target, input, count);
        return;
    }
    for (size_t at = 0; at < count; at += TILE) {
        size_t part = count - at < TILE ? count - at : TILE;
        size_t bytes = at * memory->item_size;
        if (is_short) {
            reduce_short_tile(memory, access, kernel, target + bytes, input + bytes,
                              part);
        } else {
            reduce_tile(memory, access, kernel, target + bytes, input + bytes, part);
        }
    }
}

/* Updates a piece with the latch held. */
static void
update_piece(const dl_window_memory *memory, const dl_window_ranks *ranks,
             const dl_access *access, size_t at, size_t size)
{
    uint8_t *target = memory->elements + access->offset + at;
    const uint8_t *input =
        access->input == NULL ? NULL : (const uint8_t *)access->input + at;

    if (access->output != NULL) {
        move_bytes(memory, ranks, (uint8_t *)access->output + at, target, size);
    }
    if (access->update == DL_UPDATE_REPLACE) {
        move_bytes(memory, ranks, target, input, size);
    } else if (access->update != DL_UPDATE_NOTHING) {
        reduce_into(memory, access, target, input, size);
    }
}

static dl_status
update_in_pieces(const dl_window_memory *memory, const dl_window_ranks *ranks,
                 const dl_access *access, dl_deadline deadline)
{
    dl_latch *latch = &memory->head->updates;
    size_t item = memory->item_size;
    size_t piece = item > PIECE ? item : PIECE / item * item;

    for (size_t at = 0; at < access->size; at += piece) {
        size_t size = access->size - at < piece ? access->size - at : piece;
        DL_TRY(dl_latch_take(latch, ranks, memory->owner, deadline));
        update_piece(memory, ranks, access, at, size);
        dl_latch_release(latch);
    }
    return DL_OK;
}

static dl_status
compare_and_swap(const dl_window_memory *memory, const dl_window_ranks *ranks,
                 const dl_access *access, dl_deadline deadline)
{
    uint8_t *target = memory->elements + access->offset;

    DL_TRY(dl_latch_take(&memory->head->updates, ranks, memory->owner, deadline));
    bool is_equal = memcmp(target, access->compared, access->size) == 0;
    move_bytes(memory, ranks, access->output, target, access->size);
    if (is_equal) {
        move_bytes(memory, ranks, target, access->input, access->size);
    }
    dl_latch_release(&memory->head->updates);
    return DL_OK;
}

dl_status
dl_window_memory_access(const dl_window_memory *memory, const dl_window_ranks *ranks,
                        const dl_access *access, dl_deadline deadline)
{
    uint8_t *elements = memory->elements + access->offset;

    DL_TRY(dl_window_memory_check(memory, ranks));
    switch (access->kind) {
    case DL_ACCESS_PUT:
        move_bytes(memory, ranks, elements, access->input, access->size);
        atomic_thread_fence(memory_order_release);
        return DL_OK;
    case DL_ACCESS_GET:
        atomic_thread_fence(memory_order_acquire);
        move_bytes(memory, ranks, access->output, elements, access->size);
        return DL_OK;
    case DL_ACCESS_UPDATE:
        return update_in_pieces(memory, ranks, access, deadline);
    case DL_ACCESS_SWAP:
        return compare_and_swap(memory, ranks, access, deadline);
    }
    return dl_fail(DL_INTERNAL, "access %d does not exist", (int)access->kind);
}
