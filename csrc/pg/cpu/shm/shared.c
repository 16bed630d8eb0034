/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/thread.h"
#include "net/socket.h"

#define PAGE ((size_t)4096)
#define PIECE ((size_t)1 << 20)

/* Regions of each peer that stay mapped: a program usually alternates between a few. */
#define VIEWS_PER_RANK 16

/* An arena's file, kept open by the regions in it. */
typedef struct file {
    uint64_t id;
    int descriptor;
    size_t users; /* guarded by the list's lock */
    uint32_t fork_generation;
} file;

typedef struct stretch {
    dl_region base;
    file *file;
    uint64_t offset;
} stretch;

/* The regions of this process, sorted by address. */
static struct {
    pthread_mutex_t lock;
    stretch **stretches;
    size_t count;
    size_t capacity;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Read without the lock, so that programs without shared arrays do not pay for it. */
static atomic_bool is_used;

static void
lock_list(void)
{
    pthread_mutex_lock(&list.lock);
}

static void
unlock_list(void)
{
    pthread_mutex_unlock(&list.lock);
}

/* Holds the lock across fork(2), so that a forked child finds it free. */
static void
guard_forks(void)
{
    pthread_atfork(lock_list, unlock_list, unlock_list);
}

/* Returns the index of the first stretch that ends behind `address`.  Requires the
 * lock. */
static size_t
index_of(const void *address)
{
    size_t low = 0;
    size_t high = list.count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const dl_region *region = &list.stretches[middle]->base;
        if ((uintptr_t)region->memory + region->size <= (uintptr_t)address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Finds or opens the arena's file.  Requires the lock. */
static dl_status
open_file(const dl_arena *arena, file **opened)
{
    for (size_t i = 0; i < list.count; i++) {
        if (list.stretches[i]->file->id == arena->file_id) {
            *opened = list.stretches[i]->file;
            return DL_OK;
        }
    }
    file *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->descriptor = fcntl(arena->file, F_DUPFD_CLOEXEC, 0);
    if (made->descriptor < 0) {
        free(made);
        return dl_fail(DL_INTERNAL, "keeping shared memory open: %s", strerror(errno));
    }
    dl_fork_guard(made->descriptor);
    made->id = arena->file_id;
    made->fork_generation = dl_fork_generation();
    *opened = made;
    return DL_OK;
}

/* Closes a file without users.  In a forked child the descriptor is closed already. */
static void
close_file(file *file)
{
    if (file->users == 0) {
        if (file->fork_generation == dl_fork_generation()) {
            dl_socket_close(file->descriptor);
        }
        free(file);
    }
}

/* Inserts a stretch into the list.  Requires the lock. */
static dl_status
insert_stretch(stretch *self)
{
    if (list.count == list.capacity) {
        size_t capacity = list.capacity == 0 ? 16 : 2 * list.capacity;
        void *grown = realloc(list.stretches, capacity * sizeof *list.stretches);
        if (grown == NULL) {
            return dl_fail_no_memory();
        }
        list.stretches = grown;
        list.capacity = capacity;
    }
    size_t at = index_of(self->base.memory);
    memmove(&list.stretches[at + 1], &list.stretches[at],
            (list.count - at) * sizeof *list.stretches);
    list.stretches[at] = self;
    list.count++;
    self->file->users++;
    return DL_OK;
}

/* Allocates pages now, so that running out of memory is an error and not a signal.
 * Returns 0, or an errno.  A signal ends the call in some kernels, and undoes what it
 * has done: then the pages are allocated in pieces, which fit between signals. */
static int
allocate_pages(int file, uint64_t offset, size_t size)
{
    int error = posix_fallocate(file, (off_t)offset, (off_t)size);
    bool is_interrupted = error == EINTR;
    size_t done = 0;

    while (is_interrupted && done < size && (error == 0 || error == EINTR)) {
        size_t left = size - done;
        size_t piece = left < PIECE ? left : PIECE;
        error = posix_fallocate(file, (off_t)(offset + done), (off_t)piece);
        done += error == 0 ? piece : 0;
    }
    return error;
}

static void
punch_hole(int file, uint64_t offset, size_t size)
{
    (void)fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)size);
}

/* Returns the pages to the system at once, even if peers still map them.  A forked
 * child, which has inherited the mapping, only unmaps it. */
static void
free_stretch(dl_region *region)
{
    stretch *self = (stretch *)(void *)region;

    lock_list();
    size_t at = index_of(region->memory);
    list.count--;
    memmove(&list.stretches[at], &list.stretches[at + 1],
            (list.count - at) * sizeof *list.stretches);
    munmap(region->memory, region->size);
    if (self->file->fork_generation == dl_fork_generation()) {
        punch_hole(self->file->descriptor, self->offset, region->size);
    }
    self->file->users--;
    close_file(self->file);
    unlock_list();
    free(self);
}

static dl_status
map_stretch(const dl_arena *arena, stretch *self)
{
    dl_region *region = &self->base;

    int error = allocate_pages(arena->file, self->offset, region->size);
    if (error != 0) {
        return dl_fail(DL_NO_MEMORY, "%zu bytes of shared memory: %s", region->size,
                       strerror(error));
    }
    void *memory = mmap(NULL, region->size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, arena->file, (off_t)self->offset);
    if (memory == MAP_FAILED) {
        return dl_fail(DL_NO_MEMORY, "mapping %zu bytes of shared memory: %s",
                       region->size, strerror(errno));
    }
    region->memory = memory;
    region->free = free_stretch;
    return DL_OK;
}

/* Enters a mapped stretch in the list.  Requires the lock. */
static dl_status
keep_stretch(const dl_arena *arena, stretch *self)
{
    DL_TRY(open_file(arena, &self->file));
    dl_status status = insert_stretch(self);
    if (status != DL_OK) {
        close_file(self->file);
    }
    return status;
}

dl_status
dl_shared_new(dl_arena *arena, size_t size, dl_region **region)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    stretch *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    pthread_once(&once, guard_forks);
    made->base.size = dl_round_up(size, PAGE);
    made->offset = dl_arena_extend(arena, made->base.size);
    dl_status status = map_stretch(arena, made);
    if (status == DL_OK) {
        lock_list();
        status = keep_stretch(arena, made);
        unlock_list();
    }
    if (status != DL_OK) {
        if (made->base.memory != NULL) {
            munmap(made->base.memory, made->base.size);
        }
        punch_hole(arena->file, made->offset, made->base.size);
        free(made);
        return status;
    }
    atomic_store(&is_used, true);
    *region = &made->base;
    return DL_OK;
}

