/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Internet addresses: resolving host names (forward only, never in reverse), and
 * addresses as text.  Knows nothing of stores or groups. */
#ifndef DISTLITE_NET_ADDRESS_H
#define DISTLITE_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/bytes.h"
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

/* Room for the text of any address.  An IPv4-mapped IPv6 address is written as IPv4. */
#define DL_ADDRESS_TEXT_SIZE 72

/* Writes "127.0.0.1:80" or "[::1]:80". */
void dl_address_text(const dl_address *address, char text[DL_ADDRESS_TEXT_SIZE]);

/* Returns the 4 or 16 bytes that name the host, without scope and flow label; an
 * IPv4-mapped address of a dual-stack socket counts as IPv4. */
dl_bytes dl_address_bytes(const dl_address *address);

uint16_t dl_address_port(const dl_address *address);

/* Compares these bytes and the port. */
bool dl_address_equal(const dl_address *left, const dl_address *right);

/* Returns whether `host` is empty, or an unspecified address such as
 * "0.0.0.0" or "::". */
bool dl_address_is_wildcard(const char *host);

bool dl_address_is_loopback(const dl_address *address);

/* Resolves `host` to all its addresses of both families, in the resolver's order; at
 * least one.  The look-up runs on a helper thread, because getaddrinfo(3) has no
 * timeout; if it is late, the call fails and the helper frees its memory when it ends.
 * Numeric hosts need no helper.  DL_NETWORK: the resolver reported a failure.
 * DL_TIMEOUT: it did not answer in time.  DL_INVALID: no host can have that name.  The
 * caller frees `*addresses` with free(3). */
dl_status dl_address_resolve(const char *host, uint16_t port, dl_deadline deadline,
                             dl_address **addresses, size_t *count);

#endif
