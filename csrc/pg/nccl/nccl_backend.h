/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backend for a group's arrays in CUDA memory: NCCL.  The library is found at run
 * time.  The first operation makes the communicator, on the device of its arrays, to
 * which the group is then bound.  A message that is not part of a batch uses a
 * communicator of its two ranks, since no other rank takes part. */
#ifndef DISTLITE_PG_NCCL_NCCL_BACKEND_H
#define DISTLITE_PG_NCCL_NCCL_BACKEND_H

#include "pg/backend.h"

/* Makes a backend for devices.  Fails if a library is missing. */
dl_status dl_nccl_backend_new(const dl_backend_options *options, dl_deadline deadline,
                              dl_backend **backend);

/* Stores the number of the device that `data` lies on; for NULL, of the current one. */
dl_status dl_nccl_device_of(const void *data, int *device);

/* Stores the library's version, 22703 for 2.27.3; fails if there is no library. */
dl_status dl_nccl_version(int *version);

#endif
