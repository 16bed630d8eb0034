/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/cpu_window.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/shm/shared.h"
#include "pg/cpu/window/window_client.h"
#include "pg/cpu/window/window_memory.h"

/* How this rank accesses the memory of another one. */
typedef struct target {
    dl_window_memory memory;
    dl_segment segment;      /* empty for the own memory */
    dl_window_client client; /* if it is on another host */
    atomic_bool has_lock;    /* this rank has the lock of the memory */
} target;

typedef struct part {
    dl_window_part base;
    uint32_t fork_generation;
    dl_window_options options;
    dl_window_ranks ranks;
    dl_bootstrap *bootstrap;
    dl_peer *peers;
    char host[DL_HOST_NAME_SIZE]; /* of a group of one rank, which has no bootstrap */
    dl_process **processes;
    dl_region *region;
    target *targets; /* by rank */
    dl_window_server *server;
    dl_window_served served; /* only with several hosts */
} part;

/* The handle: where the region lies in the arena's file, and the window's number for
 * other hosts. */
typedef struct handle {
    uint64_t offset;
    uint64_t size;
    uint64_t number;
} handle;

_Static_assert(sizeof(handle) <= DL_WINDOW_HANDLE_SIZE, "a handle holds the place");

static part *
cpu_part_of(dl_window_part *base)
{
    return (part *)(void *)base;
}

static bool
is_inherited(const part *self)
{
    return self->fork_generation != dl_fork_generation();
}

/* Other ranks may wait for a lock that this rank has when it leaves. */
static void
release_locks(part *self)
{
    dl_error error = *dl_last_error();

    for (int rank = 0; rank < self->ranks.size; rank++) {
        target *there = &self->targets[rank];
        if (!atomic_exchange(&there->has_lock, false)) {
            continue;
        }
        if (there->memory.head == NULL) {
            dl_window_client_drop(&there->client);
        } else {
            (void)dl_lock_queue_leave(&there->memory.head->queue, &self->ranks, rank,
                                      self->ranks.rank, dl_deadline_after(DL_SECOND));
        }
    }
    (void)dl_rethrow(&error);
}

static void
end_part(dl_window_part *base)
{
    part *self = cpu_part_of(base);
    dl_window_head *head = self->targets[self->ranks.rank].memory.head;

    if (!is_inherited(self)) {
        atomic_store(&head->is_open, 0);
        release_locks(self);
    }
}

static void
free_part(dl_window_part *base)
{
    part *self = cpu_part_of(base);

    if (self->served.number != 0) {
        dl_window_server_remove(self->server, &self->served);
    }
    for (int rank = 0; self->targets != NULL && rank < self->ranks.size; rank++) {
        dl_segment_fini(&self->targets[rank].segment);
        dl_window_client_fini(&self->targets[rank].client, is_inherited(self));
    }
    dl_window_server_unref(self->server);
    dl_region_free(self->region);
    if (self->bootstrap != NULL) {
        dl_backend_origin_unref(&self->bootstrap->base);
    }
    free(self->targets);
    free(self->peers);
    free(self->processes);
    free(self);
}

/* Describes the memory of `rank`, which is mapped at `mapped`. */
static void
set_memory(part *self, int rank, void *mapped, uint64_t size)
{
    self->targets[rank].memory = (dl_window_memory){
        .head = mapped,
        .elements = (uint8_t *)mapped + dl_window_head_size(self->ranks.size),
        .size = size,
        .owner = rank,
        .dtype = self->options.dtype,
        .item_size = self->options.item_size,
    };
}

/* Maps the memory of a rank of this host. */
static dl_status
map_memory(part *self, int rank, const handle *place, uint64_t size)
{
    dl_segment *segment = &self->targets[rank].segment;
    uint64_t head = dl_window_head_size(self->ranks.size);

    if (place->size < head || place->size - head < size) {
        return dl_fail(
            DL_PROTOCOL,
            "window in group %s: the memory of rank %d is smaller than the "
            "size in its handle: the ranks run different versions of distlite",
            self->ranks.group_name, rank);
    }
    DL_TRY(dl_segment_map(self->bootstrap->membership.arena.file, place->offset,
                          place->size, segment));
    set_memory(self, rank, segment->memory, size);
    return DL_OK;
}

