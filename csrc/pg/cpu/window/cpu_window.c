/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/window/cpu_window.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pg/cpu/shm/shared.h"
#include "pg/cpu/window/window_memory.h"

/* What this rank holds of the memory of another one. */
typedef struct target {
    dl_window_memory memory;
    dl_segment segment; /* empty for the own memory */
} target;

typedef struct part {
    dl_window_part base;
    uint32_t fork_generation;
    dl_window_options options;
    dl_window_ranks ranks;
    dl_layout layout; /* empty in a group of one rank */
    dl_roster *roster;
    dl_window_ends *ends;
    char *group_name;
    dl_peer *peers;
    dl_process **processes;
    dl_region *region;
    target *targets;  /* by rank */
    atomic_int locks; /* that this rank has */
} part;

/* The card: where the region lies in the arena's file. */
typedef struct card {
    uint64_t offset;
    uint64_t size;
} card;

_Static_assert(sizeof(card) <= DL_WINDOW_CARD_SIZE, "a card holds the place");

static part *
self_of(dl_window_part *base)
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
give_locks_back(part *self)
{
    dl_error error = *dl_last_error();

    for (int rank = 0; rank < self->ranks.size; rank++) {
        dl_window_head *head = self->targets[rank].memory.head;
        if (head != NULL) {
            (void)dl_queue_leave(&head->queue, &self->ranks, rank, self->ranks.rank,
                                 dl_deadline_after(DL_SECOND));
        }
    }
    (void)dl_fail_again(&error);
}

static void
end(dl_window_part *base)
{
    part *self = self_of(base);
    dl_window_head *head = self->targets[self->ranks.rank].memory.head;

    if (is_inherited(self)) {
        return;
    }
    atomic_store(&head->is_open, 0);
    if (atomic_exchange(&self->locks, 0) > 0) {
        give_locks_back(self);
    }
}

static void
free_part(dl_window_part *base)
{
    part *self = self_of(base);

    for (int rank = 0; self->targets != NULL && rank < self->ranks.size; rank++) {
        dl_segment_fini(&self->targets[rank].segment);
    }
    dl_region_free(self->region);
    if (self->roster != NULL) {
        dl_backend_origin_unref(&self->roster->base);
    }
    dl_window_ends_unref(self->ends);
    dl_layout_fini(&self->layout);
    free(self->targets);
    free(self->processes);
    free(self->peers);
    free(self->group_name);
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
map_memory(part *self, int rank, const card *place, uint64_t size)
{
    dl_segment *segment = &self->targets[rank].segment;
    uint64_t head = dl_window_head_size(self->ranks.size);

    if (place->size < head || place->size - head < size) {
        return dl_fail(
            DL_PROTOCOL,
            "window in group %s: the memory of rank %d is smaller than the "
            "size that it told: the ranks run different versions of distlite",
            self->group_name, rank);
    }
    DL_TRY(dl_segment_map(self->roster->membership.arena.file, place->offset,
                          place->size, segment));
    set_memory(self, rank, segment->memory, size);
    return DL_OK;
}

static dl_status
join(dl_window_part *base, const uint8_t *cards, const uint64_t *sizes)
{
    part *self = self_of(base);

    for (int rank = 0; rank < self->ranks.size; rank++) {
        card place;
        memcpy(&place, cards + (size_t)rank * DL_WINDOW_CARD_SIZE, sizeof place);
        if (rank != self->ranks.rank) {
            DL_TRY(map_memory(self, rank, &place, sizes[rank]));
        }
    }
    return DL_OK;
}

static dl_status
carry_out(dl_window_part *base, const dl_access *access, dl_deadline deadline)
{
    part *self = self_of(base);

    return dl_window_memory_access(&self->targets[access->rank].memory, &self->ranks,
                                   access, deadline);
}

/* Also gives back the lock of a rank that has ended or has closed the window: others may
 * wait for it. */
static dl_status
unlock(dl_window_part *base, int rank, dl_deadline deadline)
{
    part *self = self_of(base);
    const dl_window_memory *memory = &self->targets[rank].memory;

    DL_TRY(dl_queue_release(&memory->head->queue, &self->ranks, rank, self->ranks.rank,
                            deadline));
    atomic_fetch_sub(&self->locks, 1);
    return DL_OK;
}

static dl_status
lock(dl_window_part *base, int rank, bool is_shared, dl_deadline deadline)
{
    part *self = self_of(base);
    const dl_window_memory *memory = &self->targets[rank].memory;

    DL_TRY(dl_window_memory_check(memory, &self->ranks));
    DL_TRY(
        dl_queue_take(&memory->head->queue, &self->ranks, rank, is_shared, deadline));
    atomic_fetch_add(&self->locks, 1);
    /* The pages of an owner that has left meanwhile are zeros, and so is the queue. */
    dl_status status = dl_window_memory_check(memory, &self->ranks);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        (void)unlock(base, rank, deadline);
        return dl_fail_again(&error);
    }
    return DL_OK;
}

