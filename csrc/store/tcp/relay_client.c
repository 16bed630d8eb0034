/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_client.h"

#include <string.h>

#include "net/socket.h"
#include "store/tcp/server_variable.h"

dl_status
dl_relay_find(const char *host, uint16_t port, char name[DL_LOCAL_NAME_SIZE])
{
    bool is_meant;
    dl_bytes what;

    name[0] = '\0';
    dl_status status =
        dl_server_variable_read(DL_RELAY_VARIABLE, host, port, &what, &is_meant);
    if (status != DL_OK || (what.size > 0 && !dl_local_service_is_name(what))) {
        return dl_fail(
            DL_INVALID,
            "%s must be NAME@HOST:PORT, the address of a distlite.store_relay()",
            DL_RELAY_VARIABLE);
    }
    if (is_meant) {
        memcpy(name, what.data, what.size);
        name[what.size] = '\0';
    }
    return DL_OK;
}

dl_status
dl_relay_connect(const char *name, int *fd)
{
    uint8_t byte = DL_RELAY_ALIVE + 1;
    size_t size;
    int made;

    DL_TRY(dl_local_service_connect(name, &made));
    dl_status status = dl_socket_read(made, (struct iovec){&byte, 1}, 1,
                                      dl_deadline_after(DL_RELAY_PATIENCE), &size);
    if (status == DL_OK && byte != DL_RELAY_ALIVE) {
        status =
            dl_fail(DL_PROTOCOL, "the Unix socket @%s is not a store's relay", name);
    }
    if (status != DL_OK) {
        if (status == DL_TIMEOUT) {
            (void)dl_fail(DL_TIMEOUT,
                          "the store's relay @%s (process %d) does not answer", name,
                          dl_local_service_peer(made));
        }
        dl_socket_close(made);
        return status;
    }
    *fd = made;
    return DL_OK;
}
