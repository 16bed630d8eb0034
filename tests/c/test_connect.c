/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "check.h"
#include "fakes/interrupts.h"
#include "fakes/resolver.h"
#include "net/listen.h"
#include "net/socket.h"
#include "ports.h"

static uint16_t
listen_at(const char *host, uint16_t port, int *fd)
{
    CHECK_OK(dl_socket_listen(host, port, SOON, fd));
    return dl_socket_port(*fd);
}

/* A port on which nothing listens and nothing can: the socket that holds it is only
 * bound. */
static uint16_t
refused_port(void)
{
    dl_address address = {
        .socket.ip4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)},
        .size = sizeof address.socket.ip4};
    int fd;

    CHECK(dl_socket_open(AF_INET, &fd));
    CHECK(bind(fd, &address.socket.any, address.size) == 0);
    return dl_socket_port(fd);
}

/* A port of 127.0.0.2 (0: any) that answers no connect: its queue of connections is
 * full. */
static uint16_t
make_black_hole(uint16_t port)
{
    int fds[8];
    dl_address address = {.socket.ip4 = {.sin_family = AF_INET,
                                         .sin_port = htons(port),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)},
                          .size = sizeof address.socket.ip4};

    CHECK(dl_socket_open(AF_INET, &fds[0]));
    CHECK(bind(fds[0], &address.socket.any, address.size) == 0);
    CHECK(listen(fds[0], 0) == 0);
    port = dl_socket_port(fds[0]);
    address.socket.ip4.sin_port = htons(port);
    for (int i = 1; i < 8; i++) {
        CHECK(dl_socket_open(AF_INET, &fds[i]));
        CHECK(connect(fds[i], &address.socket.any, address.size) == 0
              || errno == EINPROGRESS);
    }
    return port;
}

CHECK_CASE(connects_and_sets_what_every_socket_has)
{
    int listening, fd = -1;
    uint16_t port = listen_at("127.0.0.1", 0, &listening);
    dl_address peer, local;
    char text[DL_ADDRESS_TEXT_SIZE];
    int before = check_descriptors();

    CHECK_OK(dl_socket_connect_once("127.0.0.1", port, SOON, NULL, &fd));
    CHECK_EQUAL(check_descriptors(), before + 1);
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_OK(dl_socket_peer_address(fd, &peer));
    CHECK_OK(dl_socket_local_address(fd, &local));
    CHECK_EQUAL(dl_socket_port(fd), ntohs(local.socket.ip4.sin_port));
    CHECK_EQUAL(ntohs(peer.socket.ip4.sin_port), port);
    dl_address_text(&local, text);
    CHECK_CONTAINS(text, "127.0.0.1:");
    dl_socket_close(fd);
    dl_socket_close(listening);
}

CHECK_CASE(a_passed_deadline_looks_once)
{
    int listening, fd = -1;
    uint16_t port = listen_at("127.0.0.1", 0, &listening);

    CHECK_OK(dl_socket_connect_once("127.0.0.1", port, MS(0), NULL, &fd));
    dl_socket_close(fd);
    dl_socket_close(listening);
    CHECK_STATUS(dl_socket_connect_once("127.0.0.1", refused_port(), MS(0), NULL, &fd),
                 DL_NETWORK);
    CHECK_CONTAINS(dl_last_error()->text, "has timed out after 0ms");
    CHECK_CONTAINS(dl_last_error()->text, "(errno 111)");
}

static void
check_connects_to_second(const char *first, const char *second)
{
    int listening, fd = -1;
    dl_address peer;
    char text[DL_ADDRESS_TEXT_SIZE];
    uint16_t port = listen_at(second, reserve_port(), &listening);

    fake_names = (fake_resolver){.host = "two.example", .addresses = {first, second}};
    CHECK_OK(dl_socket_connect_once("two.example", port, SOON, NULL, &fd));
    CHECK_OK(dl_socket_peer_address(fd, &peer));
    dl_address_text(&peer, text);
    CHECK(strstr(text, second) != NULL);
    dl_socket_close(fd);
    dl_socket_close(listening);
}

CHECK_CASE(addresses_of_both_families_are_tried)
{
    check_connects_to_second("::1", "127.0.0.1");
    check_connects_to_second("127.0.0.1", "::1");
}

