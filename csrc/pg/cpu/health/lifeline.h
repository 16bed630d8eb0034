/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How ranks of one host learn of each other's end: each holds one end of a pipe and
 * hands the other to all peers.  However a process ends (exit, kill -9, exec), the
 * kernel closes the held end, and the shown ones say so.  No process id is involved, so
 * none can be reused, and it works across pid namespaces and between ranks that are
 * threads of one process. */
#ifndef DISTLITE_PG_CPU_HEALTH_LIFELINE_H
#define DISTLITE_PG_CPU_HEALTH_LIFELINE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

/* One rank's own; closing `held` ends it, dl_socket_close() both. */
typedef struct dl_lifeline {
    int held;
    int shown;
} dl_lifeline;

dl_status dl_lifeline_make(dl_lifeline *lifeline);

/* Those of the peers.  Made by one thread, watched by any. */
typedef struct dl_lifelines {
    pthread_mutex_t lock;
    struct pollfd *shown; /* by rank; fd -1 is not watched; guarded by lock */
    atomic_bool *is_cut;  /* by rank */
    int size;
} dl_lifelines;

dl_status dl_lifelines_init(dl_lifelines *lifelines, int size);
void dl_lifelines_fini(dl_lifelines *lifelines);

/* Frees the memory only: in a forked child the descriptors are closed already. */
void dl_lifelines_forget(dl_lifelines *lifelines);

/* Takes the descriptor. */
void dl_lifelines_put(dl_lifelines *lifelines, int rank, int shown);

/* Looks, without waiting, who has ended by now. */
void dl_lifelines_watch(dl_lifelines *lifelines);

#endif
