/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks without Python: threads of this process, each of which joins a job as a process
 * does, by the library's own code and over sockets of its own.
 *
 *     stub_ranks PORT FIRST COUNT TOTAL PER_HOST
 *
 * Its ranks are COUNT of TOTAL, from FIRST on, the others being those of other processes;
 * each PER_HOST consecutive ones are on a pretended host.  PORT is that of a TCPStore's
 * server.  It takes commands on its standard input and answers each with a line:
 *
 *   connect         every rank opens its store
 *   join NAME       every rank checks in, as init_process_group() does
 *                   (python/distlite/groups/check_in.py), and makes the job's group
 *   barrier         every rank waits for all others in the group
 *   groups COUNT [RANKS]   every rank, or the first RANKS, makes COUNT groups of all ranks
 *                   out of the job's
 *   barriers COUNT  every rank waits for all others in COUNT of these
 *   leave           every rank closes its groups
 *
 * An answer is "ok SECONDS REQUESTS MOST_REQUESTS BYTES MOST_BYTES", or "error TEXT",
 * after which the program ends.  Requests are the segments with data that went to the
 * server, and bytes those in both directions: of all ranks, and of the one with the
 * most. */
#include <arpa/inet.h>
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "pg/group.h"
#include "store/prefix_store.h"
#include "store/tcp/tcp_store.h"

#define PATIENCE (300 * DL_SECOND)
#define STACK_SIZE ((size_t)512 << 10)
#define RANKS_PER_KEY 62
#define FDS_LIMIT (1 << 16)

typedef struct stub stub;
typedef dl_status (*stub_fn)(stub *);

struct stub {
    pthread_t thread;
    int rank;
    dl_store *store;
    dl_group *job;
    dl_group **groups;
    int group_count;
    dl_status status;
    char text[DL_ERROR_TEXT_SIZE];
};

/* What has gone through the connections to the server, by descriptor. */
typedef struct traffic {
    uint64_t requests[FDS_LIMIT];
    uint64_t bytes[FDS_LIMIT];
} traffic;

static uint16_t port;
static int first, count, total, per_host;
static stub *stubs;
static pthread_barrier_t begun, ended;
static traffic before, after;
/* Of the command that is under way. */
static stub_fn command;
static char name[32];
static int number, makers;

/* The library asks by which name the calling rank's host is pretended to be another: this
 * takes the place of the C library's function. */
static _Thread_local char host[32];

char *getenv(const char *variable);

char *
getenv(const char *variable)
{
    bool is_hint = strcmp(variable, "DISTLITE_HOST_HINT") == 0;

    return is_hint ? host : secure_getenv(variable);
}

static dl_deadline
soon(void)
{
    return dl_deadline_after(PATIENCE);
}

static dl_status
connect_store(stub *self)
{
    dl_tcp_store_options options = {
        .host = "127.0.0.1",
        .port = port,
        .world_size = -1,
        .listen_fd = -1,
        .timeout = PATIENCE,
    };
    bool exists;
    dl_bytes key = dl_bytes_of("begin");

    DL_TRY(dl_tcp_store_new(&options, soon(), &self->store));
    return dl_store_check(self->store, &key, 1, &exists, soon());
}

static dl_status
claim(dl_store *store, const char *key, const char *value)
{
    dl_buffer held = {0};
    dl_status status = dl_store_compare_set(store, dl_bytes_of(key), dl_bytes_of(""),
                                            dl_bytes_of(value), &held, soon());

    dl_buffer_fini(&held);
    return status;
}

