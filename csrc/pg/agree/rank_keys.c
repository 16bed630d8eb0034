/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/rank_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If there are more, the first ones suffice. */
#define NAMED_RANKS 16

dl_status
dl_rank_keys_init(dl_rank_keys *self, int size, dl_rank_key_fn key, const void *context)
{
    size_t count = (size_t)size;

    *self = (dl_rank_keys){.size = size};
    self->keys = calloc(count, sizeof *self->keys + DL_RANK_KEY_SIZE);
    if (self->keys == NULL) {
        return dl_fail_no_memory();
    }
    char *text = (char *)(self->keys + count);
    for (int rank = 0; rank < size; rank++, text += DL_RANK_KEY_SIZE) {
        self->keys[rank] = key(context, rank, text);
    }
    return DL_OK;
}

void
dl_rank_keys_fini(dl_rank_keys *self)
{
    free(self->keys);
    self->keys = NULL;
}

dl_buffer *
dl_rank_values_new(int size)
{
    dl_buffer *values = calloc((size_t)size, sizeof *values);

    if (values == NULL) {
        dl_fail_no_memory();
    }
    return values;
}

void
dl_rank_values_free(dl_buffer *values, int size)
{
    for (int rank = 0; values != NULL && rank < size; rank++) {
        dl_buffer_fini(&values[rank]);
    }
    free(values);
}

dl_status
dl_rank_keys_get(const dl_rank_keys *self, dl_store *store, dl_buffer *values,
                 dl_deadline deadline)
{
    if (values == NULL) {
        return dl_store_wait(store, self->keys, (size_t)self->size, deadline);
    }
    for (int rank = 0; rank < self->size; rank++) {
        dl_buffer_clear(&values[rank]);
    }
    return dl_store_multi_get(store, self->keys, (size_t)self->size, values, deadline);
}

void
dl_rank_list_add(dl_rank_list *list, int rank)
{
    size_t used = strlen(list->text);

    if (list->count++ < NAMED_RANKS) {
        snprintf(list->text + used, sizeof list->text - used, "%s%d",
                 used > 0 ? ", " : "", rank);
    }
}

void
dl_rank_list_end(dl_rank_list *list)
{
    size_t used = strlen(list->text);

    if (list->count > NAMED_RANKS) {
        snprintf(list->text + used, sizeof list->text - used, " and %d more",
                 list->count - NAMED_RANKS);
    }
}

dl_status
dl_rank_list_fail(const dl_rank_list *absent, const char *what, dl_deadline deadline)
{
    return dl_fail(DL_TIMEOUT,
                   "rank%s %s did not join %s within %" PRId64
                   "ms; `distlite ps` shows what each rank does; all need the same "
                   "backend",
                   absent->count == 1 ? "" : "s", absent->text, what,
                   deadline.limit / DL_MILLISECOND);
}

dl_status
dl_rank_keys_absent(const dl_rank_keys *self, dl_store *store, dl_rank_list *absent)
{
    *absent = (dl_rank_list){.count = 0};
    for (int rank = 0; rank < self->size; rank++) {
        bool exists = true;
        DL_TRY(
            dl_store_check(store, &self->keys[rank], 1, &exists, dl_deadline_after(0)));
        if (!exists) {
            dl_rank_list_add(absent, rank);
        }
    }
    dl_rank_list_end(absent);
    return DL_OK;
}
