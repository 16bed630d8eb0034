/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Looks after messages under way that nobody waits for: MPI goes on only while it is
 * called.  One thread for the process.  Without such messages it calls MPI now and then:
 * over some networks what a rank has sent leaves it only when it calls MPI again, and the
 * rank may be waiting elsewhere by then, as in a store, for the one that it was sent to. */
#ifndef DISTLITE_PG_MPI_MPI_RUNNER_H
#define DISTLITE_PG_MPI_MPI_RUNNER_H

#include "base/list.h"
#include "base/status.h"

typedef struct dl_mpi_errand {
    dl_list node; /* guarded by the runner's lock */
    /* One look, without locks, which does not wait.  True: done, and the runner knows it
     * no more. */
    bool (*look)(struct dl_mpi_errand *errand);
    /* MPI is about to end, and nobody looks after it any more. */
    void (*end)(struct dl_mpi_errand *errand);
} dl_mpi_errand;

/* From any thread, any number of times: from now on MPI is called. */
dl_status dl_mpi_runner_start(void);

/* From any thread; the errand stays in place until its look says that it is done. */
dl_status dl_mpi_runner_add(dl_mpi_errand *errand);

#endif