/* Five requests; two more of the last rank, and one of the last in each counter. */
static dl_status
check_in(const stub *self, dl_store *store)
{
    int at = self->rank % RANKS_PER_KEY, base = self->rank - at;
    int ranks = total - base < RANKS_PER_KEY ? total - base : RANKS_PER_KEY;
    int64_t parts = (total + RANKS_PER_KEY - 1) / RANKS_PER_KEY, come;
    dl_bytes here = dl_bytes_of("all_are_here");
    dl_buffer outcome = {0};
    char key[48], value[96];

    snprintf(value, sizeof value, "1 %d 0123456789ab rank %d (pid 1000 on host a)",
             total, self->rank);
    DL_TRY(claim(store, "latest", value));
    snprintf(key, sizeof key, "claim_of/%d", self->rank);
    snprintf(value, sizeof value, "1 %016d pid 1000 on host a", self->rank);
    DL_TRY(claim(store, key, value));
    snprintf(key, sizeof key, "1/arrived/%d", base);
    DL_TRY(dl_store_add(store, dl_bytes_of(key), INT64_C(1) << at, &come, soon()));
    if (come == (INT64_C(1) << ranks) - 1) {
        DL_TRY(dl_store_add(store, dl_bytes_of("1/arrived"), 1, &come, soon()));
        if (come == parts) {
            DL_TRY(claim(store, "all_are_here", "here"));
        }
    }
    DL_TRY(dl_store_wait(store, &here, 1, soon()));
    dl_status status = dl_store_get(store, here, &outcome, soon());
    dl_buffer_fini(&outcome);
    return status;
}

static dl_status
make_job(stub *self, dl_store *store)
{
    dl_group_options options = {
        .name = name,
        .backend = "cpu",
        .rank = self->rank,
        .size = total,
        .timeout = PATIENCE,
    };

    DL_TRY(check_in(self, store));
    return dl_group_new(&options, store, &self->job);
}

static dl_status
join(stub *self)
{
    dl_store *store;

    DL_TRY(dl_prefix_store_new(dl_bytes_of(name), self->store, &store));
    dl_status status = make_job(self, store);
    dl_store_unref(store);
    return status;
}

static dl_status
wait_for_all(stub *self)
{
    return dl_group_barrier(self->job, soon());
}

static dl_status
make_groups(stub *self)
{
    int *ranks = malloc((size_t)total * sizeof *ranks);
    char text[48];
    dl_group_options options = {
        .name = text,
        .backend = "cpu",
        .rank = self->rank,
        .size = total,
        .timeout = PATIENCE,
        .parent = self->job,
        .parent_ranks = ranks,
    };
    dl_status status = DL_OK;

    if (self->rank >= makers) {
        free(ranks);
        return DL_OK;
    }
    self->groups = calloc((size_t)number, sizeof(dl_group *));
    self->group_count = number;
    for (int rank = 0; rank < total; rank++) {
        ranks[rank] = rank;
    }
    for (int i = 0; status == DL_OK && i < number; i++) {
        snprintf(text, sizeof text, "%s/%d", name, i);
        status = dl_group_new(&options, self->store, &self->groups[i]);
    }
    free(ranks);
    return status;
}

static dl_status
wait_in_groups(stub *self)
{
    for (int i = 0; i < number && i < self->group_count; i++) {
        DL_TRY(dl_group_barrier(self->groups[i], soon()));
    }
    return DL_OK;
}

static void
end_group(dl_group *group)
{
    if (group != NULL) {
        dl_group_close(group);
        dl_group_unref(group);
    }
}

static dl_status
leave(stub *self)
{
    for (int i = 0; i < self->group_count; i++) {
        end_group(self->groups[i]);
    }
    free(self->groups);
    self->groups = NULL;
    self->group_count = 0;
    end_group(self->job);
    self->job = NULL;
    return DL_OK;
}

static void *
run_stub(void *argument)
{
    stub *self = argument;

    snprintf(host, sizeof host, "host %d", self->rank / per_host);
    for (;;) {
        pthread_barrier_wait(&begun);
        if (command == NULL) {
            break;
        }
        self->status = command(self);
        if (self->status != DL_OK) {
            snprintf(self->text, sizeof self->text, "%s", dl_last_error()->text);
        }
        pthread_barrier_wait(&ended);
    }
    dl_store_unref(self->store);
    return NULL;
}

