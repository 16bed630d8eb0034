/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/invite.h"

#include <stdlib.h>
#include <string.h>

#include "net/socket.h"
#include "pg/cpu/shm/join_message.h"

/* The kernel connects at once to a socket that exists, unless its queue is full. */
#define CALL_PATIENCE DL_SECOND

/* Makes room for the connections, which only a leader has. */
static dl_status
make_room(dl_endpoint *endpoint)
{
    if (endpoint->connections != NULL) {
        return DL_OK;
    }
    endpoint->connections =
        malloc((size_t)endpoint->size * sizeof *endpoint->connections);
    for (int i = 0; endpoint->connections != NULL && i < endpoint->size; i++) {
        endpoint->connections[i] = -1;
    }
    return endpoint->connections == NULL ? dl_fail_no_memory() : DL_OK;
}

/* The member reads the message when it knows that it was reached. */
dl_status
dl_invite_rank(dl_endpoint *endpoint, const char *group_name, int rank,
               dl_deadline deadline)
{
    const uint8_t *token = endpoint->contacts.entries[rank].token;
    char socket[DL_LOCAL_NAME_SIZE];
    dl_invite message = {.group_name = dl_bytes_of(group_name), .rank = (uint32_t)rank};
    dl_parcel parcel = {.fds = {endpoint->table},
                        .fd_count = endpoint->table >= 0 ? 1 : 0};

    DL_TRY(make_room(endpoint));
    if (endpoint->connections[rank] >= 0) {
        return DL_OK;
    }
    dl_contacts_socket(&endpoint->contacts, rank, socket);
    memcpy(message.token, token, sizeof message.token);
    dl_put_invite(&parcel.bytes, &message);
    dl_status status = dl_local_call(socket, token, &parcel,
                                     dl_deadline_earlier(deadline, CALL_PATIENCE),
                                     &endpoint->connections[rank]);
    dl_parcel_fini(&parcel);
    if (status == DL_TIMEOUT && dl_deadline_passed(deadline)) {
        char peer[DL_PEER_TEXT_SIZE];
        dl_endpoint_describe(endpoint, rank, peer);
        return dl_fail_while("waiting for %s", peer);
    }
    return status;
}

bool
dl_invite_is_unreached(dl_status status, dl_deadline deadline)
{
    return status == DL_NOT_FOUND || status == DL_CLOSED
           || (status == DL_TIMEOUT && !dl_deadline_passed(deadline));
}

/* Returns true if `bytes` is the leader's invitation: its sender has read this rank's
 * record. */
static bool
is_invite(const dl_endpoint *endpoint, const char *group_name, int name, dl_bytes bytes)
{
    dl_invite invite;

    return dl_take_invite(bytes, &invite)
           && dl_bytes_equal(invite.group_name, dl_bytes_of(group_name))
           && invite.rank == (uint32_t)name
           && memcmp(invite.token, endpoint->token, DL_TOKEN_SIZE) == 0;
}

/* Accepts one caller.  An unknown caller is disconnected, and `*fd` stays -1; so is a
 * caller that has sent nothing yet, because the invitation is already there. */
static dl_status
receive_caller(const dl_endpoint *endpoint, const char *group_name, int name, int *fd,
               int *table)
{
    dl_parcel parcel = {0};
    int caller;
    dl_status status = dl_local_accept(endpoint->listener, endpoint->token, &caller);

    if (status != DL_OK) {
        return status == DL_NOT_FOUND ? DL_OK : status;
    }
    status = dl_local_receive(caller, &parcel, dl_deadline_after(0));
    /* DL_NETWORK: this process has reached its limit of open files.  The caller has
     * shown the token already, so it is a rank that sends too much. */
    bool is_own =
        status == DL_INTERRUPTED || status == DL_NO_MEMORY || status == DL_NETWORK;
    bool is_invited =
        status == DL_OK
        && is_invite(endpoint, group_name, name, dl_buffer_bytes(&parcel.bytes));
    if (is_own || is_invited) {
        *fd = caller;
    } else {
        dl_socket_close(caller);
    }
    if (is_invited && parcel.fd_count == 1) {
        *table = parcel.fds[0];
        parcel.fd_count = 0;
    }
    dl_parcel_drop(&parcel);
    return is_own ? status : DL_OK;
}

dl_status
dl_invite_await(const dl_endpoint *endpoint, const char *group_name, int name,
                dl_deadline deadline, int *fd, int *table)
{
    *fd = -1;
    *table = -1;
    while (*fd < 0) {
        struct pollfd end = {.fd = endpoint->listener, .events = POLLIN};
        DL_TRY(dl_socket_wait(&end, 1, deadline));
        DL_TRY(receive_caller(endpoint, group_name, name, fd, table));
    }
    return DL_OK;
}
