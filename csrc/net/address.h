/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Internet addresses: a name looked up forwards (never in reverse), and an address as
 * text.  Knows nothing of stores or groups. */
#ifndef DISTLITE_NET_ADDRESS_H
#define DISTLITE_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct dl_address {
    union {
        struct sockaddr any;
        struct sockaddr_in ip4;
        struct sockaddr_in6 ip6;
    } socket;
    socklen_t size;
} dl_address;

/* "127.0.0.1:80", "[::1]:80": needs at most this many bytes.  An IPv4 peer of a
 * dual-stack socket is written as the IPv4 address it is. */
#define DL_ADDRESS_TEXT_SIZE 72

void dl_address_text(const dl_address *address, char text[DL_ADDRESS_TEXT_SIZE]);

bool dl_address_equal(const dl_address *left, const dl_address *right);

/* An empty host, or one that is written "0.0.0.0" or "::". */
bool dl_address_is_wildcard(const char *host);

/* All addresses of `host` in the resolver's order, both families; at least one.  The
 * look-up runs on a helper thread, because getaddrinfo(3) knows no deadline; when it is
 * late the call fails and the helper cleans up after itself.  Numeric hosts need no
 * helper.  DL_NETWORK: the resolver said no; DL_TIMEOUT: it was late.  `*addresses` is
 * freed with free(3). */
dl_status dl_address_resolve(const char *host, uint16_t port, dl_deadline deadline,
                             dl_address **addresses, size_t *count);

#endif
