/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_session.h"

#include <string.h>

/* Limit of the wait for a latch on behalf of another rank.  Latches are held for
 * microseconds. */
#define LATCH_PATIENCE (2 * DL_SECOND)

void
dl_window_session_fini(dl_window_session *session)
{
    dl_buffer_fini(&session->out);
}

/* Appends an answer without payload; the caller appends that. */
static void
put_answer(dl_window_session *self, uint64_t id, uint8_t kind, uint32_t root,
           size_t size)
{
    uint8_t bytes[DL_HEAD_SIZE];

    dl_head_put(bytes, &(dl_head){
                           .kind = DL_HEAD_WINDOW,
                           .detail = kind,
                           .size = (uint32_t)size,
                           .root = root,
                           .id = id,
                       });
    dl_buffer_put(&self->out, (dl_bytes){bytes, sizeof bytes});
}

/* Answers a request that has failed, or keeps the failure for the next answer. */
static void
fail_request(dl_window_session *self, const dl_head *head)
{
    const dl_error *error = dl_last_error();
    dl_bytes text = dl_bytes_of(error->text);

    if (dl_window_frame_is_answered(head->detail)) {
        put_answer(self, head->id, DL_WINDOW_FAILED, (uint32_t)error->status,
                   text.size);
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
    put_answer(self, head->id, DL_WINDOW_DONE, 0, 0);
    return DL_OK;
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

/* The output is written right behind the head of the answer. */
static dl_status
carry_out_access(dl_window_session *self, const dl_window_served *window,
                 const dl_head *head, const uint8_t *payload)
{
    dl_deadline deadline = dl_deadline_after(LATCH_PATIENCE);
    dl_access access;

    DL_TRY(dl_window_frame_access(head, payload, window->memory, &access));
    if (!dl_window_frame_is_answered(head->detail)) {
        return dl_window_memory_access(window->memory, window->ranks, &access,
                                       deadline);
    }
    DL_TRY(dl_buffer_reserve(&self->out, DL_HEAD_SIZE + access.size));
    access.output = self->out.data + self->out.size + DL_HEAD_SIZE;
    DL_TRY(dl_window_memory_access(window->memory, window->ranks, &access, deadline));
    put_answer(self, head->id, DL_WINDOW_DONE, 0, access.size);
    self->out.size += access.size;
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
    if (self->late.status != DL_OK && dl_window_frame_is_answered(head->detail)) {
        return fail_late_request(self, window, head);
    }
    switch (head->detail) {
    case DL_WINDOW_LOCK:
        return take_lock(self, window, head);
    case DL_WINDOW_UNLOCK:
        DL_TRY(release_lock(self, window));
        put_answer(self, head->id, DL_WINDOW_DONE, 0, 0);
        return DL_OK;
    case DL_WINDOW_FLUSH:
        DL_TRY(dl_window_memory_check(window->memory, window->ranks));
        put_answer(self, head->id, DL_WINDOW_DONE, 0, 0);
        return DL_OK;
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
