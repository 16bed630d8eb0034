/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/p2p.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/interrupt.h"
#include "base/thread.h"
#include "net/socket.h"
#include "pg/cpu/p2p/p2p_state.h"
#include "tensor/copy.h"

/* Bytes of a ring at most, and of all rings of one host's ranks as long as that leaves
 * each a quarter of a megabyte.  A ring that is larger than a core's own cache is twice
 * as fast between cores that share a cache: by the time that its lines are written
 * again, they have left the cache of the reader's core. */
#define MOST_CAPACITY ((size_t)2 << 20)
#define MOST_OF_ALL ((size_t)64 << 20)

/* The largest payloads of a MESSAGE and of a DATA frame, and the parts of a ring that
 * these take at most. */
#define MOST_EAGER ((size_t)16 << 10)
#define MOST_CHUNK ((size_t)60 << 10)
#define EAGER_PART 16
#define CHUNK_PART 8

/* The largest message that begins with SENT, and the part of the ring that it takes at
 * most: a message whose receive was not posted yet is kept in the receiver's memory. */
#define MOST_WINDOW ((size_t)256 << 10)
#define WINDOW_PART 8

/* Arrays of one size that are taken to be in use at a time: those that two ranks send to
 * each other, and those that they receive. */
#define ARRAYS_IN_CACHE 4

/* Large enough for "recv from rank 1 (pid 5 on host h) with tag 7 in group 0". */
#define TEXT_SIZE 384

_Static_assert(MOST_CHUNK <= UINT16_MAX, "a frame's size has 16 bits");

/* Returns the bytes of a ring: fewer where many ranks need many rings. */
static size_t
capacity_for(int size)
{
    size_t capacity = MOST_CAPACITY;

    if (size > 16) {
        return size <= 64 ? (size_t)64 << 10 : (size_t)16 << 10;
    }
    while ((size_t)size * (size_t)size * capacity > MOST_OF_ALL) {
        capacity /= 2;
    }
    return capacity;
}

static size_t
min_size(size_t left, size_t right)
{
    return left < right ? left : right;
}

size_t
dl_p2p_memory(int size)
{
    size_t ranks = (size_t)size;

    return ranks * sizeof(dl_doorbell)
           + ranks * ranks * dl_ring_memory(capacity_for(size));
}

/* Closes all links.  No thread may use them any more. */
static void
close_links(dl_p2p *engine)
{
    bool is_inherited = engine->fork_generation != dl_fork_generation();

    for (int rank = 0; engine->peers != NULL && rank < engine->size; rank++) {
        dl_link_channel_free(engine->peers[rank].link, is_inherited);
        engine->peers[rank].link = NULL;
    }
    if (engine->wake >= 0 && !is_inherited) {
        dl_socket_close(engine->wake);
        engine->wake = -1;
    }
}

static void
free_engine(dl_p2p *engine)
{
    for (int rank = 0; engine->peers != NULL && rank < engine->size; rank++) {
        dl_buffer_fini(&engine->peers[rank].controls);
        free(engine->peers[rank].refusal);
    }
    while (!dl_list_is_empty(&engine->arrivals)) {
        dl_list *node = engine->arrivals.next;
        dl_list_remove(node);
        free(DL_LIST_ENTRY(node, dl_arrival, node));
    }
    close_links(engine);
    pthread_cond_destroy(&engine->left);
    pthread_mutex_destroy(&engine->lock);
    free(engine->peers);
    free(engine);
}

static void
unref_engine(dl_p2p *engine)
{
    if (atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) == 1) {
        free_engine(engine);
    }
}

/* Opens the rings to a rank of this host.  Their capacity depends on the number of
 * ranks on this host. */
