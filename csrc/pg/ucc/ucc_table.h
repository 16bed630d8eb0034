/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC's functions, from 1.0 on.  Those added later may be absent from the library that
 * is loaded; their entries are then NULL. */
#ifndef DISTLITE_PG_UCC_UCC_TABLE_H
#define DISTLITE_PG_UCC_UCC_TABLE_H

#include "base/library.h"
#include "pg/ucc/ucc_numbers.h"
#include "pg/ucc/ucc_structs.h"

#define DL_UCC_SYMBOLS(X)                                                 \
    X(status_text, ucc_status_string, const char *, (int))                \
    X(lib_config_read, ucc_lib_config_read, int,                          \
      (const char *, const char *, void **))                              \
    X(lib_config_release, ucc_lib_config_release, void, (void *))         \
    X(init, ucc_init_version, int,                                        \
      (unsigned, unsigned, const dl_ucc_lib_params *, void *, void **))   \
    X(finalize, ucc_finalize, int, (void *))                              \
    X(context_config_read, ucc_context_config_read, int,                  \
      (void *, const char *, void **))                                    \
    X(context_config_release, ucc_context_config_release, void, (void *)) \
    X(context_create, ucc_context_create, int,                            \
      (void *, const dl_ucc_context_params *, void *, void **))           \
    X(context_progress, ucc_context_progress, int, (void *))              \
    X(context_destroy, ucc_context_destroy, int, (void *))                \
    X(team_create, ucc_team_create_post, int,                             \
      (void **, uint32_t, const dl_ucc_team_params *, void **))           \
    X(team_test, ucc_team_create_test, int, (void *))                     \
    X(team_destroy, ucc_team_destroy, int, (void *))                      \
    X(collective_init, ucc_collective_init, int,                          \
      (dl_ucc_args *, dl_ucc_request **, void *))                         \
    X(collective_post, ucc_collective_post, int, (dl_ucc_request *))      \
    X(collective_finalize, ucc_collective_finalize, int, (dl_ucc_request *))

#define DL_UCC_NEWER_SYMBOLS(X) \
    X(version, ucc_get_version, void, (unsigned *, unsigned *, unsigned *))

typedef struct dl_ucc_table {
#define X(field, symbol, result, arguments) result(*field) arguments;
    DL_UCC_SYMBOLS(X)
    DL_UCC_NEWER_SYMBOLS(X)
#undef X
    unsigned major, minor, patch; /* 1.0.0 if the library does not tell */
} dl_ucc_table;

/* Loads the library once and returns its table.  DL_NOT_FOUND or DL_UNSUPPORTED: the
 * error says what is missing. */
dl_status dl_ucc_load(const dl_ucc_table **table);

#endif
