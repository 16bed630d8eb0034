/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/relay_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/socket.h"

dl_status
dl_relay_find(const char *host, uint16_t port, char name[DL_LOCAL_NAME_SIZE])
{
    const char *text = getenv(DL_RELAY_VARIABLE);
    char server[16];

    name[0] = '\0';
    if (text == NULL || *text == '\0') {
        return DL_OK;
    }
    const char *at = strchr(text, '@');
    const char *colon = strrchr(text, ':');
    if (at == NULL || colon == NULL || colon < at
        || !dl_local_service_is_name(
            (dl_bytes){(const uint8_t *)text, (size_t)(at - text)})) {
        return dl_fail(
            DL_INVALID,
            "%s must be NAME@HOST:PORT, the address of a distlite.store_relay()",
            DL_RELAY_VARIABLE);
    }
    snprintf(server, sizeof server, ":%u", port);
    size_t host_size = (size_t)(colon - at) - 1;
    if (strcmp(colon, server) == 0 && strlen(host) == host_size
        && memcmp(host, at + 1, host_size) == 0) {
        memcpy(name, text, (size_t)(at - text));
        name[at - text] = '\0';
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

dl_status
dl_relay_check(const char *name)
{
    int fd;

    DL_TRY(dl_relay_connect(name, &fd));
    dl_socket_close(fd);
    return DL_OK;
}
