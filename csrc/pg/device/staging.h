/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A collective on arrays of a device by a backend that serves the CPU's memory: what the
 * operation reads is copied to page-locked memory of the host, where it runs, and what it
 * writes is copied back.  The memory is the group's, of one operation at a time,
 * which has the turn, however many are queued.  When the operation is
 * over, so are the copies, and nothing has to be ordered after it. */
#ifndef DISTLITE_PG_DEVICE_STAGING_H
#define DISTLITE_PG_DEVICE_STAGING_H

#include "pg/device/cuda_table.h"
#include "pg/group.h"

typedef struct dl_staging {
    dl_group *group;
    const dl_call *call; /* the caller's */
    dl_call *staged;     /* the same on arrays of the host */
} dl_staging;

/* Makes the staged call, with copies of what it reads.  Called with the arrays' device
 * current, once their streams have reached the operation.  On success dl_staging_fini()
 * must follow.  Errors name the operation and this rank. */
dl_status dl_staging_init(dl_staging *staging, dl_group *group, const dl_call *call,
                          const dl_cuda_table *cuda);

/* Copies what the operation has written to the arrays. */
dl_status dl_staging_copy_back(const dl_staging *staging);

/* With `keeps_memory` something that the backend could not stop still uses the memory of
 * the host, which stays until the process ends. */
void dl_staging_fini(dl_staging *staging, bool keeps_memory);

#endif
