/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compiles a range of functions for one instruction set, with the pragmas of gcc or
 * clang.  Include system headers before DL_ISA_BEGIN: their inline functions would be
 * affected. */
#ifndef DISTLITE_TENSOR_ISA_H
#define DISTLITE_TENSOR_ISA_H

#define DL_PRAGMA(...) _Pragma(#__VA_ARGS__)

#if defined(__clang__)
#define DL_ISA_BEGIN(features) \
    DL_PRAGMA(                 \
        clang attribute push(__attribute__((target(features))), apply_to = function))
#define DL_ISA_END DL_PRAGMA(clang attribute pop)
/* States that iterations are independent: an output may be an input, but not
 * shifted. */
#define DL_INDEPENDENT DL_PRAGMA(clang loop vectorize(assume_safety))
#else
#define DL_ISA_BEGIN(features)  \
    DL_PRAGMA(GCC push_options) \
    DL_PRAGMA(GCC target(features))
#define DL_ISA_END DL_PRAGMA(GCC pop_options)
#define DL_INDEPENDENT DL_PRAGMA(GCC ivdep)
#endif

#endif
