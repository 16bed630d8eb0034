/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The debug wrapper for arrays on devices: before a collective is enqueued, the ranks
 * compare their calls through the store, as for arrays of the CPU (wrapper_backend.h).
 * The host therefore waits for the other ranks, which it otherwise does not.  Messages
 * between two ranks are passed on unchecked. */
#ifndef DISTLITE_PG_WRAPPER_WRAPPER_DEVICE_BACKEND_H
#define DISTLITE_PG_WRAPPER_WRAPPER_DEVICE_BACKEND_H

#include "pg/device/device_backend.h"

/* Replaces `*backend` by a wrapper around it, which takes it on success.  `options` are
 * those of the backend. */
dl_status dl_wrapper_device_backend_wrap(const dl_device_backend_options *options,
                                         dl_device_backend **backend);

/* Returns the backend inside a wrapper, or `backend` itself if it is not wrapped. */
dl_device_backend *dl_wrapper_device_inside(dl_device_backend *backend);

#endif
