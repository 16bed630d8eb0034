/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The dtype of the elements of an opaque array, as a 32-bit code that ranks compare.
 * Codes of common dtypes can be decoded on any rank.  The code of any other dtype (a
 * record, a type of another package) is a hash of its description, which is remembered
 * here, so that this process can name every dtype that it has seen. */
#ifndef DISTLITE_TENSOR_OPAQUE_H
#define DISTLITE_TENSOR_OPAQUE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a dtype's name with the terminator; a longer name is cut and ends
 * with its code. */
#define DL_DTYPE_TEXT_SIZE 160

/* Part of codes that ranks compare: never renumber. */
typedef enum dl_opaque_kind {
    DL_OPAQUE_BYTES = 1,   /* NumPy's S; the parameter is the size in bytes */
    DL_OPAQUE_CHARACTERS,  /* NumPy's U; characters of 4 bytes */
    DL_OPAQUE_VOID,        /* NumPy's V without fields; bytes */
    DL_OPAQUE_DATETIME,    /* multiple << 8 | unit */
    DL_OPAQUE_TIMEDELTA,   /* the same */
    DL_OPAQUE_LONGDOUBLE,  /* bits of the mantissa, which differ between processors */
    DL_OPAQUE_CLONGDOUBLE, /* the same */
    DL_OPAQUE_NAMED,       /* index of a name in opaque.c */
    DL_OPAQUE_DLPACK,      /* lanes << 16 | type code << 8 | bits */
    DL_OPAQUE_KIND_COUNT,
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
