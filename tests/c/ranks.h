/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks as threads of one case, so that the thread sanitizer sees all of them. */
#ifndef DISTLITE_TESTS_RANKS_H
#define DISTLITE_TESTS_RANKS_H

#include <pthread.h>
#include <time.h>

#include "check.h"
#include "pg/backend.h"

/* The arrays of the fixtures have so many elements. */
#ifndef DL_RANKS_LIMIT
#define DL_RANKS_LIMIT 72
#endif

typedef void (*dl_rank_fn)(int rank, int size, void *context);

typedef struct dl_rank_thread {
    pthread_t thread;
    int rank;
    int size;
    dl_rank_fn run;
    void *context;
} dl_rank_thread;

static void *
dl_rank_main(void *argument)
{
    dl_rank_thread *self = argument;

    self->run(self->rank, self->size, self->context);
    return NULL;
}

/* Runs `run` once per rank, each on a thread of its own, and waits for all of them; a
 * rank that does not return in time fails the case and is named. */
DL_CHECK_UNUSED static void
dl_run_ranks(int size, dl_rank_fn run, void *context)
{
    dl_rank_thread ranks[DL_RANKS_LIMIT];
    struct timespec until;

    CHECK(size > 0 && size <= DL_RANKS_LIMIT);
    for (int rank = 0; rank < size; rank++) {
        ranks[rank] = (dl_rank_thread){
            .rank = rank, .size = size, .run = run, .context = context};
        CHECK(pthread_create(&ranks[rank].thread, NULL, dl_rank_main, &ranks[rank])
              == 0);
    }
    clock_gettime(CLOCK_REALTIME, &until);
    /* Before the case's alarm, so that the failure can name the rank. */
    until.tv_sec += (time_t)(dl_check_seconds() * 3 / 4 + 1);
    for (int rank = 0; rank < size; rank++) {
        if (pthread_timedjoin_np(ranks[rank].thread, NULL, &until) != 0) {
            DL_CHECK_FAIL("rank %d of %d did not return in time", rank, size);
        }
    }
}

/* Returns an operation of which only `op` is described. */
DL_CHECK_UNUSED static dl_op_context
test_op(uint64_t sequence, dl_op_type op, int64_t limit)
{
    return (dl_op_context){.sequence = sequence,
                           .fingerprint = {.op = (uint8_t)op},
                           .deadline = dl_deadline_after(limit)};
}

#endif
