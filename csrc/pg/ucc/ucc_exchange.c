/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/ucc/ucc_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "pg/agree/rank_keys.h"

/* How long one look into the store may take before UCC progresses other things. */
#define LOOK (20 * DL_MILLISECOND)

/* Key of the reason why a rank did not make the group, and the time for a request for
 * it. */
#define REFUSAL_KEY DL_LITERAL("ucc/refusal")
#define PATIENCE DL_SECOND

/* An exchange that is in progress. */
typedef struct pending {
    dl_ucc_exchange *exchange;
    uint8_t *target;
    size_t bytes; /* from each rank */
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
key_of(const dl_ucc_exchange *self, uint64_t round, int rank,
       char text[DL_RANK_KEY_SIZE])
{
    int size = snprintf(text, DL_RANK_KEY_SIZE, "ucc/%s/%" PRIu64 "/%d", self->what,
                        round, rank);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

static int
begin(void *send, void *receive, size_t bytes, void *user, void **request)
{
    dl_ucc_exchange *self = user;
    char key[DL_RANK_KEY_SIZE];
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

static dl_bytes
write_key(const void *context, int rank, char text[DL_RANK_KEY_SIZE])
{
    const pending *self = context;

    return key_of(self->exchange, self->round, rank, text);
}

static dl_status
fail_absent(const pending *self, const dl_rank_keys *keys)
{
    const dl_ucc_exchange *exchange = self->exchange;
    dl_error error = *dl_last_error();
    dl_rank_list absent;

    if (dl_rank_keys_absent(keys, exchange->store, &absent) != DL_OK
        || absent.count == 0) {
        return dl_fail_again(&error);
    }
    return dl_fail(DL_TIMEOUT,
                   "rank %s did not come to make the UCC %s within %" PRId64
                   "ms; is it running, and has it the same backend?",
                   absent.text, exchange->what,
                   exchange->deadline.limit / DL_MILLISECOND);
}

/* Copies a rank's bytes, which are as many as this rank's. */
static dl_status
take(const pending *self, int rank, const dl_buffer *value)
{
    if (value->size != self->bytes) {
        return dl_fail(DL_PROTOCOL,
                       "rank %d sent %zu bytes to make the UCC %s, not %zu; do all "
                       "ranks have the same version of UCC?",
                       rank, value->size, self->exchange->what, self->bytes);
    }
    memcpy(self->target + (size_t)rank * self->bytes, value->data, self->bytes);
    return DL_OK;
}

static dl_status
collect(pending *self, const dl_rank_keys *keys, dl_buffer *values)
{
    dl_ucc_exchange *exchange = self->exchange;
    dl_deadline look = dl_deadline_earlier(exchange->deadline, LOOK);

    dl_status status = dl_rank_keys_get(keys, exchange->store, values, look);
    if (status == DL_TIMEOUT && dl_deadline_passed(exchange->deadline)) {
        return fail_absent(self, keys);
    }
    for (int rank = 0; status == DL_OK && rank < exchange->size; rank++) {
        status = take(self, rank, &values[rank]);
    }
    self->is_done = status == DL_OK;
    return status;
}

static dl_status
look(pending *self)
{
    int size = self->exchange->size;
    dl_buffer *values = dl_rank_values_new(size);
    dl_rank_keys keys = {0};
    dl_status status =
        values == NULL ? DL_NO_MEMORY : dl_rank_keys_init(&keys, size, write_key, self);

    if (status == DL_OK) {
        status = collect(self, &keys, values);
    }
    dl_rank_keys_fini(&keys);
    dl_rank_values_free(values, size);
    return status;
}

/* Fails with DL_PEER_LOST and the text, if a rank has published why it gave up. */
static dl_status
check_refusal(const dl_ucc_exchange *self)
{
    dl_bytes key = REFUSAL_KEY;
    dl_buffer text = {0};
    bool exists = false;
    dl_status status = DL_OK;

    /* If the store does not answer, the exchange's own requests fail. */
    if (dl_store_check(self->store, &key, 1, &exists, dl_deadline_after(PATIENCE))
            == DL_OK
        && exists
        && dl_store_get(self->store, key, &text, dl_deadline_after(PATIENCE))
               == DL_OK) {
        status = dl_fail(DL_PEER_LOST, "%.*s", (int)text.size, (const char *)text.data);
    }
    dl_buffer_fini(&text);
    return status;
}

/* Checks between looks whether the exchange has to end. */
static dl_status
look_round(const dl_ucc_exchange *self)
{
    if (!self->is_leaving) {
        DL_TRY(check_refusal(self));
    }
    for (int rank = 0; self->watcher != NULL && rank < self->size; rank++) {
        if (rank != self->rank
            && self->watcher->ops->watch(self->watcher, rank) != DL_OK) {
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

    if (self->is_done) {
        return DL_UCC_OK;
    }
    dl_status status = look(self);
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

dl_status
dl_ucc_exchange_explain(const dl_ucc_exchange *exchange, dl_status status)
{
    bool is_known = status != DL_OK && exchange->error.status != DL_OK;

    return is_known ? dl_fail_again(&exchange->error) : status;
}

void
dl_ucc_exchange_refuse(dl_store *store, int rank)
{
    dl_error error = *dl_last_error();
    char text[DL_ERROR_TEXT_SIZE + 64];

    if (error.status == DL_TIMEOUT || error.status == DL_PEER_LOST) {
        return;
    }
    int size =
        snprintf(text, sizeof text, "rank %d could not make the group: %s", rank,
                 error.status == DL_INTERRUPTED ? "it was interrupted" : error.text);
    (void)dl_store_set(store, REFUSAL_KEY,
                       (dl_bytes){(const uint8_t *)text, (size_t)size},
                       dl_deadline_after(PATIENCE));
    (void)dl_fail_again(&error);
}

void
dl_ucc_exchange_forget(dl_store *store)
{
    dl_bytes key = REFUSAL_KEY;
    bool exists = false;

    (void)dl_store_delete_key(store, key, &exists, dl_deadline_after(PATIENCE));
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
