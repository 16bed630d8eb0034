/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NCCL's calls, constants and configuration, declared here so that its headers are not
 * needed; from 2.18 on.  Later calls may be absent from the library that is found:
 * their entries are then NULL, and the caller uses another way or names the version
 * needed. */
#ifndef DISTLITE_PG_NCCL_NCCL_TABLE_H
#define DISTLITE_PG_NCCL_NCCL_TABLE_H

#include <stddef.h>

#include "base/library.h"

enum {
    DL_NCCL_SUCCESS = 0,
    DL_NCCL_IN_PROGRESS = 7,
    DL_NCCL_UINT8 = 1,
    DL_NCCL_NO_COLOR = -1,
    DL_NCCL_SCALAR_ON_HOST = 1,
    DL_NCCL_SHRINK_ABORT = 1, /* the parent's operations are aborted first */
};

#define DL_NCCL_OLDEST 21800

/* Whether a call has failed.  Any call on a communicator that does not block may say
 * that it is still in progress. */
static inline bool
dl_nccl_has_failed(int result)
{
    return result != DL_NCCL_SUCCESS && result != DL_NCCL_IN_PROGRESS;
}

/* Passed by value, so the size is part of NCCL's ABI. */
typedef struct dl_nccl_id {
    char bytes[128];
} dl_nccl_id;

/* The layout of 2.27, and `version` always says so: an older library reads the fields
 * that it knows, a newer one uses its defaults for the rest.  An unset field is INT_MIN
 * or NULL. */
typedef struct dl_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class;
    const char *comm_name;
    int collnet_enable;
    int cta_policy;
    int shrink_share;
    int nvls_ctas;
} dl_nccl_config;

_Static_assert(sizeof(dl_nccl_config) == 72, "fixed by NCCL 2.27");

#define DL_NCCL_CONFIG_MAGIC 0xcafebeefu
#define DL_NCCL_CONFIG_VERSION 22703

/* A field of the table, the symbol, and its return and argument types. */
#define DL_NCCL_SYMBOLS(X)                                                           \
    X(get_version, ncclGetVersion, int, (int *))                                     \
    X(get_unique_id, ncclGetUniqueId, int, (dl_nccl_id *))                           \
    X(error_text, ncclGetErrorString, const char *, (int))                           \
    X(last_error, ncclGetLastError, const char *, (void *))                          \
    X(comm_init, ncclCommInitRankConfig, int,                                        \
      (void **, int, dl_nccl_id, int, dl_nccl_config *))                             \
    X(comm_split, ncclCommSplit, int, (void *, int, int, void **, dl_nccl_config *)) \
    X(comm_finalize, ncclCommFinalize, int, (void *))                                \
    X(comm_destroy, ncclCommDestroy, int, (void *))                                  \
    X(comm_abort, ncclCommAbort, int, (void *))                                      \
    X(comm_error, ncclCommGetAsyncError, int, (void *, int *))                       \
    X(group_start, ncclGroupStart, int, (void))                                      \
    X(group_end, ncclGroupEnd, int, (void))                                          \
    X(all_reduce, ncclAllReduce, int,                                                \
      (const void *, void *, size_t, int, int, void *, void *))                      \
    X(reduce, ncclReduce, int,                                                       \
      (const void *, void *, size_t, int, int, int, void *, void *))                 \
    X(broadcast, ncclBroadcast, int,                                                 \
      (const void *, void *, size_t, int, int, void *, void *))                      \
    X(all_gather, ncclAllGather, int,                                                \
      (const void *, void *, size_t, int, void *, void *))                           \
    X(reduce_scatter, ncclReduceScatter, int,                                        \
      (const void *, void *, size_t, int, int, void *, void *))                      \
    X(send, ncclSend, int, (const void *, size_t, int, int, void *, void *))         \
    X(receive, ncclRecv, int, (void *, size_t, int, int, void *, void *))            \
    X(op_create, ncclRedOpCreatePreMulSum, int, (int *, void *, int, int, void *))   \
    X(op_destroy, ncclRedOpDestroy, int, (int, void *))

#define DL_NCCL_NEWER_SYMBOLS(X)                                 \
    X(comm_shrink, ncclCommShrink, int,                          \
      (void *, int *, int, void **, dl_nccl_config *, int))      \
    X(comm_init_scalable, ncclCommInitRankScalable, int,         \
      (void **, int, int, int, dl_nccl_id *, dl_nccl_config *))  \
    X(comm_revoke, ncclCommRevoke, int, (void *, int))           \
    X(comm_id, ncclCommGetUniqueId, int, (void *, dl_nccl_id *)) \
    X(comm_grow, ncclCommGrow, int,                              \
      (void *, int, const dl_nccl_id *, int, void **, dl_nccl_config *))

typedef struct dl_nccl_table {
#define X(field, symbol, result, arguments) result(*field) arguments;
    DL_NCCL_SYMBOLS(X)
    DL_NCCL_NEWER_SYMBOLS(X)
#undef X
    int version; /* 22703 for 2.27.3 */
} dl_nccl_table;

/* Loads the library, once.  The text of DL_NOT_FOUND or DL_UNSUPPORTED names what is
 * missing.  Needs neither driver nor device. */
dl_status dl_nccl_load(const dl_nccl_table **table);

/* Writes the library's version number as "2.27.3". */
void dl_nccl_version_text(int version, char *text, size_t size);

/* Maps NCCL's result to DL_OK, or to DL_BACKEND with a text such as "ncclAllReduce:
 * unhandled cuda error (result 1): ...". */
dl_status dl_nccl_check(const dl_nccl_table *nccl, int result, const char *call);

#endif
