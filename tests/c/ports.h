/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports for cases about servers that end, come late, or come back: one that was free a
 * moment ago may be any other program's by now. */
#ifndef DISTLITE_TESTS_PORTS_H
#define DISTLITE_TESTS_PORTS_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include "check.h"

/* A port that nobody else is given, at any address, until the case ends: a socket that
 * does not listen stays bound to it.  Who sets SO_REUSEADDR, as servers do, can bind it as
 * well.  It lies below the range that outgoing connections are given ports from. */
DL_CHECK_UNUSED static uint16_t
reserve_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct timespec now;
    const int yes = 1;

    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned seed = (unsigned)getpid() ^ (unsigned)now.tv_nsec;
    for (int i = 0; i < 100; i++) {
        uint16_t port = (uint16_t)(15000 + rand_r(&seed) % 17000);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0);
        address.sin_port = htons(port);
        if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
            /* Only now: with it, somebody else's would not have been in the way. */
            CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
            return port;
        }
        close(fd);
    }
    DL_CHECK_FAIL("no free port");
}

#endif
