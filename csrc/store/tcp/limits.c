/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/deadline.h"

#define VALIDATE_SECONDS 10

/* The default timeout of a store, after which no call waits for the reply.  Longer than
 * a stop in a debugger, or a host that swaps, usually lasts. */
#define STALL_SECONDS 300

/* A client that notices a lost connection gives up within seconds; if only the server
 * notices it, the client may take as long as the default timeout of a call. */
#define REPLY_SECONDS 300

#define SPARE_DESCRIPTORS 64

/* Far above what a job needs: a rank has some dozens of keys. */
#define KEYS (UINT64_C(64) << 20)

#define UNKNOWN_MEMORY (UINT64_C(64) << 30)

static uint64_t
host_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UNKNOWN_MEMORY;
}

dl_limits
dl_limits_default(void)
{
    return (dl_limits){
        .validate = VALIDATE_SECONDS * DL_SECOND,
        .stall = STALL_SECONDS * DL_SECOND,
        .descriptors = SPARE_DESCRIPTORS,
        .keys = KEYS,
        .bytes = host_memory() / 2,
        .pending = host_memory() / 4,
        .reply = REPLY_SECONDS * DL_SECOND,
        .reply_bytes = host_memory() / 16,
    };
}

/* Parses `text`, the value of the variable `name`.  NULL or empty leaves `*number` as
 * it is. */
static dl_status
read_number(const char *name, const char *text, uint64_t least, uint64_t most,
            uint64_t *number)
{
    char *end = NULL;

    if (text == NULL || text[0] == '\0') {
        return DL_OK;
    }
    errno = 0;
    unsigned long long read = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || read < least
        || read > most) {
        return dl_fail(DL_INVALID,
                       "%s=%.100s: the value must be a whole number from %" PRIu64
                       " to %" PRIu64,
                       name, text, least, most);
    }
    *number = read;
    return DL_OK;
}

static dl_status
read_seconds(const char *name, const char *text, int64_t *span)
{
    uint64_t seconds = (uint64_t)(*span / DL_SECOND);

    DL_TRY(read_number(name, text, 1, 1000000, &seconds));
    *span = (int64_t)seconds * DL_SECOND;
    return DL_OK;
}

dl_status
dl_limits_read(dl_limits *limits)
{
    dl_limits read = dl_limits_default();

    DL_TRY(read_seconds("DISTLITE_STORE_VALIDATE_SECONDS",
                        getenv("DISTLITE_STORE_VALIDATE_SECONDS"), &read.validate));
    DL_TRY(read_seconds("DISTLITE_STORE_STALL_SECONDS",
                        getenv("DISTLITE_STORE_STALL_SECONDS"), &read.stall));
    DL_TRY(read_number("DISTLITE_STORE_SPARE_DESCRIPTORS",
                       getenv("DISTLITE_STORE_SPARE_DESCRIPTORS"), 0, 1 << 20,
                       &read.descriptors));
    DL_TRY(read_number("DISTLITE_STORE_KEYS", getenv("DISTLITE_STORE_KEYS"), 1,
                       INT64_MAX, &read.keys));
    DL_TRY(read_number("DISTLITE_STORE_BYTES", getenv("DISTLITE_STORE_BYTES"), 1,
                       INT64_MAX, &read.bytes));
    DL_TRY(read_number("DISTLITE_STORE_PENDING", getenv("DISTLITE_STORE_PENDING"), 1,
                       INT64_MAX, &read.pending));
    DL_TRY(read_seconds("DISTLITE_STORE_REPLY_SECONDS",
                        getenv("DISTLITE_STORE_REPLY_SECONDS"), &read.reply));
    DL_TRY(read_number("DISTLITE_STORE_REPLY_BYTES",
                       getenv("DISTLITE_STORE_REPLY_BYTES"), 1, INT64_MAX,
                       &read.reply_bytes));
    *limits = read;
    return DL_OK;
}

const char *
dl_limit_name(dl_limit limit)
{
    static const char *const names[DL_LIMIT_COUNT] = {
        [DL_LIMIT_VALIDATE] = "validate",
        [DL_LIMIT_STALL] = "stall",
        [DL_LIMIT_DESCRIPTORS] = "descriptors",
        [DL_LIMIT_KEYS] = "keys",
        [DL_LIMIT_BYTES] = "bytes",
        [DL_LIMIT_PENDING] = "pending",
        [DL_LIMIT_REPLIES] = "replies",
        [DL_LIMIT_LISTINGS] = "listings",
    };

    return names[limit];
}
