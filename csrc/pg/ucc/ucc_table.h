/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC's interface as far as it is used here: constants, structs and functions,
 * unchanged from 1.0 on.  Functions that were added later may be absent from the
 * library that is loaded; their entries are then NULL. */
#ifndef DISTLITE_PG_UCC_UCC_TABLE_H
#define DISTLITE_PG_UCC_UCC_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/library.h"

enum {
    DL_UCC_OK = 0,
    DL_UCC_IN_PROGRESS = 1,
    DL_UCC_NOT_SUPPORTED = -1,
    DL_UCC_NOT_IMPLEMENTED = -2,
    DL_UCC_NO_MESSAGE = -6,
};

/* Collectives. */
enum {
    DL_UCC_ALL_GATHER = 1,
    DL_UCC_ALL_REDUCE = 4,
    DL_UCC_ALL_TO_ALL_V = 16,
    DL_UCC_BARRIER = 32,
    DL_UCC_BROADCAST = 64,
    DL_UCC_REDUCE = 2048,
    DL_UCC_REDUCE_SCATTER = 4096,
};

/* Dtypes. */
enum {
    DL_UCC_INT8 = 0,
    DL_UCC_INT16 = 8,
    DL_UCC_INT32 = 16,
    DL_UCC_INT64 = 24,
    DL_UCC_UINT8 = 40,
    DL_UCC_UINT16 = 48,
    DL_UCC_UINT32 = 56,
    DL_UCC_UINT64 = 64,
    DL_UCC_FLOAT32 = 88,
    DL_UCC_FLOAT64 = 96,
    DL_UCC_COMPLEX64 = 120,
    DL_UCC_COMPLEX128 = 128,
};

/* Memory. */
enum {
    DL_UCC_HOST = 0,
};

/* Reductions. */
enum {
    DL_UCC_SUM = 0,
    DL_UCC_PRODUCT = 1,
    DL_UCC_MAX = 2,
    DL_UCC_MIN = 3,
    DL_UCC_BAND = 7,
    DL_UCC_BOR = 8,
    DL_UCC_BXOR = 9,
};

/* Bits of masks and flags. */
enum {
    DL_UCC_LIB_THREAD = 1,
    DL_UCC_THREAD_MULTIPLE = 2,
    DL_UCC_CONTEXT_OOB = 4,
    DL_UCC_TEAM_EP = 4,
    DL_UCC_TEAM_EP_RANGE = 16,
    DL_UCC_TEAM_SIZE = 32,
    DL_UCC_TEAM_OOB = 128,
    DL_UCC_ARGS_FLAGS = 1,
    DL_UCC_IN_PLACE = 1,
    DL_UCC_COUNTS_64 = 4,
    DL_UCC_DISPLACEMENTS_64 = 8,
};

/* UCC's structs under our own names.  Members that were added later are read by UCC
 * only if their bit in a mask is set, and no such bit is ever set here.  Members that
 * are not used stay zero. */

/* The exchange of bytes before UCC's network is up.  The functions return 0 when done,
 * 1 while in progress, and a negative number on failure. */
typedef struct dl_ucc_oob {
    int (*all_gather)(void *send, void *receive, size_t bytes, void *user,
                      void **request);
    int (*test)(void *request);
    int (*free)(void *request);
    void *user;
    uint32_t size;
    uint32_t rank;
} dl_ucc_oob;

typedef struct dl_ucc_lib_params {
    uint64_t mask;
    int thread_mode;
    uint64_t collectives, reductions;
    int sync_type;
} dl_ucc_lib_params;

typedef struct dl_ucc_context_params {
    uint64_t mask;
    int type, sync_type;
    dl_ucc_oob oob;
    uint64_t id;
    void *segments;
    uint64_t segment_count;
} dl_ucc_context_params;

typedef struct dl_ucc_team_params {
    uint64_t mask, flags;
    int ordering;
    uint64_t outstanding;
    uint64_t ep;
    void *ep_list;
    int ep_range;
    uint64_t size;
    int sync_type;
    dl_ucc_oob oob;
    void *p2p[5];
    void *segments;
    uint64_t segment_count;
    uint64_t ep_map[4];
    uint64_t id;
} dl_ucc_team_params;

typedef struct dl_ucc_block {
    void *data;
    uint64_t count, dtype;
    int memory;
} dl_ucc_block;

typedef struct dl_ucc_blocks {
    void *data;
    uint64_t *counts, *displacements, dtype;
    int memory;
} dl_ucc_blocks;

typedef union dl_ucc_side {
    dl_ucc_block one;
    dl_ucc_blocks many;
} dl_ucc_side;

typedef struct dl_ucc_args {
    uint64_t mask;
    int collective;
    dl_ucc_side source, target;
    int op;
    uint64_t flags, root;
    int error_type;
    uint16_t tag;
    void *work_buffer;
    void *callback[2];
    double timeout;
    uint64_t set_start;
    int64_t set_stride;
    uint64_t set_size;
    void *handles[2];
} dl_ucc_args;

_Static_assert(sizeof(dl_ucc_oob) == 40, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_lib_params) == 40, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_context_params) == 80, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_team_params) == 208, "fixed by UCC 1.0");
_Static_assert(sizeof(dl_ucc_args) == 200, "fixed by UCC 1.5, whose end is new");

/* An operation.  Only the status of what the pointer leads to may be read. */
typedef struct dl_ucc_request {
    int status;
} dl_ucc_request;

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
    unsigned major, minor, patch; /* 1.0.0 if the library does not report it */
} dl_ucc_table;

/* Loads the library once and returns its table.  DL_NOT_FOUND or DL_UNSUPPORTED: the
 * error says what is missing. */
dl_status dl_ucc_load(const dl_ucc_table **table);

#endif
