/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "net/socket.h"

/* Room for "fd00:1234:5678:9abc:def0:1234:5678:9abc/128", or a name. */
#define ENTRY_SIZE 64

/* Addresses of different families never match. */
static bool
have_same_prefix(dl_bytes left, dl_bytes right, unsigned bits)
{
    unsigned whole = bits / 8;
    unsigned rest = bits % 8;

    if (left.size != right.size || memcmp(left.data, right.data, whole) != 0) {
        return false;
    }
    return rest == 0 || (left.data[whole] ^ right.data[whole]) >> (8 - rest) == 0;
}

/* Leaves out link-local addresses: they need an interface index, which differs from
 * host to host. */
static bool
is_listed(const struct ifaddrs *entry)
{
    if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_UP) == 0) {
        return false;
    }
    const struct sockaddr_in6 *ip6 = (const void *)entry->ifa_addr;
    return entry->ifa_addr->sa_family == AF_INET
           || (entry->ifa_addr->sa_family == AF_INET6
               && !IN6_IS_ADDR_LINKLOCAL(&ip6->sin6_addr));
}

static void
copy_entry(const struct ifaddrs *entry, dl_interface *interface)
{
    bool is_ip4 = entry->ifa_addr->sa_family == AF_INET;
    dl_address *address = &interface->address;

    snprintf(interface->name, sizeof interface->name, "%s", entry->ifa_name);
    address->size = is_ip4 ? sizeof address->socket.ip4 : sizeof address->socket.ip6;
    memcpy(&address->socket, entry->ifa_addr, address->size);
}

dl_status
dl_interface_list(dl_interface **interfaces, size_t *count)
{
    struct ifaddrs *all = NULL;
    size_t found = 0;

    if (getifaddrs(&all) != 0) {
        return dl_fail(DL_INTERNAL, "getifaddrs: %s", strerror(errno));
    }
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        found += is_listed(entry);
    }
    /* One more, so that calloc(3) is never asked for 0 bytes. */
    dl_interface *list = calloc(found + 1, sizeof *list);
    if (list == NULL) {
        freeifaddrs(all);
        return dl_fail_no_memory();
    }
    size_t at = 0;
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        if (is_listed(entry)) {
            copy_entry(entry, &list[at++]);
        }
    }
    freeifaddrs(all);
    *interfaces = list;
    *count = found;
    return DL_OK;
}

/* Returns whether the address is in `network`, such as "10.0.0.0/8". */
static bool
is_in_network(const dl_address *address, const char *network)
{
    char text[ENTRY_SIZE];
    uint8_t bytes[16];
    char *end;

    snprintf(text, sizeof text, "%s", network);
    char *slash = strchr(text, '/');
    *slash = '\0';
    unsigned long bits = strtoul(slash + 1, &end, 10);
    dl_bytes prefix = {bytes, strchr(text, ':') != NULL ? 16 : 4};
    int family = prefix.size == 16 ? AF_INET6 : AF_INET;
    return slash[1] != '\0' && *end == '\0' && bits <= 8 * prefix.size
           && inet_pton(family, text, bytes) == 1
           && have_same_prefix(prefix, dl_address_bytes(address), (unsigned)bits);
}

/* Names must match as a whole: "eth1" is not "eth10". */
static bool
matches_entry(const dl_interface *interface, const char *entry)
{
    return strchr(entry, '/') != NULL ? is_in_network(&interface->address, entry)
                                      : strcmp(interface->name, entry) == 0;
}

/* Moves the next entry of the list to `entry`, without blanks.  False: the list has
 * ended. */
static bool
next_entry(const char **list, char entry[ENTRY_SIZE])
{
    *list += strspn(*list, ", \t");
    size_t size = strcspn(*list, ", \t");

    if (size == 0) {
        return false;
    }
    snprintf(entry, ENTRY_SIZE, "%.*s", (int)size, *list);
    *list += size;
    return true;
}

/* A loopback address says nothing about how other hosts reach this one. */
static bool
is_known(const dl_address *address)
{
    return address != NULL && !dl_address_is_loopback(address);
}

/* Scores an address; of two that are both allowed, the higher score is chosen. */
static int
points_of(const dl_interface_choice *choice, const dl_address *address)
{
    dl_bytes bytes = dl_address_bytes(address);
    bool is_best =
        is_known(choice->best) && dl_bytes_equal(dl_address_bytes(choice->best), bytes);
    bool is_route = is_known(choice->route)
                    && dl_bytes_equal(dl_address_bytes(choice->route), bytes);
    bool has_family = is_known(choice->best)
                          ? dl_address_bytes(choice->best).size == bytes.size
                          : bytes.size == 4;

    return 16 * is_best + 8 * is_route + 4 * !dl_address_is_loopback(address)
           + 2 * has_family + 1;
}

