/* SPDX-License-Identifier: BSD-3-Clause */
#ifdef DL_HAVE_LIBUV

#include "store/tcp/uv_connection.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "net/socket.h"
#include "store/tcp/acceptor.h"

/* Parts of one gathered write. */
#define PARTS 64

typedef struct connection {
    uv_tcp_t tcp;
    dl_session session;
    dl_output *sending; /* taken from the session: libuv reads from it */
    uint32_t swallowed; /* bytes read since the conversation was over */
    bool is_reading;
    bool is_writing; /* a write_job is under way */
    bool is_refused; /* it is over: once all is sent, nothing is said any more */
} connection;

/* What the socket did not take at once. */
typedef struct write_job {
    uv_write_t request;
    size_t size;
} write_job;

static int
descriptor_of(const connection *client)
{
    uv_os_fd_t fd = -1;

    (void)uv_fileno((const uv_handle_t *)&client->tcp, &fd);
    return fd;
}

static void
on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void
free_sending(connection *client)
{
    if (client->sending != NULL) {
        dl_output_fini(client->sending);
        free(client->sending);
        client->sending = NULL;
    }
}

static void
drop(connection *client)
{
    if (uv_is_closing((uv_handle_t *)&client->tcp)) {
        return;
    }
    dl_fork_release(descriptor_of(client));
    dl_session_fini(&client->session);
    if (!client->is_writing) {
        free_sending(client);
    }
    uv_close((uv_handle_t *)&client->tcp, on_closed);
}

static void
consume(connection *client, dl_output *output, size_t size)
{
    dl_output_consume(output, size);
    if (dl_output_size(output) == 0) {
        if (output == client->sending) {
            client->sending = NULL;
        }
        dl_session_sent(&client->session, output);
    }
}

static void follow_up(connection *client, dl_status status);

static void
on_written(uv_write_t *request, int error)
{
    connection *client = request->handle->data;
    write_job *job = request->data;
    size_t size = job->size;

    free(job);
    client->is_writing = false;
    if (uv_is_closing((uv_handle_t *)&client->tcp)) {
        free_sending(client);
    } else if (error < 0) {
        drop(client);
    } else {
        consume(client, client->sending, size);
        follow_up(client, DL_OK);
    }
}

/* libuv writes when the socket has room.  `output` must not grow meanwhile: the session
 * is to begin another. */
static bool
write_later(connection *client, dl_output *output, const uv_buf_t *parts, int count)
{
    write_job *job = calloc(1, sizeof *job);

    if (job == NULL) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        job->size += parts[i].len;
    }
    job->request.data = job;
    client->sending = output;
    if (client->session.output == output) {
        client->session.output = NULL;
    }
    client->is_writing = uv_write(&job->request, (uv_stream_t *)&client->tcp, parts,
                                  (unsigned)count, on_written)
                         == 0;
    if (!client->is_writing) {
        free(job);
    }
    return client->is_writing;
}

static int
gather(const dl_output *output, uv_buf_t parts[PARTS])
{
    struct iovec gathered[PARTS];
    int count = dl_output_gather(output, gathered, PARTS);

    for (int i = 0; i < count; i++) {
        parts[i] = (uv_buf_t){.base = gathered[i].iov_base, .len = gathered[i].iov_len};
    }
    return count;
}

/* False: the client is gone. */
static bool
send_output(connection *client)
{
    uv_buf_t parts[PARTS];

    while (!client->is_writing) {
        dl_output *output =
            client->sending != NULL ? client->sending : client->session.output;
        if (output == NULL) {
            return true;
        }
        int count = gather(output, parts);
        int sent = uv_try_write((uv_stream_t *)&client->tcp, parts, (unsigned)count);
        if (sent == UV_EAGAIN) {
            return write_later(client, output, parts, count);
        }
        if (sent < 0) {
            return false;
        }
        consume(client, output, (size_t)sent);
    }
    return true;
}

static void
on_room_needed(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    connection *client = handle->data;
    dl_uv_shared *shared = handle->loop->data;
    uint8_t *data = shared->input;
    size_t room = sizeof shared->input;

    (void)suggested;
    (void)dl_session_room(&client->session, &data, &room);
    *buffer = (uv_buf_t){.base = (char *)data, .len = room};
}

static void
on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    connection *client = stream->data;

    if (size < 0) {
        drop(client);
    } else if (size > 0 && client->is_refused) {
        client->swallowed += (uint32_t)size;
        if (client->swallowed > DL_ACCEPTOR_PATIENCE) {
            drop(client);
        }
    } else if (size > 0) {
        dl_bytes bytes = {(const uint8_t *)buffer->base, (size_t)size};
        follow_up(client, dl_session_feed(&client->session, bytes));
    }
}

static bool
wants_input(const connection *client)
{
    bool is_behind = client->sending != NULL && dl_output_is_full(client->sending);

    return client->is_refused
           || (!is_behind && dl_session_wants_input(&client->session));
}

static bool
read_or_not(connection *client)
{
    uv_stream_t *stream = (uv_stream_t *)&client->tcp;
    bool wanted = wants_input(client);

    if (wanted == client->is_reading) {
        return true;
    }
    client->is_reading = wanted;
    return (wanted ? uv_read_start(stream, on_room_needed, on_read)
                   : uv_read_stop(stream))
           == 0;
}

/* After the session was given something to do; `status` is how it went. */
static void
follow_up(connection *client, dl_status status)
{
    if (status != DL_OK) {
        dl_acceptor_log_refusal(descriptor_of(client));
        client->is_refused = true;
        if (client->session.output == NULL && client->sending == NULL) {
            drop(client);
            return;
        }
    }
    if (!send_output(client) || !read_or_not(client)) {
        drop(client);
        return;
    }
    if (client->is_refused && client->session.output == NULL
        && client->sending == NULL) {
        shutdown(descriptor_of(client), SHUT_WR);
    }
}

void
dl_uv_connection_open(uv_loop_t *loop, int fd)
{
    dl_uv_shared *shared = loop->data;
    connection *client = calloc(1, sizeof *client);

    if (client == NULL || uv_tcp_init(loop, &client->tcp) != 0) {
        free(client);
        dl_socket_close(fd);
        return;
    }
    client->tcp.data = client;
    dl_session_init(&client->session, &shared->hub);
    if (uv_tcp_open(&client->tcp, fd) != 0) {
        dl_socket_close(fd);
        drop(client);
    } else if (!read_or_not(client)) {
        drop(client);
    }
}

void
dl_uv_connection_resume(dl_session *session)
{
    follow_up(DL_LIST_ENTRY(session, connection, session), dl_session_resume(session));
}

void
dl_uv_connection_close(uv_handle_t *handle)
{
    drop(handle->data);
}

#endif
