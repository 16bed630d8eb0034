/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/thread.h"
#include "check.h"
#include "fakes/interrupts.h"
#include "net/connect.h"
#include "net/listen.h"

#define LARGE ((size_t)3 << 20)

typedef struct pair {
    int ours;
    int theirs;
} pair;

static pair
make_pair(void)
{
    pair made;
    int listening;

    CHECK_OK(dl_socket_listen("127.0.0.1", 0, SOON, &listening));
    CHECK_OK(dl_socket_connect_once("127.0.0.1", dl_socket_port(listening), SOON, NULL,
                                    &made.ours));
    made.theirs = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(made.theirs >= 0);
    dl_socket_prepare(made.theirs);
    dl_socket_close(listening);
    return made;
}

/* The sockets have the options of a store's client. */
static pair
make_patient_pair(void)
{
    pair made = make_pair();

    dl_socket_set_kernel_wait(made.ours);
    CHECK((fcntl(made.ours, F_GETFL) & O_NONBLOCK) == 0);
    return made;
}

static void
end_pair(pair ends)
{
    dl_socket_close(ends.ours);
    dl_socket_close(ends.theirs);
}

static dl_status
write_bytes(int fd, dl_bytes bytes, dl_deadline deadline)
{
    struct iovec part = {(void *)bytes.data, bytes.size};

    return dl_socket_write(fd, &part, 1, deadline);
}

static dl_status
read_bytes(int fd, size_t least, dl_deadline deadline, size_t *size)
{
    static uint8_t room[LARGE];

    return dl_socket_read(fd, (struct iovec){room, sizeof room}, least, deadline, size);
}

CHECK_CASE(parts_arrive_in_order_and_empty_ones_do_no_harm)
{
    pair ends = make_pair();
    uint8_t room[16];
    size_t size = 0;
    struct iovec parts[] = {{"ab", 2}, {NULL, 0}, {"cde", 3}, {"f", 1}, {NULL, 0}};

    CHECK_OK(dl_socket_write(ends.ours, parts, 5, SOON));
    CHECK_OK(
        dl_socket_read(ends.theirs, (struct iovec){room, sizeof room}, 6, SOON, &size));
    CHECK_BYTES(((dl_bytes){room, size}), "abcdef");
    end_pair(ends);
}

CHECK_CASE(a_read_takes_what_is_there_but_not_more_than_there_is_room)
{
    pair ends = make_pair();
    uint8_t room[4];
    size_t size = 0;

    CHECK_OK(write_bytes(ends.ours, DL_LITERAL("abcdef"), SOON));
    CHECK_OK(dl_socket_read(ends.theirs, (struct iovec){room, 4}, 1, SOON, &size));
    CHECK_BYTES(((dl_bytes){room, size}), "abcd");
    CHECK_OK(dl_socket_read(ends.theirs, (struct iovec){room, 4}, 2, SOON, &size));
    CHECK_BYTES(((dl_bytes){room, size}), "ef");
    end_pair(ends);
}

CHECK_CASE(a_passed_deadline_takes_what_is_there)
{
    pair ends = make_patient_pair();
    size_t size = 0;

    CHECK_STATUS(read_bytes(ends.ours, 1, MS(0), &size), DL_TIMEOUT);
    CHECK_OK(write_bytes(ends.theirs, DL_LITERAL("abc"), MS(0)));
    CHECK_OK(read_bytes(ends.ours, 3, MS(0), &size));
    CHECK_EQUAL(size, 3);
    end_pair(ends);
}

static void
check_read_deadline(pair ends, int milliseconds)
{
    size_t size = 77;
    int64_t span = milliseconds * DL_MILLISECOND;

    int64_t start = dl_now();
    CHECK_STATUS(read_bytes(ends.ours, 1, dl_deadline_after(span), &size), DL_TIMEOUT);
    CHECK(dl_now() - start >= span);
    CHECK(dl_now() - start < span + 150 * DL_MILLISECOND + CHECK_SLACK);
    CHECK_EQUAL(size, 77);
}

CHECK_CASE(reads_end_at_their_deadline)
{
    pair nimble = make_pair(), patient = make_patient_pair();

    check_read_deadline(nimble, 5);
    check_read_deadline(nimble, 130);
    check_read_deadline(patient, 5);
    check_read_deadline(patient, 25);
    check_read_deadline(patient, 130);
    end_pair(nimble);
    end_pair(patient);
}

