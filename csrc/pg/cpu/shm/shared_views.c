/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/shared.h"

#include <stdlib.h>

/* Regions of each peer that stay mapped: a program usually alternates between a few. */
#define VIEWS_PER_RANK 16

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
find(const dl_shared_views *views, const dl_shared_place *place)
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
oldest(const dl_shared_views *views)
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
    struct dl_shared_view *view = find(views, place);

    if (view == NULL) {
        view = oldest(views);
        dl_segment_fini(&view->segment);
        DL_TRY(dl_segment_map(views->arena->file, place->offset, place->size,
                              &view->segment));
        view->offset = place->offset;
    }
    view->used_at = ++views->uses;
    if (place->start > view->segment.size || size > view->segment.size - place->start) {
        return dl_fail(DL_PROTOCOL, "a peer's shared array is smaller than it says");
    }
    *data = (uint8_t *)view->segment.memory + place->start;
    return DL_OK;
}
