/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for UCC: ranks are processes of one host, which pass chunks through
 * mailboxes in shared memory, one for each pair of ranks and direction.  As in UCC, data
 * moves only in ucc_context_progress(); a team runs its collectives one after another.
 * A reduction that UCC lacks "succeeds" with junk, as there.  For tests alone; found
 * only where DISTLITE_UCC_LIBRARY names it.
 *
 * DOUBLE_UCC_VERSION=2: contexts exchange twice as many bytes, as another version may.
 * DOUBLE_UCC_FAIL=init|context|team|collective|post|request: what fails; collectives
 * fail from the second on.  While double_ucc_is_stalled is set nothing moves; while double_ucc_is_cut is
 * set progress fails, as when UCC's own network detects that a rank has ended.  Built
 * with -DOLD it does not report its version, with -DANCIENT it lacks functions that are
 * needed, and with -DNEXT it is version 2.0. */
#include <complex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "boxes.h"
#include "settings.h"

enum {
    OK = 0,
    IN_PROGRESS = 1,
    INITIALIZED = 2,
    NOT_SUPPORTED = -1,
    INVALID = -3,
    NO_MEMORY = -4,
    NO_MESSAGE = -6,
    TIMED_OUT = -8,
};

enum {
    ALL_GATHER = 1,
    ALL_REDUCE = 4,
    ALL_TO_ALL_V = 16,
    BARRIER = 32,
    BROADCAST = 64,
    REDUCE = 2048,
    REDUCE_SCATTER = 4096,
};

enum {
    FLOAT32 = 88,
    FLOAT64 = 96,
};

#define RANKS 16

typedef struct oob {
    int (*allgather)(void *, void *, size_t, void *, void **);
    int (*test)(void *);
    int (*release)(void *);
    void *user;
    uint32_t size, rank;
} oob;

typedef struct block {
    char *data;
    uint64_t count, dtype;
    int memory;
} block;

typedef struct blocks {
    char *data;
    void *counts, *offsets;
    uint64_t dtype;
    int memory;
} blocks;

typedef union side {
    block one;
    blocks many;
} side;

typedef struct args {
    uint64_t mask;
    int type;
    side from, to;
    int op;
    uint64_t flags, root;
    char rest[80];
} args;

_Static_assert(sizeof(args) == 200, "as in UCC");

typedef struct shared {
    atomic_int arrived; /* first, for open_shared() */
    box boxes[];        /* [from * size + to] */
} shared;

typedef struct request {
    int status; /* first, as callers read it */
    args args;
    struct team *team;
    transfer transfers[2 * RANKS];
    int count;
    char *parts[RANKS]; /* of reductions */
    char *copy;
    struct request *next;
} request;

typedef struct team {
    struct context *context;
    oob oob;
    char names[RANKS][64];
    void *exchange;
    shared *shared;
    size_t bytes;
    int rank, size;
    bool is_leaving;
    request *queue;
    struct team *next;
} team;

typedef struct context {
    oob oob;
    pthread_mutex_t lock;
    team *teams;
} context;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
char double_ucc_prefix[64];     /* guarded by lock, as the next */
char double_ucc_settings[1024]; /* "TLS=self;": the settings that UCC would use */
atomic_int double_ucc_thread_mode = -1;
atomic_int double_ucc_contexts;
atomic_int double_ucc_teams;
atomic_int double_ucc_is_stalled; /* set by tests, as the next */
atomic_int double_ucc_is_cut;
atomic_int double_ucc_posted;     /* collectives since the start */
atomic_int double_ucc_progressed; /* calls of ucc_context_progress() */

static bool
is_failing(const char *what)
{
    const char *chosen = setting_text("DOUBLE_UCC_FAIL");

    return chosen != NULL && strcmp(chosen, what) == 0;
}

static size_t
size_of(uint64_t dtype)
{
    static const size_t sizes[] = {1,  2, 4, 8, 16, 1,  2, 4, 8,
                                   16, 2, 4, 8, 2,  16, 8, 16};

    return sizes[dtype >> 3];
}

#define LOOP(type, expression)                       \
    for (size_t i = 0; i < count; i++) {             \
        type a, b;                                   \
        memcpy(&a, target + i * sizeof a, sizeof a); \
        memcpy(&b, source + i * sizeof b, sizeof b); \
        a = (type)(expression);                      \
        memcpy(target + i * sizeof a, &a, sizeof a); \
    }                                                \
    return

