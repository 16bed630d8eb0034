/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/deadline.h"

#define VALIDATE_SECONDS 10

/* The default timeout of a store, after which no call waits for the reply.  Longer than
 * a stop in a debugger, or a host that swaps, usually lasts. */
#define STALL_SECONDS 300

/* A client that notices a lost connection gives up within seconds; if only the server
 * notices it, the client may take as long as the default timeout of a call. */
#define REPLY_SECONDS 300

/* Far above what a job needs: a rank has some dozens of keys. */
#define KEYS (UINT64_C(64) << 20)

/* Enough for a value of DL_STORE_VALUE_LIMIT from some clients at once. */
#define PENDING_LEAST (UINT64_C(64) << 20)

#define UNKNOWN_MEMORY (UINT64_C(64) << 30)

const char *const dl_limit_names[DL_LIMIT_COUNT] = {
    [DL_LIMIT_VALIDATE] = "validate",
    [DL_LIMIT_STALL] = "stall",
    [DL_LIMIT_CONNECTIONS] = "connections",
    [DL_LIMIT_KEYS] = "keys",
    [DL_LIMIT_BYTES] = "bytes",
    [DL_LIMIT_PENDING] = "pending",
    [DL_LIMIT_REPLIES] = "replies",
};

static uint64_t
host_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UNKNOWN_MEMORY;
}

/* Leaves an eighth of the process's descriptors to the program. */
static uint64_t
most_connections(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
               ? limit.rlim_cur - limit.rlim_cur / 8
               : UINT64_MAX;
}

static void
set_bytes(dl_limits *limits, uint64_t bytes)
{
    limits->bytes = bytes;
    limits->pending = bytes / 2 > PENDING_LEAST ? bytes / 2 : PENDING_LEAST;
    limits->reply_bytes = bytes / 8;
}

dl_limits
dl_limits_default(void)
{
    dl_limits limits = {
        .keys = KEYS,
        .connections = most_connections(),
        .validate = VALIDATE_SECONDS * DL_SECOND,
        .stall = STALL_SECONDS * DL_SECOND,
        .reply = REPLY_SECONDS * DL_SECOND,
    };

    set_bytes(&limits, host_memory() / 2);
    return limits;
}

/* Reads the variable; one that is not set or empty leaves `*number` as it is. */
static dl_status
read_number(const char *name, uint64_t *number)
{
    const char *text = getenv(name);
    char *end = NULL;

    if (text == NULL || text[0] == '\0') {
        return DL_OK;
    }
    errno = 0;
    unsigned long long read = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || read < 1
        || read > INT64_MAX) {
        return dl_fail(DL_INVALID,
                       "%s=%.100s: the value must be a whole number from 1 to %" PRId64,
                       name, text, INT64_MAX);
    }
    *number = read;
    return DL_OK;
}

dl_status
dl_limits_read(dl_limits *limits)
{
    dl_limits read = dl_limits_default();
    uint64_t bytes = read.bytes;

    DL_TRY(read_number("DISTLITE_STORE_KEYS", &read.keys));
    DL_TRY(read_number("DISTLITE_STORE_BYTES", &bytes));
    DL_TRY(read_number("DISTLITE_STORE_CONNECTIONS", &read.connections));
    set_bytes(&read, bytes);
    *limits = read;
    return DL_OK;
}
