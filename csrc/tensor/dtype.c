/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/dtype.h"

#include <float.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A code is a kind and its parameter, or, with the highest bit set, a hash. */
#define KIND_SHIFT 24
#define PARAMETER_MASK (((uint32_t)1 << KIND_SHIFT) - 1)
#define HASH_BIT ((uint32_t)1 << 31)

/* The prime of FNV-1a.  The hash starts at 0: any start will do. */
#define HASH_PRIME UINT64_C(0x100000001b3)

/* How many descriptions are remembered.  A program that makes more still has their
 * codes compared, but error texts cannot name them. */
#define MEMORY_SIZE 512
#define MEMORY_LOOKS 16

/* NumPy's units by its numbers, of which 3 is not used. */
static const char *const units[] = {"Y",  "M",  "W",  NULL, "D",  "h",  "m", "s",
                                    "ms", "us", "ns", "ps", "fs", "as", ""};

/* Ranks compare the indices: only append to the list. */
static const char *const names[] = {
    "complex32",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "int2",
    "uint2",
    "int4",
    "uint4",
};

#define UNIT_COUNT (sizeof units / sizeof *units)
#define NAME_COUNT (sizeof names / sizeof *names)

/* Never freed: a code may have to be named as long as the process lives. */
typedef struct memory {
    uint32_t code;
    char text[DL_DTYPE_TEXT_SIZE];
} memory;

static _Atomic(const memory *) memories[MEMORY_SIZE];

static void
render_time(const char *name, size_t parameter, char text[DL_DTYPE_TEXT_SIZE])
{
    size_t unit = parameter & 0xff;
    size_t multiple = parameter >> 8;
    const char *suffix = unit < UNIT_COUNT && units[unit] != NULL ? units[unit] : "?";

    if (suffix[0] == '\0') {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s", name);
    } else if (multiple == 1) {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s[%s]", name, suffix);
    } else {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s[%zu%s]", name, multiple, suffix);
    }
}

static void
render_longdouble(const char *name, size_t mantissa, char text[DL_DTYPE_TEXT_SIZE])
{
    if (mantissa == LDBL_MANT_DIG) {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s", name);
    } else {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s with a mantissa of %zu bits", name,
                 mantissa);
    }
}

static void
render_dlpack(size_t parameter, char text[DL_DTYPE_TEXT_SIZE])
{
    snprintf(text, DL_DTYPE_TEXT_SIZE, "DLPack type %zu of %zu bits in %zu lanes",
             parameter >> 8 & 0xff, parameter & 0xff, parameter >> 16);
}

static void
render_name(uint32_t kind, size_t parameter, char text[DL_DTYPE_TEXT_SIZE])
{
    static const char letters[] = {
        [DL_OPAQUE_BYTES] = 'S', [DL_OPAQUE_CHARACTERS] = 'U', [DL_OPAQUE_VOID] = 'V'};

    switch (kind) {
    case DL_OPAQUE_BYTES:
    case DL_OPAQUE_CHARACTERS:
    case DL_OPAQUE_VOID:
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%c%zu", letters[kind], parameter);
        return;
    case DL_OPAQUE_DATETIME:
        render_time("datetime64", parameter, text);
        return;
    case DL_OPAQUE_TIMEDELTA:
        render_time("timedelta64", parameter, text);
        return;
    case DL_OPAQUE_LONGDOUBLE:
        render_longdouble("longdouble", parameter, text);
        return;
    case DL_OPAQUE_CLONGDOUBLE:
        render_longdouble("clongdouble", parameter, text);
        return;
    case DL_OPAQUE_DLPACK:
        render_dlpack(parameter, text);
        return;
    default:
        snprintf(text, DL_DTYPE_TEXT_SIZE, "%s",
                 kind == DL_OPAQUE_NAMED && parameter < NAME_COUNT ? names[parameter]
                                                                   : "unknown dtype");
    }
}

uint32_t
dl_opaque_code(dl_opaque_kind kind, size_t parameter)
{
    if (parameter <= PARAMETER_MASK) {
        return (uint32_t)kind << KIND_SHIFT | (uint32_t)parameter;
    }
    dl_opaque_text self = {0};
    char text[DL_DTYPE_TEXT_SIZE];
    render_name(kind, parameter, text);
    dl_opaque_put(&self, text);
    return dl_opaque_code_of_text(&self);
}