#define ORDERED(type)              \
    switch (op) {                  \
    case 0:                        \
        LOOP(type, a + b);         \
    case 1:                        \
        LOOP(type, a *b);          \
    case 2:                        \
        LOOP(type, a > b ? a : b); \
    case 3:                        \
        LOOP(type, a < b ? a : b); \
    default:                       \
        break;                     \
    }

#define WHOLE(type)        \
    ORDERED(type)          \
    switch (op) {          \
    case 7:                \
        LOOP(type, a &b);  \
    case 8:                \
        LOOP(type, a | b); \
    case 9:                \
        LOOP(type, a ^ b); \
    default:               \
        break;             \
    }                      \
    break;

#define COMPLEX(type)      \
    if (op == 0) {         \
        LOOP(type, a + b); \
    }                      \
    if (op == 1) {         \
        LOOP(type, a *b);  \
    }                      \
    break;

static void
combine(uint64_t dtype, int op, char *target, const char *source, size_t count)
{
    switch (dtype >> 3) {
    case 0:
        WHOLE(int8_t)
    case 1:
        WHOLE(int16_t)
    case 2:
        WHOLE(int32_t)
    case 3:
        WHOLE(int64_t)
    case 5:
        WHOLE(uint8_t)
    case 6:
        WHOLE(uint16_t)
    case 7:
        WHOLE(uint32_t)
    case 8:
        WHOLE(uint64_t)
    case 11:
        ORDERED(float)
        break;
    case 12:
        ORDERED(double)
        break;
    case 15:
        COMPLEX(float complex)
    case 16:
        COMPLEX(double complex)
    default:
        break;
    }
    fprintf(stderr, "ucc double: no reduction %d of dtype %d\n", op, (int)dtype);
    memset(target, 0x55, count * size_of(dtype));
}

static uint64_t
length_at(const args *self, const void *lengths, int rank, uint64_t bit)
{
    bool is_wide = (self->mask & 1) && (self->flags & bit);

    return is_wide ? ((const uint64_t *)lengths)[rank]
                   : ((const uint32_t *)lengths)[rank];
}

/* Returns the size of a rank's block and where it begins; counts and offsets
 * are in elements. */
static size_t
part_of(const args *self, const blocks *all, int rank, char **data)
{
    size_t unit = size_of(all->dtype);

    *data = all->data + length_at(self, all->offsets, rank, 8) * unit;
    return length_at(self, all->counts, rank, 4) * unit;
}

static void
plan(request *self, int from, int to, char *data, size_t size)
{
    /* An empty block is sent, too, so that no rank runs ahead. */
    self->transfers[self->count++] =
        (transfer){.from = from, .to = to, .data = data, .size = size};
}

static void
plan_send(request *self, int to, char *data, size_t size)
{
    plan(self, self->team->rank, to, data, size);
}

static void
plan_receive(request *self, int from, char *data, size_t size)
{
    plan(self, from, self->team->rank, data, size);
}

static size_t
bytes_of(const block *one)
{
    return one->count * size_of(one->dtype);
}

/* Plans what this rank and another send to each other. */
static void
plan_gather(request *self, int rank)
{
    const args *given = &self->args;
    const block *from = &given->from.one;
    size_t unit = bytes_of(&given->to.one) / (size_t)self->team->size;
    char *data = given->to.one.data + (size_t)rank * unit;

    if (rank == self->team->rank) {
        if (unit > 0) {
            memcpy(data, from->data, unit);
        }
        return;
    }
    plan_receive(self, rank, data, unit);
    plan_send(self, rank, from->data, bytes_of(from));
}

static void
plan_all_to_all(request *self, int rank)
{
    const args *given = &self->args;
    char *out;
    char *in;
    size_t out_size = part_of(given, &given->from.many, rank, &out);
    size_t in_size = part_of(given, &given->to.many, rank, &in);

    if (rank == self->team->rank) {
        if (out_size > 0) {
            memcpy(in, out, out_size);
        }
        return;
    }
    plan_send(self, rank, out, out_size);
    plan_receive(self, rank, in, in_size);
}

