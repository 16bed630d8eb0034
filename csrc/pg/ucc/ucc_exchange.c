/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"

/* A look into the store, after which others get their turn. */
#define LOOK (20 * DL_MILLISECOND)

#define KEY_SIZE 64

/* One exchange on its way. */
typedef struct pending {
    dl_ucc_exchange *exchange;
    uint8_t *target;
    size_t bytes; /* of each rank */
    uint64_t round;
    bool is_done;
} pending;

static int
fail(dl_ucc_exchange *self)
{
    if (self->error.status == DL_OK) {
        self->error = *dl_last_error();
    }
    return DL_UCC_NO_MESSAGE;
}

static dl_bytes
key_of(const dl_ucc_exchange *self, uint64_t round, int rank, char text[KEY_SIZE])
{
    int size =
        snprintf(text, KEY_SIZE, "ucc/%s/%" PRIu64 "/%d", self->what, round, rank);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

static int
begin(void *send, void *receive, size_t bytes, void *user, void **request)
{
    dl_ucc_exchange *self = user;
    char key[KEY_SIZE];
    pending *made = malloc(sizeof *made);

    if (made == NULL) {
        (void)dl_fail_no_memory();
        return fail(self);
    }
    *made = (pending){self, receive, bytes, self->round++, false};
    if (dl_store_set(self->store, key_of(self, made->round, self->rank, key),
                     (dl_bytes){send, bytes}, self->deadline)
        != DL_OK) {
        free(made);
        return fail(self);
    }
    *request = made;
    return DL_UCC_OK;
}

/* All ranks' buffers, and their keys. */
typedef struct answers {
    char (*texts)[KEY_SIZE];
    dl_bytes *keys;
    dl_buffer *values;
    size_t count;
} answers;

static void
answers_fini(answers *all)
{
    for (size_t i = 0; all->values != NULL && i < all->count; i++) {
        dl_buffer_fini(&all->values[i]);
    }
    free(all->texts);
    free(all->keys);
    free(all->values);
}

static dl_status
answers_init(answers *all, const pending *self)
{
    size_t count = (size_t)self->exchange->size;

    *all = (answers){.count = count};
    all->texts = calloc(count, sizeof *all->texts);
    all->keys = calloc(count, sizeof *all->keys);
    all->values = calloc(count, sizeof *all->values);
    if (all->texts == NULL || all->keys == NULL || all->values == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t i = 0; i < count; i++) {
        all->keys[i] = key_of(self->exchange, self->round, (int)i, all->texts[i]);
    }
    return DL_OK;
}

/* Names the first rank that has not come. */
static dl_status
fail_absent(const pending *self, const answers *all)
{
    const dl_ucc_exchange *exchange = self->exchange;
    size_t absent = 0;
    bool exists = true;

    for (size_t i = 0; exists && i < all->count; i++) {
        absent = i;
        DL_TRY(dl_store_check(exchange->store, &all->keys[i], 1, &exists,
                              dl_deadline_after(0)));
    }
    return dl_fail(DL_TIMEOUT,
                   "rank %zu did not come to make the UCC %s within %" PRId64
                   "ms; is it running, and has it the same backend?",
                   absent, exchange->what, exchange->deadline.limit / DL_MILLISECOND);
}

static dl_status
collect(pending *self, answers *all)
{
    dl_ucc_exchange *exchange = self->exchange;
    dl_deadline look = dl_deadline_sooner(exchange->deadline, LOOK);

    dl_status status =
        dl_store_multi_get(exchange->store, all->keys, all->count, all->values, look);
    if (status == DL_TIMEOUT && dl_deadline_passed(exchange->deadline)) {
        return fail_absent(self, all);
    }
    if (status != DL_OK) {
        return status;
    }
    for (size_t i = 0; i < all->count; i++) {
        if (all->values[i].size != self->bytes) {
            return dl_fail(DL_PROTOCOL,
                           "rank %zu sent %zu bytes to make the UCC %s, not %zu; do "
                           "all ranks have the same version of UCC?",
                           i, all->values[i].size, exchange->what, self->bytes);
        }
        memcpy(self->target + i * self->bytes, all->values[i].data, self->bytes);
    }
    self->is_done = true;
    return DL_OK;
}

/* Between looks. */
static dl_status
look_round(const dl_ucc_exchange *self)
{
    for (int rank = 0; self->company != NULL && rank < self->size; rank++) {
        if (rank != self->rank
            && self->company->ops->watch(self->company, rank) != DL_OK) {
            return dl_fail_while("making the UCC %s", self->what);
        }
    }
    return self->is_leaving ? DL_OK : dl_interrupt_check();
}

static int
test(void *request)
{
    pending *self = request;
    dl_ucc_exchange *exchange = self->exchange;
    answers all;

    if (self->is_done) {
        return DL_UCC_OK;
    }
    dl_status status = answers_init(&all, self);
    if (status == DL_OK) {
        status = collect(self, &all);
    }
    answers_fini(&all);
    if (status == DL_TIMEOUT && !dl_deadline_passed(exchange->deadline)) {
        status = look_round(exchange);
    }
    if (status != DL_OK) {
        return fail(exchange);
    }
    return self->is_done ? DL_UCC_OK : DL_UCC_IN_PROGRESS;
}

static int
end(void *request)
{
    free(request);
    return DL_UCC_OK;
}

void
dl_ucc_exchange_init(dl_ucc_exchange *exchange, dl_store *store, const char *what,
                     int rank, int size)
{
    *exchange = (dl_ucc_exchange){
        .store = dl_store_ref(store),
        .what = what,
        .rank = rank,
        .size = size,
    };
}

void
dl_ucc_exchange_fini(dl_ucc_exchange *exchange)
{
    dl_store_unref(exchange->store);
}

dl_ucc_oob
dl_ucc_exchange_oob(dl_ucc_exchange *exchange)
{
    return (dl_ucc_oob){
        .all_gather = begin,
        .test = test,
        .free = end,
        .user = exchange,
        .size = (uint32_t)exchange->size,
        .rank = (uint32_t)exchange->rank,
    };
}
