/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC for a group's arrays on a CUDA device: a group of its own behind the group, with the
 * same ranks, whose operations are queued as those of the CPU are.  Each begins when the
 * streams of its arrays have come to it, which the host sees by events, and its work ends
 * when UCC says so: whoever waits for it is the host, not a stream. */
#ifndef DISTLITE_PG_UCC_UCC_DEVICE_BACKEND_H
#define DISTLITE_PG_UCC_UCC_DEVICE_BACKEND_H

#include "pg/device_backend.h"

dl_status dl_ucc_device_backend_new(const dl_device_backend_options *options,
                                    dl_device_backend **backend);

#endif