static void
open_rings(dl_p2p *engine, void *memory, int rank)
{
    const dl_layout *layout = engine->options.layout;
    dl_ring_channel *rings = &engine->peers[rank].rings;
    size_t count = (size_t)dl_layout_count(layout, layout->host);
    size_t own = (size_t)engine->place;
    size_t other = (size_t)layout->place_of[rank];
    size_t capacity = capacity_for((int)count);
    uint8_t *first = (uint8_t *)memory + count * sizeof(dl_doorbell);
    size_t step = dl_ring_memory(capacity);

    dl_ring_open(&rings->out, first + (own * count + other) * step, capacity);
    dl_ring_open(&rings->in, first + (other * count + own) * step, capacity);
    dl_ring_channel_init(rings, &engine->bells[other]);
    engine->peers[rank].channel = &rings->base;
}

static dl_status
make_link(dl_p2p *engine, int rank)
{
    const dl_p2p_options *options = &engine->options;
    dl_p2p_peer *peer = &engine->peers[rank];
    dl_link_options link = {
        .group = options->group_name,
        .family = options->family,
        .there = &options->peers[rank],
        .listener = options->listener,
        .rank = engine->rank,
        .peer = rank,
        .use = DL_FOR_MESSAGES,
    };

    DL_TRY(dl_link_channel_new(&link, &options->ways[rank], &peer->link));
    peer->channel = &peer->link->base;
    return DL_OK;
}

static dl_status
open_channels(dl_p2p *engine, void *memory)
{
    const dl_layout *layout = engine->options.layout;
    size_t capacity = capacity_for(dl_layout_count(layout, layout->host));

    engine->eager = min_size(capacity / EAGER_PART, MOST_EAGER);
    engine->chunk = min_size(capacity / CHUNK_PART, MOST_CHUNK);
    engine->window = min_size(capacity / WINDOW_PART, MOST_WINDOW);
    engine->large = dl_copy_cached_limit() / ARRAYS_IN_CACHE;
    for (int rank = 0; rank < engine->size; rank++) {
        dl_list_init(&engine->peers[rank].queued);
        dl_list_init(&engine->peers[rank].streaming);
        dl_list_init(&engine->peers[rank].draining);
        if (layout->host_of[rank] == layout->host) {
            open_rings(engine, memory, rank);
        }
    }
    if (layout->host_count > 1) {
        engine->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (engine->wake < 0) {
            return dl_fail(DL_INTERNAL, "making an event: %s", strerror(errno));
        }
        dl_fork_guard(engine->wake);
    }
    return DL_OK;
}

/* Has links to `peer` opened and polled from now on; DL_ANY_RANK stands for all ranks.
 * Links take memory, so each is created when it is first used. */
static dl_status
open_links_to(dl_p2p *engine, int peer)
{
    const dl_layout *layout = engine->options.layout;

    for (int rank = 0; layout->host_count > 1 && rank < engine->size; rank++) {
        bool is_remote = layout->host_of[rank] != layout->host;
        if (!is_remote || (peer != DL_ANY_RANK && peer != rank)) {
            continue;
        }
        if (engine->peers[rank].link == NULL) {
            DL_TRY(make_link(engine, rank));
        }
        engine->peers[rank].link->is_wanted = true;
        atomic_store(&engine->wants_links, true);
    }
    return DL_OK;
}

dl_status
dl_p2p_new(const dl_p2p_options *options, void *memory, dl_p2p **made)
{
    dl_p2p *engine = calloc(1, sizeof *engine);

    if (engine == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&engine->references, 1);
    engine->options = *options;
    engine->wake = -1;
    engine->fork_generation = dl_fork_generation();
    engine->rank = options->layout->rank;
    engine->size = options->layout->size;
    engine->place = options->layout->place_of[engine->rank];
    engine->bells = memory;
    pthread_mutex_init(&engine->lock, NULL);
    dl_condition_init(&engine->left);
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
    dl_status status = open_channels(engine, memory);
    if (status != DL_OK) {
        free_engine(engine);
        return status;
    }
    *made = engine;
    return DL_OK;
}

static void
describe_peer(const dl_p2p *engine, int rank, char text[DL_PEER_TEXT_SIZE])
{
    if (rank == DL_ANY_RANK) {
        snprintf(text, DL_PEER_TEXT_SIZE, "any rank");
    } else {
        dl_peer_describe(&engine->options.peers[rank], rank, text);
    }
}