/* Accesses to mapped memory have taken effect when they return. */
static dl_status
flush(dl_window_part *base, int rank, dl_deadline deadline)
{
    part *self = self_of(base);

    (void)deadline;
    atomic_thread_fence(memory_order_seq_cst);
    return rank < 0 ? DL_OK
                    : dl_window_memory_check(&self->targets[rank].memory, &self->ranks);
}

static const dl_window_part_ops part_ops = {
    .join = join,
    .access = carry_out,
    .lock = lock,
    .unlock = unlock,
    .flush = flush,
    .end = end,
    .free = free_part,
};

static dl_status
copy_group(part *self, const dl_cpu_window_group *group)
{
    size_t size = (size_t)self->ranks.size;

    self->ends = dl_window_ends_ref(group->ends);
    self->group_name = strdup(group->name);
    self->peers = calloc(size, sizeof *self->peers);
    self->processes = calloc(size, sizeof(dl_process *));
    self->targets = calloc(size, sizeof *self->targets);
    if (self->group_name == NULL || self->peers == NULL || self->processes == NULL
        || self->targets == NULL) {
        return dl_fail_no_memory();
    }
    if (group->roster == NULL) {
        dl_peer_own(self->peers);
        return DL_OK;
    }
    (void)dl_backend_origin_ref(&group->roster->base);
    self->roster = group->roster;
    memcpy(self->peers, group->peers, size * sizeof *self->peers);
    memcpy(self->processes, group->processes, size * sizeof(dl_process *));
    return dl_layout_init(&self->layout, group->layout->rank, group->layout->size,
                          group->layout->host_of);
}

/* Allocates this rank's memory, and writes its card. */
static dl_status
open_memory(part *self)
{
    uint64_t head = dl_window_head_size(self->ranks.size);
    uint64_t size = self->options.size;
    card place = {0};

    if (size > SIZE_MAX - head) {
        return dl_fail_no_memory();
    }
    if (self->roster == NULL) {
        DL_TRY(dl_region_new(head + size, &self->region));
    } else {
        dl_arena *arena = &self->roster->membership.arena;
        DL_TRY(dl_shared_new(arena, head + size, &self->region));
        dl_shared_place found =
            dl_shared_find(arena, self->region->memory, head + size);
        place = (card){.offset = found.offset, .size = found.size};
    }
    memcpy(self->base.card, &place, sizeof place);
    set_memory(self, self->ranks.rank, self->region->memory, size);
    dl_window_memory *own = &self->targets[self->ranks.rank].memory;
    self->base.memory = own->elements;
    atomic_store(&own->head->is_open, 1);
    return DL_OK;
}

dl_status
dl_cpu_window_new(const dl_cpu_window_group *group, const dl_window_options *options,
                  dl_window_part **made)
{
    part *self = calloc(1, sizeof *self);
    bool is_alone = group->roster == NULL;

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
    self->ranks.group_name = self->group_name;
    self->ranks.peers = self->peers;
    self->ranks.processes = self->processes;
    self->ranks.ends = self->ends;
    if (status == DL_OK) {
        status = open_memory(self);
    }
    if (status != DL_OK) {
        free_part(&self->base);
        return status;
    }
    *made = &self->base;
    return DL_OK;
}
