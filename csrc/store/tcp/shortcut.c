/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/shortcut.h"

#include <string.h>

#include "base/environment.h"
#include "base/log.h"
#include "net/local.h"
#include "net/socket.h"

_Static_assert(DL_LOCAL_NAME_SIZE <= DL_SHORTCUT_NAME_SIZE, "a name has room");

dl_status
dl_shortcut_is_allowed(bool *is_allowed)
{
    return dl_environment_flag("DISTLITE_STORE_UNIX", true, is_allowed);
}

int
dl_shortcut_open(int listener, dl_shortcut *shortcut)
{
    dl_shortcut made = {.port = dl_socket_port(listener)};
    int fd = -1;

    if (dl_local_service_listen(made.name, &fd) != DL_OK) {
        dl_log(DL_LOG_INFO, "the store's server has no Unix socket: %s",
               dl_last_error()->text);
        made = (dl_shortcut){0};
    }
    *shortcut = made;
    return fd;
}

static void
clear_port(dl_address *address)
{
    if (address->socket.any.sa_family == AF_INET) {
        address->socket.ip4.sin_port = 0;
    } else {
        address->socket.ip6.sin6_port = 0;
    }
}

/* The kernel gives both ends of a connection within a host the same address, unless one
 * of them has chosen another. */
static bool
is_within_host(int fd)
{
    dl_address local, peer;

    if (dl_socket_local_address(fd, &local) != DL_OK
        || dl_socket_peer_address(fd, &peer) != DL_OK) {
        return false;
    }
    clear_port(&local);
    clear_port(&peer);
    return dl_address_equal(&local, &peer);
}

static dl_status
take_answer(dl_connection *connection, dl_deadline deadline, dl_buffer *name,
            int64_t *port)
{
    uint8_t answer;

    DL_TRY(dl_connection_take_u8(connection, deadline, &answer));
    if (answer == DL_WIRE_READY) {
        DL_TRY(dl_connection_take_i64(connection, deadline, port));
        DL_TRY(dl_connection_take_blob(connection, deadline, name));
    }
    dl_connection_end_reply(connection);
    return DL_OK;
}

dl_status
dl_shortcut_ask(dl_connection *connection, dl_deadline deadline, dl_shortcut *shortcut)
{
    dl_buffer name = {0};
    int64_t port = 0;

    *shortcut = (dl_shortcut){0};
    dl_wire_put_shortcut_question(&connection->out);
    DL_TRY(dl_connection_send(connection, deadline));
    dl_status status = take_answer(connection, deadline, &name, &port);
    if (status == DL_OK && port > 0 && port <= UINT16_MAX
        && dl_local_service_is_name(dl_buffer_bytes(&name))) {
        shortcut->port = (uint16_t)port;
        memcpy(shortcut->name, name.data, name.size);
    }
    dl_buffer_fini(&name);
    return status;
}

dl_status
dl_shortcut_find(dl_connection *connection, uint16_t port, dl_deadline deadline,
                 dl_shortcut *shortcut)
{
    if (!is_within_host(connection->fd)) {
        return dl_fail(DL_NOT_FOUND, "the store's server at %s is on another host",
                       connection->peer);
    }
    DL_TRY(dl_shortcut_ask(connection, deadline, shortcut));
    return shortcut->port == port
               ? DL_OK
               : dl_fail(DL_NOT_FOUND,
                         "the store's server at %s has no Unix socket, or is behind a "
                         "relay",
                         connection->peer);
}