/* Returns how many elements `rank` gets, and their offset in the source. */
static size_t
share_of(const request *self, int rank, size_t *offset)
{
    const args *given = &self->args;
    size_t all = given->from.one.count;
    size_t even = all / (size_t)self->team->size;

    *offset = 0;
    if (given->type == REDUCE_SCATTER) {
        *offset = (size_t)rank * even;
        return even;
    }
    return all;
}

static void
plan_reduction(request *self, int rank)
{
    const args *given = &self->args;
    int me = self->team->rank;
    int root = (int)given->root;
    bool is_rooted = given->type == REDUCE;
    size_t unit = size_of(given->from.one.dtype);
    size_t offset;
    size_t mine = share_of(self, me, &offset) * unit;

    if (!is_rooted || me == root) {
        self->parts[rank] = malloc(mine + 1);
    }
    if (rank == me) {
        if (self->parts[me] != NULL && mine > 0) {
            memcpy(self->parts[me], self->copy + offset * unit, mine);
        }
        return;
    }
    if (!is_rooted || me == root) {
        plan_receive(self, rank, self->parts[rank], mine);
    }
    if (!is_rooted || rank == root) {
        size_t theirs = share_of(self, rank, &offset) * unit;
        plan_send(self, rank, self->copy + offset * unit, theirs);
    }
}

static void
plan_broadcast(request *self, int rank)
{
    const block *one = &self->args.from.one;
    int root = (int)self->args.root;
    int me = self->team->rank;

    if (me == root && rank != me) {
        plan_send(self, rank, one->data, bytes_of(one));
    } else if (me != root && rank == root) {
        plan_receive(self, rank, one->data, bytes_of(one));
    }
}

static void
plan_barrier(request *self, int rank)
{
    if (rank != self->team->rank) {
        plan_send(self, rank, NULL, 0);
        plan_receive(self, rank, NULL, 0);
    }
}

typedef void (*planner)(request *, int);

static planner
planner_of(int type)
{
    switch (type) {
    case ALL_GATHER:
        return plan_gather;
    case ALL_TO_ALL_V:
        return plan_all_to_all;
    case ALL_REDUCE:
    case REDUCE:
    case REDUCE_SCATTER:
        return plan_reduction;
    case BROADCAST:
        return plan_broadcast;
    case BARRIER:
        return plan_barrier;
    default:
        return NULL;
    }
}

static void
finish(request *self)
{
    const args *given = &self->args;
    team *team = self->team;
    size_t offset;
    size_t count = share_of(self, team->rank, &offset);
    uint64_t dtype = given->from.one.dtype;

    for (int rank = 1; self->parts[0] != NULL && rank < team->size; rank++) {
        combine(dtype, given->op, self->parts[0], self->parts[rank], count);
    }
    if (self->parts[0] != NULL && count > 0) {
        memcpy(given->to.one.data, self->parts[0], count * size_of(dtype));
    }
}

static void
progress_team(team *team)
{
    request *first = team->queue;
    int left = 0;

    if (first == NULL || double_ucc_is_stalled) {
        return;
    }
    for (int i = 0; i < first->count; i++) {
        transfer *moved = &first->transfers[i];
        while (!moved->is_over
               && move_chunk(team->shared->boxes, team->rank, team->size, moved, "ucc",
                             true)) {
        }
        left += !moved->is_over;
    }
    if (left == 0) {
        finish(first);
        team->queue = first->next;
        first->status = is_failing("request") && double_ucc_posted > 1 ? TIMED_OUT : OK;
    }
}

const char *
ucc_status_string(int status)
{
    static const char *const texts[] = {"Success",         "Operation is not supported",
                                        "Not implemented", "Invalid parameter",
                                        "Memory failure",  "Resource unavailable",
                                        "Unhandled error", "Not found",
                                        "Timeout expired"};

    return status <= 0 && status > -9 ? texts[-status] : "In progress";
}

/* Settings of a library or a context are looked up with the prefix first, as UCC
 * does. */
static const char *
setting_of(const char *prefix, const char *name)
{
    char text[128];
    bool is_global = strncmp(name, "LOG_", 4) == 0 || strcmp(name, "CONFIG_FILE") == 0;

    snprintf(text, sizeof text, "%s_UCC_%s", prefix, name);
    const char *value = is_global ? NULL : getenv(text);
    return value != NULL ? value : getenv(strstr(text, "UCC_"));
}

