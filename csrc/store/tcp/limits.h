/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Limits of the resources that clients may use in a store's server.  They protect
 * against foreign clients and mistakes, and are far above what a job needs.  Keys, bytes
 * and connections are settings from the environment (docs/environment.md). */
#ifndef DISTLITE_STORE_TCP_LIMITS_H
#define DISTLITE_STORE_TCP_LIMITS_H

#include <stdint.h>

#include "base/status.h"

/* The limits, for counting their refusals; the names are those in STATS. */
typedef enum dl_limit {
    DL_LIMIT_VALIDATE,
    DL_LIMIT_STALL,
    DL_LIMIT_CONNECTIONS, /* or the descriptors of the process */
    DL_LIMIT_KEYS,
    DL_LIMIT_BYTES,
    DL_LIMIT_PENDING,
    /* `reply` or `reply_bytes`: a repeated change whose reply is forgotten. */
    DL_LIMIT_REPLIES,
    DL_LIMIT_COUNT,
} dl_limit;

typedef struct dl_limits {
    uint64_t keys;        /* names in the table: with a value, an item or a waiter */
    uint64_t bytes;       /* of keys, values and items in the table */
    uint64_t connections; /* of clients, at a time */
    uint64_t pending; /* bytes of incomplete requests and of unread replies, in all */
    uint64_t reply_bytes; /* of replies that are remembered, in all */
    int64_t validate;     /* nanoseconds from connecting to a complete VALIDATE */
    int64_t stall; /* nanoseconds in which a client must read some of its output */
    int64_t reply; /* nanoseconds for which a lost client's reply is remembered */
} dl_limits;

dl_limits dl_limits_default(void);

/* Fills in the defaults and overrides them from the environment.  The text of
 * DL_INVALID names the invalid variable; `*limits` is then unchanged. */
dl_status dl_limits_read(dl_limits *limits);

/* The names in STATS, such as "validate". */
extern const char *const dl_limit_names[DL_LIMIT_COUNT];

#endif
