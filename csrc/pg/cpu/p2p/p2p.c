/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/p2p.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/p2p/p2p_runner.h"
#include "pg/cpu/p2p/p2p_state.h"

/* Large enough that two cores stream through it without waiting for each other, small
 * enough to stay in a cache; less where many ranks would need many of them. */
static size_t
capacity_for(int size)
{
    return size <= 16   ? (size_t)256 << 10
           : size <= 64 ? (size_t)64 << 10
                        : (size_t)16 << 10;
}

size_t
dl_p2p_memory(int size)
{
    size_t ranks = (size_t)size;

    return ranks * sizeof(dl_doorbell)
           + ranks * ranks * dl_ring_memory(capacity_for(size));
}

static void
free_engine(dl_p2p *engine)
{
    for (int rank = 0; engine->peers != NULL && rank < engine->size; rank++) {
        dl_buffer_fini(&engine->peers[rank].controls);
    }
    while (!dl_list_is_empty(&engine->arrivals)) {
        dl_list *node = engine->arrivals.next;
        dl_list_remove(node);
        free(DL_LIST_ENTRY(node, dl_arrival, node));
    }
    pthread_cond_destroy(&engine->left);
    pthread_mutex_destroy(&engine->lock);
    free(engine->peers);
    free(engine);
}

void
dl_p2p_unref(dl_p2p *engine)
{
    if (atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) == 1) {
        free_engine(engine);
    }
}

static void
open_rings(dl_p2p *engine, void *memory)
{
    size_t capacity = capacity_for(engine->size);
    size_t step = dl_ring_memory(capacity);
    uint8_t *rings = (uint8_t *)memory + (size_t)engine->size * sizeof(dl_doorbell);

    for (int rank = 0; rank < engine->size; rank++) {
        dl_p2p_peer *peer = &engine->peers[rank];
        size_t out = (size_t)engine->rank * (size_t)engine->size + (size_t)rank;
        size_t in = (size_t)rank * (size_t)engine->size + (size_t)engine->rank;
        dl_ring_open(&peer->out, rings + out * step, capacity);
        dl_ring_open(&peer->in, rings + in * step, capacity);
        dl_list_init(&peer->queued);
        dl_list_init(&peer->streaming);
    }
    engine->eager = capacity / 16;
    engine->chunk = capacity / 8;
}

dl_status
dl_p2p_new(const dl_board *board, void *memory, dl_p2p **made)
{
    dl_p2p *engine = calloc(1, sizeof *engine);

    if (engine == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&engine->references, 1);
    engine->board = board;
    engine->fork_generation = dl_fork_generation();
    engine->rank = board->options.rank;
    engine->size = board->options.size;
    engine->bells = memory;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->left, NULL);
    dl_list_init(&engine->offered);
    dl_list_init(&engine->posted);
    dl_list_init(&engine->filling);
    dl_list_init(&engine->arrivals);
    dl_list_init(&engine->ended);
    engine->peers = calloc((size_t)engine->size, sizeof *engine->peers);
    if (engine->peers == NULL) {
        free_engine(engine);
        return dl_fail_no_memory();
    }
    open_rings(engine, memory);
    *made = engine;
    return DL_OK;
}

static void
free_message(dl_work *work)
{
    dl_message *self = (dl_message *)(void *)work;

    dl_p2p_unref(self->engine);
    dl_work_fini(work);
    free(self->error);
    free(self);
}

static const dl_work_ops message_ops = {
    .wait = dl_p2p_wait,
    .withdraw = dl_p2p_withdraw,
    .free = free_message,
};

/* Shape and strides may lie in the caller's frame. */
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

static dl_message *
new_message(dl_p2p *engine, dl_op_type op, const dl_message_args *args)
{
    const dl_tensor *tensor = &args->tensor;
    size_t entries = tensor->is_contiguous ? 0 : 2 * (size_t)tensor->ndim;
    dl_message *self = malloc(sizeof *self + entries * sizeof(int64_t));

    if (self == NULL) {
        return NULL;
    }
    *self = (dl_message){.engine = engine, .peer = args->peer, .tag = args->tag};
    dl_work_init(&self->work, &message_ops, op);
    keep_layout(self, tensor);
    self->size = dl_tensor_size(tensor);
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
    return self;
}

static void
start(dl_message *self)
{
    dl_p2p *engine = self->engine;

    engine->pending++;
    self->id = ++engine->last_id;
    if (self->work.op == DL_SEND) {
        self->state = DL_MESSAGE_QUEUED;
        self->total = self->size;
        dl_list_append(&engine->peers[self->peer].queued, &self->node);
    } else {
        self->state = DL_MESSAGE_POSTED;
        dl_list_append(&engine->posted, &self->node);
        dl_p2p_match_posted(self);
    }
}

dl_status
dl_p2p_post(dl_p2p *engine, dl_op_type op, const dl_message_args *args,
            dl_deadline deadline, dl_work **work)
{
    dl_message *self = new_message(engine, op, args);
    dl_status status = DL_OK;

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->deadline = deadline;
    pthread_mutex_lock(&engine->lock);
    if (engine->is_aborted) {
        status = dl_fail_again(&engine->cause);
    } else if (!args->is_awaited) {
        status = dl_p2p_runner_want(engine);
    }
    if (status != DL_OK) {
        pthread_mutex_unlock(&engine->lock);
        free_message(&self->work);
        return status;
    }
    if (op == DL_SEND) {
        start(self);
        dl_p2p_progress(engine);
    } else {
        /* What was sent and cancelled before is not received. */
        dl_p2p_progress(engine);
        start(self);
    }
    *work = &self->work;
    dl_p2p_unlock_and_finish(engine);
    return DL_OK;
}

void
dl_p2p_abort(dl_p2p *engine, const dl_error *cause)
{
    pthread_mutex_lock(&engine->lock);
    if (!engine->is_aborted && !engine->is_closed) {
        engine->cause = *cause;
        engine->is_aborted = true;
        dl_p2p_ring(engine, engine->rank);
        dl_p2p_runner_nudge(engine);
    }
    pthread_mutex_unlock(&engine->lock);
}

void
dl_p2p_close(dl_p2p *engine)
{
    if (engine == NULL) {
        return;
    }
    if (engine->fork_generation != dl_fork_generation()) {
        dl_p2p_unref(engine);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (!engine->is_aborted) {
        engine->cause = (dl_error){DL_CLOSED, "the group was closed"};
        engine->is_aborted = true;
    }
    dl_p2p_judge(engine);
    dl_p2p_ring(engine, engine->rank);
    engine->is_closed = true;
    dl_p2p_unlock_and_finish(engine);
    dl_p2p_runner_stop(engine);
    pthread_mutex_lock(&engine->lock);
    while (engine->drivers > 0) {
        pthread_cond_wait(&engine->left, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    dl_p2p_unref(engine);
}
