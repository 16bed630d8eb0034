/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/wait_exchange.h"

#include <stdio.h>
#include <stdlib.h>

/* The most ranks whose states are read in one search. */
#define READS 128

/* The time that the store has for requests that it answers at once. */
#define ANSWER_LIMIT (5 * DL_SECOND)

#define KEY_SIZE 64

static dl_bytes
state_key(int rank, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "deadlock/waits/%d", rank);
    return dl_bytes_of(text);
}

dl_status
dl_wait_exchange_publish(dl_wait_exchange *self, const dl_wait_state *state)
{
    dl_buffer bytes = {0};
    char key[KEY_SIZE];

    dl_wait_state_write(state, &bytes);
    dl_status status = dl_buffer_check(&bytes);
    if (status == DL_OK) {
        status = dl_store_set(self->store, state_key(self->rank, key),
                              dl_buffer_bytes(&bytes), dl_deadline_after(ANSWER_LIMIT));
    }
    self->has_published |= status == DL_OK;
    dl_buffer_fini(&bytes);
    return status;
}

void
dl_wait_exchange_withdraw(dl_wait_exchange *self)
{
    char key[KEY_SIZE];

    if (self->has_published) {
        (void)dl_store_set(self->store, state_key(self->rank, key), DL_LITERAL("-"),
                           dl_deadline_after(ANSWER_LIMIT));
    }
}

static dl_status
read_state(dl_wait_exchange *self, int rank)
{
    dl_buffer value = {0};
    char key[KEY_SIZE];
    dl_status status = dl_store_get_if_set(self->store, state_key(rank, key), &value,
                                           dl_deadline_after(ANSWER_LIMIT));
    dl_wait_state *state = status == DL_OK ? calloc(1, sizeof *state) : NULL;

    if (state != NULL && dl_wait_state_read(dl_buffer_bytes(&value), state)
        && state->rank == rank) {
        self->states[rank] = state;
    } else {
        free(state);
    }
    dl_buffer_fini(&value);
    return status;
}

static void
forget_states(dl_wait_exchange *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank) {
            free(self->states[rank]);
        }
        self->states[rank] = NULL;
    }
}

void
dl_wait_exchange_forget(dl_wait_exchange *self, dl_wait_state *own)
{
    forget_states(self);
    self->states[self->rank] = own;
}

dl_status
dl_wait_exchange_read(dl_wait_exchange *self, dl_wait_state *own)
{
    int ranks[READS];
    bool *is_known = calloc((size_t)self->size, sizeof *is_known);
    int count = 1;
    dl_status status = is_known == NULL ? dl_fail_no_memory() : DL_OK;

    dl_wait_exchange_forget(self, own);
    ranks[0] = self->rank;
    for (int i = 0; status == DL_OK && i < count; i++) {
        const dl_wait_state *state;
        if (i > 0) {
            status = read_state(self, ranks[i]);
        } else {
            is_known[self->rank] = true;
        }
        state = self->states[ranks[i]];
        for (uint32_t row = 0; state != NULL && row < state->row_count; row++) {
            const dl_awaited *awaited = &state->rows[row].awaited;
            for (uint32_t j = 0; j < awaited->count; j++) {
                int rank = awaited->ranks[j];
                if (rank >= 0 && rank < self->size && !is_known[rank]
                    && count < READS) {
                    is_known[rank] = true;
                    ranks[count++] = rank;
                }
            }
        }
    }
    free(is_known);
    return status;
}

dl_status
dl_wait_exchange_init(dl_wait_exchange *self, dl_store *store, int rank, int size)
{
    *self = (dl_wait_exchange){
        .store = dl_store_ref(store),
        .rank = rank,
        .size = size,
        .states = calloc((size_t)size, sizeof *self->states),
    };
    return self->states == NULL ? dl_fail_no_memory() : DL_OK;
}

void
dl_wait_exchange_fini(dl_wait_exchange *self)
{
    if (self->states != NULL) {
        forget_states(self);
    }
    free(self->states);
    dl_store_unref(self->store);
}
