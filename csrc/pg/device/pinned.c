/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/pinned.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Smaller pieces are made this large, so that most operations find one that fits. */
#define SMALLEST ((size_t)64 << 10)

static struct {
    /* A thread that finds it set does without the list instead of waiting: in a forked
     * child it may be set forever. */
    atomic_flag is_busy;
    dl_pinned *first; /* guarded by is_busy; the latest one */
    atomic_int groups;
} kept = {.is_busy = ATOMIC_FLAG_INIT};

static bool
try_lock(void)
{
    return !atomic_flag_test_and_set_explicit(&kept.is_busy, memory_order_acquire);
}

static void
unlock(void)
{
    atomic_flag_clear_explicit(&kept.is_busy, memory_order_release);
}

static void
free_all(dl_pinned *first)
{
    while (first != NULL) {
        dl_pinned *next = first->next;
        const dl_cuda_table *cuda = first->cuda;
        int previous;
        if (dl_cuda_enter(cuda, first->device, &previous) == DL_OK) {
            cuda->host_free(first->memory);
            cuda->stream_destroy(first->stream);
            dl_cuda_leave(cuda, first->device, previous);
        }
        free(first);
        first = next;
    }
}

/* Takes the smallest kept piece that is large enough, but none that is much too large:
 * small operations would hold what a large one needs. */
static dl_pinned *
take_smallest(int device, size_t size)
{
    dl_pinned **best = NULL;

    for (dl_pinned **at = &kept.first; *at != NULL; at = &(*at)->next) {
        bool fits = (*at)->device == device && (*at)->size >= size
                    && (*at)->size / 4 <= size + SMALLEST;
        if (fits && (best == NULL || (*at)->size < (*best)->size)) {
            best = at;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    dl_pinned *found = *best;
    *best = found->next;
    return found;
}

static dl_status
allocate(dl_pinned *self, const dl_cuda_table *cuda, size_t size)
{
    DL_TRY(dl_cuda_check(
        cuda, cuda->stream_create(&self->stream, DL_CUDA_STREAM_NON_BLOCKING, 0),
        "cudaStreamCreateWithPriority"));
    dl_status status =
        dl_cuda_check(cuda, cuda->host_new(&self->memory, size, DL_CUDA_HOST_PORTABLE),
                      "cudaHostAlloc");
    if (status != DL_OK) {
        cuda->stream_destroy(self->stream);
    }
    return status;
}

/* Rounds up to a power of two, or, above half of the limit, to a multiple of the
 * smallest size. */
static size_t
rounded(size_t size)
{
    size_t whole = SMALLEST;

    while (whole < size && whole < DL_PINNED_LIMIT / 2) {
        whole *= 2;
    }
    return whole >= size ? whole : (size + SMALLEST - 1) / SMALLEST * SMALLEST;
}

dl_status
dl_pinned_take(const dl_cuda_table *cuda, int device, size_t size, dl_pinned **pinned)
{
    dl_pinned *self = NULL;

    if (try_lock()) {
        self = take_smallest(device, size);
        unlock();
    }
    if (self != NULL) {
        *pinned = self;
        return DL_OK;
    }
    self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->cuda = cuda;
    self->device = device;
    self->size = rounded(size);
    dl_status status = allocate(self, cuda, self->size);
    if (status != DL_OK) {
        free(self);
        return status;
    }
    *pinned = self;
    return DL_OK;
}

/* Cuts the oldest pieces off the list, so that the others stay within the limit. */
static dl_pinned *
cut_excess(void)
{
    dl_pinned **end = &kept.first;
    size_t sum = 0;

    while (*end != NULL && (*end)->size <= DL_PINNED_LIMIT - sum) {
        sum += (*end)->size;
        end = &(*end)->next;
    }
    dl_pinned *rest = *end;
    *end = NULL;
    return rest;
}

void
dl_pinned_give(dl_pinned *pinned)
{
    if (pinned->size > DL_PINNED_LIMIT || atomic_load(&kept.groups) == 0
        || !try_lock()) {
        pinned->next = NULL;
        free_all(pinned);
        return;
    }
    pinned->next = kept.first;
    kept.first = pinned;
    dl_pinned *rest = cut_excess();
    unlock();
    free_all(rest);
}

void
dl_pinned_join(void)
{
    atomic_fetch_add(&kept.groups, 1);
}

void
dl_pinned_leave(void)
{
    if (atomic_fetch_sub(&kept.groups, 1) == 1 && try_lock()) {
        dl_pinned *first = kept.first;
        kept.first = NULL;
        unlock();
        free_all(first);
    }
}
