/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whose turn it is: a lock that is handed on in the order of asking, waits by a deadline
 * and costs two atomic operations when nobody else asks. */
#ifndef DISTLITE_PG_TURN_H
#define DISTLITE_PG_TURN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/deadline.h"
#include "base/list.h"
#include "base/status.h"

typedef struct dl_turn {
    atomic_int state;
    pthread_mutex_t lock;
    dl_list waiters; /* guarded by lock; the first is next */
} dl_turn;

void dl_turn_init(dl_turn *turn);
void dl_turn_fini(dl_turn *turn);

/* DL_TIMEOUT (no text written) or DL_INTERRUPTED: not taken. */
dl_status dl_turn_take(dl_turn *turn, dl_deadline deadline);

/* Does not wait. */
bool dl_turn_try(dl_turn *turn);

void dl_turn_pass(dl_turn *turn);

#endif