static void
describe(const dl_message *self, char text[TEXT_SIZE])
{
    char peer[DL_PEER_TEXT_SIZE];

    describe_peer(self->engine, self->peer, peer);
    if (self->tag == DL_ANY_TAG) {
        snprintf(text, TEXT_SIZE, "probe of %s with any tag in group %.100s", peer,
                 self->engine->options.group_name);
        return;
    }
    snprintf(text, TEXT_SIZE, "%s %s with tag %" PRId64 " in group %.100s",
             self->probed != NULL       ? "probe of"
             : self->work.op == DL_SEND ? "send to"
                                        : "recv from",
             peer, self->tag, self->engine->options.group_name);
}

/* `sent` describes the message, `taken` what the receive accepts; `text` is this side's
 * description of the operation. */
static dl_status
fail_types(const char *text, const dl_frame *sent, const dl_frame *taken)
{
    char dtypes[2][DL_DTYPE_TEXT_SIZE];

    dl_dtype_describe((dl_dtype)sent->dtype, sent->code, dtypes[0]);
    dl_dtype_describe((dl_dtype)taken->dtype, taken->code, dtypes[1]);
    return dl_fail(DL_MISMATCH,
                   "%s: the message has dtype %s, but the receive expects %s", text,
                   dtypes[0], dtypes[1]);
}

static dl_status
fail_mismatch(const char *text, const dl_frame *sent, const dl_frame *taken)
{
    if (sent->dtype != taken->dtype || sent->code != taken->code) {
        return fail_types(text, sent, taken);
    }
    return dl_fail(DL_MISMATCH,
                   "%s: the message of %" PRIu64 " bytes does not fit into the %" PRIu64
                   " bytes of the receive's array",
                   text, sent->total, taken->total);
}

dl_status
dl_p2p_fail_refused(const dl_message *self, const dl_frame *frame)
{
    char text[TEXT_SIZE];
    dl_frame own = {
        .total = self->size,
        .dtype = (uint8_t)self->tensor.dtype,
        .code = self->tensor.opaque_code,
    };
    bool is_send = self->work.op == DL_SEND;

    describe(self, text);
    return fail_mismatch(text, is_send ? &own : frame, is_send ? frame : &own);
}

dl_status
dl_p2p_fail_stopped(const dl_message *self)
{
    char text[TEXT_SIZE];

    describe(self, text);
    return dl_fail(DL_PEER_LOST,
                   "%s: the peer gave up after %zu of %zu bytes: it was interrupted or "
                   "timed out, or its array was moved",
                   text, self->moved, self->total);
}

static dl_status
fail_late(const dl_message *self)
{
    char text[TEXT_SIZE];
    const char *why = "the message did not arrive completely";

    if (self->state == DL_MESSAGE_POSTED) {
        why = "no matching message was sent";
    } else if (self->work.op == DL_SEND) {
        why = self->is_accepted ? "it was not received completely"
                                : "no matching receive was called";
    }
    describe(self, text);
    return dl_fail(DL_TIMEOUT, "%s timed out after %" PRId64 "ms: %s", text,
                   self->deadline.limit / DL_MILLISECOND, why);
}

static dl_status
watch_news(const dl_p2p *engine, int rank)
{
    dl_news *news = engine->options.news;

    return news == NULL ? DL_OK : dl_news_watch(news, rank);
}

static dl_status
fail_gone(const dl_message *self, int rank)
{
    const dl_p2p *engine = self->engine;
    const dl_link_channel *link = engine->peers[rank].link;
    char text[TEXT_SIZE];
    char peer[DL_PEER_TEXT_SIZE];

    describe(self, text);
    if (link != NULL) {
        (void)(link->is_lost ? dl_fail_again(&link->cause) : watch_news(engine, rank));
        dl_error cause = *dl_last_error();
        dl_status status = cause.status == DL_PROTOCOL ? DL_PROTOCOL : DL_PEER_LOST;
        return dl_fail(status, "%s: %.1500s", text, cause.text);
    }
    const dl_board_member *member =
        &engine->options.board->members[engine->options.layout->place_of[rank]];
    uint32_t farewell = atomic_load(&member->farewell);
    describe_peer(self->engine, rank, peer);
    if (farewell == DL_ABORTED) {
        return dl_fail(DL_PEER_LOST, "%s: %s: %.*s", text, peer, DL_BOARD_REASON_SIZE,
                       member->reason);
    }
    return dl_fail(DL_PEER_LOST, "%s: %s %s", text, peer,
                   farewell == DL_LEFT ? "left the group" : "exited or was killed");
}

