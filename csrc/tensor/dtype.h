/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Element types.  Reductions support the numeric ones; the others are only moved. */
#ifndef DISTLITE_TENSOR_DTYPE_H
#define DISTLITE_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of the fingerprint that ranks compare: never renumber. */
typedef enum dl_dtype {
    DL_OPAQUE = 0, /* moved as bytes; a code identifies the dtype (see below) */
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

/* Bytes of a dtype's name with the terminator; a longer name is cut and ends
 * with its code. */
#define DL_DTYPE_TEXT_SIZE 160

/* Returns NumPy's name, such as "float32"; "bytes" for DL_OPAQUE. */
const char *dl_dtype_name(dl_dtype dtype);

/* Writes the same name; for DL_OPAQUE, that of the dtype behind the code, such as
 * "datetime64[ms]". */
void dl_dtype_describe(dl_dtype dtype, uint32_t opaque_code,
                       char text[DL_DTYPE_TEXT_SIZE]);

/* Returns the bytes of one element; 0 for DL_OPAQUE. */
size_t dl_dtype_size(dl_dtype dtype);

bool dl_dtype_is_integer(dl_dtype dtype); /* bool included */

/* The dtype of the elements of an opaque array, as a 32-bit code that ranks compare.
 * Codes of common dtypes can be decoded on any rank.  The code of any other dtype (a
 * record, a type of another package) is a hash of its description, which is remembered
 * here, so that this process can name every dtype that it has seen. */

/* Part of codes that ranks compare: never renumber. */
typedef enum dl_opaque_kind {
    DL_OPAQUE_BYTES = 1,   /* NumPy's S; the parameter is the size in bytes */
    DL_OPAQUE_CHARACTERS,  /* NumPy's U; characters of 4 bytes */
    DL_OPAQUE_VOID,        /* NumPy's V without fields; bytes */
    DL_OPAQUE_DATETIME,    /* multiple << 8 | unit */
    DL_OPAQUE_TIMEDELTA,   /* the same */
    DL_OPAQUE_LONGDOUBLE,  /* bits of the mantissa, which differ between processors */
    DL_OPAQUE_CLONGDOUBLE, /* the same */
    DL_OPAQUE_NAMED,       /* index of a name in dtype.c */
    DL_OPAQUE_DLPACK,      /* lanes << 16 | type code << 8 | bits */
} dl_opaque_kind;

/* Returns the code of a dtype; never 0. */
uint32_t dl_opaque_code(dl_opaque_kind kind, size_t parameter);

/* Returns the code of a type that packages know by this name, such as
 * "float8_e5m2fnuz"; 0 if the name is not known here. */
uint32_t dl_opaque_named(const char *name);

/* A description in the making.  Zeroed memory is an empty one. */
typedef struct dl_opaque_text {
    uint64_t hash; /* of the whole description */
    size_t size;   /* of the whole description; `text` holds as much as fits */
    char text[DL_DTYPE_TEXT_SIZE];
} dl_opaque_text;

/* Appends a text to the description. */
void dl_opaque_put(dl_opaque_text *self, const char *text);

/* Appends a name that the program has chosen.  Its size is hashed as well, so that no
 * name can imitate other parts of a description. */
void dl_opaque_put_name(dl_opaque_text *self, const char *name, size_t size);

/* Appends a number in decimal. */
void dl_opaque_put_number(dl_opaque_text *self, int64_t number);

/* Returns the code of the description, and remembers the description.  Any thread. */
uint32_t dl_opaque_code_of_text(const dl_opaque_text *self);

/* Writes "datetime64[ms]", "S12", or the description.  The code may come from another
 * rank: a hash that was not described in this process is "another dtype (#0123abcd)"; 0
 * is "bytes". */
void dl_opaque_describe(uint32_t code, char text[DL_DTYPE_TEXT_SIZE]);

#endif
