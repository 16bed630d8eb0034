/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of the backends, in which a group finds the one that it is asked for.  It
 * knows all backends, and no backend knows it. */
#ifndef DISTLITE_PG_BACKEND_TABLE_H
#define DISTLITE_PG_BACKEND_TABLE_H

#include "pg/backend.h"

/* Returns the row, or NULL. */
const dl_backend_kind *dl_backend_find(const char *name);

#endif
