/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <sys/stat.h>

#include "check.h"
#include "net/local.h"
#include "net/socket.h"

static dl_deadline
soon(void)
{
    return dl_deadline_after(5 * DL_SECOND);
}

/* A connected pair by the long way. */
static void
meet(int *here, int *there)
{
    char name[DL_LOCAL_NAME_SIZE];
    struct pollfd waiting = {.events = POLLIN};

    CHECK_OK(dl_local_listen(4, name, &waiting.fd));
    CHECK_EQUAL(strlen(name) + 1, DL_LOCAL_NAME_SIZE);
    CHECK_STATUS(dl_local_accept(waiting.fd, there), DL_NOT_FOUND);
    CHECK_OK(dl_local_connect(name, soon(), here));
    CHECK_OK(dl_local_wait(&waiting, 1, soon()));
    CHECK_OK(dl_local_accept(waiting.fd, there));
    dl_socket_close(waiting.fd);
}

static void
send_text(int fd, const char *text)
{
    dl_parcel parcel = {0};

    dl_buffer_put(&parcel.bytes, dl_bytes_of(text));
    CHECK_OK(dl_local_send(fd, &parcel, soon()));
    dl_parcel_fini(&parcel);
}

CHECK_CASE(messages_keep_their_bounds)
{
    dl_parcel parcel = {0};
    int here, there;

    meet(&here, &there);
    send_text(here, "one");
    send_text(here, "three");
    CHECK_OK(dl_local_receive(there, &parcel, soon()));
    CHECK_BYTES(dl_buffer_bytes(&parcel.bytes), "one");
    dl_parcel_fini(&parcel);
    CHECK_OK(dl_local_receive(there, &parcel, soon()));
    CHECK_BYTES(dl_buffer_bytes(&parcel.bytes), "three");
    CHECK_EQUAL(parcel.fd_count, 0);
    dl_parcel_fini(&parcel);
    dl_socket_close(here);
    dl_socket_close(there);
}

CHECK_CASE(descriptors_travel)
{
    dl_parcel sent = {0};
    dl_parcel got = {0};
    int here, there;
    char text[4] = "";

    meet(&here, &there);
    dl_buffer_put(&sent.bytes, DL_LITERAL("pipes"));
    for (int i = 0; i < DL_PARCEL_FDS; i += 2) {
        CHECK(pipe2(sent.fds + i, O_CLOEXEC) == 0);
    }
    sent.fd_count = DL_PARCEL_FDS;
    CHECK_OK(dl_local_send(here, &sent, soon()));
    CHECK_OK(dl_local_receive(there, &got, soon()));
    CHECK_BYTES(dl_buffer_bytes(&got.bytes), "pipes");
    CHECK_EQUAL(got.fd_count, DL_PARCEL_FDS);
    for (int i = 0; i < DL_PARCEL_FDS; i += 2) {
        CHECK(write(got.fds[i + 1], "abc", 3) == 3);
        CHECK(read(sent.fds[i], text, sizeof text) == 3);
        CHECK((fcntl(got.fds[i], F_GETFD) & FD_CLOEXEC) != 0);
    }
    dl_parcel_drop(&got);
    dl_parcel_drop(&sent);
    dl_socket_close(here);
    dl_socket_close(there);
}

CHECK_CASE(a_name_nobody_has_is_not_found)
{
    char name[DL_LOCAL_NAME_SIZE];
    int listener, fd = -7;

    CHECK_OK(dl_local_listen(1, name, &listener));
    dl_socket_close(listener);
    CHECK_STATUS(dl_local_connect(name, soon(), &fd), DL_NOT_FOUND);
    CHECK_EQUAL(fd, -7);
}

CHECK_CASE(names_differ)
{
    char one[DL_LOCAL_NAME_SIZE];
    char two[DL_LOCAL_NAME_SIZE];
    int fds[2];

    CHECK_OK(dl_local_listen(1, one, &fds[0]));
    CHECK_OK(dl_local_listen(1, two, &fds[1]));
    CHECK(strcmp(one, two) != 0);
    dl_socket_close(fds[0]);
    dl_socket_close(fds[1]);
}