static dl_status
join_parts(dl_window_part *base, const uint8_t *handles, const uint64_t *sizes)
{
    part *self = cpu_part_of(base);

    for (int rank = 0; rank < self->ranks.size; rank++) {
        handle place;
        memcpy(&place, handles + (size_t)rank * DL_WINDOW_HANDLE_SIZE, sizeof place);
        if (self->targets[rank].client.ranks != NULL) {
            dl_window_client_aim(&self->targets[rank].client, (int)place.number);
        } else if (rank != self->ranks.rank) {
            DL_TRY(map_memory(self, rank, &place, sizes[rank]));
        }
    }
    return DL_OK;
}

static dl_status
access_memory(dl_window_part *base, const dl_access *access, dl_deadline deadline)
{
    part *self = cpu_part_of(base);
    target *there = &self->targets[access->rank];

    return there->memory.head == NULL
               ? dl_window_client_access(&there->client, access,
                                         self->options.item_size, deadline)
               : dl_window_memory_access(&there->memory, &self->ranks, access,
                                         deadline);
}

/* Also releases the lock of a rank that has ended or has closed the window: others may
 * wait for it. */
static dl_status
unlock_rank(dl_window_part *base, int rank, dl_deadline deadline)
{
    part *self = cpu_part_of(base);
    target *there = &self->targets[rank];

    if (!atomic_exchange(&there->has_lock, false)) {
        return dl_fail(DL_INVALID,
                       "window in group %s: rank %d does not hold the lock of rank %d",
                       self->ranks.group_name, self->ranks.rank, rank);
    }
    bool has_lock = true;
    dl_status status =
        there->memory.head == NULL
            ? dl_window_client_flush(&there->client, &has_lock, deadline)
            : dl_lock_queue_leave(&there->memory.head->queue, &self->ranks, rank,
                                  self->ranks.rank, deadline);
    if (status != DL_OK && has_lock) {
        atomic_store(&there->has_lock, true);
    }
    return status;
}

static dl_status
lock_rank(dl_window_part *base, int rank, bool is_shared, dl_deadline deadline)
{
    part *self = cpu_part_of(base);
    target *there = &self->targets[rank];
    dl_lock_request request = {
        .asker = self->ranks.rank, .is_shared = is_shared, .deadline = deadline};

    DL_TRY(there->memory.head == NULL
               ? dl_window_client_lock(&there->client, is_shared, deadline)
               : dl_window_memory_lock(&there->memory, &self->ranks, &request));
    atomic_store(&there->has_lock, true);
    return DL_OK;
}

static dl_status
flush_one(part *self, int rank, bool is_only, dl_deadline deadline)
{
    target *there = &self->targets[rank];

    if (there->memory.head == NULL) {
        return dl_window_client_flush(&there->client, NULL, deadline);
    }
    return is_only ? dl_window_memory_check(&there->memory, &self->ranks) : DL_OK;
}

/* Accesses to mapped memory have taken effect when they return. */
static dl_status
flush_ranks(dl_window_part *base, int rank, dl_deadline deadline)
{
    part *self = cpu_part_of(base);
    int first = rank < 0 ? 0 : rank;
    int last = rank < 0 ? self->ranks.size - 1 : rank;

    atomic_thread_fence(memory_order_seq_cst);
    for (int each = first; each <= last; each++) {
        DL_TRY(flush_one(self, each, rank >= 0, deadline));
    }
    return DL_OK;
}

static const dl_window_part_ops part_ops = {
    .join = join_parts,
    .access = access_memory,
    .lock = lock_rank,
    .unlock = unlock_rank,
    .flush = flush_ranks,
    .end = end_part,
    .free = free_part,
};

/* Prepares the clients of the ranks on other hosts, which lack only the windows'
 * numbers: these come with the handles. */
