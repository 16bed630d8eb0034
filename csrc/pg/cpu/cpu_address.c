/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/interface.h"
#include "pg/cpu/cpu_backend.h"

/* Appends "eth0 10.0.0.7\n"; the port means nothing here. */
static void
put_line(dl_buffer *text, const char *name, const dl_address *address)
{
    char host[INET6_ADDRSTRLEN] = "";
    char line[IF_NAMESIZE + INET6_ADDRSTRLEN + 2];
    const void *bytes = address->socket.any.sa_family == AF_INET6
                            ? (const void *)&address->socket.ip6.sin6_addr
                            : (const void *)&address->socket.ip4.sin_addr;

    inet_ntop(address->socket.any.sa_family, bytes, host, sizeof host);
    snprintf(line, sizeof line, "%s %s\n", name, host);
    dl_buffer_put(text, dl_bytes_of(line));
}

static dl_status
put_interfaces(dl_buffer *text)
{
    dl_interface *interfaces;
    size_t count;

    DL_TRY(dl_interface_list(&interfaces, &count));
    for (size_t i = 0; i < count; i++) {
        put_line(text, interfaces[i].name, &interfaces[i].address);
    }
    free(interfaces);
    return dl_buffer_check(text);
}

dl_status
dl_cpu_addresses(const char *connected, dl_buffer *text)
{
    dl_address *local = NULL;
    dl_address chosen[DL_INTERFACES_LIMIT];
    size_t count;
    int chosen_count;

    dl_buffer_clear(text);
    if (connected != NULL) {
        /* A numeric address is parsed without a name server. */
        DL_TRY(dl_address_resolve(connected, 0, dl_deadline_after(DL_SECOND), &local,
                                  &count));
    }
    dl_status status = dl_interface_addresses(local, chosen, &chosen_count);
    free(local);
    DL_TRY(status);
    for (int i = 0; i < chosen_count; i++) {
        put_line(text, "chosen", &chosen[i]);
    }
    return put_interfaces(text);
}
