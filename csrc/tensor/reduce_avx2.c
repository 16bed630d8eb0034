/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/reduce_table.h"

#if defined(__x86_64__)
DL_ISA_BEGIN("avx2")
#define DL_KERNEL(name) name##_avx2
#include "tensor/reduce_loops.h"
DL_ISA_END
#endif
