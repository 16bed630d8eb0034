/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backends in C that other packages provide, through the public header
 * <distlite/backend.h>.  Their tables are registered by name and stay registered until
 * the process ends.  The adapter here gives them contiguous arrays and hides everything
 * of the core but what that header declares. */
#ifndef DISTLITE_PG_EXTENSION_EXTENSION_BACKEND_H
#define DISTLITE_PG_EXTENSION_EXTENSION_BACKEND_H

#include <stdbool.h>

#include "pg/backend.h"

/* A `distlite_backend`, which the public header declares. */
typedef struct distlite_backend dl_extension_table;

/* Registers a table, which must stay in place until the process ends; the same name again
 * replaces the table for groups that are made afterwards.  DL_INVALID: it was built for
 * another version, or lacks a required entry. */
dl_status dl_extension_register(const char *name, const dl_extension_table *table);

/* Returns whether a table has been registered by this name.  Any thread. */
bool dl_extension_is_registered(const char *name);

/* Makes a backend of the table that options->backend_name names. */
dl_status dl_extension_backend_new(const dl_backend_options *options,
                                   dl_deadline deadline, dl_backend **backend);

#endif
