/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_session.h"

#include <string.h>

#include "tensor/reduce.h"

/* Limit of the wait for a latch on behalf of another rank.  Latches are held for
 * microseconds. */
#define LATCH_PATIENCE (2 * DL_SECOND)

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
dl_window_is_answered(uint8_t kind)
{
    return kind > DL_WINDOW_SWAP || accesses[kind].has_output;
}

dl_head
dl_window_head_of(const dl_access *access)
{
    int inputs = (access->input != NULL) + (access->compared != NULL);
    dl_head head = {
        .kind = DL_HEAD_WINDOW,
        .detail = DL_WINDOW_PUT,
        .size = (uint32_t)(access->size * (size_t)inputs),
        .tag = (int64_t)access->offset,
        .total = access->size,
    };

    while (accesses[head.detail].access != access->kind
           || (head.detail == DL_WINDOW_UPDATE && access->output != NULL)) {
        head.detail++;
    }
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

/* Appends the head of an answer; the caller appends its payload. */
static dl_status
put_answer(dl_window_session *self, uint8_t kind, uint32_t root, size_t size)
{
    uint8_t bytes[DL_HEAD_SIZE];

    dl_head_put(bytes, &(dl_head){
                           .kind = DL_HEAD_WINDOW,
                           .detail = kind,
                           .size = (uint32_t)size,
                           .root = root,
                       });
    dl_buffer_put(&self->out, (dl_bytes){bytes, sizeof bytes});
    return DL_OK;
}

/* Answers a request that has failed, or keeps the failure for the next answer. */
static void
fail_request(dl_window_session *self, const dl_head *head)
{
    const dl_error *error = dl_last_error();
    dl_bytes text = dl_bytes_of(error->text);

    if (dl_window_is_answered(head->detail)) {
        (void)put_answer(self, DL_WINDOW_FAILED, (uint32_t)error->status, text.size);
        dl_buffer_put(&self->out, text);
    } else if (self->late.status == DL_OK) {
        self->late = *error;
    }
}

/* Blocks until the lock is granted or its limit has passed. */
static dl_status
take_lock(dl_window_session *self, const dl_window_served *window, const dl_head *head)
{
    dl_lock_request request = {
        .asker = self->caller,
        .is_shared = head->root != 0,
        .deadline = dl_deadline_after((int64_t)head->length),
        .check = self->check_wait,
        .context = self->context,
    };
    dl_status status = dl_window_memory_lock(window->memory, window->ranks, &request);

    if (status == DL_INTERRUPTED) {
        return DL_OK;
    }
    DL_TRY(status);
    return put_answer(self, DL_WINDOW_DONE, 0, 0);
}

/* A rank that has stopped waiting for the lock cannot know whether it was granted
 * meanwhile, and releases it all the same. */
static dl_status
release_lock(const dl_window_session *self, const dl_window_served *window)
{
    return dl_lock_queue_leave(&window->memory->head->queue, window->ranks,
                               window->memory->owner, self->caller,
                               dl_deadline_after(LATCH_PATIENCE));
}

/* An output is written right behind the head of the answer.  A request that is refused
 * with DL_PROTOCOL is none that a window of this version makes. */
static dl_status
carry_out_access(dl_window_session *self, const dl_window_served *window,
                 const dl_head *head, const uint8_t *payload)
{
    const dl_window_memory *memory = window->memory;
    dl_access access = {
        .kind = accesses[head->detail].access,
        .rank = memory->owner,
        .offset = (uint64_t)head->tag,
        .size = (size_t)head->total,
        .input = head->size == 0 ? NULL : payload,
        .update = (int)head->root,
    };
    bool has_output = accesses[head->detail].has_output;

    if (!is_sound(head, memory)) {
        return dl_fail(DL_PROTOCOL,
                       "a request for %llu bytes of a window of %llu is not valid: the "
                       "ranks run different versions of distlite",
                       (unsigned long long)head->total,
                       (unsigned long long)memory->size);
    }
    memcpy(&access.factor, &head->length, sizeof access.factor);
    if (head->detail == DL_WINDOW_SWAP) {
        access.compared = payload + head->total;
    }
    if (has_output) {
        DL_TRY(dl_buffer_reserve(&self->out, DL_HEAD_SIZE + access.size));
        access.output = self->out.data + self->out.size + DL_HEAD_SIZE;
    }
    DL_TRY(dl_window_memory_access(memory, window->ranks, &access,
                                   dl_deadline_after(LATCH_PATIENCE)));
    if (has_output) {
        (void)put_answer(self, DL_WINDOW_DONE, 0, access.size);
        self->out.size += access.size;
    }
    return DL_OK;
}

/* Fails with what an earlier request without an answer has failed with. */
static dl_status
fail_late_request(dl_window_session *self, const dl_window_served *window,
                  const dl_head *head)
{
    dl_error error = self->late;

    self->late = (dl_error){.status = DL_OK};
    if (head->detail == DL_WINDOW_UNLOCK) {
        (void)release_lock(self, window);
    }
    return dl_rethrow(&error);
}

static dl_status
carry_out_request(dl_window_session *self, const dl_window_served *window,
                  const dl_head *head, const uint8_t *payload)
{
    if (head->kind != DL_HEAD_WINDOW || head->detail < DL_WINDOW_PUT
        || head->detail > DL_WINDOW_FLUSH) {
        return dl_fail(DL_PROTOCOL, "a frame is not valid here");
    }
    if (self->late.status != DL_OK && dl_window_is_answered(head->detail)) {
        return fail_late_request(self, window, head);
    }
    switch (head->detail) {
    case DL_WINDOW_LOCK:
        return take_lock(self, window, head);
    case DL_WINDOW_UNLOCK:
        DL_TRY(release_lock(self, window));
        return put_answer(self, DL_WINDOW_DONE, 0, 0);
    case DL_WINDOW_FLUSH:
        DL_TRY(dl_window_memory_check(window->memory, window->ranks));
        return put_answer(self, DL_WINDOW_DONE, 0, 0);
    default:
        return carry_out_access(self, window, head, payload);
    }
}

dl_status
dl_window_session_answer(dl_window_session *session, const dl_window_served *window,
                         const dl_head *head, const uint8_t *payload)
{
    dl_status status = carry_out_request(session, window, head, payload);

    if (status == DL_PROTOCOL) {
        return status;
    }
    if (status != DL_OK) {
        fail_request(session, head);
    }
    return dl_buffer_check(&session->out);
}
