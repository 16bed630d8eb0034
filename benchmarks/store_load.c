/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Load for a TCP store: thousands of clients in one thread, so that all servers are
 * measured by the same program.
 *
 *     store_load PORT FIRST TOTAL [ours | SOCKET CLIENTS]
 *
 * Its clients are those from number FIRST of TOTAL, the others being those of other
 * processes.  They speak torch's protocol; with `ours` that of distlite's clients, which
 * have a slot and send checked requests; with SOCKET they do so behind relays of CLIENTS
 * clients each, whose Unix sockets are SOCKET and the relay's number in 16 digits.
 * It takes commands on its standard input and answers each with a line:
 *
 *   connect N       N clients connect, validate, ping and count themselves in `init/`
 *   check_in KEY    every client publishes an address, counts itself, waits until all
 *                   have done so, and reads the address of the next one
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
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define JOINING_LIMIT 4000 /* the backlog is 4096 at most */
#define EVENT_LIMIT 512
#define REQUEST_LIMIT 256
#define KEY_LIMIT 128
#define REPLY_LIMIT (1 << 16)
#define STALL_SECONDS 120 /* without a single event: the server hangs */

/* Of the protocol of distlite; docs/wire.md has all of it. */
#define CHECKED 0x80
#define HELLO "distlite/3"
#define SLOT_ID_SIZE 16
#define WELCOME_SIZE 64
/* A relay begins with a byte and two addresses. */
#define PREAMBLE_SIZE (1 + 2 * sizeof(struct sockaddr_in6))

/* What a rank publishes, about as long as its host, port and process. */
#define ADDRESS_SIZE 64

enum opcode {
    OP_VALIDATE = 0,
    OP_SET = 1,
    OP_GET = 3,
    OP_ADD = 4,
    OP_CHECK = 5,
    OP_WAIT = 6,
    OP_PING = 13,
    OP_BARRIER = 18,
};

typedef struct client {
    int fd;
    int step;       /* of the experiment; see each on_reply */
    size_t missing; /* bytes of the reply still to come */
    size_t filled;
    char reply[9]; /* its first bytes; a value's are only counted */
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
static size_t client_count, first_client, total;
static bool is_ours;           /* checked requests, and a slot for each client */
static const char *relays;     /* what the names of their sockets begin with; or NULL */
static size_t relayed_clients; /* of each of them */
static char own_key[32], count_key[KEY_LIMIT], last_key[KEY_LIMIT];
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
    put(out, &(char){(char)(is_ours ? op | CHECKED : op)}, 1);
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

static void
put_set(request *out, const char *key, const char *value)
{
    put_op(out, OP_SET);
    put_text(out, key);
    put_text(out, value);
}

static void
put_wait(request *out, const char *key)
{
    put_op(out, OP_WAIT);
    put_i64(out, 1);
    put_text(out, key);
}

/* Requests are a few bytes on an idle socket: they always fit. */
static void
post_plain(client *client, const request *out, size_t reply_size)
{
    if (send(client->fd, out->bytes, out->size, MSG_NOSIGNAL) != (ssize_t)out->size) {
        fail("sending: %s", strerror(errno));
    }
    client->filled = 0;
    client->missing = reply_size;
}

/* The size is that of the plain reply of the last request, which every checked one
 * precedes with a status. */
static void
post(client *client, const request *out, size_t reply_size)
{
    post_plain(client, out, reply_size + is_ours);
}

static int64_t
reply_number(const client *client)
{
    int64_t number;

    memcpy(&number, client->reply + is_ours, sizeof number);
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

/* connect: [preamble of a relay] -> VALIDATE and PING -> ADD -> done; ours sends ADD with
 * the other two, and its hello */

enum { JOIN_PREAMBLE, JOIN_HELLO, JOIN_ADD };

static void
put_hello(request *out)
{
    char key[sizeof HELLO - 1 + SLOT_ID_SIZE + 8] = HELLO;

    if (getrandom(key + sizeof HELLO - 1, SLOT_ID_SIZE, 0) != SLOT_ID_SIZE) {
        fail("getrandom: %s", strerror(errno));
    }
    key[sizeof HELLO - 1 + SLOT_ID_SIZE] = 1; /* the number of the next change */
    put(out, &(char){OP_CHECK}, 1);
    put_i64(out, 1);
    put_i64(out, sizeof key);
    put(out, key, sizeof key);
}

static void
post_hello(client *client)
{
    request out = {0};

    put(&out, &(char){OP_VALIDATE}, 1);
    put(&out, &(uint32_t){0x3C85F7CEu}, 4);
    put(&out, &(char){OP_PING}, 1);
    put(&out, &(uint32_t){(uint32_t)client->fd}, 4);
    client->step = JOIN_HELLO;
    if (is_ours) {
        put_hello(&out);
        put_add(&out, "init/");
        post(client, &out, 4 + WELCOME_SIZE + 8);
    } else {
        post(client, &out, 4);
    }
}

static int
connect_tcp(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    /* Thousands of connections in TIME_WAIT would use up the ports. */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0},
               sizeof(struct linger));
    return connect(fd, (struct sockaddr *)&server, sizeof server) == 0 ? fd : -1;
}

