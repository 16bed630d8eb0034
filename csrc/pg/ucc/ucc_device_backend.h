/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC for a group's arrays on a CUDA device: an inner group with the same ranks, whose
 * operations are queued like those of the CPU.  Each operation begins when the streams
 * of its arrays have reached it, which the host learns from events, and its work is
 * done when UCC has completed it.  So the host waits for an operation, and not a
 * stream. */
#ifndef DISTLITE_PG_UCC_UCC_DEVICE_BACKEND_H
#define DISTLITE_PG_UCC_UCC_DEVICE_BACKEND_H

#include "pg/device/device_backend.h"

/* Creates the backend; the inner group is made by the first operation. */
dl_status dl_ucc_device_backend_new(const dl_device_backend_options *options,
                                    dl_device_backend **backend);

#endif
