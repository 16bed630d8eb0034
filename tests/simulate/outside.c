/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that are linked in, and that nothing which is simulated makes: what they would
 * do is the real system's.  A run that makes one fails. */
#include "world.h"

#define OUTSIDE(name)                          \
    void __wrap_##name(void);                  \
    void __wrap_##name(void)                   \
    {                                          \
        sim_fail(#name "() is not simulated"); \
    }

OUTSIDE(__isoc99_fscanf)
OUTSIDE(closedir)
OUTSIDE(dlopen)
OUTSIDE(fclose)
OUTSIDE(fdopendir)
OUTSIDE(fgets)
OUTSIDE(getcwd)
OUTSIDE(mkdir)
OUTSIDE(nanosleep)
OUTSIDE(openat)
OUTSIDE(opendir)
OUTSIDE(readdir)
OUTSIDE(renameat)
OUTSIDE(rmdir)
OUTSIDE(unlinkat)
OUTSIDE(uv_loop_init)
