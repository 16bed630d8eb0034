/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which local addresses other hosts reach this process by.  The best witness is a
 * connection that already reaches another host: its local address can be routed to.
 * After that the address that packets to far away would carry, then any interface's,
 * and loopback last.
 *
 * A person may know better and list interfaces by name or network: "eth0",
 * "eth0,10.0.0.0/8".  Each entry gives one address, and all of them are used.  "^" takes
 * away what follows it, in front of the whole list each of its entries: "^docker0". */
#ifndef DISTLITE_NET_INTERFACE_H
#define DISTLITE_NET_INTERFACE_H

#include <net/if.h>

#include "net/address.h"

/* The list is read from here, by torch's name for it. */
#define DL_INTERFACE_VARIABLE "GLOO_SOCKET_IFNAME"

/* Entries of the list that name one. */
#define DL_INTERFACES_LIMIT 16

/* One address of one interface that is up. */
typedef struct dl_interface {
    char name[IF_NAMESIZE];
    dl_address address; /* port 0 */
} dl_interface;

/* `*interfaces` is freed with free(3).  Link-local addresses are left out: they mean
 * nothing to others. */
dl_status dl_interface_list(dl_interface **interfaces, size_t *count);

/* What there is to choose from. */
typedef struct dl_interface_choice {
    const dl_interface *interfaces;
    size_t count;
    const char *wanted;      /* the list; NULL or empty: no wish */
    const dl_address *best;  /* if it is allowed; NULL or loopback: none known */
    const dl_address *route; /* next; the same */
} dl_interface_choice;

/* One address for each listed entry, in order; without any, the best.  DL_INVALID: an
 * entry names no interface that is up; the text lists those that are. */
dl_status dl_interface_choose(const dl_interface_choice *choice,
                              dl_address addresses[DL_INTERFACES_LIMIT], int *count);

/* All of it: what the variable, the interfaces, and the routes of this process say.
 * `connected` is the local end of a connection, or NULL. */
dl_status dl_interface_addresses(const dl_address *connected,
                                 dl_address addresses[DL_INTERFACES_LIMIT], int *count);

bool dl_address_is_loopback(const dl_address *address);

#endif
