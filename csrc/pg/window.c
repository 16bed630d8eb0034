/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of a window that does not depend on the backend: making one together, and
 * locks. */
#include "pg/window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/group_state.h"
#include "pg/window_part.h"
#include "pg/window_state.h"

/* What every rank sends to the others about its part. */
typedef struct announcement {
    uint64_t count;
    uint64_t status; /* dl_status of making it, or of joining the others' */
    uint8_t part[DL_WINDOW_HANDLE_SIZE];
} announcement;

/* Exchanges the announcements of all ranks.  If some rank has failed, all do. */
static dl_status
exchange_announcements(dl_window *self, const dl_tensor *model, announcement *own,
                       announcement *all, dl_deadline deadline)
{
    dl_group *group = self->group;
    dl_tensor *outputs = calloc((size_t)group->size, sizeof *outputs);

    if (outputs == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < group->size; rank++) {
        outputs[rank] = dl_tensor_of_bytes(&all[rank], sizeof all[rank]);
    }
    dl_call call = {.op = DL_WINDOW,
                    .tensor = dl_tensor_of_bytes(own, sizeof *own),
                    .inputs = model,
                    .outputs = outputs};
    dl_status status = dl_group_run(group, &call, deadline);
    free(outputs);
    for (int rank = 0; status == DL_OK && rank < group->size; rank++) {
        if (all[rank].status != DL_OK && rank != group->rank) {
            status =
                dl_fail(DL_BACKEND,
                        "window: rank %d of group %s could not make its part (%s); "
                        "its own error says why",
                        rank, group->name,
                        all[rank].status <= DL_STATUS_LAST
                            ? dl_status_name((dl_status)all[rank].status)
                            : "unknown");
        }
    }
    return status;
}

/* Makes the backend's part of this rank. */
static dl_status
make_part(dl_window *self, uint64_t count)
{
    dl_group *group = self->group;
    dl_window_options options = {.dtype = self->dtype, .item_size = self->item_size};

    if (count > SIZE_MAX / 2 / (self->item_size == 0 ? 1 : self->item_size)) {
        return dl_fail(DL_NO_MEMORY,
                       "window: %" PRIu64 " elements of %zu bytes are more than the "
                       "address space",
                       count, self->item_size);
    }
    options.size = count * self->item_size;
    pthread_mutex_lock(&group->lock);
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    dl_status status = backend == NULL
                           ? dl_fail(DL_CLOSED, "group %s was closed", group->name)
                           : backend->ops->window(backend, &options, &self->part);
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* Fails if the group has no windows. */
static dl_status
check_backend(dl_group *group)
{
    pthread_mutex_lock(&group->lock);
    const dl_backend *backend = dl_backend_of_messages(group->host.backend);
    bool has_windows = backend != NULL && backend->ops->window != NULL;
    pthread_mutex_unlock(&group->lock);
    return has_windows
               ? DL_OK
               : dl_fail(DL_UNSUPPORTED,
                         "the %s backend of group %s has no windows; make a group for "
                         "them with new_group(backend=\"gloo\")",
                         group->backend_name, group->name);
}

/* Makes this rank's part, exchanges announcements with the other ranks and joins their
 * parts.  A failure of one rank fails all. */
static dl_status
make_together(dl_window *self, const dl_tensor *model, uint64_t count,
              announcement *all, dl_deadline deadline)
{
    dl_group *group = self->group;
    dl_status made = make_part(self, count);
    dl_error error = *dl_last_error();
    announcement own = {.count = count, .status = (uint64_t)made};

    if (made == DL_OK) {
        memcpy(own.part, self->part->handle, sizeof own.part);
    }
    dl_status status = exchange_announcements(self, model, &own, all, deadline);
    if (made != DL_OK) {
        return dl_rethrow(&error);
    }
    DL_TRY(status);
    size_t size = (size_t)group->size;
    uint8_t *parts = malloc(size * DL_WINDOW_HANDLE_SIZE);
    uint64_t *sizes = malloc(size * sizeof *sizes);
    status = parts == NULL || sizes == NULL ? dl_fail_no_memory() : DL_OK;
    for (size_t rank = 0; status == DL_OK && rank < size; rank++) {
        self->counts[rank] = all[rank].count;
        sizes[rank] = all[rank].count * self->item_size;
        memcpy(parts + rank * DL_WINDOW_HANDLE_SIZE, all[rank].part,
               DL_WINDOW_HANDLE_SIZE);
    }
    if (status == DL_OK) {
        status = self->part->ops->join(self->part, parts, sizes);
    }
    free(parts);
    free(sizes);
    error = *dl_last_error();
    own.status = (uint64_t)status;
    dl_status met = exchange_announcements(self, model, &own, all, deadline);
    return status == DL_OK ? met : dl_rethrow(&error);
}

dl_status
dl_window_new(dl_group *group, const dl_tensor *model, uint64_t count,
              dl_deadline deadline, dl_window **window)
{
    DL_TRY(dl_group_admit(group));
    DL_TRY(check_backend(group));
    dl_window *self = calloc(1, sizeof *self);
    announcement *all = calloc((size_t)group->size, sizeof *all);
    dl_status status = all == NULL ? dl_fail_no_memory() : DL_OK;
    if (self == NULL) {
        status = dl_fail_no_memory();
    } else {
        self->group = dl_group_ref(group);
        self->dtype = model->dtype;
        self->opaque_code = model->opaque_code;
        self->item_size = model->item_size;
        self->counts = calloc((size_t)group->size, sizeof *self->counts);
        status = self->counts == NULL ? dl_fail_no_memory() : status;
    }
    if (status == DL_OK) {
        status = make_together(self, model, count, all, deadline);
    }
    free(all);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_window_free(self);
        return dl_rethrow(&error);
    }
    *window = self;
    return DL_OK;
}

