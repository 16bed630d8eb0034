/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/window_session.h"

#include <string.h>

/* Limit of the wait for a latch on behalf of another rank, in which no other rank is
 * served.  Latches are held for microseconds. */
#define LATCH_PATIENCE (2 * DL_SECOND)

void
dl_window_session_init(dl_window_session *session, int caller, const dl_list *windows)
{
    *session = (dl_window_session){.caller = caller, .windows = windows};
}

static dl_lock_queue *
queue_of(const dl_window_session *self)
{
    return &self->window->memory->head->queue;
}

static dl_deadline
latch_deadline(void)
{
    return dl_deadline_after(LATCH_PATIENCE);
}

/* Leaves the lock's queue, whether the lock was granted or not. */
static void
leave_lock_queue(dl_window_session *self)
{
    self->is_waiting = false;
    self->has_lock = false;
    if (self->window != NULL) {
        (void)dl_lock_queue_leave(queue_of(self), self->window->ranks,
                                  self->window->memory->owner, self->caller,
                                  latch_deadline());
    }
}

void
dl_window_session_fini(dl_window_session *session)
{
    if (session->is_waiting) {
        leave_lock_queue(session);
    } else if (session->has_lock && session->window != NULL) {
        dl_lock_queue_set_lost(queue_of(session), session->window->ranks,
                               session->window->memory->owner, session->caller, true);
    }
    dl_buffer_fini(&session->in);
    dl_buffer_fini(&session->aligned);
    dl_buffer_fini(&session->out);
}

void
dl_window_session_withdraw(dl_window_session *session, const dl_window_served *window)
{
    if (session->window == window) {
        if (session->is_waiting || session->has_lock) {
            leave_lock_queue(session);
        }
        session->window = NULL;
    }
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

/* Appends a failure of this request, or of an earlier one that had no answer. */
static void
put_failure(dl_window_session *self, uint64_t id, const dl_error *error)
{
    size_t size = strlen(error->text);

    put_answer(self, id, DL_WINDOW_FAILED, (uint32_t)error->status, size);
    dl_buffer_put(&self->out, (dl_bytes){(const uint8_t *)error->text, size});
}

/* Answers a request that has failed, or keeps the failure for the next answer. */
static void
fail_request(dl_window_session *self, const dl_head *head)
{
    const dl_error *error = dl_last_error();

    if (dl_window_frame_is_answered(head->detail)) {
        put_failure(self, head->id, error);
    } else if (self->late.status == DL_OK) {
        self->late = *error;
    }
}

/* Finds the window of the first request.  A rank whose connection had ended is back. */
static void
bind_window(dl_window_session *self, uint32_t number)
{
    const dl_list *windows = self->windows;

    self->is_bound = true;
    for (dl_list *node = windows->next; node != windows; node = node->next) {
        dl_window_served *window = DL_LIST_ENTRY(node, dl_window_served, node);
        if (window->number == number) {
            self->window = window;
            dl_lock_queue_set_lost(queue_of(self), window->ranks, window->memory->owner,
                                   self->caller, false);
        }
    }
}

/* Grants the lock if no other rank blocks the caller, and appends the answer once the
 * result is known. */
static void
try_lock(dl_window_session *self)
{
    bool is_granted;
    dl_status status = dl_lock_queue_try(
        queue_of(self), self->window->ranks, self->window->memory->owner, self->caller,
        self->lock_deadline, latch_deadline(), &is_granted);

    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        leave_lock_queue(self);
        put_failure(self, self->lock_id, &error);
    } else if (is_granted) {
        self->is_waiting = false;
        self->has_lock = true;
        put_answer(self, self->lock_id, DL_WINDOW_DONE, 0, 0);
    }
}

static dl_status
request_lock(dl_window_session *self, const dl_head *head)
{
    DL_TRY(dl_window_memory_check(self->window->memory, self->window->ranks));
    DL_TRY(dl_lock_queue_enter(queue_of(self), self->window->ranks,
                               self->window->memory->owner, self->caller,
                               head->root != 0, latch_deadline()));
    self->is_waiting = true;
    self->lock_id = head->id;
    self->lock_deadline = dl_deadline_after((int64_t)head->length);
    try_lock(self);
    return DL_OK;
}

