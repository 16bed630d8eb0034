/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/reduce_table.h"

#if defined(__x86_64__)
DL_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl")
#define DL_KERNEL(name) name##_avx512
#include "tensor/reduce_loops.h"
DL_ISA_END
#endif