/* Returns the best interface that matches `entry`, or any if `entry` is NULL. */
static const dl_interface *
best_of(const dl_interface_choice *choice, const char *entry)
{
    const dl_interface *best = NULL;
    int most = 0;

    for (size_t i = 0; i < choice->count; i++) {
        const dl_interface *interface = &choice->interfaces[i];
        int points = points_of(choice, &interface->address);
        if (points > most && (entry == NULL || matches_entry(interface, entry))) {
            best = interface;
            most = points;
        }
    }
    return best;
}

/* Writes "lo 127.0.0.1, eth0 10.0.0.1". */
static void
describe_choice(const dl_interface_choice *choice, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "none with an address");
    for (size_t i = 0; i < choice->count; i++) {
        char host[INET6_ADDRSTRLEN] = "?";
        dl_bytes bytes = dl_address_bytes(&choice->interfaces[i].address);
        inet_ntop(bytes.size == 4 ? AF_INET : AF_INET6, bytes.data, host, sizeof host);
        dl_text_append(text, size, &used, "%s%s %s", i == 0 ? "" : ", ",
                       choice->interfaces[i].name, host);
    }
}

static dl_status
fail_no_interface(const dl_interface_choice *choice, const char *list,
                  const char *entry)
{
    char existing[DL_ERROR_TEXT_SIZE / 2];

    describe_choice(choice, existing, sizeof existing);
    return dl_fail(DL_INVALID,
                   DL_INTERFACE_VARIABLE "=%.200s: no interface that is up on this "
                                         "host %s %s; interfaces that are up: %s",
                   list, strchr(entry, '/') != NULL ? "has an address in" : "is named",
                   entry, existing);
}

/* Chooses one address for each entry, in order. */
static dl_status
choose_listed(const dl_interface_choice *choice, const char *list,
              dl_address addresses[DL_INTERFACES_LIMIT], int *count)
{
    const char *rest = list;
    char entry[ENTRY_SIZE];

    while (next_entry(&rest, entry)) {
        const dl_interface *found = best_of(choice, entry);
        if (found == NULL) {
            return fail_no_interface(choice, list, entry);
        }
        if (*count == DL_INTERFACES_LIMIT) {
            return dl_fail(DL_INVALID,
                           DL_INTERFACE_VARIABLE
                           "=%.200s lists more than %d interfaces",
                           list, DL_INTERFACES_LIMIT);
        }
        addresses[(*count)++] = found->address;
    }
    return DL_OK;
}

dl_status
dl_interface_choose(const dl_interface_choice *choice,
                    dl_address addresses[DL_INTERFACES_LIMIT], int *count)
{
    const char *list = choice->wanted == NULL ? "" : choice->wanted;

    *count = 0;
    DL_TRY(choose_listed(choice, list, addresses, count));
    if (*count == 0) {
        const dl_interface *found = best_of(choice, NULL);
        if (found == NULL) {
            return dl_fail(DL_INVALID, "no interface of this host is up");
        }
        addresses[(*count)++] = found->address;
    }
    return DL_OK;
}

/* Finds the source address that the kernel would use for a distant host; no packet is
 * sent.  The destinations are reserved for documentation. */
static bool
route_address(int family, dl_address *address)
{
    dl_address far = {.size = sizeof far.socket.ip4};
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (family == AF_INET) {
        far.socket.ip4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = 9};
        inet_pton(AF_INET, "192.0.2.1", &far.socket.ip4.sin_addr);
    } else {
        far.size = sizeof far.socket.ip6;
        far.socket.ip6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = 9};
        inet_pton(AF_INET6, "2001:db8::1", &far.socket.ip6.sin6_addr);
    }
    bool is_found = fd >= 0 && connect(fd, &far.socket.any, far.size) == 0
                    && dl_socket_local_address(fd, address) == DL_OK;
    if (fd >= 0) {
        close(fd);
    }
    return is_found;
}

/* Queries the system each time: interfaces come and go, and groups are made rarely. */
dl_status
dl_interface_addresses(const dl_address *connected,
                       dl_address addresses[DL_INTERFACES_LIMIT], int *count)
{
    dl_interface *interfaces = NULL;
    dl_address route;
    dl_interface_choice choice = {.wanted = getenv(DL_INTERFACE_VARIABLE),
                                  .best = connected};

    DL_TRY(dl_interface_list(&interfaces, &choice.count));
    choice.interfaces = interfaces;
    if (!is_known(connected)
        && (route_address(AF_INET, &route) || route_address(AF_INET6, &route))) {
        choice.route = &route;
    }
    dl_status status = dl_interface_choose(&choice, addresses, count);
    free(interfaces);
    return status;
}
