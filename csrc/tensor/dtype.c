/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/dtype.h"

#include <stdio.h>

typedef struct dtype_entry {
    const char *name;
    size_t size;
    bool is_integer;
} dtype_entry;

static const dtype_entry entries[DL_DTYPE_COUNT] = {
    [DL_OPAQUE] = {"bytes", 0, false},
    [DL_BOOL] = {"bool", 1, true},
    [DL_INT8] = {"int8", 1, true},
    [DL_UINT8] = {"uint8", 1, true},
    [DL_INT16] = {"int16", 2, true},
    [DL_UINT16] = {"uint16", 2, true},
    [DL_INT32] = {"int32", 4, true},
    [DL_UINT32] = {"uint32", 4, true},
    [DL_INT64] = {"int64", 8, true},
    [DL_UINT64] = {"uint64", 8, true},
    [DL_FLOAT16] = {"float16", 2, false},
    [DL_BFLOAT16] = {"bfloat16", 2, false},
    [DL_FLOAT32] = {"float32", 4, false},
    [DL_FLOAT64] = {"float64", 8, false},
    [DL_COMPLEX64] = {"complex64", 8, false},
    [DL_COMPLEX128] = {"complex128", 16, false},
    [DL_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1, false},
    [DL_FLOAT8_E5M2] = {"float8_e5m2", 1, false},
};

static const dtype_entry unknown = {"unknown dtype", 0, false};

/* The number may come from another rank, so it is checked. */
static const dtype_entry *
entry_of(dl_dtype dtype)
{
    return (unsigned)dtype < DL_DTYPE_COUNT ? &entries[dtype] : &unknown;
}

const char *
dl_dtype_name(dl_dtype dtype)
{
    return entry_of(dtype)->name;
}

void
dl_dtype_describe(dl_dtype dtype, uint32_t opaque_code, char text[DL_DTYPE_TEXT_SIZE])
{
    if (dtype == DL_OPAQUE) {
        dl_opaque_describe(opaque_code, text);
    } else {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s", dl_dtype_name(dtype));
    }
}

size_t
dl_dtype_size(dl_dtype dtype)
{
    return entry_of(dtype)->size;
}

bool
dl_dtype_is_integer(dl_dtype dtype)
{
    return entry_of(dtype)->is_integer;
}
