/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What an all_reduce of float32 between two hosts has to do, and nothing else:
 *
 *     hosts_loop RANK ADDRESS PORT BYTES:CALLS...
 *
 * Each side sends the half that the other one adds up, adds what it receives to its own
 * half, and sends the sums back: the bytes of a ring, over one connection, without frames,
 * checks or other ranks.  Rank 0 listens at ADDRESS, and prints {"BYTES": microseconds} as
 * JSON, the median of its calls. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* What is added at a time: it stays in a core's own cache until then. */
#define PIECE ((size_t)256 << 10)

/* Where memory begins.  Some processors copy five times slower if the target lies 1 to 31
 * bytes behind the source, modulo the size of a page; the kernel's buffers begin at that of
 * a page here, and memory of malloc() often 16 bytes behind it. */
#define ALIGNMENT 64

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void
check(bool is_right, const char *what)
{
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

/* The other side may begin to listen later. */
static int
connect_to(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    for (int i = 0; connect(fd, (const void *)address, sizeof *address) != 0; i++) {
        check(i < 3000, "connect");
        close(fd);
        usleep(10000);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    return fd;
}

static int
accept_at(const struct sockaddr_in *address)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    const int one = 1;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(listener, (const void *)address, sizeof *address) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    return accept(listener, NULL, NULL);
}

/* Moves both at the same time. */
static void
exchange(int fd, const char *out, size_t out_left, char *in, size_t in_left)
{
    while (out_left > 0 || in_left > 0) {
        ssize_t sent = out_left > 0 ? send(fd, out, out_left, MSG_DONTWAIT) : 0;
        check(sent >= 0 || errno == EAGAIN, "send");
        out += sent > 0 ? sent : 0;
        out_left -= sent > 0 ? (size_t)sent : 0;
        ssize_t got = in_left > 0 ? recv(fd, in, in_left, MSG_DONTWAIT) : 0;
        check(got > 0 || in_left == 0 || (got < 0 && errno == EAGAIN), "recv");
        in += got > 0 ? got : 0;
        in_left -= got > 0 ? (size_t)got : 0;
        if (sent <= 0 && got <= 0 && (out_left > 0 || in_left > 0)) {
            short events =
                (short)((out_left > 0 ? POLLOUT : 0) | (in_left > 0 ? POLLIN : 0));
            poll(&(struct pollfd){.fd = fd, .events = events}, 1, -1);
        }
    }
}

static void
all_reduce(int fd, float *own, float *other, size_t size)
{
    _Alignas(ALIGNMENT) static float room[PIECE / sizeof(float)];

    for (size_t done = 0; done < size; done += PIECE) {
        size_t part = size - done < PIECE ? size - done : PIECE;
        float *sums = own + done / sizeof *own;
        exchange(fd, (const char *)other + done, part, (char *)room, part);
        for (size_t i = 0; i < part / sizeof *sums; i++) {
            sums[i] += room[i];
        }
    }
    exchange(fd, (const char *)own, size, (char *)other, size);
}

static int
compare(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;

    return difference < 0 ? -1 : difference > 0;
}

static double
measure(int fd, int rank, size_t size, int calls)
{
    double *took = calloc((size_t)calls, sizeof *took);
    size_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    float *data = aligned_alloc(ALIGNMENT, room);
    float *halves[] = {data, data + size / 2 / sizeof *data};

    check(took != NULL && data != NULL, "malloc");
    memset(data, 0, size);
    for (int i = -2; i < calls; i++) {
        double start = now();
        all_reduce(fd, halves[rank], halves[1 - rank], size / 2);
        took[i < 0 ? 0 : i] = now() - start;
    }
    qsort(took, (size_t)calls, sizeof *took, compare);
    double median = took[calls / 2];
    free(took);
    free(data);
    return median;
}

int
main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int one = 1;

    check(count > 3, "words");
    int rank = atoi(words[1]) != 0;
    inet_pton(AF_INET, words[2], &address.sin_addr);
    address.sin_port = htons((uint16_t)atoi(words[3]));
    int fd = rank == 0 ? accept_at(&address) : connect_to(&address);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 4; i < count; i++) {
        size_t size = strtoull(words[i], &words[i], 10);
        double took = measure(fd, rank, size, atoi(words[i] + 1));
        if (rank == 0) {
            printf("%s\"%zu\": %.3f%s", i == 4 ? "{" : ", ", size, took,
                   i == count - 1 ? "}\n" : "");
        }
    }
    return 0;
}
