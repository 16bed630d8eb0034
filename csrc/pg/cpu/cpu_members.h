/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a group takes from the bootstrap that it is made from: its members, and the
 * request for memory of this host's ranks, if it is made without a rendezvous. */
#ifndef DISTLITE_PG_CPU_CPU_MEMBERS_H
#define DISTLITE_PG_CPU_CPU_MEMBERS_H

#include "pg/cpu/bootstrap.h"
#include "pg/cpu/shm/arena.h"

/* The members of a group, by rank.  Those of the bootstrap itself are borrowed from
 * it. */
typedef struct dl_cpu_members {
    dl_layout layout;
    dl_peers peers;
    dl_tcp_contacts tcp_contacts;
    dl_processes processes;
    int *origins; /* ranks in the bootstrap; NULL: the same */
} dl_cpu_members;

/* After a failure dl_cpu_members_fini() must be called as well. */
dl_status dl_cpu_members_init(dl_cpu_members *self, dl_bootstrap *bootstrap,
                              const dl_backend_options *options);
void dl_cpu_members_fini(dl_cpu_members *self);

/* Returns a member's rank in the bootstrap. */
static inline int
dl_cpu_members_origin(const dl_cpu_members *self, int rank)
{
    return self->origins == NULL ? rank : self->origins[rank];
}

/* Fills in the borrower of the memory for a group made out of the bootstrap's.  The
 * caller frees `*local_ranks`, to which the borrower points. */
dl_status dl_cpu_borrower_init(dl_borrower *borrower, const dl_bootstrap *bootstrap,
                               const dl_cpu_members *members, const char *name,
                               int **local_ranks);

#endif
