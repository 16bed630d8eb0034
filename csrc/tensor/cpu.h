/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Selects the vector instructions to use: the widest that the processor supports, or
 * those that DISTLITE_SIMD=base|avx2|avx512 names. */
#ifndef DISTLITE_TENSOR_CPU_H
#define DISTLITE_TENSOR_CPU_H

#include <stdbool.h>

typedef enum dl_simd {
    DL_SIMD_BASE = 0, /* the baseline of the architecture */
    DL_SIMD_AVX2 = 1,
    DL_SIMD_AVX512 = 2,
    DL_SIMD_COUNT = 3,
} dl_simd;

bool dl_cpu_has(dl_simd simd);

/* Reads the environment with each call: the caller keeps the result. */
dl_simd dl_cpu_choose(void);

#endif
