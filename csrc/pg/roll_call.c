/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/roll_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"

/* Between two looks for ranks that are gone: a death is told within a second, and a
 * healthy wait asks the store seldom. */
#define SLICE (400 * DL_MILLISECOND)

/* With more of them the first ones tell enough. */
#define NAMED_RANKS 16

/* The store's answer to what it need not wait for. */
#define ANSWER_LIMIT (5 * DL_SECOND)

typedef struct key {
    char text[DL_ROLL_CALL_KEY_SIZE];
} key;

static dl_bytes
make_key(const dl_roll_call *self, uint64_t number, int rank, key *name)
{
    snprintf(name->text, sizeof name->text, "%s/%" PRIu64 "/%d", self->topic, number,
             rank);
    return dl_bytes_of(name->text);
}

dl_status
dl_roll_call_say(const dl_roll_call *self, uint64_t number, const char *words,
                 dl_deadline deadline)
{
    key name;

    return dl_store_set(self->store, make_key(self, number, self->rank, &name),
                        dl_bytes_of(words), deadline);
}

dl_status
dl_roll_call_peek(const dl_roll_call *self, uint64_t number, int rank, dl_buffer *words)
{
    dl_deadline answer = dl_deadline_after(ANSWER_LIMIT);
    bool exists = false;
    key name;
    dl_bytes asked = make_key(self, number, rank, &name);

    dl_buffer_clear(words);
    DL_TRY(dl_store_check(self->store, &asked, 1, &exists, answer));
    return exists ? dl_store_get(self->store, asked, words, answer) : DL_OK;
}

/* One look at everybody. */
static dl_status
peek_all(const dl_roll_call *self, uint64_t number, dl_buffer *words)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (words[rank].size == 0) {
            DL_TRY(dl_roll_call_peek(self, number, rank, &words[rank]));
        }
    }
    return DL_OK;
}

/* First that it is gone, then whether it came: it may have done both meanwhile. */
static dl_status
watch_absent(const dl_roll_call *self, uint64_t number, dl_buffer *words, int *gone)
{
    for (int rank = 0; self->watch != NULL && rank < self->size; rank++) {
        if (words[rank].size > 0 || self->watch(self->context, rank) == DL_OK) {
            continue;
        }
        dl_error error = *dl_last_error();
        DL_TRY(dl_roll_call_peek(self, number, rank, &words[rank]));
        if (words[rank].size == 0) {
            *gone = rank;
            return dl_fail_again(&error);
        }
    }
    return DL_OK;
}

/* One waiting look: all keys, for a slice. */
static dl_status
listen(const dl_roll_call *self, const dl_bytes *keys, dl_buffer *words,
       dl_deadline deadline)
{
    for (int rank = 0; rank < self->size; rank++) {
        dl_buffer_clear(&words[rank]);
    }
    return dl_store_multi_get(self->store, keys, (size_t)self->size, words,
                              dl_deadline_sooner(deadline, SLICE));
}

/* After it: who has come, who never will. */
static dl_status
look(const dl_roll_call *self, uint64_t number, dl_buffer *words, int *gone)
{
    DL_TRY(dl_interrupt_check());
    DL_TRY(peek_all(self, number, words));
    return watch_absent(self, number, words, gone);
}

/* The last to come may have come after the last look that waited. */
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
dl_roll_call_hear(const dl_roll_call *self, uint64_t number, dl_buffer *words,
                  int *gone, dl_deadline deadline)
{
    size_t size = (size_t)self->size;
    dl_bytes *keys = calloc(size, sizeof *keys + sizeof(key));

    *gone = -1;
    if (keys == NULL) {
        return dl_fail_no_memory();
    }
    key *names = (key *)(void *)(keys + size);
    for (int rank = 0; rank < self->size; rank++) {
        keys[rank] = make_key(self, number, rank, &names[rank]);
    }
    bool is_late = false;
    dl_status status = listen(self, keys, words, deadline);
    while (status == DL_TIMEOUT && !is_late) {
        is_late = dl_deadline_passed(deadline);
        status = look(self, number, words, gone);
        if (status == DL_OK) {
            status = is_late ? DL_TIMEOUT : listen(self, keys, words, deadline);
        }
    }
    free(keys);
    return count_absent(self, words, status);
}

void
dl_roll_call_forget(const dl_roll_call *self, uint64_t number)
{
    bool existed;
    key name;

    /* What stays behind does no harm but take room. */
    (void)dl_store_delete_key(self->store, make_key(self, number, self->rank, &name),
                              &existed, dl_deadline_after(ANSWER_LIMIT));
}

void
dl_roll_call_list(const dl_roll_call *self, const dl_buffer *words, bool is_absent,
                  dl_rank_list *list)
{
    size_t used = 0;

    *list = (dl_rank_list){.count = 0};
    for (int rank = 0; rank < self->size; rank++) {
        if ((words[rank].size == 0) != is_absent || ++list->count > NAMED_RANKS) {
            continue;
        }
        int size = snprintf(list->text + used, sizeof list->text - used, "%s%d",
                            used > 0 ? ", " : "", rank);
        used += (size_t)size;
    }
    if (list->count > NAMED_RANKS) {
        snprintf(list->text + used, sizeof list->text - used, " and %d more",
                 list->count - NAMED_RANKS);
    }
}

dl_buffer *
dl_roll_call_words_new(const dl_roll_call *self)
{
    dl_buffer *words = calloc((size_t)self->size, sizeof *words);

    if (words == NULL) {
        dl_fail_no_memory();
    }
    return words;
}

void
dl_roll_call_words_free(const dl_roll_call *self, dl_buffer *words)
{
    for (int rank = 0; words != NULL && rank < self->size; rank++) {
        dl_buffer_fini(&words[rank]);
    }
    free(words);
}
