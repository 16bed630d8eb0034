/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/cpu/p2p/p2p_state.h"

static void
free_message(dl_work *work)
{
    dl_message *self = (dl_message *)(void *)work;

    dl_p2p_unref(self->engine);
    dl_work_fini(work);
    free(self->error);
    free(self);
}

static void
withdraw_message(dl_work *work)
{
    dl_message *self = (dl_message *)(void *)work;
    dl_p2p *engine = self->engine;

    if (engine->fork_generation != dl_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (self->state != DL_MESSAGE_ENDED) {
        dl_p2p_give_up(self, dl_p2p_fail_described(self));
    }
    dl_p2p_unlock_and_finish(engine);
}

static const dl_work_ops message_ops = {
    .wait = dl_p2p_wait,
    .withdraw = withdraw_message,
    .free = free_message,
};

/* Copies shape and strides, which may be on the caller's stack. */
static void
keep_layout(dl_message *self, const dl_tensor *tensor)
{
    size_t entries = (size_t)tensor->ndim;

    self->tensor = *tensor;
    if (!tensor->is_contiguous) {
        memcpy(self->layout, tensor->shape, entries * sizeof *self->layout);
        memcpy(self->layout + entries, tensor->strides, entries * sizeof *self->layout);
        self->tensor.shape = self->layout;
        self->tensor.strides = self->layout + entries;
    }
}

/* Sets what is read before it is set otherwise: clearing all of it would take a tenth of
 * the time of a small message. */
static void
init_message(dl_message *self, dl_p2p *engine, const dl_call *call, bool is_alone,
             dl_deadline deadline)
{
    self->work.op = call->op;
    self->work.source = -1;
    self->engine = engine;
    self->peer = call->peer;
    self->tag = call->tag;
    self->is_awaited = call->is_awaited;
    self->is_alone = is_alone;
    self->id = 0;
    self->tensor = call->tensor;
    self->size = dl_tensor_size(&call->tensor);
    self->total = 0;
    self->moved = 0;
    self->is_accepted = false;
    self->guard = call->guard;
    self->probed = call->probed;
    self->deadline = deadline;
    self->error = NULL;
}

/* Moves a message that outlasts its call from the caller's stack into memory of its own;
 * returns NULL if there is none. */
static dl_message *
move_to_heap(dl_message *near)
{
    size_t entries = near->tensor.is_contiguous ? 0 : 2 * (size_t)near->tensor.ndim;
    dl_message *self = malloc(sizeof *self + entries * sizeof(int64_t));

    if (self == NULL) {
        return NULL;
    }
    *self = *near;
    self->work = (dl_work){0};
    dl_work_init(&self->work, &message_ops, near->work.op);
    self->work.source = near->work.source;
    self->work.is_brief = self->size <= self->engine->chunk;
    keep_layout(self, &near->tensor);
    dl_reference_take(&self->engine->references);
    dl_list_replace(&near->node, &self->node);
    return self;
}

/* Forgets a message that cannot be carried on, for the thread's last error. */
static dl_status
abandon_message(dl_message *near)
{
    dl_error error = *dl_last_error();

    if (near->state != DL_MESSAGE_ENDED) {
        dl_p2p_give_up(near, error.status);
    }
    dl_list_remove(&near->node);
    free(near->error);
    return dl_rethrow(&error);
}

/* Has the message go on after its call, driven by its waiter or by the progress
 * thread. */
static dl_status
carry_on(dl_message *near, dl_work **work)
{
    dl_p2p *engine = near->engine;

    if (!near->is_awaited && near->state != DL_MESSAGE_ENDED
        && dl_p2p_thread_want(engine) != DL_OK) {
        return abandon_message(near);
    }
    dl_message *self = move_to_heap(near);
    if (self == NULL) {
        (void)dl_fail_no_memory();
        return abandon_message(near);
    }
    *work = &self->work;
    return DL_OK;
}

/* Ends a probe that checks only once and has found no message: with the reason if none
 * can come any more, else with DL_NOT_FOUND. */
static void
end_single_probe(dl_message *self)
{
    dl_p2p_end_failed(self->engine);
    if (self->state != DL_MESSAGE_ENDED) {
        dl_p2p_end(self, dl_fail(DL_NOT_FOUND, "no such message has arrived"));
    }
}

static void
post_send(dl_message *self)
{
    dl_p2p *engine = self->engine;

    self->id = ++engine->last_id;
    self->state = DL_MESSAGE_QUEUED;
    self->total = self->size;
    dl_list_append(&engine->peers[self->peer].queued, &self->node);
    if (dl_p2p_is_gone_here(engine, self->peer)) {
        dl_p2p_end_if_failed(self);
    }
    if (self->state != DL_MESSAGE_ENDED) {
        dl_p2p_put(self);
    }
}

/* Returns true if a frame from `peer`, which may be DL_ANY_RANK, may have arrived. */
static bool
may_have_come(const dl_p2p *engine, int peer)
{
    return peer == DL_ANY_RANK || !dl_p2p_is_here(&engine->peers[peer])
           || dl_ring_has_frame(&engine->peers[peer].rings.in);
}

/* How often an awaited receive polls the ring, while nothing of the rank has arrived:
 * about as long as a message takes between two cores, and as the peer takes to pickle
 * and load small objects.  Behind one of several messages others wait to be sent. */
#define RING_POLLS 5000
#define RING_POLLS_OF_SEVERAL 500

/* Polls for an awaited receive, without the lock. */
static void
poll_ring(dl_message *self)
{
    dl_p2p *engine = self->engine;
    const dl_ring *in = &engine->peers[self->peer].rings.in;
    int polls = self->is_alone ? RING_POLLS : RING_POLLS_OF_SEVERAL;

    dl_list_remove(&self->node);
    pthread_mutex_unlock(&engine->lock);
    for (int i = 0; i < polls && !dl_ring_seems_to_have_frame(in); i++) {
    }
    pthread_mutex_lock(&engine->lock);
    dl_list_append(&engine->posted, &self->node);
    if (engine->is_aborted) {
        dl_p2p_end_if_failed(self);
    } else {
        dl_p2p_match_posted(self);
    }
}

/* Takes what is there.  The bytes of an EAGER message go straight into the array.
 * Before any other frame is matched, the CANCELs behind it are processed: a send that
 * was cancelled before this receive was posted must not match it. */
static void
take_present(dl_message *self)
{
    dl_p2p *engine = self->engine;

    if (self->state == DL_MESSAGE_POSTED) {
        dl_p2p_take_eager(self);
    }
    if (self->state == DL_MESSAGE_POSTED && may_have_come(engine, self->peer)) {
        dl_list_remove(&self->node);
        dl_p2p_begin(engine);
        dl_list_append(&engine->posted, &self->node);
        dl_p2p_match_posted(self);
    }
}

static void
post_receive(dl_message *self)
{
    dl_p2p *engine = self->engine;
    bool may_poll = self->is_awaited && self->peer != DL_ANY_RANK
                    && dl_p2p_is_here(&engine->peers[self->peer])
                    && engine->options.board->waiter.spin > 0;

    if (!dl_list_is_empty(&engine->arrivals)) {
        dl_p2p_begin(engine);
    }
    self->state = DL_MESSAGE_POSTED;
    dl_list_append(&engine->posted, &self->node);
    dl_p2p_match_posted(self);
    take_present(self);
    if (self->state == DL_MESSAGE_POSTED && may_poll) {
        poll_ring(self);
        take_present(self);
    }
}

/* The caller of an awaited message needs no work of one that has ended well, unless it
 * asks for the source. */
static dl_status
give_ended(dl_message *near, const dl_call *call, dl_work **work)
{
    bool needs_work =
        !(call->is_awaited || call->is_work_optional) || call->peer == DL_ANY_RANK;

    dl_list_remove(&near->node);
    *work = needs_work ? dl_work_new_ended(call->op, near->work.source) : NULL;
    return needs_work && *work == NULL ? dl_fail_no_memory() : DL_OK;
}

/* Most messages end here, and never leave the stack.  Requires the lock. */
static dl_status
post_to_peer(dl_p2p *engine, const dl_call *call, bool is_alone, dl_deadline deadline,
             dl_work **work)
{
    dl_message near;

    if (engine->is_aborted) {
        return dl_rethrow(&engine->cause);
    }
    DL_TRY(dl_p2p_open(engine));
    DL_TRY(dl_p2p_open_links(engine, call->peer));
    init_message(&near, engine, call, is_alone, deadline);
    engine->pending++;
    if (call->op == DL_SEND) {
        post_send(&near);
    } else {
        post_receive(&near);
    }
    if (call->probed != NULL && !call->is_awaited && near.state != DL_MESSAGE_ENDED) {
        end_single_probe(&near);
    }
    return near.state == DL_MESSAGE_ENDED && near.status == DL_OK
               ? give_ended(&near, call, work)
               : carry_on(&near, work);
}

dl_status
dl_p2p_post_all(dl_p2p *engine, const dl_call *calls, int count, dl_deadline deadline,
                dl_work **works, int *posted)
{
    dl_status status = DL_OK;
    int i = 0;

    dl_blocking_lock(&engine->lock);
    while (
        i < count
        && (status = post_to_peer(engine, &calls[i], count == 1, deadline, &works[i]))
               == DL_OK) {
        i++;
    }
    *posted = i;
    if (status == DL_OK) {
        dl_p2p_unlock_and_finish(engine);
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    dl_p2p_unlock_and_finish(engine);
    return dl_rethrow(&error);
}

dl_status
dl_p2p_post(dl_p2p *engine, const dl_call *call, dl_deadline deadline, dl_work **work)
{
    int posted;

    return dl_p2p_post_all(engine, call, 1, deadline, work, &posted);
}
