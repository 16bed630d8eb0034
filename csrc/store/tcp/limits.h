/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What clients may cost a server: settings from the environment, whose table is in
 * docs/environment.md.  The defaults are far above what a job needs: they are there for
 * strangers and mistakes. */
#ifndef DISTLITE_STORE_TCP_LIMITS_H
#define DISTLITE_STORE_TCP_LIMITS_H

#include <stdint.h>

#include "base/status.h"

typedef struct dl_limits {
    int64_t validate; /* nanoseconds from connecting to a whole VALIDATE */
    int64_t stall;    /* nanoseconds in which a client must take some of its output */
    uint64_t descriptors; /* that are left to the program */
    uint64_t keys;        /* in the table: names with values, with items, waited for */
    uint64_t bytes;       /* in the table: keys, values and items */
    uint64_t pending; /* bytes of requests half-sent and replies not taken, in all */
} dl_limits;

dl_limits dl_limits_default(void);

/* The defaults and what the environment says.  DL_INVALID names the variable. */
dl_status dl_limits_read(dl_limits *limits);

#endif