static void
note_settings(const char *prefix)
{
    static const char *const names[] = {"TLS",       "CLS",      "TL_UCP_TUNE",
                                        "LOG_LEVEL", "LOG_FILE", "CONFIG_FILE"};
    size_t used = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = setting_of(prefix, names[i]);
        if (value != NULL) {
            used += (size_t)snprintf(double_ucc_settings + used,
                                     sizeof double_ucc_settings - used, "%s=%s;",
                                     names[i], value);
        }
    }
}

int
ucc_lib_config_read(const char *prefix, const char *file, void **config)
{
    (void)file;
    pthread_mutex_lock(&lock);
    snprintf(double_ucc_prefix, sizeof double_ucc_prefix, "%s",
             prefix == NULL ? "" : prefix);
    note_settings(double_ucc_prefix);
    pthread_mutex_unlock(&lock);
    *config = malloc(1);
    return OK;
}

void
ucc_lib_config_release(void *config)
{
    free(config);
}

typedef struct lib_params {
    uint64_t mask;
    int thread_mode;
} lib_params;

int
ucc_init_version(unsigned major, unsigned minor, const lib_params *params, void *config,
                 void **library)
{
    if (is_failing("init")) {
        return NO_MEMORY;
    }
    if (major != 1 || minor > 9 || config == NULL || params->mask != 1) {
        return INVALID;
    }
    double_ucc_thread_mode = params->thread_mode;
    *library = malloc(1);
    return OK;
}

int
ucc_finalize(void *library)
{
    free(library);
    return OK;
}

int
ucc_context_config_read(void *library, const char *file, void **config)
{
    (void)file;
    *config = malloc(1);
    return library == NULL ? INVALID : OK;
}

void
ucc_context_config_release(void *config)
{
    free(config);
}

/* Blocks until all ranks have come, as UCC does. */
static int
meet(const oob *way)
{
    char sent[2] = {7, 7};
    char taken[2 * RANKS];
    size_t bytes = setting("DOUBLE_UCC_VERSION", 1) == 1 ? 1 : sizeof sent;
    void *handle;

    int status = way->allgather(sent, taken, bytes, way->user, &handle);
    if (status < 0) {
        return status;
    }
    while ((status = way->test(handle)) == IN_PROGRESS) {
    }
    way->release(handle);
    return status;
}

typedef struct context_params {
    uint64_t mask;
    int type, sync;
    oob oob;
    uint64_t rest[3];
} context_params;

int
ucc_context_create(void *library, const context_params *params, void *config,
                   void **made)
{
    if (library == NULL || config == NULL || params->mask != 4
        || params->oob.size > RANKS) {
        return INVALID;
    }
    int status = is_failing("context") ? NO_MEMORY : meet(&params->oob);
    if (status < 0) {
        return status;
    }
    context *self = calloc(1, sizeof *self);
    self->oob = params->oob;
    pthread_mutex_init(&self->lock, NULL);
    atomic_fetch_add(&double_ucc_contexts, 1);
    *made = self;
    return OK;
}

int
ucc_context_progress(context *self)
{
    atomic_fetch_add(&double_ucc_progressed, 1);
    if (double_ucc_is_cut) {
        return NO_MESSAGE;
    }
    pthread_mutex_lock(&self->lock);
    for (team *each = self->teams; each != NULL; each = each->next) {
        if (each->shared != NULL) {
            progress_team(each);
        }
    }
    pthread_mutex_unlock(&self->lock);
    return OK;
}

int
ucc_context_destroy(context *self)
{
    int status = meet(&self->oob);

    if (self->teams != NULL) {
        fprintf(stderr, "ucc double: a context ends before its teams\n");
        abort();
    }
    pthread_mutex_destroy(&self->lock);
    free(self);
    atomic_fetch_sub(&double_ucc_contexts, 1);
    return status;
}

typedef struct team_params {
    uint64_t mask, flags;
    int ordering;
    uint64_t outstanding, ep;
    void *list;
    int range;
    uint64_t size;
    int sync;
    oob oob;
    char rest[96];
} team_params;

_Static_assert(sizeof(team_params) == 208, "as in UCC");