void
dl_window_free(dl_window *window)
{
    if (window == NULL) {
        return;
    }
    dl_blocking_begin();
    if (window->part != NULL) {
        dl_window_end(window);
        window->part->ops->free(window->part);
    }
    dl_group_unref(window->group);
    free(window->counts);
    free(window);
}

void *
dl_window_own(const dl_window *window)
{
    return window->part->memory;
}

size_t
dl_window_size(const dl_window *window)
{
    return (size_t)window->counts[window->group->rank] * window->item_size;
}

uint64_t
dl_window_count(const dl_window *window, int rank)
{
    return window->counts[rank];
}

dl_group *
dl_window_group(const dl_window *window)
{
    return window->group;
}

dl_status
dl_window_check_usable(dl_window *window, const char *what, int rank)
{
    dl_group *group = window->group;

    DL_TRY(dl_group_admit(group));
    if (atomic_load(&window->is_closed)) {
        return dl_fail(DL_CLOSED, "%s: the window in group %s was closed", what,
                       group->name);
    }
    if (rank < 0 || rank >= group->size) {
        return dl_fail(DL_INVALID, "%s: rank %d is not in group %s of %d", what, rank,
                       group->name, group->size);
    }
    return DL_OK;
}

void
dl_window_wait_describe(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    const dl_window_wait *self = subject;

    if (self->rank < 0) {
        snprintf(text, DL_WAIT_ROW_TEXT, "Window.%s()", self->what);
    } else {
        snprintf(text, DL_WAIT_ROW_TEXT, "Window.%s(%d)", self->what, self->rank);
    }
}

dl_status
dl_window_lock(dl_window *window, int rank, bool is_shared, dl_deadline deadline)
{
    dl_window_wait what = {"lock", rank};
    dl_waiting waiting;

    DL_TRY(dl_window_check_usable(window, what.what, rank));
    dl_waiting_begin(&waiting, dl_window_wait_describe, &what, deadline);
    dl_status status = window->part->ops->lock(window->part, rank, is_shared, deadline);
    dl_waiting_end(&waiting);
    return status;
}

dl_status
dl_window_unlock(dl_window *window, int rank, dl_deadline deadline)
{
    dl_group *group = window->group;
    dl_window_wait what = {"unlock", rank};
    dl_waiting waiting;

    /* A group that has failed on this rank may still work on others, where ranks may
     * wait for the lock. */
    if (dl_group_is_inherited(group) || atomic_load(&window->is_closed) || rank < 0
        || rank >= group->size) {
        DL_TRY(dl_window_check_usable(window, what.what, rank));
    }
    dl_waiting_begin(&waiting, dl_window_wait_describe, &what, deadline);
    dl_status status = window->part->ops->unlock(window->part, rank, deadline);
    dl_waiting_end(&waiting);
    return status;
}

dl_status
dl_window_flush(dl_window *window, int rank, dl_deadline deadline)
{
    dl_window_wait what = {"flush", rank};
    dl_waiting waiting;

    DL_TRY(dl_window_check_usable(window, what.what, rank < 0 ? 0 : rank));
    dl_waiting_begin(&waiting, dl_window_wait_describe, &what, deadline);
    dl_status status = window->part->ops->flush(window->part, rank, deadline);
    dl_waiting_end(&waiting);
    return status;
}

dl_status
dl_window_fence(dl_window *window, dl_deadline deadline)
{
    DL_TRY(dl_window_flush(window, -1, deadline));
    return dl_group_barrier(window->group, deadline);
}

dl_status
dl_window_close(dl_window *window, dl_deadline deadline)
{
    dl_status status = DL_OK;

    if (atomic_load(&window->is_closed)) {
        return DL_OK;
    }
    if (dl_group_admit(window->group) == DL_OK) {
        status = dl_window_fence(window, deadline);
    }
    dl_window_end(window);
    return status;
}

void
dl_window_end(dl_window *window)
{
    if (!atomic_exchange(&window->is_closed, true)) {
        window->part->ops->end(window->part);
    }
}
