/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which local addresses other hosts can reach this process at.  The best evidence is
 * the local address of a connection to another host, since it can be routed to.  Next
 * comes the source address that packets to distant hosts would carry, then that of any
 * interface, and loopback last.
 *
 * The user can list interfaces by name or network instead: "eth0", "eth0,10.0.0.0/8".
 * Each entry gives one address, and all of them are used. */
#ifndef DISTLITE_NET_INTERFACE_H
#define DISTLITE_NET_INTERFACE_H

#include <net/if.h>

#include "net/address.h"

/* The environment variable with the list; the name is torch's. */
#define DL_INTERFACE_VARIABLE "GLOO_SOCKET_IFNAME"

/* The most entries that may name an interface. */
#define DL_INTERFACES_LIMIT 16

/* One address of one interface that is up. */
typedef struct dl_interface {
    char name[IF_NAMESIZE];
    dl_address address; /* port 0 */
} dl_interface;

/* Lists the interfaces that are up; the caller frees `*interfaces` with free(3).
 * Link-local addresses are left out: other hosts cannot use them. */
dl_status dl_interface_list(dl_interface **interfaces, size_t *count);

/* What to choose from, and by. */
typedef struct dl_interface_choice {
    const dl_interface *interfaces;
    size_t count;
    const char *wanted;      /* the user's list; NULL or empty: none */
    const dl_address *best;  /* chosen if allowed; NULL or loopback: not known */
    const dl_address *route; /* next choice; NULL or loopback: not known */
} dl_interface_choice;

/* Chooses one address for each listed entry, in order; without a list, the best
 * one.  DL_INVALID: an entry names no interface that is up, and the text lists
 * those that are. */
dl_status dl_interface_choose(const dl_interface_choice *choice,
                              dl_address addresses[DL_INTERFACES_LIMIT], int *count);

/* Chooses by the environment variable and this host's interfaces and routes.
 * `connected` is the local address of a connection to another host, or NULL. */
dl_status dl_interface_addresses(const dl_address *connected,
                                 dl_address addresses[DL_INTERFACES_LIMIT], int *count);

#endif
