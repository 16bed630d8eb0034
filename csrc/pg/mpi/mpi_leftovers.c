/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_leftovers.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/deadline.h"

/* How long the end of the process may wait for the requests. */
#define PATIENCE DL_SECOND

typedef struct leftover {
    struct leftover *next;
    dl_mpi_handle request;
    void *memory; /* or NULL */
} leftover;

static struct {
    pthread_mutex_t lock;
    leftover *first; /* guarded by lock, as is_lost */
    bool is_lost;    /* there was no memory to add a request */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Removes the requests that have ended, successfully or not. */
static void
drop_ended_locked(const dl_mpi_table *mpi)
{
    leftover **link = &state.first;

    while (*link != NULL) {
        leftover *each = *link;
        int is_done = 0;
        if (mpi->test(&each->request, &is_done, NULL) == 0 && !is_done) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        free(each->memory);
        free(each);
    }
}

void
dl_mpi_leftover_add(const dl_mpi_table *mpi, dl_mpi_handle request, void *memory)
{
    leftover *made = malloc(sizeof *made);

    pthread_mutex_lock(&state.lock);
    drop_ended_locked(mpi);
    if (made == NULL) {
        state.is_lost = true;
    } else {
        *made = (leftover){state.first, request, memory};
        state.first = made;
    }
    pthread_mutex_unlock(&state.lock);
}

bool
dl_mpi_leftovers_settle(const dl_mpi_table *mpi)
{
    dl_deadline soon = dl_deadline_after(PATIENCE);

    pthread_mutex_lock(&state.lock);
    for (drop_ended_locked(mpi); state.first != NULL && !dl_deadline_passed(soon);
         drop_ended_locked(mpi)) {
        sched_yield();
    }
    bool is_settled = state.first == NULL && !state.is_lost;
    pthread_mutex_unlock(&state.lock);
    return is_settled;
}
