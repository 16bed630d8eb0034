/* SPDX-License-Identifier: BSD-3-Clause
 *
 * UCC's constants as far as they are used here, unchanged from 1.0 on. */
#ifndef DISTLITE_PG_UCC_UCC_NUMBERS_H
#define DISTLITE_PG_UCC_UCC_NUMBERS_H

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
    DL_UCC_ALL_GATHER_V = 2,
    DL_UCC_ALL_REDUCE = 4,
    DL_UCC_ALL_TO_ALL_V = 16,
    DL_UCC_BARRIER = 32,
    DL_UCC_BROADCAST = 64,
    DL_UCC_GATHER = 512,
    DL_UCC_GATHER_V = 1024,
    DL_UCC_REDUCE = 2048,
    DL_UCC_REDUCE_SCATTER = 4096,
    DL_UCC_REDUCE_SCATTER_V = 8192,
    DL_UCC_SCATTER_V = 32768,
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
    DL_UCC_FLOAT16 = 80,
    DL_UCC_FLOAT32 = 88,
    DL_UCC_FLOAT64 = 96,
    DL_UCC_BFLOAT16 = 104,
    DL_UCC_COMPLEX64 = 120,
    DL_UCC_COMPLEX128 = 128,
};

/* Memory. */
enum {
    DL_UCC_HOST = 0,
    DL_UCC_CUDA = 1,
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
    DL_UCC_AVG = 12,
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
    DL_UCC_ARGS_TAG = 2,
    DL_UCC_ARGS_ACTIVE_SET = 16,
    DL_UCC_IN_PLACE = 1,
    DL_UCC_COUNTS_64 = 4,
    DL_UCC_DISPLACEMENTS_64 = 8,
};

#endif
