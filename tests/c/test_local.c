/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "check.h"
#include "net/local.h"
#include "net/socket.h"

static dl_deadline
soon(void)
{
    return dl_deadline_after(5 * DL_SECOND);
}

static const uint8_t key[DL_LOCAL_KEY_SIZE] = "0123456789abcde";

static dl_status
try_call(const char *name, const uint8_t *with, dl_deadline deadline, int *fd)
{
    dl_parcel parcel = {0};

    dl_buffer_put(&parcel.bytes, DL_LITERAL("hello"));
    dl_status status = dl_local_call(name, with, &parcel, deadline, fd);
    dl_parcel_fini(&parcel);
    return status;
}

static void
hear(int fd, const char *text)
{
    dl_parcel parcel = {0};

    CHECK_OK(dl_local_receive(fd, &parcel, soon()));
    CHECK(dl_bytes_equal(dl_buffer_bytes(&parcel.bytes), dl_bytes_of(text)));
    dl_parcel_fini(&parcel);
}

/* A connected pair, by listening and connecting. */
static void
meet(int *here, int *there)
{
    char name[DL_LOCAL_NAME_SIZE];
    struct pollfd waiting = {.events = POLLIN};

    CHECK_OK(dl_local_listen(key, name, &waiting.fd));
    CHECK_EQUAL(strlen(name) + 1, DL_LOCAL_NAME_SIZE);
    CHECK_STATUS(dl_local_accept(waiting.fd, key, there), DL_NOT_FOUND);
    CHECK_OK(try_call(name, key, soon(), here));
    CHECK_OK(dl_socket_wait(&waiting, 1, soon()));
    CHECK_OK(dl_local_accept(waiting.fd, key, there));
    hear(*there, "hello");
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

CHECK_CASE(an_unknown_host_name_is_not_found)
{
    char name[DL_LOCAL_NAME_SIZE];
    int listener, fd = -7;

    CHECK_OK(dl_local_listen(key, name, &listener));
    CHECK_OK(dl_local_check(name));
    dl_socket_close(listener);
    CHECK_STATUS(dl_local_check(name), DL_NOT_FOUND);
    CHECK_STATUS(try_call(name, key, soon(), &fd), DL_NOT_FOUND);
    CHECK_EQUAL(fd, -7);
}

CHECK_CASE(names_differ)
{
    char one[DL_LOCAL_NAME_SIZE];
    char two[DL_LOCAL_NAME_SIZE];
    int fds[2];

    CHECK_OK(dl_local_listen(key, one, &fds[0]));
    CHECK_OK(dl_local_listen(key, two, &fds[1]));
    CHECK(strcmp(one, two) != 0);
    dl_socket_close(fds[0]);
    dl_socket_close(fds[1]);
}

/* Only peers with the key can fill it. */
CHECK_CASE(a_full_queue_is_waited_for_until_the_deadline)
{
    char name[DL_LOCAL_NAME_SIZE];
    int listener, fd;
    dl_status status = DL_OK;

    CHECK_OK(dl_local_listen(key, name, &listener));
    dl_deadline deadline = dl_deadline_after(100 * DL_MILLISECOND);
    for (int i = 0; i < 2000 && status == DL_OK; i++) {
        status = try_call(name, key, deadline, &fd);
        if (status == DL_OK) {
            dl_socket_close(fd);
        }
    }
    CHECK_EQUAL(status, DL_TIMEOUT);
    CHECK(dl_deadline_passed(deadline));
    CHECK_OK(dl_local_check(name));
    dl_socket_close(listener);
}

/* The connection ends with the listener that has not accepted it. */
CHECK_CASE(a_call_that_is_not_accepted_ends_with_the_listener)
{
    char name[DL_LOCAL_NAME_SIZE];
    dl_parcel parcel = {0};
    int listener, fd;

    CHECK_OK(dl_local_listen(key, name, &listener));
    CHECK_OK(try_call(name, key, soon(), &fd));
    struct pollfd end = {.fd = fd, .events = POLLIN};
    CHECK_STATUS(dl_socket_wait(&end, 1, dl_deadline_after(0)), DL_TIMEOUT);
    dl_socket_close(listener);
    CHECK_STATUS(dl_local_receive(fd, &parcel, soon()), DL_CLOSED);
    dl_socket_close(fd);
}

static int
open_files(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

/* Floods the queue with what it knows, and with descriptors. */
static void
flood(const char *name)
{
    uint8_t guess[DL_LOCAL_KEY_SIZE] = "0123456789abcdX";
    int fd;

    for (int i = 0; i < 3000; i++) {
        guess[DL_LOCAL_KEY_SIZE - 1] = (uint8_t)i;
        CHECK_OK(try_call(name, guess, dl_deadline_after(0), &fd));
        dl_socket_close(fd);
    }
}

CHECK_CASE(connections_without_the_key_take_no_room)
{
    char name[DL_LOCAL_NAME_SIZE];
    int listener, here, there;

    CHECK_OK(dl_local_listen(key, name, &listener));
    int before = open_files();
    flood(name);
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    CHECK_STATUS(dl_socket_wait(&waiting, 1, dl_deadline_after(0)), DL_TIMEOUT);
    CHECK_OK(try_call(name, key, dl_deadline_after(0), &here));
    CHECK_OK(dl_local_accept(listener, key, &there));
    hear(there, "hello");
    dl_socket_close(here);
    dl_socket_close(there);
    CHECK_EQUAL(open_files(), before);
    dl_socket_close(listener);
}

/* Runs `body` as another user, whom only root can become. */
static void
as_stranger(void (*body)(const char *name), const char *name)
{
    int state;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        body(name);
        _exit(0);
    }
    CHECK(waitpid(child, &state, 0) == child && state == 0);
}

static void
call_with_the_key(const char *name)
{
    int fd;

    CHECK_OK(try_call(name, key, soon(), &fd));
}

/* It has read the key in a store that is open to everybody. */
CHECK_CASE(another_user_is_not_accepted)
{
    char name[DL_LOCAL_NAME_SIZE];
    int listener, there = -7;

    if (geteuid() != 0) {
        return;
    }
    CHECK_OK(dl_local_listen(key, name, &listener));
    int before = open_files();
    as_stranger(call_with_the_key, name);
    CHECK_STATUS(dl_local_accept(listener, key, &there), DL_NOT_FOUND);
    CHECK_EQUAL(there, -7);
    CHECK_EQUAL(open_files(), before);
    dl_socket_close(listener);
}

static int taken[2]; /* a pipe, which says that the name is taken */

/* Takes the name of a listener that has ended, and its next call. */
static void
impersonate(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char shown[DL_LOCAL_KEY_SIZE];
    union {
        struct cmsghdr header;
        char data[CMSG_SPACE(sizeof(int))];
    } room;
    struct iovec part = {shown, sizeof shown};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.data,
                             .msg_controllen = sizeof room.data};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    int end;

    memcpy(address.sun_path + 1, name, strlen(name));
    CHECK(bind(fd, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)))
          == 0);
    CHECK(write(taken[1], "", 1) == 1);
    CHECK(recvmsg(fd, &message, 0) == sizeof shown);
    CHECK(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&end, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof end);
    CHECK(send(end, "welcome", 7, 0) == 7);
}

