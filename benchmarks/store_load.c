/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Load for a TCP store: thousands of clients in one thread, speaking the plain wire
 * protocol that every server here understands, so that all are measured by the same
 * program.  It takes commands on its standard input and answers each with a line:
 *
 *   connect N       N clients connect, validate, ping and count themselves in `init/`
 *   barrier KEY     every client adds one to a key and waits for another, which the last
 *                   one sets: torch's store-based barrier
 *   barrier_op KEY  the same by the opcode made for it
 *   store SIZE      one client stores a value of SIZE bytes
 *   get COUNT       all clients together read it COUNT times
 *
 * An answer is "ok SECONDS", or "error TEXT", after which the program ends.  At most
 * JOINING_LIMIT clients are on their way in at once, since beyond the listen backlog
 * it is the kernel's retry timers that one would measure. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define JOINING_LIMIT 4000 /* the backlog is 4096 at most */
#define EVENT_LIMIT 512
#define REQUEST_LIMIT 256
#define KEY_LIMIT 64
#define REPLY_LIMIT (1 << 16)
#define STALL_SECONDS 120 /* without a single event: the server hangs */

enum opcode {
    OP_VALIDATE = 0,
    OP_SET = 1,
    OP_GET = 3,
    OP_ADD = 4,
    OP_WAIT = 6,
    OP_PING = 13,
    OP_BARRIER = 18,
};

typedef struct client {
    int fd;
    int step;       /* of the experiment; see each on_reply */
    size_t missing; /* bytes of the reply still to come */
    size_t filled;
    char reply[8]; /* its first bytes; a value's are only counted */
} client;

/* What the clients do with replies.  Returns true when that client is done. */
typedef bool (*reply_fn)(client *);

typedef struct request {
    size_t size;
    char bytes[REQUEST_LIMIT];
} request;

static struct sockaddr_in server;
static int poller;
static client *clients;
static size_t client_count;
static char count_key[KEY_LIMIT], last_key[KEY_LIMIT];
static size_t gets_left, value_size;

static void
fail(const char *format, ...)
{
    va_list arguments;

    printf("error ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    exit(1);
}

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The protocol is little-endian, as are the machines this runs on. */

static void
put(request *out, const void *bytes, size_t size)
{
    if (out->size + size > sizeof out->bytes) {
        fail("request too long");
    }
    memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void
put_op(request *out, enum opcode op)
{
    put(out, &(char){(char)op}, 1);
}

static void
put_i64(request *out, int64_t value)
{
    put(out, &value, sizeof value);
}

static void
put_text(request *out, const char *text)
{
    put_i64(out, (int64_t)strlen(text));
    put(out, text, strlen(text));
}

static void
put_add(request *out, const char *key)
{
    put_op(out, OP_ADD);
    put_text(out, key);
    put_i64(out, 1);
}

/* Requests are a few bytes on an idle socket: they always fit. */
static void
post(client *client, const request *out, size_t reply_size)
{
    if (send(client->fd, out->bytes, out->size, MSG_NOSIGNAL) != (ssize_t)out->size) {
        fail("sending: %s", strerror(errno));
    }
    client->filled = 0;
    client->missing = reply_size;
}

static int64_t
reply_number(const client *client)
{
    int64_t number;

    memcpy(&number, client->reply, sizeof number);
    return number;
}

/* Takes what is there; true when the reply is complete. */
static bool
receive(client *client)
{
    static char scratch[REPLY_LIMIT];

    while (client->missing > 0) {
        ssize_t got = recv(client->fd, scratch, client->missing, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) {
            return false;
        }
        if (got <= 0) {
            fail("receiving: %s", got == 0 ? "closed by the server" : strerror(errno));
        }
        for (ssize_t i = 0; i < got && client->filled < sizeof client->reply; i++) {
            client->reply[client->filled++] = scratch[i];
        }
        client->missing -= (size_t)got;
    }
    return true;
}

static size_t
wait_for_events(struct epoll_event *events)
{
    int count = epoll_wait(poller, events, EVENT_LIMIT, STALL_SECONDS * 1000);

    if (count <= 0) {
        fail("%s", count == 0 ? "the server does not answer" : strerror(errno));
    }
    return (size_t)count;
}

/* Lets replies come until `done` clients are done. */
static void
run_until_done(size_t done, reply_fn on_reply)
{
    struct epoll_event events[EVENT_LIMIT];

    while (done > 0) {
        size_t count = wait_for_events(events);
        for (size_t i = 0; i < count; i++) {
            client *client = events[i].data.ptr;
            if (receive(client) && on_reply(client)) {
                done--;
            }
        }
    }
}

/* connect: VALIDATE and PING -> ADD -> done */

static void
post_hello(client *client)
{
    request out = {0};

    put_op(&out, OP_VALIDATE);
    put(&out, &(uint32_t){0x3C85F7CEu}, 4);
    put_op(&out, OP_PING);
    put(&out, &(uint32_t){(uint32_t)client->fd}, 4);
    post(client, &out, 4);
}

/* Connecting blocks: over loopback it only enters the server's backlog.  As few calls as
 * possible, for what this program costs is part of every server's time. */
static void
start_joining(client *client)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

    client->fd = socket(AF_INET, SOCK_STREAM, 0);
    /* Thousands of connections in TIME_WAIT would use up the ports. */
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0},
               sizeof(struct linger));
    if (client->fd < 0
        || connect(client->fd, (struct sockaddr *)&server, sizeof server) != 0) {
        fail("connecting: %s", strerror(errno));
    }
    client->step = 0;
    post_hello(client);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event) != 0) {
        fail("epoll_ctl: %s", strerror(errno));
    }
}