static void
keep_error(dl_message *self)
{
    self->error = malloc(sizeof *self->error);
    if (self->error != NULL) {
        *self->error = *dl_last_error();
        self->error->status = self->status;
    }
}

void
dl_p2p_end(dl_message *self, dl_status status)
{
    self->status = status;
    self->state = DL_MESSAGE_ENDED;
    if (status != DL_OK) {
        keep_error(self);
    }
    self->engine->pending--;
    dl_list_remove(&self->node);
    dl_list_append(&self->engine->ended, &self->node);
}

/* Returns the oldest message with `peer` of which nothing has moved.  Ids of sends and
 * of receives are not comparable, but sends are posted before they are waited for. */
static dl_message *
find_idle(dl_p2p *engine, int peer)
{
    dl_list *lists[] = {&engine->peers[peer].queued, &engine->offered, &engine->posted};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (dl_list *node = lists[i]->next; node != lists[i]; node = node->next) {
            dl_message *message = DL_LIST_ENTRY(node, dl_message, node);
            if (message->peer == peer && message->probed == NULL) {
                return message;
            }
        }
    }
    return NULL;
}

/* Ends the message, after a frame to the peer if that knows of it, which is so once the
 * MESSAGE frame is in the channel. */
static void
give_up_message(dl_message *self, dl_status status)
{
    dl_frame frame = {.id = self->id, .kind = DL_FRAME_CANCEL};
    bool is_known =
        self->state != DL_MESSAGE_QUEUED && self->state != DL_MESSAGE_POSTED;

    if (self->state == DL_MESSAGE_FILLING) {
        frame.kind = DL_FRAME_STOP;
    }
    if (is_known) {
        dl_p2p_control(self->engine, self->peer, &frame, NULL);
    }
    dl_p2p_end(self, status);
}

void
dl_p2p_tell_refusal(dl_p2p *engine, int peer, const dl_frame *frame,
                    const dl_sent *sent)
{
    dl_message ended = {
        .engine = engine, .work.op = DL_SEND, .peer = peer, .tag = frame->tag};
    dl_frame was = {
        .total = sent->total, .code = sent->code, .dtype = (uint8_t)sent->dtype};
    dl_message *idle = find_idle(engine, peer);
    char text[TEXT_SIZE];

    describe(&ended, text);
    dl_status status = fail_mismatch(text, &was, frame);
    if (idle != NULL) {
        give_up_message(idle, status);
    } else if (engine->peers[peer].refusal == NULL) {
        engine->peers[peer].refusal = malloc(sizeof(dl_error));
        if (engine->peers[peer].refusal == NULL) {
            dl_p2p_break(engine);
            return;
        }
        *engine->peers[peer].refusal = *dl_last_error();
        engine->has_refusals = true;
    }
}

/* Prefixes the thread's last error with the message that it ends. */
static dl_status
fail_described(const dl_message *self)
{
    char text[TEXT_SIZE];

    describe(self, text);
    return dl_fail_while("%s", text);
}

bool
dl_p2p_is_in_place(dl_message *self)
{
    if (dl_guard_check(self->guard) == DL_OK) {
        return true;
    }
    give_up_message(self, fail_described(self));
    return false;
}

/* Returns true if `rank` left the group in order, so that none of its messages is
 * missing. */
static bool
has_left(const dl_p2p *engine, int rank)
{
    const dl_link_channel *link = engine->peers[rank].link;
    int place = engine->options.layout->place_of[rank];

    return link != NULL ? link->is_lost && link->cause.status == DL_CLOSED
                        : atomic_load(&engine->options.board->members[place].farewell)
                              == DL_LEFT;
}

