/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NCCL for a group's arrays in CUDA memory.  The library is found at run time; the first
 * operation makes the communicator, on the device of its arrays, to which the group is
 * then bound.  Messages that are not part of a batch go through a communicator of just
 * their two ranks, since only these two take part. */
#ifndef DISTLITE_PG_NCCL_NCCL_BACKEND_H
#define DISTLITE_PG_NCCL_NCCL_BACKEND_H

#include "pg/device_backend.h"

dl_status dl_nccl_backend_new(const dl_device_backend_options *options,
                              dl_device_backend **backend);

/* The number of the device whose memory this is. */
dl_status dl_nccl_device_of(const void *data, int *device);

/* 22703 for 2.27.3; fails where there is no library. */
dl_status dl_nccl_version(int *version);

#endif