static void
check_write_deadline(pair ends)
{
    static uint8_t large[LARGE * 8];
    dl_status status = DL_OK;

    int64_t start = dl_now();
    dl_deadline deadline = MS(120);
    while (status == DL_OK) {
        status = write_bytes(ends.ours, (dl_bytes){large, sizeof large}, deadline);
    }
    CHECK_EQUAL(status, DL_TIMEOUT);
    CHECK(dl_now() - start >= 120 * DL_MILLISECOND);
    CHECK(dl_now() - start < 400 * DL_MILLISECOND + CHECK_SLACK);
    end_pair(ends);
}

CHECK_CASE(writes_without_a_reader_end_at_their_deadline)
{
    check_write_deadline(make_pair());
    check_write_deadline(make_patient_pair());
}

CHECK_CASE(a_failed_write_reports_the_bytes_written)
{
    static uint8_t large[LARGE * 8];
    pair ends = make_pair();
    struct iovec parts[] = {{"ab", 2}, {large, sizeof large}, {"c", 1}};

    CHECK_EQUAL(dl_socket_write(ends.ours, parts, 3, MS(50)), DL_TIMEOUT);
    CHECK_EQUAL(parts[0].iov_len, 0);
    CHECK(parts[1].iov_len > 0 && parts[1].iov_len < sizeof large);
    CHECK_EQUAL(parts[2].iov_len, 1);
    end_pair(ends);
}

static void *
read_slowly(void *argument)
{
    int fd = *(int *)argument;
    uint8_t room[65536];
    size_t sum = 0, position = 0, size;

    while (position < LARGE) {
        CHECK_OK(dl_socket_read(fd, (struct iovec){room, sizeof room}, 1, SOON, &size));
        for (size_t i = 0; i < size; i++) {
            sum += room[i] == (uint8_t)((position + i) * 31 / 7);
        }
        position += size;
    }
    CHECK_EQUAL(sum, LARGE);
    return NULL;
}

static void
check_large(pair ends)
{
    uint8_t *large = malloc(LARGE);
    pthread_t reader;
    struct iovec parts[2];

    for (size_t i = 0; i < LARGE; i++) {
        large[i] = (uint8_t)(i * 31 / 7);
    }
    parts[0] = (struct iovec){large, LARGE / 3};
    parts[1] = (struct iovec){large + LARGE / 3, LARGE - LARGE / 3};
    CHECK(pthread_create(&reader, NULL, read_slowly, &ends.theirs) == 0);
    CHECK_OK(dl_socket_write(ends.ours, parts, 2, SOON));
    CHECK(pthread_join(reader, NULL) == 0);
    free(large);
    end_pair(ends);
}

CHECK_CASE(large_writes_arrive_whole)
{
    check_large(make_pair());
    check_large(make_patient_pair());
}

static void *
write_later(void *argument)
{
    int fd = *(int *)argument;

    usleep(80000);
    CHECK_OK(write_bytes(fd, DL_LITERAL("a"), SOON));
    usleep(80000);
    CHECK_OK(write_bytes(fd, DL_LITERAL("b"), SOON));
    return NULL;
}

static void
check_slow_peer(pair ends)
{
    pthread_t writer;
    size_t size = 0;

    int64_t start = dl_now();
    CHECK(pthread_create(&writer, NULL, write_later, &ends.theirs) == 0);
    CHECK_OK(read_bytes(ends.ours, 2, SOON, &size));
    CHECK_EQUAL(size, 2);
    CHECK(dl_now() - start >= 160 * DL_MILLISECOND);
    CHECK(dl_now() - start < 500 * DL_MILLISECOND + CHECK_SLACK);
    CHECK(pthread_join(writer, NULL) == 0);
    end_pair(ends);
}

CHECK_CASE(a_slow_peer_is_waited_for)
{
    check_slow_peer(make_pair());
    check_slow_peer(make_patient_pair());
}

CHECK_CASE(a_peer_that_closed_is_reported_after_its_last_bytes)
{
    pair ends = make_patient_pair();
    size_t size = 0;

    CHECK_OK(write_bytes(ends.theirs, DL_LITERAL("abc"), SOON));
    dl_socket_close(ends.theirs);
    CHECK_OK(read_bytes(ends.ours, 3, SOON, &size));
    CHECK_STATUS(read_bytes(ends.ours, 1, SOON, &size), DL_CLOSED);
    dl_socket_close(ends.ours);
}

static void
reset(int fd)
{
    struct linger linger = {.l_onoff = 1};

    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    dl_socket_close(fd);
}

