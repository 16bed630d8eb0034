/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Element types.  Reductions support the numeric ones; the others are only moved. */
#ifndef DISTLITE_TENSOR_DTYPE_H
#define DISTLITE_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/opaque.h"

/* Part of the fingerprint that ranks compare: never renumber. */
typedef enum dl_dtype {
    DL_OPAQUE = 0, /* moved as bytes; a code identifies the dtype (tensor/opaque.h) */
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

/* Returns NumPy's name, such as "float32"; "bytes" for DL_OPAQUE. */
const char *dl_dtype_name(dl_dtype dtype);

/* Writes the same name; for DL_OPAQUE, that of the dtype behind the code, such as
 * "datetime64[ms]". */
void dl_dtype_describe(dl_dtype dtype, uint32_t opaque_code,
                       char text[DL_DTYPE_TEXT_SIZE]);

/* Returns the bytes of one element; 0 for DL_OPAQUE. */
size_t dl_dtype_size(dl_dtype dtype);

bool dl_dtype_is_integer(dl_dtype dtype); /* bool included */

#endif