static char taken_name[DL_LOCAL_NAME_SIZE];

static void *
call_when_taken(void *context)
{
    int *fd = context;
    char byte;

    CHECK(read(taken[0], &byte, 1) == 1);
    CHECK_OK(try_call(taken_name, key, soon(), fd));
    return NULL;
}

CHECK_CASE(another_user_in_the_place_of_a_listener_is_not_believed)
{
    dl_parcel parcel = {0};
    pthread_t caller;
    int listener, fd;

    if (geteuid() != 0) {
        return;
    }
    CHECK(pipe(taken) == 0);
    CHECK_OK(dl_local_listen(key, taken_name, &listener));
    dl_socket_close(listener);
    CHECK(pthread_create(&caller, NULL, call_when_taken, &fd) == 0);
    as_stranger(impersonate, taken_name);
    CHECK(pthread_join(caller, NULL) == 0);
    CHECK_STATUS(dl_local_receive(fd, &parcel, soon()), DL_CLOSED);
    CHECK_CONTAINS(dl_last_error()->text, "a process of another user (pid ");
    CHECK_CONTAINS(dl_last_error()->text, "of user 65534)");
    dl_socket_close(fd);
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
    CHECK_STATUS(dl_socket_wait(&waiting, 1, dl_deadline_after(0)), DL_TIMEOUT);
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

CHECK_CASE(bytes_that_a_peer_wrote_before_it_left_are_read)
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
