/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/references.h"
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

/* The largest payload of a frame, and the part of a ring that it takes at most. */
#define MOST_CHUNK ((size_t)60 << 10)
#define CHUNK_PART 8

/* The largest message that begins with EAGER, and the part of the ring that it takes at
 * most: a message whose receive was not posted yet is kept in the receiver's memory. */
#define MOST_WINDOW ((size_t)256 << 10)
#define WINDOW_PART 8

/* The most ranks of one host whose rings are populated: with more it would take longer
 * than the group takes to be made, and most rings are never used. */
#define MOST_RANKS_POPULATED 4

/* Arrays of one size that are taken to be in use at a time: those that two ranks send
 * to each other, and those that they receive. */
#define ARRAYS_IN_CACHE 4

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

    for (int rank = 0; rank < engine->size; rank++) {
        dl_link_channel_free(engine->peers[rank].link, is_inherited);
        engine->peers[rank].link = NULL;
    }
    if (!is_inherited) {
        dl_socket_close(atomic_exchange(&engine->wake, -1));
    }
}

static void
free_engine(dl_p2p *engine)
{
    for (int rank = 0; rank < engine->size; rank++) {
        dl_buffer_fini(&engine->peers[rank].controls);
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

void
dl_p2p_unref(dl_p2p *engine)
{
    if (dl_reference_drop(&engine->references)) {
        free_engine(engine);
    }
}

/* Opens the rings to a rank of this host.  Their capacity depends on the number of
 * ranks on this host. */
static void
open_rings(dl_p2p *engine, int rank)
{
    const dl_layout *layout = engine->options.layout;
    dl_ring_channel *rings = &engine->peers[rank].rings;
    size_t count = (size_t)dl_layout_count(layout, layout->host);
    size_t own = (size_t)engine->local_rank;
    size_t other = (size_t)layout->local_rank_of[rank];
    size_t capacity = capacity_for((int)count);
    uint8_t *first = (uint8_t *)(engine->bells + count);
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
    dl_tcp_contact tcp;
    dl_link_options link = {
        .group = options->group_name,
        .peers = options->peers,
        .listener = options->listener,
        .rank = engine->rank,
        .peer = rank,
        .use = DL_FOR_MESSAGES,
    };

    dl_tcp_contacts_find(&options->tcp_contacts, rank, &tcp);
    DL_TRY(dl_link_channel_new(&link, &tcp, &peer->link));
    peer->channel = &peer->link->base;
    return DL_OK;
}

static dl_status
make_wake(dl_p2p *engine)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    if (fd < 0) {
        return dl_fail(DL_INTERNAL, "making an event: %s", strerror(errno));
    }
    dl_fork_guard(fd);
    atomic_store(&engine->wake, fd);
    return DL_OK;
}

dl_status
dl_p2p_open(dl_p2p *engine)
{
    const dl_layout *layout = engine->options.layout;

    if (engine->size > 0) {
        return DL_OK;
    }
    dl_p2p_peer *peers = calloc((size_t)layout->size, sizeof *peers);
    if (peers == NULL) {
        return dl_fail_no_memory();
    }
    if (layout->host_count > 1 && make_wake(engine) != DL_OK) {
        free(peers);
        return DL_INTERNAL;
    }
    engine->peers = peers;
    engine->size = layout->size;
    for (int rank = 0; rank < engine->size; rank++) {
        dl_list_init(&peers[rank].queued);
        dl_list_init(&peers[rank].streaming);
        dl_list_init(&peers[rank].draining);
        if (layout->host_of[rank] == layout->host) {
            open_rings(engine, rank);
        }
    }
    return DL_OK;
}

dl_status
dl_p2p_open_links(dl_p2p *engine, int peer)
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
    const dl_layout *layout = options->layout;
    size_t capacity = capacity_for(dl_layout_count(layout, layout->host));
    dl_p2p *engine = calloc(1, sizeof *engine);

    if (engine == NULL) {
        return dl_fail_no_memory();
    }
    atomic_init(&engine->references, 1);
    engine->options = *options;
    atomic_init(&engine->wake, -1);
    engine->fork_generation = dl_fork_generation();
    engine->rank = layout->rank;
    engine->local_rank = layout->local_rank_of[engine->rank];
    engine->bells = memory;
    engine->chunk = dl_min_size(capacity / CHUNK_PART, MOST_CHUNK);
    engine->window = dl_min_size(capacity / WINDOW_PART, MOST_WINDOW);
    engine->large = dl_copy_cached_limit() / ARRAYS_IN_CACHE;
    pthread_mutex_init(&engine->lock, NULL);
    dl_condition_init(&engine->left);
    dl_list_init(&engine->offered);
    dl_list_init(&engine->posted);
    dl_list_init(&engine->filling);
    dl_list_init(&engine->arrivals);
    dl_list_init(&engine->ended);
    *made = engine;
    return DL_OK;
}

void
dl_p2p_populate(dl_p2p *engine)
{
    const dl_layout *layout = engine->options.layout;
    int count = dl_layout_count(layout, layout->host);

    if (count == 1 || count > MOST_RANKS_POPULATED || dl_p2p_open(engine) != DL_OK) {
        return;
    }
    for (int rank = 0; rank < engine->size; rank++) {
        dl_p2p_peer *peer = &engine->peers[rank];
        if (rank != engine->rank && dl_p2p_is_here(peer)) {
            dl_ring_populate(&peer->rings.out);
            dl_ring_populate(&peer->rings.in);
        }
    }
}

/* Requires the lock. */
static void
send_notices(dl_p2p *engine, const dl_error *cause)
{
    for (int rank = 0; rank < engine->size; rank++) {
        if (engine->peers[rank].link != NULL) {
            dl_link_channel_notify(engine->peers[rank].link, cause);
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
        send_notices(engine, &cause);
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Requires the lock. */
static void
give_up_operations(dl_p2p *engine, const dl_error *cause)
{
    if (!engine->is_aborted && !engine->is_closed) {
        engine->cause = *cause;
        engine->is_aborted = true;
        send_notices(engine, cause);
        dl_p2p_wake(engine);
        dl_p2p_thread_nudge(engine);
    }
}

void
dl_p2p_break(dl_p2p *engine)
{
    dl_error cause = *dl_last_error();

    give_up_operations(engine, &cause);
    /* The ranks of this host have no links on which a notice could come. */
    dl_board_abort(engine->options.board, &cause);
    (void)dl_rethrow(&cause);
}

void
dl_p2p_abort(dl_p2p *engine, const dl_error *cause)
{
    pthread_mutex_lock(&engine->lock);
    give_up_operations(engine, cause);
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
    dl_p2p_end_failed(engine);
    dl_p2p_wake(engine);
    engine->is_closed = true;
    dl_p2p_unlock_and_finish(engine);
    dl_p2p_thread_stop(engine);
    pthread_mutex_lock(&engine->lock);
    while (engine->drivers > 0) {
        pthread_cond_wait(&engine->left, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    close_links(engine);
    dl_p2p_unref(engine);
}
