/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which dtype the elements of an opaque array have, as a code of 32 bits that ranks
 * compare.  Codes of frequent dtypes can be read back on any rank; the code of any other
 * dtype (a record, a type of another package) is a hash of its description, which is
 * remembered here, so that this process can name every dtype that it has seen. */
#ifndef DISTLITE_TENSOR_OPAQUE_H
#define DISTLITE_TENSOR_OPAQUE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a dtype's name with the final zero; a longer one is cut, and its hash added. */
#define DL_DTYPE_TEXT_SIZE 160

/* Compared between ranks: never renumber. */
typedef enum dl_opaque_kind {
    DL_OPAQUE_BYTES = 1,   /* parameter: bytes of an element; NumPy's S */
    DL_OPAQUE_CHARACTERS,  /* characters of 4 bytes; NumPy's U */
    DL_OPAQUE_VOID,        /* bytes; NumPy's V without fields */
    DL_OPAQUE_DATETIME,    /* how many << 8, of which unit */
    DL_OPAQUE_TIMEDELTA,   /* the same */
    DL_OPAQUE_LONGDOUBLE,  /* bits of the mantissa, which differ between processors */
    DL_OPAQUE_CLONGDOUBLE, /* the same */
    DL_OPAQUE_NAMED,       /* index of a name that opaque.c knows */
    DL_OPAQUE_DLPACK,      /* lanes << 16, type code << 8, bits */
    DL_OPAQUE_KIND_COUNT,
} dl_opaque_kind;

/* Never 0. */
uint32_t dl_opaque_code(dl_opaque_kind kind, size_t parameter);

/* That of a type which packages know by this name, as "float8_e5m2fnuz"; 0: not here. */
uint32_t dl_opaque_named(const char *name);

/* A description that is put together; zeroed it is empty. */
typedef struct dl_opaque_text {
    uint64_t hash; /* of all of it */
    size_t size;   /* of all of it; `text` holds as much as fits */
    char text[DL_DTYPE_TEXT_SIZE];
} dl_opaque_text;

void dl_opaque_put(dl_opaque_text *self, const char *text);

/* A name that a program chose: whatever is in it, other texts have other hashes. */
void dl_opaque_put_name(dl_opaque_text *self, const char *name, size_t size);
void dl_opaque_put_number(dl_opaque_text *self, int64_t number);

/* The code for what was put, which is remembered. */
uint32_t dl_opaque_code_of_text(const dl_opaque_text *self);

/* "datetime64[ms]", "S12", or the description.  Codes come from other ranks: a hash that
 * nobody here has described is "another dtype (#0123abcd)"; 0 is "bytes". */
void dl_opaque_describe(uint32_t code, char text[DL_DTYPE_TEXT_SIZE]);

#endif
