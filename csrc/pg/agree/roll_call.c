/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/roll_call.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/interrupt.h"
#include "pg/record/blocked_threads.h"

/* The interval of checks for ranks that are gone: a death is reported within a second,
 * and an undisturbed wait sends few requests to the store. */
#define SLICE (400 * DL_MILLISECOND)

/* The time that the store has for requests that it answers at once. */
#define ANSWER_LIMIT (5 * DL_SECOND)

static dl_bytes
make_key(const dl_roll_call *self, uint64_t number, int rank,
         char text[DL_RANK_KEY_SIZE])
{
    snprintf(text, DL_RANK_KEY_SIZE, "%s/%" PRIu64 "/%d", self->topic, number, rank);
    return dl_bytes_of(text);
}

dl_status
dl_roll_call_announce(const dl_roll_call *self, uint64_t number, const char *words,
                      dl_deadline deadline)
{
    char name[DL_RANK_KEY_SIZE];

    return dl_store_set(self->store, make_key(self, number, self->rank, name),
                        dl_bytes_of(words), deadline);
}

dl_status
dl_roll_call_read(const dl_roll_call *self, uint64_t number, int rank, dl_buffer *words)
{
    char name[DL_RANK_KEY_SIZE];

    return dl_store_get_if_set(self->store, make_key(self, number, rank, name), words,
                               dl_deadline_after(ANSWER_LIMIT));
}

/* Reads the words of all ranks that have come meanwhile. */
static dl_status
peek_all(const dl_roll_call *self, uint64_t number, dl_buffer *words)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (words[rank].size == 0) {
            DL_TRY(dl_roll_call_read(self, number, rank, &words[rank]));
        }
    }
    return DL_OK;
}

/* The words of a rank that is gone are read once more afterwards: it may have come
 * before it ended. */
static dl_status
watch_absent(const dl_roll_call *self, uint64_t number, dl_buffer *words, int *gone)
{
    for (int rank = 0; self->check_rank != NULL && rank < self->size; rank++) {
        if (words[rank].size > 0 || self->check_rank(self->context, rank) == DL_OK) {
            continue;
        }
        dl_error error = *dl_last_error();
        DL_TRY(dl_roll_call_read(self, number, rank, &words[rank]));
        if (words[rank].size == 0) {
            *gone = rank;
            return dl_rethrow(&error);
        }
    }
    return DL_OK;
}

typedef struct numbered_call {
    const dl_roll_call *roll;
    uint64_t number;
} numbered_call;

static dl_bytes
key_for(const void *context, int rank, char text[DL_RANK_KEY_SIZE])
{
    const numbered_call *self = context;

    return make_key(self->roll, self->number, rank, text);
}

/* Waits for all keys, for one slice. */
static dl_status
wait_for_slice(const dl_roll_call *self, const dl_rank_keys *keys, dl_buffer *words,
               dl_deadline deadline)
{
    return dl_rank_keys_get(keys, self->store, words,
                            dl_deadline_earlier(deadline, SLICE));
}

/* Reports the wait to the deadlock detector. */
static void
note_absent(const dl_roll_call *self, const dl_buffer *words)
{
    dl_awaited awaited = {.count = 0};

    for (int rank = 0; rank < self->size; rank++) {
        if (words[rank].size == 0) {
            dl_awaited_add(&awaited, rank);
        }
    }
    dl_blocked_check(self->record, &awaited);
}

/* Checks after a slice which ranks have come, and which never will. */
static dl_status
check_absent(const dl_roll_call *self, uint64_t number, dl_buffer *words, int *gone)
{
    DL_TRY(dl_interrupt_check());
    DL_TRY(peek_all(self, number, words));
    note_absent(self, words);
    return watch_absent(self, number, words, gone);
}

/* Turns DL_TIMEOUT into DL_OK if no rank is absent: the last one may have come after
 * the last slice. */
static dl_status
count_absent(const dl_roll_call *self, const dl_buffer *words, dl_status status)
{
    for (int rank = 0; status == DL_TIMEOUT && rank < self->size; rank++) {
        if (words[rank].size == 0) {
            return DL_TIMEOUT;
        }
    }
    return status == DL_TIMEOUT ? DL_OK : status;
}

dl_status
dl_roll_call_wait(const dl_roll_call *self, uint64_t number, dl_buffer *words,
                  int *gone, dl_deadline deadline)
{
    numbered_call asked = {self, number};
    dl_rank_keys keys;

    *gone = -1;
    DL_TRY(dl_rank_keys_init(&keys, self->size, key_for, &asked));
    bool is_late = false;
    dl_status status = wait_for_slice(self, &keys, words, deadline);
    while (status == DL_TIMEOUT && !is_late) {
        is_late = dl_deadline_passed(deadline);
        status = check_absent(self, number, words, gone);
        if (status == DL_OK) {
            status =
                is_late ? DL_TIMEOUT : wait_for_slice(self, &keys, words, deadline);
        }
    }
    dl_blocked_end();
    dl_rank_keys_fini(&keys);
    return count_absent(self, words, status);
}

void
dl_roll_call_delete(const dl_roll_call *self, uint64_t number)
{
    bool existed;
    char name[DL_RANK_KEY_SIZE];

    /* A key that stays behind only takes room. */
    (void)dl_store_delete_key(self->store, make_key(self, number, self->rank, name),
                              &existed, dl_deadline_after(ANSWER_LIMIT));
}

void
dl_roll_call_list(const dl_roll_call *self, const dl_buffer *words, dl_rank_list *list)
{
    *list = (dl_rank_list){.count = 0};
    for (int rank = 0; rank < self->size; rank++) {
        if (words[rank].size == 0) {
            dl_rank_list_add(list, rank);
        }
    }
    dl_rank_list_end(list);
}
