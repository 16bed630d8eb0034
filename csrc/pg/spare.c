/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/spare.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The size on x86 and most other machines; elsewhere it does no harm. */
#define LARGE_PAGE ((size_t)2 << 20)

typedef struct spare {
    dl_region base;
    struct spare *next;
} spare;

static struct {
    /* A thread that finds it set does without the list instead of waiting: in a forked
     * child it may be set forever. */
    atomic_flag is_busy;
    /* guarded by is_busy */
    spare *first; /* the latest one */
} waiting = {.is_busy = ATOMIC_FLAG_INIT};

static bool
try_lock(void)
{
    return !atomic_flag_test_and_set_explicit(&waiting.is_busy, memory_order_acquire);
}

static void
unlock_spare(void)
{
    atomic_flag_clear_explicit(&waiting.is_busy, memory_order_release);
}

static void
free_all(spare *first)
{
    while (first != NULL) {
        spare *next = first->next;
        munmap(first->base.memory, first->base.size);
        free(first);
        first = next;
    }
}

/* Cuts the oldest entries off the list, so that the others stay within the limit. */
static spare *
cut_excess(void)
{
    spare **end = &waiting.first;
    size_t sum = 0;

    while (*end != NULL && (*end)->base.size <= DL_SPARE_LIMIT - sum) {
        sum += (*end)->base.size;
        end = &(*end)->next;
    }
    spare *rest = *end;
    *end = NULL;
    return rest;
}

static void
give_back(dl_region *region)
{
    spare *self = (spare *)(void *)region;
    spare *rest = self;

    self->next = NULL;
    /* A larger one would only evict all others. */
    if (region->size <= DL_SPARE_LIMIT) {
        /* A write to the pages takes them back; kernels without MADV_FREE
         * just keep them. */
        (void)madvise(region->memory, region->size, MADV_FREE);
        if (try_lock()) {
            self->next = waiting.first;
            waiting.first = self;
            rest = cut_excess();
            unlock_spare();
        }
    }
    free_all(rest);
}

/* Takes the smallest entry that fits.  Entries of more than twice the size do not,
 * since the array would keep all of it. */
static spare *
take_smallest(size_t size)
{
    spare **best = NULL;

    if (!try_lock()) {
        return NULL;
    }
    for (spare **at = &waiting.first; *at != NULL; at = &(*at)->next) {
        size_t found = (*at)->base.size;
        bool fits = found >= size && found - size <= size;
        if (fits && (best == NULL || found < (*best)->base.size)) {
            best = at;
        }
    }
    spare *taken = best == NULL ? NULL : *best;
    if (taken != NULL) {
        *best = taken->next;
    }
    unlock_spare();
    return taken;
}

/* Maps memory that begins at a large page, which not every kernel ensures by itself. */
static uint8_t *
map_aligned(size_t size)
{
    uint8_t *mapped = mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mapped == MAP_FAILED) {
        return NULL;
    }
    size_t before = -(uintptr_t)mapped % LARGE_PAGE;
    if (before > 0) {
        munmap(mapped, before);
    }
    munmap(mapped + before + size, LARGE_PAGE - before);
    (void)madvise(mapped + before, size, MADV_HUGEPAGE);
    return mapped + before;
}

static dl_status
make_spare(size_t size, spare **made)
{
    spare *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->base =
        (dl_region){.memory = map_aligned(size), .size = size, .free = give_back};
    if (self->base.memory == NULL) {
        int error = errno;
        free(self);
        return dl_fail(DL_NO_MEMORY, "allocating %zu bytes for a receive buffer: %s",
                       size, strerror(error));
    }
    *made = self;
    return DL_OK;
}

dl_status
dl_spare_new(size_t size, dl_region **region)
{
    if (size > SIZE_MAX / 2) {
        return dl_fail_no_memory();
    }
    size = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    spare *found = take_smallest(size);
    if (found == NULL) {
        DL_TRY(make_spare(size, &found));
    }
    *region = &found->base;
    return DL_OK;
}

void
dl_spare_clear(void)
{
    if (try_lock()) {
        spare *all = waiting.first;
        waiting.first = NULL;
        unlock_spare();
        free_all(all);
    }
}