/* Returns the rank because of which a receive from any rank fails, or -1.  One lost
 * rank suffices, because the message might have come from it; ranks that left in order
 * matter only when all others have left. */
static int
lost_source(const dl_p2p *engine)
{
    int missing = -1;
    int gone = 0;

    for (int rank = 0; rank < engine->size; rank++) {
        if (rank == engine->rank || !engine->peers[rank].is_gone) {
            continue;
        }
        gone++;
        missing = rank;
        if (!has_left(engine, rank)) {
            return rank;
        }
    }
    return gone == engine->size - 1 ? missing : -1;
}

static void
end_if_failed(dl_message *self)
{
    const dl_p2p *engine = self->engine;
    int missing = self->peer;

    if (engine->is_aborted) {
        dl_p2p_end(self, dl_fail_again(&engine->cause));
        return;
    }
    if (self->peer == DL_ANY_RANK) {
        missing = lost_source(engine);
    } else if (!engine->peers[self->peer].is_gone) {
        missing = -1;
    }
    if (missing >= 0) {
        dl_p2p_end(self, fail_gone(self, missing));
    } else if (dl_deadline_passed(self->deadline)) {
        give_up_message(self, fail_late(self));
    }
}

static void
end_failed_in(dl_list *list)
{
    for (dl_list *node = list->next; node != list;) {
        dl_list *next = node->next;
        end_if_failed(DL_LIST_ENTRY(node, dl_message, node));
        node = next;
    }
}

/* News is consulted only while the link is not open.  An open link is more precise: it
 * delivers what the rank sent before it gave up, and then its end. */
static bool
is_gone_elsewhere(const dl_p2p *engine, const dl_link_channel *link, int rank)
{
    if (link == NULL) {
        return false;
    }
    return link->is_lost || (!link->link.is_open && watch_news(engine, rank) != DL_OK);
}

/* The board has the state of this host's ranks, links and news that of other hosts'
 * ranks. */
static bool
is_gone(const dl_p2p *engine, int rank)
{
    const dl_board *board = engine->options.board;
    const dl_layout *layout = engine->options.layout;
    int place = layout->place_of[rank];

    if (layout->host_of[rank] != layout->host) {
        return is_gone_elsewhere(engine, engine->peers[rank].link, rank);
    }
    return dl_board_has_ended(board, place)
           || atomic_load(&board->members[place].farewell) != DL_STAYING;
}

static void
note_gone(dl_p2p *engine)
{
    dl_process_table_look();
    dl_board_look_for_absent(engine->options.board);
    if (engine->options.news != NULL) {
        dl_news_hear(engine->options.news);
    }
    for (int rank = 0; rank < engine->size; rank++) {
        engine->peers[rank].is_gone = is_gone(engine, rank);
    }
}

/* First reads which peers are gone, then receives what they have sent, and only then
 * ends messages: what a peer sent before its end still counts. */
bool
dl_p2p_end_failed(dl_p2p *engine)
{
    bool has_moved = false;

    note_gone(engine);
    if (!engine->is_aborted) {
        dl_p2p_begin(engine);
        has_moved = dl_p2p_progress(engine);
    }
    for (int rank = 0; rank < engine->size; rank++) {
        end_failed_in(&engine->peers[rank].queued);
        end_failed_in(&engine->peers[rank].streaming);
        end_failed_in(&engine->peers[rank].draining);
    }
    end_failed_in(&engine->offered);
    end_failed_in(&engine->posted);
    end_failed_in(&engine->filling);
    return has_moved;
}

static void
free_message(dl_work *work)
{
    dl_message *self = (dl_message *)(void *)work;

    unref_engine(self->engine);
    dl_work_fini(work);
    free(self->error);
    free(self);
}

static void
withdraw(dl_work *work)
{
    dl_message *self = (dl_message *)(void *)work;
    dl_p2p *engine = self->engine;

    if (engine->fork_generation != dl_fork_generation()) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (self->state != DL_MESSAGE_ENDED) {
        give_up_message(self, fail_described(self));
    }
    dl_p2p_unlock_and_finish(engine);
}

