/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which local address other hosts reach this process by.  The best witness is a
 * connection that already reaches another host: its local address can be routed to.
 * After that the address that packets to far away would carry, then any interface's,
 * and loopback last.
 *
 * A person may know better and say so in a list: "eth0", "eth1,10.0.0.0/8", "^docker0".
 * The first entry that an interface which is up answers to decides; "^" takes away what
 * follows it, in front of the whole list each of its entries. */
#ifndef DISTLITE_NET_INTERFACE_H
#define DISTLITE_NET_INTERFACE_H

#include <net/if.h>

#include "net/address.h"

/* The list is read from here, by torch's name for it. */
#define DL_INTERFACE_VARIABLE "GLOO_SOCKET_IFNAME"

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

/* DL_INVALID lists the interfaces that exist. */
dl_status dl_interface_choose(const dl_interface_choice *choice, dl_address *address);

/* All of it: what the variable, the interfaces, and the routes of this process say.
 * `connected` is the local end of a connection, or NULL. */
dl_status dl_interface_address(const dl_address *connected, dl_address *address);

bool dl_address_is_loopback(const dl_address *address);

#endif
