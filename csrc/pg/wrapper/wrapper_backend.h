/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The debug wrapper: a backend around another one, for groups that are made while the
 * debug level is DETAIL.  Before it passes a collective on, all ranks say in the store
 * what they are about to do and from which line, and compare: operation, shapes, dtypes,
 * reduction, root, blocks.  Ranks that differ, or do not come, are an error on every
 * rank before anything is sent.  Messages between two ranks pass as they are. */
#ifndef DISTLITE_PG_WRAPPER_WRAPPER_BACKEND_H
#define DISTLITE_PG_WRAPPER_WRAPPER_BACKEND_H

#include "pg/backend.h"

/* Puts itself around `*backend`, which it takes on success, unless that never meets
 * another rank, and there is nothing to compare; the options are those that
 * the backend was made with. */
dl_status dl_wrapper_backend_wrap(const dl_backend_options *options,
                                  dl_backend **backend);

#endif