static const dl_work_ops message_ops = {
    .wait = dl_p2p_wait,
    .withdraw = withdraw,
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

static dl_message *
new_message(dl_p2p *engine, const dl_call *call, dl_deadline deadline)
{
    const dl_tensor *tensor = &call->tensor;
    size_t entries = tensor->is_contiguous ? 0 : 2 * (size_t)tensor->ndim;
    dl_message *self = malloc(sizeof *self + entries * sizeof(int64_t));

    if (self == NULL) {
        return NULL;
    }
    *self = (dl_message){.engine = engine,
                         .peer = call->peer,
                         .tag = call->tag,
                         .guard = call->guard,
                         .probed = call->probed,
                         .deadline = deadline};
    dl_work_init(&self->work, &message_ops, call->op);
    keep_layout(self, tensor);
    self->size = dl_tensor_size(tensor);
    self->work.is_brief = self->size <= engine->chunk;
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
    return self;
}

static void
start(dl_message *self)
{
    dl_p2p *engine = self->engine;

    engine->pending++;
    if (self->work.op == DL_SEND) {
        self->id = ++engine->last_id;
        self->state = DL_MESSAGE_QUEUED;
        self->total = self->size;
        dl_list_append(&engine->peers[self->peer].queued, &self->node);
    } else {
        self->state = DL_MESSAGE_POSTED;
        dl_list_append(&engine->posted, &self->node);
        dl_p2p_match_posted(self);
    }
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

/* Returns the error of an earlier message to `peer`, or to any rank for DL_ANY_RANK,
 * that was refused after its send had ended; DL_OK if there is none. */
static dl_status
check_refusals(dl_p2p *engine, int peer)
{
    dl_error *first = NULL;
    bool has_more = false;

    for (int rank = 0; engine->has_refusals && rank < engine->size; rank++) {
        dl_error **refusal = &engine->peers[rank].refusal;
        if (first == NULL && (peer == rank || peer == DL_ANY_RANK)) {
            first = *refusal;
            *refusal = NULL;
        }
        has_more = has_more || *refusal != NULL;
    }
    engine->has_refusals = has_more;
    if (first == NULL) {
        return DL_OK;
    }
    dl_status status = dl_fail_again(first);
    free(first);
    return status;
}

static bool
has_refused_one(const dl_p2p *engine, int rank)
{
    const dl_p2p_peer *peer = &engine->peers[rank];

    return dl_p2p_is_here(peer)
           && atomic_load_explicit(&peer->rings.out.words->refusals,
                                   memory_order_relaxed)
                  != peer->refusals;
}

/* Returns true if `peer`, which may be DL_ANY_RANK, has refused such a message, even if
 * its REFUSE has not been received yet. */
static bool
has_refused(const dl_p2p *engine, int peer)
{
    if (engine->has_refusals || peer != DL_ANY_RANK) {
        return engine->has_refusals || has_refused_one(engine, peer);
    }
    for (int rank = 0; rank < engine->size; rank++) {
        if (has_refused_one(engine, rank)) {
            return true;
        }
    }
    return false;
}

dl_status
dl_p2p_verify(dl_p2p *engine)
{
    dl_status status = DL_OK;

    pthread_mutex_lock(&engine->lock);
    if (!engine->is_aborted && !engine->is_closed) {
        dl_p2p_begin(engine);
        status = check_refusals(engine, DL_ANY_RANK);
    }
    dl_error error = *dl_last_error();
    dl_p2p_unlock_and_finish(engine);
    return status == DL_OK ? DL_OK : dl_fail_again(&error);
}

/* A send to a rank of this host that is known to be gone would otherwise succeed, in a
 * ring that no process reads. */
static bool
is_gone_here(dl_p2p *engine, int rank)
{
    dl_p2p_peer *peer = &engine->peers[rank];

    if (dl_p2p_is_here(peer)) {
        peer->is_gone = is_gone(engine, rank);
    }
    return dl_p2p_is_here(peer) && peer->is_gone;
}

static void
post_send(dl_message *self)
{
    start(self);
    if (is_gone_here(self->engine, self->peer)) {
        end_if_failed(self);
    }
    dl_p2p_put(self->engine, self->peer);
}

/* Returns true if a frame from `peer`, which may be DL_ANY_RANK, may have arrived. */
static bool
may_have_come(const dl_p2p *engine, int peer)
{
    return peer == DL_ANY_RANK || !dl_p2p_is_here(&engine->peers[peer])
           || dl_ring_has_news(&engine->peers[peer].rings.in);
}

/* The bytes of a SENT go straight into the array.  Before any other frame is matched,
 * the CANCELs behind it are processed: a send that was cancelled before this receive
 * was posted must not match it. */
static void
post_receive(dl_message *self)
{
    dl_p2p *engine = self->engine;

    if (!dl_list_is_empty(&engine->arrivals)) {
        dl_p2p_begin(engine);
    }
    start(self);
    if (self->state == DL_MESSAGE_POSTED) {
        dl_p2p_take_sent(engine, self);
    }
    if (self->state == DL_MESSAGE_POSTED && may_have_come(engine, self->peer)) {
        dl_list_remove(&self->node);
        dl_p2p_begin(engine);
        dl_list_append(&engine->posted, &self->node);
        dl_p2p_match_posted(self);
    }
}

/* How often an awaited receive polls the ring before it is posted, while nothing of the
 * rank has arrived: about as long as a message takes between two cores. */
#define RING_POLLS 500

static void
poll_ring(const dl_p2p *engine, int rank)
{
    const dl_ring *in = &engine->peers[rank].rings.in;
    bool has_core = engine->options.board->waiter.spin > 0;

    for (int i = 0; has_core && i < RING_POLLS && in->words != NULL; i++) {
        if (dl_ring_seems_to_have_news(in)) {
            return;
        }
    }
}

/* Carries the message out if that takes no wait longer than poll_ring().  Called
 * with the lock. */
static bool
do_at_once(dl_p2p *engine, const dl_call *call)
{
    bool waits = call->is_awaited;

    if (engine->is_aborted || has_refused(engine, call->peer)
        || dl_guard_check(call->guard) != DL_OK) {
        return false;
    }
    if (call->op == DL_SEND) {
        return !is_gone_here(engine, call->peer) && dl_p2p_send_at_once(engine, call);
    }
    if (call->op != DL_RECV) {
        return false;
    }
    if (dl_p2p_receive_at_once(engine, call)) {
        return true;
    }
    if (!waits) {
        return false;
    }
    pthread_mutex_unlock(&engine->lock);
    poll_ring(engine, call->peer);
    pthread_mutex_lock(&engine->lock);
    return !engine->is_aborted && dl_p2p_receive_at_once(engine, call);
}

/* Posts a message that cannot be carried out at once.  Called with the lock. */
static dl_status
post_message(dl_message *self, const dl_call *call)
{
    dl_p2p *engine = self->engine;
    bool looks_once = call->probed != NULL && !call->is_awaited;

    if (engine->is_aborted) {
        return dl_fail_again(&engine->cause);
    }
    if (has_refused(engine, call->peer)) {
        dl_p2p_begin(engine);
        DL_TRY(call->is_continued ? DL_OK : check_refusals(engine, call->peer));
    }
    DL_TRY(open_links_to(engine, call->peer));
    if (!call->is_awaited && !looks_once) {
        DL_TRY(dl_p2p_runner_want(engine, dl_deadline_start(self->deadline)));
    }
    if (call->op == DL_SEND) {
        post_send(self);
    } else {
        post_receive(self);
    }
    if (looks_once && self->state != DL_MESSAGE_ENDED) {
        end_single_probe(self);
    }
    return DL_OK;
}

/* The thread may hold the GIL until it waits. */
static void
lock(dl_p2p *engine)
{
    if (pthread_mutex_trylock(&engine->lock) != 0) {
        dl_blocking_begin();
        pthread_mutex_lock(&engine->lock);
    }
}

/* Requires the lock. */
static dl_status
post(dl_p2p *engine, const dl_call *call, dl_deadline deadline, dl_work **work)
{
    bool is_done = do_at_once(engine, call);

    if (is_done) {
        bool needs_work = !call->is_awaited && !call->is_work_optional;
        int source = call->op == DL_SEND ? -1 : call->peer;
        *work = needs_work ? dl_work_new_ended(call->op, source) : NULL;
        return needs_work && *work == NULL ? dl_fail_no_memory() : DL_OK;
    }
    dl_message *self = new_message(engine, call, deadline);
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_status status = post_message(self, call);
    if (status != DL_OK) {
        free_message(&self->work);
        return status;
    }
    *work = &self->work;
    return DL_OK;
}

dl_status
dl_p2p_post_all(dl_p2p *engine, const dl_call *calls, int count, dl_deadline deadline,
                dl_work **works, int *posted)
{
    dl_status status = DL_OK;
    int i = 0;

    lock(engine);
    while (i < count
           && (status = post(engine, &calls[i], deadline, &works[i])) == DL_OK) {
        i++;
    }
    *posted = i;
    if (status == DL_OK) {
        dl_p2p_unlock_and_finish(engine);
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    dl_p2p_unlock_and_finish(engine);
    return dl_fail_again(&error);
}

dl_status
dl_p2p_post(dl_p2p *engine, const dl_call *call, dl_deadline deadline, dl_work **work)
{
    int posted;

    return dl_p2p_post_all(engine, call, 1, deadline, work, &posted);
}

/* Requires the lock. */
static void
say_farewells(dl_p2p *engine, const dl_error *cause)
{
    for (int rank = 0; rank < engine->size; rank++) {
        if (engine->peers[rank].link != NULL) {
            dl_link_channel_farewell(engine->peers[rank].link, cause);
        }
    }
}

dl_status
dl_p2p_finish(dl_p2p *engine, dl_deadline deadline)
{
    dl_status status = DL_OK;

    pthread_mutex_lock(&engine->lock);
    if (!engine->is_aborted && !engine->is_closed) {
        status = dl_p2p_flush(engine, deadline, true);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

void
dl_p2p_leave(dl_p2p *engine)
{
    const dl_error cause = {.status = DL_CLOSED};

    pthread_mutex_lock(&engine->lock);
    if (!engine->is_aborted && !engine->is_closed) {
        /* The caller holds locks, and so cannot look for signals: dl_p2p_finish() does,
         * and leaves only what a peer does not take. */
        (void)dl_p2p_flush(engine, dl_deadline_after(DL_SECOND), false);
        say_farewells(engine, &cause);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Requires the lock. */
static void
give_up(dl_p2p *engine, const dl_error *cause)
{
    if (!engine->is_aborted && !engine->is_closed) {
        engine->cause = *cause;
        engine->is_aborted = true;
        say_farewells(engine, cause);
        dl_p2p_ring(engine);
        dl_p2p_runner_nudge(engine);
    }
}

void
dl_p2p_break(dl_p2p *engine)
{
    dl_error cause = *dl_last_error();

    give_up(engine, &cause);
    /* The ranks of this host have no links on which a farewell could come. */
    dl_board_abort(engine->options.board, &cause);
    (void)dl_fail_again(&cause);
}

void
dl_p2p_abort(dl_p2p *engine, const dl_error *cause)
{
    pthread_mutex_lock(&engine->lock);
    give_up(engine, cause);
    pthread_mutex_unlock(&engine->lock);
}

void
dl_p2p_close(dl_p2p *engine)
{
    if (engine == NULL) {
        return;
    }
    if (engine->fork_generation != dl_fork_generation()) {
        unref_engine(engine);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    if (!engine->is_aborted) {
        engine->cause = (dl_error){DL_CLOSED, "the group was closed"};
        engine->is_aborted = true;
    }
    dl_p2p_end_failed(engine);
    dl_p2p_ring(engine);
    engine->is_closed = true;
    dl_p2p_unlock_and_finish(engine);
    dl_p2p_runner_stop(engine);
    pthread_mutex_lock(&engine->lock);
    while (engine->drivers > 0) {
        pthread_cond_wait(&engine->left, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    close_links(engine);
    unref_engine(engine);
}