static int
connect_relay(size_t number)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int size = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s%016zx", relays,
                        number);
    socklen_t length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)size;

    return connect(fd, (struct sockaddr *)&name, length) == 0 ? fd : -1;
}

/* Connecting blocks: over loopback it only enters the server's backlog.  As few calls as
 * possible, for what this program costs is part of every server's time. */
static void
start_joining(client *client)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    size_t number = first_client + (size_t)(client - clients);

    client->fd =
        relays == NULL ? connect_tcp() : connect_relay(number / relayed_clients);
    if (client->fd < 0) {
        fail("connecting: %s", strerror(errno));
    }
    if (relays == NULL) {
        post_hello(client);
    } else {
        client->step = JOIN_PREAMBLE;
        client->missing = PREAMBLE_SIZE;
    }
    if (epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event) != 0) {
        fail("epoll_ctl: %s", strerror(errno));
    }
}

static bool
on_joining(client *client)
{
    request out = {0};

    switch (client->step++) {
    case JOIN_PREAMBLE:
        post_hello(client);
        return false;
    case JOIN_HELLO:
        if (memcmp(client->reply, &client->fd, 4) != 0) {
            fail("another nonce came back");
        }
        if (is_ours) {
            return true;
        }
        put_add(&out, "init/");
        post(client, &out, 8);
        return false;
    default:
        return true;
    }
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

/* barrier: ADD -> [SET] and WAIT -> done */

/* The last client sets the key for which all wait. */
static void
post_wait(client *client)
{
    request out = {0};
    bool is_last = reply_number(client) == (int64_t)total;

    if (is_last) {
        put_set(&out, last_key, "1");
    }
    put_wait(&out, last_key);
    post(client, &out, is_last && is_ours ? 2 : 1);
}

static bool
on_barrier(client *client)
{
    if (client->step++ > 0) {
        return true;
    }
    post_wait(client);
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

/* check_in: SET and ADD -> [SET] and WAIT -> GET -> done; ours awaits the reply to SET
 * before it sends ADD */

enum { CHECK_IN_SET, CHECK_IN_ADD, CHECK_IN_WAIT, CHECK_IN_GET };

static void
put_own_key(char key[KEY_LIMIT], size_t number)
{
    snprintf(key, KEY_LIMIT, "/%s/%zu", own_key, number % total);
}

static bool
on_check_in(client *client)
{
    char key[KEY_LIMIT];
    request out = {0};

    switch (client->step++) {
    case CHECK_IN_SET:
        put_add(&out, count_key);
        post(client, &out, 8);
        return false;
    case CHECK_IN_ADD:
        post_wait(client);
        return false;
    case CHECK_IN_WAIT:
        put_own_key(key, first_client + (size_t)(client - clients) + 1);
        put_op(&out, OP_GET);
        put_text(&out, key);
        post(client, &out, 8 + ADDRESS_SIZE);
        return false;
    default:
        if (reply_number(client) != ADDRESS_SIZE) {
            fail("an address of %lld bytes", (long long)reply_number(client));
        }
        return true;
    }
}

static void
check_in(void)
{
    char key[KEY_LIMIT], address[ADDRESS_SIZE + 1];

    memset(address, 'a', ADDRESS_SIZE);
    address[ADDRESS_SIZE] = '\0';
    for (size_t i = 0; i < client_count; i++) {
        request out = {0};
        put_own_key(key, first_client + i);
        put_set(&out, key, address);
        clients[i].step = CHECK_IN_SET;
        if (is_ours) {
            post(&clients[i], &out, 0);
        } else {
            clients[i].step = CHECK_IN_ADD;
            put_add(&out, count_key);
            post(&clients[i], &out, 8);
        }
    }
    run_until_done(client_count, on_check_in);
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
    put_i64(&out, (int64_t)total);
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
    put_set(&out, "/value", value);
    put_add(&out, "/stored");
    post(&clients[0], &out, is_ours + 8);
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

/* A space of a format also matches none, hence the longer of two words first. */
static double
obey(const char *line)
{
    char key[32];
    size_t count;
    double start = now();

    if (sscanf(line, "connect %zu", &count) == 1) {
        connect_all(count);
    } else if (sscanf(line, "check_in %31s", own_key) == 1) {
        snprintf(count_key, sizeof count_key, "/%s/count", own_key);
        snprintf(last_key, sizeof last_key, "/%s/last", own_key);
        check_in();
    } else if (sscanf(line, "barrier_op %31s", key) == 1) {
        snprintf(count_key, sizeof count_key, "/%s", key);
        barrier_op();
    } else if (sscanf(line, "barrier %31s", key) == 1) {
        snprintf(count_key, sizeof count_key, "/%s/count", key);
        snprintf(last_key, sizeof last_key, "/%s/last", key);
        barrier();
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

    if (argc < 4) {
        fprintf(stderr, "usage: store_load PORT FIRST TOTAL [ours | SOCKET CLIENTS]\n");
        return 2;
    }
    server.sin_family = AF_INET;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons((uint16_t)atoi(argv[1]));
    first_client = (size_t)atoll(argv[2]);
    total = (size_t)atoll(argv[3]);
    is_ours = argc > 4;
    if (argc > 5) {
        relays = argv[4];
        relayed_clients = (size_t)atoll(argv[5]);
    }
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