uint32_t
dl_opaque_named(const char *name)
{
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            return dl_opaque_code(DL_OPAQUE_NAMED, i);
        }
    }
    return 0;
}

/* Control characters become question marks in the text, which may be part of a
 * one-line message: names of fields may contain anything.  The hash is that of the
 * original bytes. */
static void
put_printable(dl_opaque_text *self, const char *text, size_t size)
{
    uint64_t hash = self->hash;

    for (size_t i = 0; i < size; i++, self->size++) {
        hash = (hash ^ (uint8_t)text[i]) * HASH_PRIME;
        if (self->size < sizeof self->text - 1) {
            self->text[self->size] = (uint8_t)text[i] < ' ' ? '?' : text[i];
        }
    }
    self->hash = hash;
}

void
dl_opaque_put(dl_opaque_text *self, const char *text)
{
    put_printable(self, text, strlen(text));
}

void
dl_opaque_put_name(dl_opaque_text *self, const char *name, size_t size)
{
    self->hash = (self->hash ^ size) * HASH_PRIME;
    put_printable(self, name, size);
}

void
dl_opaque_put_number(dl_opaque_text *self, int64_t number)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, number);
    dl_opaque_put(self, text);
}

static uint32_t
fold_hash(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32) | HASH_BIT;
}

/* Returns the slot of a code, with `*found` set, or a free slot for it; NULL if there
 * is none. */
static _Atomic(const memory *) *
slot_of(uint32_t code, const memory **found)
{
    for (uint32_t i = 0; i < MEMORY_LOOKS; i++) {
        _Atomic(const memory *) *place = &memories[(code + i) % MEMORY_SIZE];
        *found = atomic_load_explicit(place, memory_order_acquire);
        if (*found == NULL || (*found)->code == code) {
            return place;
        }
    }
    *found = NULL;
    return NULL;
}

/* Terminates the text.  One that was cut ends with its code, at a character
 * boundary. */
static void
finish_text(char text[DL_DTYPE_TEXT_SIZE], size_t size, uint32_t code)
{
    char end[24];

    if (size < DL_DTYPE_TEXT_SIZE) {
        text[size] = '\0';
        return;
    }
    int length = snprintf(end, sizeof end, "... (#%08" PRIx32 ")", code);
    size_t at = DL_DTYPE_TEXT_SIZE - 1 - (size_t)length;
    while (at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80) {
        at--;
    }
    memcpy(text + at, end, (size_t)length + 1);
}

/* Remembers the description.  Without memory or a free slot it is not remembered. */
static void
remember_text(const dl_opaque_text *self, uint32_t code)
{
    const memory *found;
    _Atomic(const memory *) *place = slot_of(code, &found);

    if (place == NULL || found != NULL) {
        return;
    }
    memory *made = malloc(sizeof *made);
    if (made == NULL) {
        return;
    }
    made->code = code;
    memcpy(made->text, self->text, sizeof made->text);
    finish_text(made->text, self->size, code);
    /* Another thread may have taken the slot: then the next call remembers it. */
    if (!atomic_compare_exchange_strong(place, &found, made)) {
        free(made);
    }
}

uint32_t
dl_opaque_code_of_text(const dl_opaque_text *self)
{
    uint32_t code = fold_hash(self->hash);

    remember_text(self, code);
    return code;
}

void
dl_opaque_describe(uint32_t code, char text[DL_DTYPE_TEXT_SIZE])
{
    const memory *found;

    if (code == 0) {
        snprintf(text, DL_DTYPE_TEXT_SIZE, "bytes");
    } else if ((code & HASH_BIT) == 0) {
        render_name(code >> KIND_SHIFT, code & PARAMETER_MASK, text);
    } else {
        slot_of(code, &found);
        if (found == NULL) {
            snprintf(text, DL_DTYPE_TEXT_SIZE, "another dtype (#%08" PRIx32 ")", code);
        } else {
            memcpy(text, found->text, sizeof found->text);
        }
    }
}
