/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a broadcast, or an all_reduce of float32, between processes that share the cores of
 * one machine has to do, and nothing else:
 *
 *     hosts_many_loop PROCESSES OPERATION:BYTES:CALLS,...
 *
 * The array goes along a chain of connections, piece by piece: in a broadcast each process
 * passes on what it receives; in an all_reduce it adds its own first, and the sums come
 * back along the chain.  No algorithm moves fewer bytes through sockets in all: those of the
 * array for each process but one, twice in an all_reduce.  Prints a line of JSON as soon as
 * a cell is measured: milliseconds of the slowest process by "OPERATION:BYTES"; other
 * operations are left out. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Larger than a core's own cache: on few cores, fewer wake-ups weigh more. */
#define PIECE ((size_t)1 << 20)
#define ALIGNMENT 64

/* The memory that all processes share. */
typedef struct meeting {
    pthread_barrier_t barrier;
    double milliseconds[]; /* by process, of the current cell */
} meeting;

/* One process in the chain; -1 at its ends. */
typedef struct place {
    int before;
    int after;
    float *room;
} place;

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void
check(bool is_right, const char *what)
{
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

/* Connects the two ends over the loopback interface. */
static void
connect_ends(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    const int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(bind(listener, (void *)&address, size) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    getsockname(listener, (void *)&address, &size);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(ends[0], (void *)&address, size) == 0, "connect");
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
}

/* Nothing is sent beyond an end of the chain, or received from there. */
static void
send_to(int fd, const float *data, size_t size)
{
    for (size_t done = 0; fd >= 0 && done < size;) {
        ssize_t sent = send(fd, (const char *)data + done, size - done, 0);
        check(sent > 0, "send");
        done += (size_t)sent;
    }
}

static void
receive_from(int fd, float *data, size_t size)
{
    for (size_t done = 0; fd >= 0 && done < size;) {
        ssize_t got = recv(fd, (char *)data + done, size - done, MSG_WAITALL);
        check(got > 0, "recv");
        done += (size_t)got;
    }
}

static void
add(float *sums, const float *terms, size_t size)
{
    for (size_t i = 0; i < size / sizeof *sums; i++) {
        sums[i] += terms[i];
    }
}

/* Takes the array along the chain, from one end to the other. */
static void
pass(const place *self, int from, int to, float *data, size_t size, bool adds)
{
    for (size_t start = 0; start < size; start += PIECE) {
        size_t part = size - start < PIECE ? size - start : PIECE;
        float *at = data + start / sizeof *data;
        receive_from(from, adds ? self->room : at, part);
        if (adds && from >= 0) {
            add(at, self->room, part);
        }
        send_to(to, at, part);
    }
}

static void
run_call(const place *self, bool reduces, float *data, size_t size)
{
    pass(self, self->before, self->after, data, size, reduces);
    if (reduces) {
        pass(self, self->after, self->before, data, size, false);
    }
}

static void
measure(meeting *shared, const place *self, int rank, int count, const char *cell)
{
    char *end;
    const char *numbers = strchr(cell, ':') + 1;
    size_t size = strtoull(numbers, &end, 10);
    int calls = atoi(end + 1);
    size_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    float *data = aligned_alloc(ALIGNMENT, room);
    bool reduces = *cell == 'a';
    double longest = 0;

    check(data != NULL, "malloc");
    memset(data, 0, room);
    run_call(self, reduces, data, size);
    pthread_barrier_wait(&shared->barrier);
    double start = now();
    for (int i = 0; i < calls; i++) {
        run_call(self, reduces, data, size);
    }
    shared->milliseconds[rank] = (now() - start) / calls;
    pthread_barrier_wait(&shared->barrier);
    for (int i = 0; i < count; i++) {
        double took = shared->milliseconds[i];
        longest = took > longest ? took : longest;
    }
    if (rank == 0) {
        printf("{\"%.*s\": %.4f}\n", (int)(end - cell), cell, longest);
        fflush(stdout);
    }
    pthread_barrier_wait(&shared->barrier);
    free(data);
}

static void
run_process(meeting *shared, const place *self, int rank, int count, char *cells)
{
    for (char *cell = strtok(cells, ","); cell != NULL; cell = strtok(NULL, ",")) {
        if (strncmp(cell, "all_reduce:", 11) == 0
            || strncmp(cell, "broadcast:", 10) == 0) {
            measure(shared, self, rank, count, cell);
        }
    }
}

static meeting *
new_meeting(int count)
{
    pthread_barrierattr_t attributes;
    size_t size = sizeof(meeting) + (size_t)count * sizeof(double);
    meeting *made =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    check(made != MAP_FAILED, "mmap");
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&made->barrier, &attributes, (unsigned)count);
    return made;
}

int
main(int words, char **word)
{
    check(words == 3, "words");
    int count = atoi(word[1]);
    meeting *shared = new_meeting(count);
    place self = {.before = -1, .room = aligned_alloc(ALIGNMENT, PIECE)};
    int failures = 0;
    int status;

    for (int rank = 0; rank < count; rank++) {
        int ends[2] = {-1, -1};
        if (rank + 1 < count) {
            connect_ends(ends);
        }
        self.after = ends[0];
        if (fork() == 0) {
            run_process(shared, &self, rank, count, word[2]);
            _exit(0);
        }
        close(self.before);
        close(self.after);
        self.before = ends[1];
    }
    while (wait(&status) > 0) {
        failures += status != 0;
    }
    return failures > 0;
}