CHECK_CASE(a_full_backlog_is_waited_for_until_the_deadline)
{
    char name[DL_LOCAL_NAME_SIZE];
    int listener, fd;
    dl_status status = DL_OK;

    CHECK_OK(dl_local_listen(0, name, &listener));
    dl_deadline deadline = dl_deadline_after(100 * DL_MILLISECOND);
    for (int i = 0; i < 10 && status == DL_OK; i++) {
        status = dl_local_connect(name, deadline, &fd);
    }
    CHECK_EQUAL(status, DL_TIMEOUT);
    CHECK(dl_deadline_passed(deadline));
    dl_socket_close(listener);
}

CHECK_CASE(a_silent_peer_is_a_timeout)
{
    dl_parcel parcel = {0};
    int here, there;
    int64_t start = dl_now();

    meet(&here, &there);
    CHECK_STATUS(
        dl_local_receive(there, &parcel, dl_deadline_after(120 * DL_MILLISECOND)),
        DL_TIMEOUT);
    CHECK(dl_now() - start >= 120 * DL_MILLISECOND);
    struct pollfd waiting = {.fd = there, .events = POLLIN};
    CHECK_STATUS(dl_local_wait(&waiting, 1, dl_deadline_after(0)), DL_TIMEOUT);
    dl_parcel_drop(&parcel);
    dl_socket_close(here);
    dl_socket_close(there);
}

CHECK_CASE(a_peer_that_left_is_closed)
{
    dl_parcel parcel = {0};
    int here, there;

    meet(&here, &there);
    dl_socket_close(here);
    CHECK_STATUS(dl_local_receive(there, &parcel, soon()), DL_CLOSED);
    dl_buffer_put(&parcel.bytes, DL_LITERAL("late"));
    CHECK_STATUS(dl_local_send(there, &parcel, soon()), DL_CLOSED);
    dl_parcel_drop(&parcel);
    dl_socket_close(there);
}

CHECK_CASE(what_a_peer_wrote_before_it_left_is_read)
{
    dl_parcel parcel = {0};
    int here, there;

    meet(&here, &there);
    send_text(there, "never read");
    send_text(here, "last words");
    dl_socket_close(here);
    CHECK_OK(dl_local_receive(there, &parcel, soon()));
    CHECK_BYTES(dl_buffer_bytes(&parcel.bytes), "last words");
    dl_parcel_fini(&parcel);
    CHECK_STATUS(dl_local_receive(there, &parcel, soon()), DL_CLOSED);
    dl_socket_close(there);
}

CHECK_CASE(a_full_socket_is_a_timeout)
{
    dl_parcel parcel = {0};
    uint8_t block[4096] = {1};
    dl_status status = DL_OK;
    int here, there;

    meet(&here, &there);
    dl_buffer_put(&parcel.bytes, (dl_bytes){block, sizeof block});
    for (int i = 0; i < 10000 && status == DL_OK; i++) {
        status = dl_local_send(here, &parcel, dl_deadline_after(50 * DL_MILLISECOND));
    }
    CHECK_EQUAL(status, DL_TIMEOUT);
    dl_parcel_drop(&parcel);
    dl_socket_close(here);
    dl_socket_close(there);
}

CHECK_CASE(a_message_that_is_too_long_is_refused)
{
    dl_parcel parcel = {0};
    uint8_t block[DL_PARCEL_SIZE + 1] = {1};
    int here, there;

    meet(&here, &there);
    dl_buffer_put(&parcel.bytes, (dl_bytes){block, sizeof block});
    CHECK_OK(dl_local_send(here, &parcel, soon()));
    dl_parcel_fini(&parcel);
    CHECK_STATUS(dl_local_receive(there, &parcel, soon()), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "was truncated");
    dl_parcel_drop(&parcel);
    dl_socket_close(here);
    dl_socket_close(there);
}

/* A child that lives on must not keep the socket open in its parent's place. */
CHECK_CASE(a_forked_child_does_not_keep_sockets_open)
{
    dl_parcel parcel = {0};
    int here, there;

    meet(&here, &there);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    dl_socket_close(here);
    CHECK_STATUS(dl_local_receive(there, &parcel, soon()), DL_CLOSED);
    dl_parcel_drop(&parcel);
    dl_socket_close(there);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
}
