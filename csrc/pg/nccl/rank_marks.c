/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/rank_marks.h"

#include <stdio.h>

/* Bits of a counter, whose value is never negative. */
#define MARKS 62

#define KEY_SIZE 96

static dl_bytes
counter_key(const dl_rank_marks *self, int number, char text[KEY_SIZE])
{
    int size = snprintf(text, KEY_SIZE, "%s/%d", self->step, number / MARKS);

    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

/* The marks of all that are in one counter with `number`. */
static int64_t
all_marks(const dl_rank_marks *self, int number)
{
    int left = self->count - number / MARKS * MARKS;

    return (INT64_C(1) << (left < MARKS ? left : MARKS)) - 1;
}

dl_status
dl_rank_marks_add(const dl_rank_marks *self, int number, dl_deadline deadline,
                  bool *is_last)
{
    char text[KEY_SIZE];
    int64_t marks, complete = 1;
    int counters = (self->count + MARKS - 1) / MARKS;

    DL_TRY(dl_store_add(self->store, counter_key(self, number, text),
                        INT64_C(1) << number % MARKS, &marks, deadline));
    *is_last = marks == all_marks(self, number);
    if (*is_last && counters > 1) {
        DL_TRY(
            dl_store_add(self->store, dl_bytes_of(self->step), 1, &complete, deadline));
    }
    *is_last = *is_last && complete == counters;
    return DL_OK;
}

int
dl_rank_marks_find_absent(const dl_rank_marks *self, int number, dl_deadline deadline)
{
    char text[KEY_SIZE];
    int64_t marks = 0;

    for (int first = number; number < self->count; number++) {
        if ((number == first || number % MARKS == 0)
            && dl_store_add(self->store, counter_key(self, number, text), 0, &marks,
                            deadline)
                   != DL_OK) {
            return DL_NO_MARK;
        }
        if ((marks >> number % MARKS & 1) == 0) {
            return number;
        }
    }
    return DL_NO_MARK;
}