CHECK_CASE(a_silent_address_does_not_hide_the_next)
{
    int listening, fd = -1;
    uint16_t port = listen_at("127.0.0.1", 0, &listening);

    make_black_hole(port);
    fake_names = (fake_resolver){.host = "half.example",
                                 .addresses = {"127.0.0.2", "127.0.0.1"}};
    int64_t start = dl_now();
    CHECK_OK(dl_socket_connect_once("half.example", port, SOON, NULL, &fd));
    CHECK(dl_now() - start < 2 * DL_SECOND + CHECK_SLACK);
    dl_socket_close(fd);
}

CHECK_CASE(the_error_lists_every_address_with_its_errno)
{
    char expected[512];
    uint16_t port = refused_port();
    int fd = -1;

    fake_names =
        (fake_resolver){.host = "two.example", .addresses = {"127.0.0.1", "::1"}};
    CHECK_STATUS(dl_socket_connect_once("two.example", port, MS(300), NULL, &fd),
                 DL_NETWORK);
    snprintf(expected, sizeof expected,
             "The client socket has timed out after 300ms while trying to connect to "
             "(two.example, %u): 127.0.0.1:%u on this host itself Connection refused "
             "(errno 111), [::1]:%u on this host itself Connection refused (errno 111)",
             port, port, port);
    CHECK_TEXT(dl_last_error()->text, expected);
    CHECK_EQUAL(fd, -1);
}

CHECK_CASE(a_connection_without_an_answer_ends_at_the_deadline)
{
    int fd = -1;
    uint16_t port = make_black_hole(0);

    int before = check_descriptors();
    int64_t start = dl_now();
    CHECK_STATUS(dl_socket_connect_once("127.0.0.2", port, MS(400), NULL, &fd),
                 DL_NETWORK);
    CHECK(dl_now() - start >= 400 * DL_MILLISECOND);
    CHECK(dl_now() - start < 700 * DL_MILLISECOND + CHECK_SLACK);
    CHECK_CONTAINS(dl_last_error()->text, "Connection timed out (errno 110)");
    CHECK_EQUAL(check_descriptors(), before);
}

CHECK_CASE(every_round_resolves_anew)
{
    int listening, fd = -1;
    uint16_t port = listen_at("127.0.0.1", 0, &listening);

    fake_names = (fake_resolver){.host = "late.example",
                                 .addresses = {"127.0.0.1"},
                                 .code = EAI_AGAIN,
                                 .failures = 1};
    CHECK_STATUS(dl_socket_connect_once("late.example", port, SOON, NULL, &fd),
                 DL_NETWORK);
    CHECK_OK(dl_socket_connect_once("late.example", port, SOON, NULL, &fd));
    dl_socket_close(fd);
    dl_socket_close(listening);
}

CHECK_CASE(an_unknown_name_fails)
{
    int fd = -1;

    fake_names = (fake_resolver){
        .host = "nowhere.example", .code = EAI_NONAME, .failures = 1000};
    CHECK_STATUS(dl_socket_connect_once("nowhere.example", 80, MS(150), NULL, &fd),
                 DL_NETWORK);
    CHECK_CONTAINS(
        dl_last_error()->text,
        "The client socket has timed out after 150ms while trying to connect "
        "to (nowhere.example, 80): nowhere.example: ");
}

CHECK_CASE(a_resolver_that_sleeps_fails_at_the_deadline)
{
    int fd = -1;

    fake_names = (fake_resolver){
        .host = "slow.example", .addresses = {"127.0.0.1"}, .delay_ms = 10000};
    int64_t start = dl_now();
    CHECK_STATUS(dl_socket_connect_once("slow.example", 80, MS(150), NULL, &fd),
                 DL_NETWORK);
    CHECK(dl_now() - start < 450 * DL_MILLISECOND + CHECK_SLACK);
    CHECK_CONTAINS(dl_last_error()->text, "the name look-up timed out");
}

/* Makes the next sockets connect to themselves: they are bound to the address to which
 * they connect. */
static atomic_int self_connects;

typedef int (*connect_fn)(int, const struct sockaddr *, socklen_t);

int
connect(int fd, const struct sockaddr *address, socklen_t size)
{
    connect_fn real;

    *(void **)&real = dlsym(RTLD_NEXT, "connect");
    if (atomic_load(&self_connects) > 0) {
        atomic_fetch_sub(&self_connects, 1);
        dl_socket_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        CHECK(bind(fd, address, size) == 0);
    }
    return real(fd, address, size);
}