static void
init_clients(part *self, const dl_cpu_window_group *group)
{
    const dl_layout *layout = group->layout;
    dl_link_options options = {
        .group = self->ranks.group_name,
        .listener = &self->bootstrap->endpoint.calls,
        .rank = self->ranks.rank,
    };

    for (int rank = 0; rank < self->ranks.size; rank++) {
        if (layout->host_of[rank] != layout->host) {
            dl_tcp_contact tcp;
            dl_tcp_contacts_find(&group->tcp_contacts, rank, &tcp);
            dl_window_client_init(&self->targets[rank].client, &self->ranks, rank,
                                  &options, &tcp);
        }
    }
}

static dl_status
copy_group(part *self, const dl_cpu_window_group *group)
{
    size_t size = (size_t)self->ranks.size;

    self->server = dl_window_server_ref(group->server);
    self->peers = calloc(size, sizeof *self->peers);
    self->processes = calloc(size, sizeof(dl_process *));
    self->targets = calloc(size, sizeof *self->targets);
    if (self->peers == NULL || self->processes == NULL || self->targets == NULL) {
        return dl_fail_no_memory();
    }
    self->ranks.group_name = self->server->group_name;
    self->ranks.peers = dl_peers_of(self->peers);
    self->ranks.processes = self->processes;
    self->ranks.ends = &self->server->ends;
    if (group->bootstrap == NULL) {
        dl_peer_own(self->peers, self->host);
        return DL_OK;
    }
    (void)dl_backend_origin_ref(&group->bootstrap->base);
    self->bootstrap = group->bootstrap;
    for (int rank = 0; rank < self->ranks.size; rank++) {
        self->peers[rank] = dl_peers_find(&group->peers, rank);
        self->processes[rank] = dl_processes_find(&group->processes, rank);
        if (self->processes[rank] == NULL) {
            return dl_fail_no_memory();
        }
    }
    init_clients(self, group);
    return DL_OK;
}

/* Allocates this rank's memory, and writes its handle. */
static dl_status
open_memory(part *self, bool has_hosts)
{
    uint64_t head = dl_window_head_size(self->ranks.size);
    uint64_t size = self->options.size;
    handle place = {0};

    if (size > SIZE_MAX - head) {
        return dl_fail_no_memory();
    }
    if (self->bootstrap == NULL) {
        DL_TRY(dl_region_new(head + size, &self->region));
    } else {
        dl_arena *arena = &self->bootstrap->membership.arena;
        DL_TRY(dl_shared_new(arena, head + size, &self->region));
        dl_shared_place found =
            dl_shared_find(arena, self->region->memory, head + size);
        place = (handle){.offset = found.offset, .size = found.size};
    }
    set_memory(self, self->ranks.rank, self->region->memory, size);
    dl_window_memory *own = &self->targets[self->ranks.rank].memory;
    self->base.memory = own->elements;
    atomic_store(&own->head->is_open, 1);
    if (has_hosts) {
        self->served = (dl_window_served){.memory = own, .ranks = &self->ranks};
        DL_TRY(dl_window_server_add(self->server, &self->bootstrap->endpoint.calls,
                                    &self->served));
        place.number = (uint64_t)self->served.number;
    }
    memcpy(self->base.handle, &place, sizeof place);
    return DL_OK;
}

dl_status
dl_cpu_window_new(const dl_cpu_window_group *group, const dl_window_options *options,
                  dl_window_part **made)
{
    part *self = calloc(1, sizeof *self);
    bool is_alone = group->bootstrap == NULL;

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base.ops = &part_ops;
    self->fork_generation = dl_fork_generation();
    self->options = *options;
    self->ranks.rank = is_alone ? 0 : group->layout->rank;
    self->ranks.size = is_alone ? 1 : group->layout->size;
    self->ranks.may_spin = group->may_spin;
    dl_status status = copy_group(self, group);
    if (status == DL_OK) {
        status = open_memory(self, !is_alone && group->layout->host_count > 1);
    }
    if (status != DL_OK) {
        free_part(&self->base);
        return status;
    }
    *made = &self->base;
    return DL_OK;
}