CHECK_CASE(a_reset_is_reported_without_a_signal)
{
    pair ends = make_patient_pair();
    size_t size = 0;

    reset(ends.theirs);
    CHECK_STATUS(read_bytes(ends.ours, 1, SOON, &size), DL_NETWORK);
    CHECK_TEXT(dl_last_error()->text, "Connection reset by peer");
    /* SIGPIPE would end the case. */
    CHECK_STATUS(write_bytes(ends.ours, DL_LITERAL("a"), SOON), DL_NETWORK);
    CHECK_TEXT(dl_last_error()->text, "Broken pipe");
    dl_socket_close(ends.ours);
}

static void
check_interrupts(pair ends)
{
    static uint8_t large[LARGE * 8];
    size_t size = 0;
    dl_status status = DL_OK;

    fake_interrupt_after(120 * DL_MILLISECOND);
    CHECK_INTERRUPTED(read_bytes(ends.ours, 1, SOON, &size));
    fake_interrupt_after(120 * DL_MILLISECOND);
    while (status == DL_OK) {
        status = write_bytes(ends.ours, (dl_bytes){large, sizeof large}, SOON);
    }
    CHECK_INTERRUPTED(status);
    end_pair(ends);
}

CHECK_CASE(blocked_calls_can_be_interrupted)
{
    check_interrupts(make_pair());
    check_interrupts(make_patient_pair());
}

static void
ignore(int number)
{
    (void)number;
}

CHECK_CASE(a_signal_without_a_wait_to_interrupt_costs_nothing)
{
    pair ends = make_patient_pair();
    struct sigaction action = {.sa_handler = ignore};
    struct itimerval often = {{0, 7000}, {0, 7000}}, never = {{0, 0}, {0, 0}};
    size_t size = 0;

    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    CHECK_STATUS(read_bytes(ends.ours, 1, MS(200), &size), DL_TIMEOUT);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    end_pair(ends);
}

CHECK_CASE(a_connection_is_stale_once_the_peer_says_anything)
{
    pair ends = make_patient_pair();

    CHECK(!dl_socket_is_stale(ends.ours));
    CHECK_OK(write_bytes(ends.theirs, DL_LITERAL("?"), SOON));
    size_t size;
    /* Waits for the byte to arrive without taking it away from the question. */
    struct pollfd entry = {.fd = ends.ours, .events = POLLIN};
    CHECK_EQUAL(poll(&entry, 1, 10000), 1);
    CHECK(dl_socket_is_stale(ends.ours));
    CHECK_OK(read_bytes(ends.ours, 1, SOON, &size));
    CHECK(!dl_socket_is_stale(ends.ours));
    dl_socket_close(ends.theirs);
    CHECK_EQUAL(poll(&entry, 1, 10000), 1);
    CHECK(dl_socket_is_stale(ends.ours));
    dl_socket_close(ends.ours);
}

CHECK_CASE(a_forked_child_holds_no_connection_open)
{
    pair ends = make_pair();
    int pipes[2];
    size_t size;

    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(pipes[1]);
        _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);
    }
    dl_socket_close(ends.ours);
    /* Were the child's copy open, this would be the deadline's end. */
    CHECK_STATUS(read_bytes(ends.theirs, 1, SOON, &size), DL_CLOSED);
    close(pipes[1]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    dl_socket_close(ends.theirs);
}

CHECK_CASE(closing_keeps_errno_and_takes_no_socket_for_an_answer)
{
    errno = ENOTTY;
    dl_socket_close(-1);
    CHECK_EQUAL(errno, ENOTTY);
    int fd;
    CHECK(dl_socket_open(AF_INET, &fd));
    errno = ENOTTY;
    dl_socket_close(fd);
    CHECK_EQUAL(errno, ENOTTY);
    CHECK(fcntl(fd, F_GETFD) < 0);
}

CHECK_CASE(addresses_and_ports_of_what_is_no_socket)
{
    dl_address address = {.size = 5};
    int pipes[2];

    CHECK(pipe(pipes) == 0);
    CHECK_EQUAL(dl_socket_port(pipes[0]), 0);
    CHECK_EQUAL(dl_socket_port(-1), 0);
    CHECK_STATUS(dl_socket_local_address(-1, &address), DL_NETWORK);
    CHECK_TEXT(dl_last_error()->text,
               "getsockname failed for fd -1: (errno: 9 - Bad file descriptor)");
    CHECK_STATUS(dl_socket_peer_address(pipes[0], &address), DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "getpeername failed");
    CHECK_EQUAL(address.size, 5);
}
