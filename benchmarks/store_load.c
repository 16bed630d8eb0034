/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The load generator of store_init.py: many clients of one TCP store in one process,
 * speaking torch's wire protocol over epoll, so that every server gets the same load and
 * only the server differs.
 *
 *     store_load HOST PORT SERVER_PID CLIENTS GETS HAS_BARRIER
 *
 * prints one JSON object per phase: wall seconds, CPU seconds of the server process and
 * its resident memory afterwards.  Every phase has a deadline. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PHASE_LIMIT 240.0 /* seconds: torch's poll server needs about 40 at 16,000 */
#define IN_FLIGHT 512     /* connecting at once: below every server's backlog */
#define GET_CLIENTS 256
#define VALUE_SIZE 64
#define REQUEST_SIZE 256

typedef struct client {
    int fd;
    bool is_done;
    uint32_t expected; /* bytes of the reply still to come */
    uint32_t rounds;   /* requests still to send */
} client;

typedef struct request {
    uint8_t data[REQUEST_SIZE];
    size_t size;
    uint32_t reply_size;
} request;

static struct sockaddr_in server;
static int server_pid;
static int poller;
static client *clients;
static int client_count;

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void
die(const char *what)
{
    fprintf(stderr, "store_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* CPU of all threads of the server, in nanoseconds: /proc/PID/stat counts in ticks of
 * 10 ms, which is too coarse for the smaller phases. */
static uint64_t
server_cpu(void)
{
    char path[320];
    uint64_t sum = 0;

    snprintf(path, sizeof path, "/proc/%d/task", server_pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL) {
        die(path);
    }
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        uint64_t ran = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", server_pid,
                 task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file != NULL) {
            if (fscanf(file, "%" SCNu64, &ran) == 1) {
                sum += ran;
            }
            fclose(file);
        }
    }
    closedir(tasks);
    return sum;
}

static long
server_rss_kib(void)
{
    char path[64];
    char line[256];
    long kib = 0;

    snprintf(path, sizeof path, "/proc/%d/status", server_pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

/* Requests.  Integers are little-endian, as this machine is. */

static void
put(request *request, const void *data, size_t size)
{
    memcpy(request->data + request->size, data, size);
    request->size += size;
}

static void
put_op(request *request, uint8_t op)
{
    put(request, &op, 1);
}

static void
put_u64(request *request, uint64_t value)
{
    put(request, &value, sizeof value);
}

static void
put_string(request *request, const char *text)
{
    put_u64(request, strlen(text));
    put(request, text, strlen(text));
}

static request
hello_request(void)
{
    request hello = {.reply_size = 4 + 8};
    uint32_t magic = 0x3C85F7CE, nonce = (uint32_t)getpid();

    put_op(&hello, 0);
    put(&hello, &magic, 4);
    put_op(&hello, 13);
    put(&hello, &nonce, 4);
    put_op(&hello, 4);
    put_string(&hello, "init/");
    put_u64(&hello, 1);
    return hello;
}

static request
add_request(const char *key)
{
    request add = {.reply_size = 8};

    put_op(&add, 4);
    put_string(&add, key);
    put_u64(&add, 1);
    return add;
}

static request
wait_request(const char *key)
{
    request wait = {.reply_size = 1};

    put_op(&wait, 6);
    put_u64(&wait, 1);
    put_string(&wait, key);
    return wait;
}

static request
barrier_request(const char *key, int size)
{
    request barrier = {.reply_size = 1};

    put_op(&barrier, 18);
    put_string(&barrier, key);
    put_u64(&barrier, (uint64_t)size);
    return barrier;
}

/* SET has no reply: a PING behind it tells when it was done. */
static request
set_request(const char *key, const char *value)
{
    request set = {.reply_size = 4};
    uint32_t nonce = 1;

    put_op(&set, 1);
    put_string(&set, key);
    put_string(&set, value);
    put_op(&set, 13);
    put(&set, &nonce, 4);
    return set;
}

static request
get_request(const char *key)
{
    request get = {.reply_size = 8 + VALUE_SIZE};

    put_op(&get, 3);
    put_string(&get, key);
    return get;
}

/* Conversations. */

static void
send_request(client *client, const request *request)
{
    client->expected = request->reply_size;
    if (send(client->fd, request->data, request->size, MSG_NOSIGNAL)
        != (ssize_t)request->size) {
        die("send");
    }
}

/* True once the reply is complete. */
static bool
take_reply(client *client)
{
    uint8_t bytes[512];
    ssize_t size = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (size < 0 && errno == EAGAIN) {
        return false;
    }
    if (size <= 0 || (uint32_t)size > client->expected) {
        die("a server closed the connection or sent more than it was asked for");
    }
    client->expected -= (uint32_t)size;
    return client->expected == 0;
}

static void
start_connecting(client *client)
{
    int on = 1;
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = client};

    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (client->fd < 0) {
        die("socket");
    }
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(client->fd, (struct sockaddr *)&server, sizeof server) < 0
        && errno != EINPROGRESS) {
        die("connect");
    }
    if (epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event) < 0) {
        die("epoll_ctl");
    }
}

