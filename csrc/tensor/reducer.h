/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions without a kernel per dtype: MINLOC and MAXLOC, which select pairs of a
 * value and an index, and functions that users pass.  What they combine is moved as
 * bytes, in units that stay together. */
#ifndef DISTLITE_TENSOR_REDUCER_H
#define DISTLITE_TENSOR_REDUCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

typedef struct dl_reducer dl_reducer;

/* Embedded first in a struct of its maker, who keeps it alive until the operation has
 * ended. */
struct dl_reducer {
    /* Computes right[i] = left[i] op right[i] of `count` units, where `left` comes from
     * lower ranks.  May be called on any thread, without locks held. */
    dl_status (*combine)(const dl_reducer *self, const void *left, void *right,
                         size_t count);
    const char *name; /* "MAXLOC", for errors */
    uint32_t code;    /* of dtype and name; see dl_reducer_code() */
    size_t unit;      /* bytes */
    bool may_fail;    /* then the ranks tell each other whether it has */
};

/* Returns the code that ranks compare, of a dtype as text and a name.  The text
 * "float64, hypot" is remembered: dl_opaque_describe() returns it. */
uint32_t dl_reducer_code(const char *dtype, const char *name);

/* Writes the text of a code that may come from another rank: only those that this
 * process has made have one.  DL_FUNCTION stands for a reduction whose code is not
 * known. */
void dl_reducer_describe(uint32_t code, char text[DL_DTYPE_TEXT_SIZE]);

/* A value and an index in one unit. */
typedef struct dl_pair {
    dl_dtype value; /* a real number */
    dl_dtype index; /* an integer, or the type of the value */
    size_t value_offset;
    size_t index_offset;
} dl_pair;

/* MINLOC, or MAXLOC: the pair of the smallest, or largest, value; of equal values, that
 * of the lowest index.  NaN counts as the smallest and as the largest value. */
typedef struct dl_pair_reducer {
    dl_reducer base;
    dl_pair pair;
    bool is_max;
} dl_pair_reducer;

/* Initialises all but the code.  `unit` is the size of a pair with its padding, which
 * moves along.  Returns DL_INVALID if the dtypes cannot be compared. */
dl_status dl_pair_reducer_init(dl_pair_reducer *self, const dl_pair *pair, size_t unit,
                               bool is_max);

#endif