dl_shared_place
dl_shared_find(const dl_arena *arena, const void *data, size_t size)
{
    dl_shared_place place = {0};

    if (!atomic_load_explicit(&is_used, memory_order_relaxed)) {
        return place;
    }
    lock_list();
    size_t at = index_of(data);
    if (at < list.count) {
        const stretch *found = list.stretches[at];
        size_t start = (uintptr_t)data - (uintptr_t)found->base.memory;
        bool is_inside = (uintptr_t)data >= (uintptr_t)found->base.memory
                         && size <= found->base.size - start;
        if (is_inside && found->file->id == arena->file_id) {
            place = (dl_shared_place){found->offset, found->base.size, start};
        }
    }
    unlock_list();
    return place;
}

struct dl_shared_view {
    uint64_t offset;
    uint64_t used_at; /* 0: never */
    dl_segment segment;
};

dl_status
dl_shared_views_init(dl_shared_views *views, const dl_arena *arena, int ranks)
{
    *views = (dl_shared_views){.arena = arena, .count = ranks * VIEWS_PER_RANK};
    views->views = calloc((size_t)views->count, sizeof *views->views);
    views->arrays = calloc((size_t)ranks, sizeof *views->arrays);
    if (views->views == NULL || views->arrays == NULL) {
        dl_shared_views_fini(views);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

void
dl_shared_views_fini(dl_shared_views *views)
{
    for (int i = 0; views->views != NULL && i < views->count; i++) {
        dl_segment_fini(&views->views[i].segment);
    }
    free(views->views);
    free(views->arrays);
    *views = (dl_shared_views){0};
}

/* An offset is given out only once, so equal offsets mean the same region. */
static struct dl_shared_view *
find_view(const dl_shared_views *views, const dl_shared_place *place)
{
    for (int i = 0; i < views->count; i++) {
        struct dl_shared_view *view = &views->views[i];
        if (view->segment.memory != NULL && view->offset == place->offset) {
            return view;
        }
    }
    return NULL;
}

/* Returns the view to be replaced: the least recently used, which the current operation
 * cannot be using. */
static struct dl_shared_view *
oldest_view(const dl_shared_views *views)
{
    struct dl_shared_view *found = views->views;

    for (int i = 1; i < views->count; i++) {
        struct dl_shared_view *view = &views->views[i];
        found = view->used_at < found->used_at ? view : found;
    }
    return found;
}

dl_status
dl_shared_views_map(dl_shared_views *views, const dl_shared_place *place, size_t size,
                    uint8_t **data)
{
    struct dl_shared_view *view = find_view(views, place);

    if (view == NULL) {
        view = oldest_view(views);
        dl_segment_fini(&view->segment);
        DL_TRY(dl_segment_map(views->arena->file, place->offset, place->size,
                              &view->segment));
        view->offset = place->offset;
    }
    view->used_at = ++views->uses;
    if (place->start > view->segment.size || size > view->segment.size - place->start) {
        return dl_fail(DL_PROTOCOL,
                       "a peer's shared array is smaller than the size it announced");
    }
    *data = (uint8_t *)view->segment.memory + place->start;
    return DL_OK;
}