static void
start_stubs(void)
{
    pthread_attr_t attributes;

    stubs = calloc((size_t)count, sizeof *stubs);
    pthread_barrier_init(&begun, NULL, (unsigned)count + 1);
    pthread_barrier_init(&ended, NULL, (unsigned)count + 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    for (int i = 0; i < count; i++) {
        stubs[i].rank = first + i;
        if (pthread_create(&stubs[i].thread, &attributes, run_stub, &stubs[i]) != 0) {
            printf("error a thread of rank %d does not start\n", stubs[i].rank);
            exit(1);
        }
    }
    pthread_attr_destroy(&attributes);
}

static void
end_stubs(void)
{
    command = NULL;
    pthread_barrier_wait(&begun);
    for (int i = 0; i < count; i++) {
        pthread_join(stubs[i].thread, NULL);
    }
    free(stubs);
}

static void
count_connection(traffic *found, int fd)
{
    struct sockaddr_in peer = {0};
    socklen_t size = sizeof peer;
    struct tcp_info facts = {0};
    socklen_t facts_size = sizeof facts;

    if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0
        && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port
        && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &facts, &facts_size) == 0) {
        found->requests[fd] = facts.tcpi_data_segs_out;
        found->bytes[fd] = facts.tcpi_bytes_acked + facts.tcpi_bytes_received;
    }
}

static void
count_connections(traffic *found)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;

    memset(found, 0, sizeof *found);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int fd = atoi(entry->d_name);
        if (fd < FDS_LIMIT) {
            count_connection(found, fd);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static void
print_counts(double seconds)
{
    uint64_t sums[2] = {0}, most[2] = {0};

    for (int fd = 0; fd < FDS_LIMIT; fd++) {
        uint64_t new[2] = {after.requests[fd] - before.requests[fd],
                           after.bytes[fd] - before.bytes[fd]};
        for (int i = 0; i < 2; i++) {
            sums[i] += new[i];
            most[i] = new[i] > most[i] ? new[i] : most[i];
        }
    }
    printf("ok %.6f %llu %llu %llu %llu\n", seconds, (unsigned long long)sums[0],
           (unsigned long long)most[0], (unsigned long long)sums[1],
           (unsigned long long)most[1]);
}

static void
obey(stub_fn asked)
{
    count_connections(&before);
    int64_t start = dl_now();
    command = asked;
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&ended);
    double seconds = (double)(dl_now() - start) * 1e-9;
    for (int i = 0; i < count; i++) {
        if (stubs[i].status != DL_OK) {
            printf("error rank %d: %s\n", stubs[i].rank, stubs[i].text);
            exit(1);
        }
    }
    count_connections(&after);
    print_counts(seconds);
}

static stub_fn
command_in(const char *line)
{
    if (sscanf(line, "join %31s", name) == 1) {
        return join;
    }
    makers = total;
    if (sscanf(line, "groups %d %d", &number, &makers) >= 1) {
        return make_groups;
    }
    if (sscanf(line, "barriers %d", &number) == 1) {
        return wait_in_groups;
    }
    return strcmp(line, "connect\n") == 0   ? connect_store
           : strcmp(line, "barrier\n") == 0 ? wait_for_all
           : strcmp(line, "leave\n") == 0   ? leave
                                            : NULL;
}

int
main(int argc, char **argv)
{
    char line[128];
    struct rlimit limit;

    if (argc != 6) {
        fprintf(stderr, "usage: stub_ranks PORT FIRST COUNT TOTAL PER_HOST\n");
        return 2;
    }
    port = (uint16_t)atoi(argv[1]);
    first = atoi(argv[2]);
    count = atoi(argv[3]);
    total = atoi(argv[4]);
    per_host = atoi(argv[5]);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    setvbuf(stdout, NULL, _IOLBF, 0);
    start_stubs();
    while (fgets(line, sizeof line, stdin) != NULL) {
        stub_fn asked = command_in(line);
        if (asked == NULL) {
            printf("error no such command\n");
            return 1;
        }
        obey(asked);
    }
    end_stubs();
    return 0;
}