/* A rank that has given up its wait for the lock, and cannot know whether it was granted
 * meanwhile, releases it all the same. */
static dl_status
release_lock(dl_window_session *self)
{
    if (self->is_waiting) {
        leave_lock_queue(self);
        return DL_OK;
    }
    DL_TRY(dl_lock_queue_release(queue_of(self), self->window->ranks,
                                 self->window->memory->owner, self->caller,
                                 latch_deadline()));
    self->has_lock = false;
    return DL_OK;
}

/* The output is written right behind the head of the answer. */
static dl_status
carry_out_access(dl_window_session *self, const dl_head *head, const uint8_t *payload)
{
    dl_access access;

    DL_TRY(dl_window_frame_access(head, payload, self->window->memory, &access));
    if (access.kind == DL_ACCESS_UPDATE && access.input != NULL) {
        DL_TRY(dl_buffer_set(&self->aligned, (dl_bytes){payload, head->size}));
        access.input = self->aligned.data;
    }
    if (!dl_window_frame_is_answered(head->detail)) {
        return dl_window_memory_access(self->window->memory, self->window->ranks,
                                       &access, latch_deadline());
    }
    DL_TRY(dl_buffer_reserve(&self->out, DL_HEAD_SIZE + access.size));
    access.output = self->out.data + self->out.size + DL_HEAD_SIZE;
    DL_TRY(dl_window_memory_access(self->window->memory, self->window->ranks, &access,
                                   latch_deadline()));
    put_answer(self, head->id, DL_WINDOW_DONE, 0, access.size);
    self->out.size += access.size;
    return DL_OK;
}

static dl_status
dispatch(dl_window_session *self, const dl_head *head, const uint8_t *payload)
{
    if (self->window == NULL) {
        return dl_fail(DL_CLOSED, "the window is closed there");
    }
    if (self->late.status != DL_OK && dl_window_frame_is_answered(head->detail)) {
        dl_error error = self->late;
        self->late = (dl_error){.status = DL_OK};
        if (head->detail == DL_WINDOW_UNLOCK) {
            (void)release_lock(self);
        }
        return dl_fail_again(&error);
    }
    switch (head->detail) {
    case DL_WINDOW_LOCK:
        return request_lock(self, head);
    case DL_WINDOW_UNLOCK:
        DL_TRY(release_lock(self));
        put_answer(self, head->id, DL_WINDOW_DONE, 0, 0);
        return DL_OK;
    case DL_WINDOW_FLUSH:
        DL_TRY(dl_window_memory_check(self->window->memory, self->window->ranks));
        put_answer(self, head->id, DL_WINDOW_DONE, 0, 0);
        return DL_OK;
    default:
        return carry_out_access(self, head, payload);
    }
}

dl_status
dl_window_session_step(dl_window_session *session)
{
    size_t at = 0;

    if (session->is_waiting && session->window != NULL) {
        try_lock(session);
    }
    while (session->in.size - at >= DL_HEAD_SIZE
           && session->out.size < DL_WINDOW_OUTPUT_LIMIT) {
        dl_head head;
        if (!dl_head_take(session->in.data + at, &head)
            || !dl_window_frame_is_request(&head)) {
            return dl_fail(DL_PROTOCOL, "a frame is not valid here");
        }
        if (session->in.size - at < DL_HEAD_SIZE + head.size) {
            break;
        }
        if (!session->is_bound) {
            bind_window(session, head.code);
        }
        if (session->window != NULL && session->window->number != head.code) {
            return dl_fail(DL_PROTOCOL, "a session is for one window");
        }
        dl_status status =
            dispatch(session, &head, session->in.data + at + DL_HEAD_SIZE);
        if (status == DL_PROTOCOL) {
            return status;
        }
        if (status != DL_OK) {
            fail_request(session, &head);
        }
        at += DL_HEAD_SIZE + head.size;
    }
    dl_buffer_consume(&session->in, at);
    return dl_buffer_check(&session->out);
}
