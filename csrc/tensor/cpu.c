/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static const char *const names[DL_SIMD_COUNT] = {
    [DL_SIMD_BASE] = "base",
    [DL_SIMD_AVX2] = "avx2",
    [DL_SIMD_AVX512] = "avx512",
};

bool
dl_cpu_has(dl_simd simd)
{
#if defined(__x86_64__)
    if (simd == DL_SIMD_AVX2) {
        return __builtin_cpu_supports("avx2");
    }
    if (simd == DL_SIMD_AVX512) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
               && __builtin_cpu_supports("avx512dq")
               && __builtin_cpu_supports("avx512vl");
    }
#endif
    return simd == DL_SIMD_BASE;
}

static dl_simd
widest(void)
{
    for (int simd = DL_SIMD_COUNT - 1; simd > DL_SIMD_BASE; simd--) {
        if (dl_cpu_has((dl_simd)simd)) {
            return (dl_simd)simd;
        }
    }
    return DL_SIMD_BASE;
}

dl_simd
dl_cpu_choose(void)
{
    const char *asked = getenv("DISTLITE_SIMD");

    if (asked == NULL || *asked == '\0') {
        return widest();
    }
    for (int simd = 0; simd < DL_SIMD_COUNT; simd++) {
        if (strcmp(asked, names[simd]) == 0 && dl_cpu_has((dl_simd)simd)) {
            return (dl_simd)simd;
        }
    }
    dl_log(DL_LOG_WARNING, "DISTLITE_SIMD=%s is unknown or not of this processor; %s",
           asked, "the choices are base, avx2 and avx512");
    return widest();
}
