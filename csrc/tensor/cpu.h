/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which vector instructions to use: the widest that the processor has, or the narrower
 * one that DISTLITE_SIMD=base|avx2|avx512 asks for. */
#ifndef DISTLITE_TENSOR_CPU_H
#define DISTLITE_TENSOR_CPU_H

#include <stdbool.h>

typedef enum dl_simd {
    DL_SIMD_BASE = 0, /* what every processor of the architecture has */
    DL_SIMD_AVX2 = 1,
    DL_SIMD_AVX512 = 2,
    DL_SIMD_COUNT = 3,
} dl_simd;

const char *dl_simd_name(dl_simd simd);

bool dl_cpu_has(dl_simd simd);

/* Looks at the environment anew: for the one who keeps the answer. */
dl_simd dl_cpu_choose(void);

#endif