static void
finish_connecting(client *client, const request *hello)
{
    int error = 0;
    socklen_t size = sizeof error;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        errno = error;
        die("connect");
    }
    epoll_ctl(poller, EPOLL_CTL_MOD, client->fd, &event);
    send_request(client, hello);
}

static int
wait_events(struct epoll_event *events, int room, double start)
{
    int count = epoll_wait(poller, events, room, 1000);

    if (now() - start > PHASE_LIMIT) {
        errno = ETIMEDOUT;
        die("phase");
    }
    return count < 0 ? 0 : count;
}

/* Connect, VALIDATE, PING and ADD init/ by every client. */
static void
construct_clients(void)
{
    struct epoll_event events[IN_FLIGHT];
    request hello = hello_request();
    double start = now();
    int started = 0, done = 0;

    while (done < client_count) {
        for (; started < client_count && started - done < IN_FLIGHT; started++) {
            start_connecting(&clients[started]);
        }
        int count = wait_events(events, IN_FLIGHT, start);
        for (int i = 0; i < count; i++) {
            client *client = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                finish_connecting(client, &hello);
            } else if (take_reply(client)) {
                done++;
            }
        }
    }
}

/* Every one of the first `count` clients sends the request `rounds` times, the next
 * when the reply to the last is here. */
static void
exchange(const request *request, int count, uint32_t rounds)
{
    struct epoll_event events[IN_FLIGHT];
    double start = now();
    int done = 0;

    for (int i = 0; i < count; i++) {
        clients[i].rounds = rounds - 1;
        send_request(&clients[i], request);
    }
    while (done < count) {
        int ready = wait_events(events, IN_FLIGHT, start);
        for (int i = 0; i < ready; i++) {
            client *client = events[i].data.ptr;
            if (!take_reply(client)) {
                continue;
            }
            if (client->rounds > 0) {
                client->rounds--;
                send_request(client, request);
            } else {
                done++;
            }
        }
    }
}

/* Phases. */

static double phase_start;
static uint64_t phase_cpu;

static void
begin_phase(void)
{
    phase_cpu = server_cpu();
    phase_start = now();
}

static void
end_phase(const char *name, long operations)
{
    double seconds = now() - phase_start;
    double cpu = (double)(server_cpu() - phase_cpu) * 1e-9;

    printf("{\"phase\": \"%s\", \"clients\": %d, \"operations\": %ld, "
           "\"seconds\": %.6f, \"server_cpu\": %.6f, \"server_rss_kib\": %ld}\n",
           name, client_count, operations, seconds, cpu, server_rss_kib());
    fflush(stdout);
}

/* The barrier of torch's tutorial: everybody adds, the last one sets, everybody waits. */
static void
store_barrier(const char *name)
{
    char counter[64], last[64];

    snprintf(counter, sizeof counter, "/%s/num_members", name);
    snprintf(last, sizeof last, "/%s/last_member", name);
    request add = add_request(counter), set = set_request(last, "1"),
            wait = wait_request(last);
    exchange(&add, client_count, 1);
    /* All but one wait first, so that the release of the waiters is measured too. */
    struct epoll_event events[IN_FLIGHT];
    double start = now();
    for (int i = 1; i < client_count; i++) {
        send_request(&clients[i], &wait);
    }
    send_request(&clients[0], &set);
    for (int done = 0; done < client_count;) {
        int ready = wait_events(events, IN_FLIGHT, start);
        for (int i = 0; i < ready; i++) {
            done += take_reply(events[i].data.ptr);
        }
    }
}

static void
run_phases(uint32_t gets, bool has_barrier)
{
    char value[VALUE_SIZE + 1];
    int get_clients = client_count < GET_CLIENTS ? client_count : GET_CLIENTS;

    begin_phase();
    construct_clients();
    end_phase("init", client_count);
    begin_phase();
    store_barrier("barrier");
    end_phase("barrier", client_count);
    if (has_barrier) {
        request barrier = barrier_request("/opcode", client_count);
        begin_phase();
        exchange(&barrier, client_count, 1);
        end_phase("barrier opcode", client_count);
    }
    memset(value, 'v', VALUE_SIZE);
    value[VALUE_SIZE] = '\0';
    request set = set_request("/value", value), get = get_request("/value");
    exchange(&set, 1, 1);
    begin_phase();
    exchange(&get, get_clients, gets / (uint32_t)get_clients);
    end_phase("get", (long)get_clients * (long)(gets / (uint32_t)get_clients));
}

int
main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr,
                "usage: store_load HOST PORT SERVER_PID CLIENTS GETS HAS_BARRIER\n");
        return 2;
    }
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
        die("HOST must be an IPv4 address");
    }
    server_pid = atoi(argv[3]);
    client_count = atoi(argv[4]);
    clients = calloc((size_t)client_count, sizeof *clients);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (clients == NULL || poller < 0) {
        die("starting");
    }
    run_phases((uint32_t)atol(argv[5]), atoi(argv[6]) != 0);
    return 0;
}
