/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A scripted name service: this getaddrinfo(3) is linked instead of the C library's,
 * which still answers for numeric hosts and for names without a script. */
#ifndef DISTLITE_TESTS_FAKES_RESOLVER_H
#define DISTLITE_TESTS_FAKES_RESOLVER_H

#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "check.h"

/* The answer to a look-up of `host`; set before the call that looks up, on one
 * thread. */
typedef struct fake_resolver {
    const char *host;
    const char *addresses[4]; /* numeric; ended by NULL */
    int code;                 /* returned by the first `failures` calls instead */
    int failures;
    int delay_ms;
    int quick; /* so many first calls have no delay */
    atomic_int begun;
} fake_resolver;

static fake_resolver fake_names;

typedef int (*fake_getaddrinfo_fn)(const char *, const char *, const struct addrinfo *,
                                   struct addrinfo **);

static int
fake_real_getaddrinfo(const char *node, const char *service,
                      const struct addrinfo *hints, struct addrinfo **result)
{
    fake_getaddrinfo_fn real;

    /* POSIX lets a pointer hold a function's address; ISO C does not. */
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, result);
}

/* Looks up each scripted address with the C library, and links the results. */
static int
fake_chain(const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    struct addrinfo **end = result;

    for (int i = 0; fake_names.addresses[i] != NULL; i++) {
        CHECK(fake_real_getaddrinfo(fake_names.addresses[i], service, hints, end) == 0);
        end = &(*end)->ai_next;
    }
    return 0;
}

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
            struct addrinfo **result)
{
    if ((hints->ai_flags & AI_NUMERICHOST) != 0 || fake_names.host == NULL
        || strcmp(node, fake_names.host) != 0) {
        return fake_real_getaddrinfo(node, service, hints, result);
    }
    int before = atomic_fetch_add(&fake_names.begun, 1);
    struct timespec delay = {.tv_sec = fake_names.delay_ms / 1000,
                             .tv_nsec = fake_names.delay_ms % 1000 * 1000000L};
    if (before >= fake_names.quick) {
        nanosleep(&delay, NULL);
    }
    return before < fake_names.failures ? fake_names.code
                                        : fake_chain(service, hints, result);
}

#endif