int
ucc_team_create_post(context **contexts, uint32_t count, const team_params *params,
                     void **made)
{
    unsigned long long number;
    char name[64];

    if (count != 1 || params->mask != 180 || params->size != params->oob.size
        || params->ep != params->oob.rank || is_failing("team")
        || getrandom(&number, sizeof number, 0) < 0) {
        return is_failing("team") ? NO_MEMORY : INVALID;
    }
    team *self = calloc(1, sizeof *self);
    self->context = contexts[0];
    self->oob = params->oob;
    self->rank = (int)params->ep;
    self->size = (int)params->size;
    memset(name, 0, sizeof name);
    snprintf(name, sizeof name, "/dev/shm/ucc-double-%llx", number);
    int status = self->oob.allgather(name, self->names, sizeof name, self->oob.user,
                                     &self->exchange);
    if (status < 0) {
        free(self);
        return status;
    }
    *made = self;
    return OK;
}

static int
open_boxes(team *self)
{
    self->bytes = sizeof(shared) + (size_t)(self->size * self->size) * sizeof(box);
    shared *made = open_shared(self->names[0], self->bytes, self->size);
    if (made == NULL) {
        return NO_MEMORY;
    }
    pthread_mutex_lock(&self->context->lock);
    self->shared = made;
    self->next = self->context->teams;
    self->context->teams = self;
    pthread_mutex_unlock(&self->context->lock);
    atomic_fetch_add(&double_ucc_teams, 1);
    return IN_PROGRESS;
}

int
ucc_team_create_test(team *self)
{
    if (self->exchange != NULL) {
        int status = self->oob.test(self->exchange);
        if (status != OK) {
            return status;
        }
        self->oob.release(self->exchange);
        self->exchange = NULL;
        return open_boxes(self);
    }
    return atomic_load(&self->shared->arrived) == self->size ? OK : IN_PROGRESS;
}

int
ucc_team_destroy(team *self)
{
    if (!self->is_leaving) {
        self->is_leaving = true;
        return IN_PROGRESS;
    }
    pthread_mutex_lock(&self->context->lock);
    team **link = &self->context->teams;
    while (*link != self) {
        link = &(*link)->next;
    }
    *link = self->next;
    pthread_mutex_unlock(&self->context->lock);
    munmap(self->shared, self->bytes);
    free(self);
    atomic_fetch_sub(&double_ucc_teams, 1);
    return OK;
}

/* Copies the elements as they are now; in place, those of the target. */
static void
copy_source(request *self)
{
    args *given = &self->args;

    if (given->type == ALL_REDUCE && (given->mask & 1) && (given->flags & 1)) {
        given->from.one = given->to.one;
    }
    size_t bytes = bytes_of(&given->from.one);
    self->copy = malloc(bytes + 1);
    if (bytes > 0) {
        memcpy(self->copy, given->from.one.data, bytes);
    }
}

int
ucc_collective_init(const args *given, request **made, team *team)
{
    bool is_reduction = planner_of(given->type) == plan_reduction;

    if (is_failing("collective") && double_ucc_posted > 0) {
        return NOT_SUPPORTED;
    }
    if (planner_of(given->type) == NULL) {
        return NOT_SUPPORTED;
    }
    request *self = calloc(1, sizeof *self);
    self->args = *given;
    self->team = team;
    self->status = INITIALIZED;
    if (is_reduction) {
        copy_source(self);
    }
    *made = self;
    return OK;
}

int
ucc_collective_finalize(request *self)
{
    for (int rank = 0; rank < RANKS; rank++) {
        free(self->parts[rank]);
    }
    free(self->copy);
    free(self);
    return OK;
}

#ifndef ANCIENT
int
ucc_collective_post(request *self)
{
    team *team = self->team;

    if (is_failing("post") && double_ucc_posted > 0) {
        return NO_MEMORY;
    }
    atomic_fetch_add(&double_ucc_posted, 1);
    for (int rank = 0; rank < team->size; rank++) {
        planner_of(self->args.type)(self, rank);
    }
    pthread_mutex_lock(&team->context->lock);
    request **end = &team->queue;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = self;
    self->status = IN_PROGRESS;
    pthread_mutex_unlock(&team->context->lock);
    return OK;
}
#endif

#ifndef OLD
void
ucc_get_version(unsigned *major, unsigned *minor, unsigned *patch)
{
#ifdef NEXT
    *major = 2;
#else
    *major = 1;
#endif
    *minor = 3;
    *patch = 1;
}
#endif
