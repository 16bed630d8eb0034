/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The debug wrapper for arrays on devices: before a collective is put into the order of
 * streams, all ranks say in the store what they are about to do, as for arrays of the
 * CPU (wrapper_backend.h).  So the host waits for the other ranks, which it does not
 * otherwise.  Messages between two ranks pass as they are. */
#ifndef DISTLITE_PG_WRAPPER_WRAPPER_DEVICE_BACKEND_H
#define DISTLITE_PG_WRAPPER_WRAPPER_DEVICE_BACKEND_H

#include "pg/device_backend.h"

/* Puts itself around `*backend`, which it takes on success; the options are those that
 * the backend was made with. */
dl_status dl_wrapper_device_backend_wrap(const dl_device_backend_options *options,
                                         dl_device_backend **backend);

/* The backend inside; one that is not wrapped is its own. */
dl_device_backend *dl_wrapper_device_inside(dl_device_backend *backend);

#endif
