/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Element types.  Reductions know the numeric ones; everything else only moves. */
#ifndef DISTLITE_TENSOR_DTYPE_H
#define DISTLITE_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/opaque.h"

/* Compared between ranks inside a fingerprint: never renumber. */
typedef enum dl_dtype {
    DL_OPAQUE = 0, /* moved as bytes; a code tells one from another (tensor/opaque.h) */
    DL_BOOL = 1,
    DL_INT8 = 2,
    DL_UINT8 = 3,
    DL_INT16 = 4,
    DL_UINT16 = 5,
    DL_INT32 = 6,
    DL_UINT32 = 7,
    DL_INT64 = 8,
    DL_UINT64 = 9,
    DL_FLOAT16 = 10,
    DL_BFLOAT16 = 11,
    DL_FLOAT32 = 12,
    DL_FLOAT64 = 13,
    DL_COMPLEX64 = 14,
    DL_COMPLEX128 = 15,
    DL_FLOAT8_E4M3FN = 16,
    DL_FLOAT8_E5M2 = 17,
    DL_DTYPE_COUNT = 18,
} dl_dtype;

/* NumPy's name, "float32"; "bytes" for DL_OPAQUE. */
const char *dl_dtype_name(dl_dtype dtype);

/* The same with the dtype that DL_OPAQUE stands for: "datetime64[ms]". */
void dl_dtype_describe(dl_dtype dtype, uint32_t opaque_code,
                       char text[DL_DTYPE_TEXT_SIZE]);

/* 0 for DL_OPAQUE. */
size_t dl_dtype_size(dl_dtype dtype);

bool dl_dtype_is_integer(dl_dtype dtype); /* bool included */

#endif
