/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports for cases about servers that end, start late, or return: a port that was free a
 * moment ago may by now belong to any other program. */
#ifndef DISTLITE_TESTS_PORTS_H
#define DISTLITE_TESTS_PORTS_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include "check.h"

/* Returns a port that no other program is given, at any address, until the case ends: a
 * socket that does not listen stays bound to it.  A server that sets SO_REUSEADDR can
 * bind it as well.  It lies below the range of ports for outgoing connections. */
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
            /* Only after bind(), which would otherwise succeed on a port that another
             * socket with this option has. */
            CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
            return port;
        }
        close(fd);
    }
    DL_CHECK_FAIL("no free port");
}

#endif
