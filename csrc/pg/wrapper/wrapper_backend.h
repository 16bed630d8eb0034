/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The debug wrapper: a backend around another one, for groups that are made while the
 * debug level is DETAIL.  Before it passes a collective on, the ranks exchange their
 * calls and the lines that made them through the store, and compare operation, shapes,
 * dtypes, reduction, root and blocks.  If ranks differ or do not come, the call fails
 * on every rank before anything is sent.  Messages between two ranks are passed on
 * unchecked.  Around a backend that is ordered by streams, the host waits for the other
 * ranks, which it otherwise does not. */
#ifndef DISTLITE_PG_WRAPPER_WRAPPER_BACKEND_H
#define DISTLITE_PG_WRAPPER_WRAPPER_BACKEND_H

#include "pg/backend.h"

/* Replaces `*backend` by a wrapper around it, which takes it on success.  A backend
 * that never needs another rank is left as it is.  `options` are those of the
 * backend. */
dl_status dl_wrapper_backend_wrap(const dl_backend_options *options,
                                  dl_backend **backend);

/* Returns the backend inside a wrapper, or `backend` itself if it is not wrapped. */
dl_backend *dl_wrapper_backend_inside(dl_backend *backend);

#endif