CHECK_CASE(a_socket_that_meets_itself_is_refused)
{
    uint16_t port = reserve_port();
    int fd = -1;

    atomic_store(&self_connects, 1);
    CHECK_STATUS(dl_socket_connect_once("127.0.0.1", port, SOON, NULL, &fd),
                 DL_NETWORK);
    CHECK_EQUAL(atomic_load(&self_connects), 0);
    CHECK_CONTAINS(dl_last_error()->text, "Connection refused (errno 111)");
    CHECK_EQUAL(fd, -1);
}

CHECK_CASE(connecting_can_be_interrupted)
{
    int fd = -1;
    uint16_t port = make_black_hole(0);

    int before = check_descriptors();
    fake_interrupt_after(120 * DL_MILLISECOND);
    CHECK_INTERRUPTED(dl_socket_connect_once("127.0.0.2", port, SOON, NULL, &fd));
    CHECK_EQUAL(check_descriptors(), before);
    /* Also while it only waits for the next round. */
    dl_backoff backoff = {.delay = DL_SECOND};
    fake_interrupt_after(120 * DL_MILLISECOND);
    CHECK_INTERRUPTED(dl_backoff_sleep(&backoff, SOON, NULL));
}

typedef struct cancelling {
    atomic_bool is_cancelled;
    _Atomic int64_t when;
} cancelling;

static void *
cancel_later(void *argument)
{
    cancelling *shared = argument;

    usleep(100000);
    atomic_store(&shared->when, dl_now());
    atomic_store(&shared->is_cancelled, true);
    return NULL;
}

CHECK_CASE(connecting_can_be_cancelled)
{
    int fd = -1;
    uint16_t port = make_black_hole(0);
    cancelling shared = {0};
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, cancel_later, &shared) == 0);
    CHECK_STATUS(
        dl_socket_connect_once("127.0.0.2", port, SOON, &shared.is_cancelled, &fd),
        DL_CANCELLED);
    CHECK(dl_now() - atomic_load(&shared.when) < 300 * DL_MILLISECOND + CHECK_SLACK);
    CHECK(pthread_join(thread, NULL) == 0);
}

CHECK_CASE(backing_off_takes_longer_each_time_and_ends_at_the_deadline)
{
    dl_backoff backoff = {0};
    int64_t start = dl_now();

    CHECK_OK(dl_backoff_sleep(&backoff, SOON, NULL));
    CHECK(dl_now() - start >= DL_MILLISECOND);
    int64_t first = backoff.delay;
    CHECK_OK(dl_backoff_sleep(&backoff, SOON, NULL));
    CHECK(backoff.delay > first);
    for (int i = 0; i < 100; i++) {
        CHECK_STATUS(dl_backoff_sleep(&backoff, MS(0), NULL), DL_TIMEOUT);
    }
    CHECK(backoff.delay <= DL_SECOND);
    start = dl_now();
    CHECK_STATUS(dl_backoff_sleep(&backoff, MS(60), NULL), DL_TIMEOUT);
    CHECK(dl_now() - start >= 60 * DL_MILLISECOND);
    CHECK(dl_now() - start < 300 * DL_MILLISECOND + CHECK_SLACK);
}

CHECK_CASE(a_lack_of_descriptors_is_reported_at_once)
{
    struct rlimit limit;
    int fd = -1;
    int used[64];
    int count = 0;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)check_descriptors() + 8;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (count < 64 && (used[count] = dup(0)) >= 0) {
        count++;
    }
    CHECK(count < 64);
    CHECK_STATUS(dl_socket_connect_once("127.0.0.1", 80, SOON, NULL, &fd), DL_INTERNAL);
    CHECK_CONTAINS(dl_last_error()->text, "Too many open files (errno 24)");
    while (count > 0) {
        close(used[--count]);
    }
}

CHECK_CASE(allocations_may_fail)
{
    int listening;
    uint16_t port = listen_at("127.0.0.1", 0, &listening);
    bool has_failed = true;

    int before = check_descriptors();
    for (long number = 1; has_failed; number++) {
        int fd = -1;
        dl_check_fail_allocation_at(number);
        dl_status status = dl_socket_connect_once("127.0.0.1", port, SOON, NULL, &fd);
        has_failed = dl_check_allocation_failed();
        CHECK_EQUAL(status, has_failed ? DL_NO_MEMORY : DL_OK);
        dl_socket_close(fd);
    }
    CHECK_EQUAL(check_descriptors(), before);
    dl_socket_close(listening);
}
