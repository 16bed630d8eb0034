/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A store's server as it pleases, before a client.  The first byte says whether the
 * client takes it for one of ours, for torch's, or asks it; the second what the client asks,
 * and the rest is all that the server ever says, whatever it was asked.  The client takes
 * what was said or fails, and never waits for more. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/socket.h"
#include "store/tcp/tcp_call.h"

#define KEYS 3
#define INTRODUCTION 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static dl_store_request
request_of(uint8_t number)
{
    static const dl_opcode ops[] = {
        DL_OP_SET,       DL_OP_COMPARE_SET, DL_OP_GET,       DL_OP_ADD,
        DL_OP_CHECK,     DL_OP_WAIT,        DL_OP_NUM_KEYS,  DL_OP_DELETE_KEY,
        DL_OP_APPEND,    DL_OP_MULTI_GET,   DL_OP_MULTI_SET, DL_OP_QUEUE_PUSH,
        DL_OP_QUEUE_POP, DL_OP_QUEUE_LEN,   DL_OP_LIST_KEYS, DL_OP_BARRIER,
        DL_OP_STATS,
    };
    static const dl_bytes keys[KEYS] = {{(const uint8_t *)"a", 1},
                                        {(const uint8_t *)"b", 1},
                                        {(const uint8_t *)"c", 1}};
    dl_store_request request = {
        .op = ops[number % (sizeof ops / sizeof *ops)],
        .key = keys[0],
        .value = keys[1],
        .expected = keys[2],
        .number = 1,
    };

    if (request.op == DL_OP_CHECK || request.op == DL_OP_WAIT
        || request.op == DL_OP_MULTI_GET || request.op == DL_OP_MULTI_SET) {
        request.key = (dl_bytes){NULL, 0};
        request.keys = keys;
        request.values = keys;
        request.count = KEYS;
    }
    return request;
}

/* A connection whose server has said `bytes` and left. */
static dl_connection *
connect_to(dl_bytes bytes, int *server)
{
    int ends[2];
    dl_connection *connection;

    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    require(bytes.size == 0
            || write(ends[1], bytes.data, bytes.size) == (ssize_t)bytes.size);
    require(shutdown(ends[1], SHUT_WR) == 0);
    require(dl_connection_new(ends[0], &connection) == DL_OK);
    *server = ends[1];
    return connection;
}

static dl_status
greet(dl_connection *connection)
{
    const dl_shortcut *shortcut = &connection->server.shortcut;
    dl_status status =
        dl_connection_greet(connection, NULL, NULL, dl_deadline_after(0));

    require(memchr(shortcut->name, 0, sizeof shortcut->name) != NULL);
    require(shortcut->port == 0 || shortcut->name[0] != '\0');
    return status;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_buffer values[KEYS] = {{0}};
    size_t held = 0;
    int server;

    if (size < INTRODUCTION) {
        return 0;
    }
    dl_connection *connection =
        connect_to((dl_bytes){data + INTRODUCTION, size - INTRODUCTION}, &server);
    dl_tcp_call call = {
        .request = request_of(data[1]),
        .reply.values = values,
        .key_prefix = DL_LITERAL("/"),
        .deadline = dl_deadline_after(0),
    };
    dl_status status = DL_OK;
    connection->is_distlite = data[0] % 3 == 0;
    if (data[0] % 3 == 2) {
        status = greet(connection);
    }
    if (status == DL_OK) {
        status = dl_tcp_call_once(connection, &call);
    }
    for (size_t i = 0; i < KEYS; i++) {
        held += values[i].size;
        dl_buffer_fini(&values[i]);
    }
    /* The names of LIST_KEYS are kept with their sizes. */
    require(status != DL_OK || held <= size);
    require(status <= DL_STATUS_LAST);
    dl_connection_free(connection, false);
    close(server);
    return 0;
}