static bool
on_joining(client *client)
{
    request out = {0};

    if (client->step++ > 0) {
        return true;
    }
    if (memcmp(client->reply, &client->fd, 4) != 0) {
        fail("another nonce came back");
    }
    put_add(&out, "init/");
    post(client, &out, 8);
    return false;
}

static void
connect_all(size_t count)
{
    struct epoll_event events[EVENT_LIMIT];
    size_t started = 0, joined = 0;

    clients = calloc(count, sizeof *clients);
    client_count = count;
    while (joined < count) {
        while (started < count && started - joined < JOINING_LIMIT) {
            start_joining(&clients[started++]);
        }
        size_t ready = wait_for_events(events);
        for (size_t i = 0; i < ready; i++) {
            client *client = events[i].data.ptr;
            if (receive(client) && on_joining(client)) {
                joined++;
            }
        }
    }
}

/* barrier: ADD -> WAIT -> done */

static bool
on_barrier(client *client)
{
    request out = {0};

    if (client->step++ > 0) {
        return true;
    }
    if (reply_number(client) == (int64_t)client_count) {
        put_op(&out, OP_SET);
        put_text(&out, last_key);
        put_text(&out, "1");
    }
    put_op(&out, OP_WAIT);
    put_i64(&out, 1);
    put_text(&out, last_key);
    post(client, &out, 1);
    return false;
}

static void
barrier(void)
{
    request out = {0};

    put_add(&out, count_key);
    for (size_t i = 0; i < client_count; i++) {
        clients[i].step = 0;
        post(&clients[i], &out, 8);
    }
    run_until_done(client_count, on_barrier);
}

static bool
on_last_reply(client *client)
{
    (void)client;
    return true;
}

static void
barrier_op(void)
{
    request out = {0};

    put_op(&out, OP_BARRIER);
    put_text(&out, count_key);
    put_i64(&out, (int64_t)client_count);
    for (size_t i = 0; i < client_count; i++) {
        post(&clients[i], &out, 1);
    }
    run_until_done(client_count, on_last_reply);
}

/* get: every client has one request under way */

static bool
post_get(client *client)
{
    request out = {0};

    if (gets_left == 0) {
        return true;
    }
    gets_left--;
    put_op(&out, OP_GET);
    put_text(&out, "/value");
    post(client, &out, 8 + value_size);
    return false;
}

/* SET has no reply; that of the ADD after it says that it is done. */
static void
store_value(void)
{
    request out = {0};
    char value[REQUEST_LIMIT / 2] = {0};

    if (value_size >= sizeof value) {
        fail("a value of %zu bytes is too long", value_size);
    }
    memset(value, 'v', value_size);
    put_op(&out, OP_SET);
    put_text(&out, "/value");
    put_text(&out, value);
    put_add(&out, "/stored");
    post(&clients[0], &out, 8);
    run_until_done(1, on_last_reply);
}

static void
get_all(void)
{
    size_t working = 0;

    for (size_t i = 0; i < client_count; i++) {
        working += !post_get(&clients[i]);
    }
    run_until_done(working, post_get);
}

static double
obey(const char *line)
{
    char key[32];
    size_t count;
    double start = now();

    if (sscanf(line, "connect %zu", &count) == 1) {
        connect_all(count);
    } else if (sscanf(line, "barrier %31s", key) == 1) {
        snprintf(count_key, sizeof count_key, "/%s/count", key);
        snprintf(last_key, sizeof last_key, "/%s/last", key);
        barrier();
    } else if (sscanf(line, "barrier_op %31s", key) == 1) {
        snprintf(count_key, sizeof count_key, "/%s", key);
        barrier_op();
    } else if (sscanf(line, "store %zu", &value_size) == 1) {
        store_value();
    } else if (sscanf(line, "get %zu", &gets_left) == 1) {
        get_all();
    } else {
        fail("no such command");
    }
    return now() - start;
}

int
main(int argc, char **argv)
{
    char line[128];
    struct rlimit limit;

    server.sin_family = AF_INET;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0));
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    poller = epoll_create1(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        printf("ok %.6f\n", obey(line));
    }
    return 0;
}
