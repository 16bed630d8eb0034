/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for NCCL: ranks are processes of one host, which pass chunks through
 * mailboxes in shared memory, one for each pair of ranks and direction.  Every
 * collective consists of sends, receives and reductions, carried out on the stream's
 * thread of the CUDA double.  For tests alone; found only where DISTLITE_NCCL_LIBRARY
 * names it.
 *
 * It checks that its callers keep NCCL's contract, and aborts the process with a line
 * on stderr when they violate it (DOUBLE_NCCL_CONTRACT=0: no check):
 * - All ranks of a communicator issue the same collectives: operation, count, dtype,
 *   reduction, root and place in the bundle are compared before anything moves.
 *   Messages have the same size on both sides.
 * - The first collective of a communicator, and the first message of a pair in each
 *   direction, connect: the launch blocks until the other ranks have launched theirs.
 * - One thread at a time is inside a communicator.  Only ncclCommRevoke may be called
 *   while another thread is inside.
 *   A call that a non-blocking communicator has not completed belongs to the thread
 *   that began it.
 * - A split or a shrink of a non-blocking communicator stores the new handle later, and
 *   returns ncclSuccess; the parent is in progress until then.
 * - A communicator grows while none of its operations is outstanding, once for each id,
 *   and new ranks follow the old ones.
 * - A communicator is destroyed after the graphs that hold its operations.
 *
 * DOUBLE_NCCL_VERSION: the version that it reports (22902).
 * DOUBLE_NCCL_LAUNCH_ERROR=n: bundles fail from the n-th on.
 * DOUBLE_NCCL_ASYNC_ERROR=n: communicators report an error from the n-th bundle on.
 * DOUBLE_NCCL_IN_PROGRESS=1: calls within a group return ncclInProgress.
 * DOUBLE_NCCL_FREE_WAITS=1: destroying a communicator waits for the operations of all
 *   others of the process, as freeing memory of a device does.
 * DOUBLE_NCCL_TROUBLE=1: the process is killed where it shrinks or grows a communicator;
 *   2: the call fails; 3: it does nothing as long as this is so.
 * DOUBLE_NCCL_HANG=1: destroying a communicator never ends.  Built with -DOLD it lacks
 * what came after 2.18, with -DANCIENT also what came with it. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "boxes.h"
#include "settings.h"

enum {
    SUCCESS = 0,
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7,
};

#define RANKS 16
#define DYNAMIC_OPS 5
#define SECONDS_TO_MEET 20

typedef struct id {
    char bytes[128];
} id;

typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char *net;
    int split_share, traffic_class;
    const char *name;
    int rest[4];
} config;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
config double_config; /* the last one passed in; guarded by lock, as the next */
char double_net[64];
atomic_int double_comms;                 /* alive */
atomic_int double_shrinks, double_grows; /* calls that succeeded */
atomic_int double_ids;                   /* of the last ncclCommInitRankScalable */
atomic_bool double_queries_are_held;     /* ncclCommGetAsyncError does not return */
atomic_int double_queries;               /* begun */
static atomic_int running;               /* bundles on streams, of all communicators */

/* The collective with this number that a rank is about to run. */
typedef struct signature {
    _Atomic uint64_t number;
    char text[96];
} signature;

/* A rank is at most one collective ahead of another that compares. */
#define SIGNATURES 4

typedef struct shared {
    atomic_int arrived;   /* first, for open_shared() */
    atomic_int connected; /* ranks that have reached their first collective */
    atomic_int granted;   /* the last child that an id was made for, from 1 */
    atomic_bool has_sent[RANKS][RANKS]; /* [from][to] */
    atomic_bool has_received[RANKS][RANKS];
    signature signatures[RANKS][SIGNATURES];
    box boxes[]; /* [from * size + to] */
} shared;

typedef struct gate {
    atomic_int owner; /* the thread inside; 0: none */
    atomic_bool is_aborted;
    atomic_bool is_revoked;
} gate;

typedef struct comm {
    char name[120];
    int rank, size;
    int children;
    bool is_blocking;
    bool is_connected;
    uint64_t compared; /* collectives; used by the stream's thread only */
    gate gate;
    atomic_int busy;
    atomic_int pending; /* the thread whose call has not completed; 0: none */
    atomic_int result;  /* of the last such call */
    atomic_int graphs;  /* graphs that hold its operations */
    double factors[16];
    int factor_count;
    shared *shared;
    size_t bytes;
} comm;

typedef enum kind {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    GATHER_ALL,
    SCATTER_SUM,
    SEND,
    RECV
} kind;

typedef struct call {
    kind kind;
    const void *in;
    void *out;
    size_t count;
    int dtype, op, peer;
    double factor;
    comm *comm;
    void *stream;
    struct call *next;
    bool is_busy; /* set in a bundle's first call, which comm.busy counts */
} call;

typedef struct plan {
    comm *comm;
    transfer transfers[1024];
    int count;
} plan;

static _Thread_local int depth;
static _Thread_local call *first;
static _Thread_local call **end;
static _Thread_local char detail[256];
static atomic_int launches;

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static void
pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static int
fail(int result, const char *text)
{
    snprintf(detail, sizeof detail, "%s", text);
    return result;
}

static bool
has_contract(void)
{
    return setting("DOUBLE_NCCL_CONTRACT", 1) != 0;
}

static void
break_contract(const char *text, const char *more)
{
    if (has_contract()) {
        fprintf(stderr, "nccl double: %s%s%s\n", text, more[0] == '\0' ? "" : ": ",
                more);
        abort();
    }
}

static int
this_thread(void)
{
    return (int)syscall(SYS_gettid);
}

/* enter() and leave() enclose each use of a communicator. */
static void
enter(comm *self)
{
    int nobody = 0;
    int owner = atomic_load(&self->pending);

    if (owner != 0 && owner != this_thread()) {
        break_contract("a communicator is used that another thread's call is still "
                       "busy with",
                       self->name);
    }
    if (!atomic_compare_exchange_strong(&self->gate.owner, &nobody, this_thread())) {
        break_contract("two threads are inside one communicator", self->name);
    }
}

static int
leave(comm *self, int result)
{
    atomic_store(&self->gate.owner, 0);
    return result;
}

static bool
is_stopped(const comm *self)
{
    return atomic_load(&self->gate.is_aborted);
}

static void *
cuda_symbol(const char *name)
{
    void *cudart = dlopen(getenv("DISTLITE_CUDART_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);

    return cudart == NULL ? NULL : dlsym(cudart, name);
}

static double
load_float(int dtype, const char *at)
{
    uint16_t bits;
    float single;
    double value;

    switch (dtype) {
    case 6:
    case 9:
        memcpy(&bits, at, 2);
        return dtype == 6 ? from_half(bits) : (double)from_bfloat16(bits);
    case 7:
        memcpy(&single, at, 4);
        return (double)single;
    default:
        memcpy(&value, at, 8);
        return value;
    }
}

static void
store_float(int dtype, char *at, double value)
{
    float single = (float)value;
    uint16_t bits;

    switch (dtype) {
    case 6:
    case 9:
        bits = dtype == 6 ? to_half(value) : to_bfloat16(single);
        memcpy(at, &bits, 2);
        return;
    case 7:
        memcpy(at, &single, 4);
        return;
    default:
        memcpy(at, &value, 8);
    }
}

#define COMBINE(left, right)                           \
    (op == 1   ? (left) * (right)                      \
     : op == 2 ? ((left) > (right) ? (left) : (right)) \
     : op == 3 ? ((left) < (right) ? (left) : (right)) \
               : (left) + (right))

#define COMBINE_AS(type)                                       \
    for (size_t i = 0; i < count; i++) {                       \
        type left, right;                                      \
        memcpy(&left, target + i * sizeof left, sizeof left);  \
        memcpy(&right, source + i * sizeof left, sizeof left); \
        left = (type)COMBINE(left, right);                     \
        memcpy(target + i * sizeof left, &left, sizeof left);  \
    }                                                          \
    return;

static void
combine(const call *self, char *target, const char *source)
{
    size_t count = self->count;
    int op = self->op;

    switch (self->dtype) {
    case 0:
        COMBINE_AS(int8_t)
    case 1:
        COMBINE_AS(uint8_t)
    case 2:
        COMBINE_AS(int32_t)
    case 3:
        COMBINE_AS(uint32_t)
    case 4:
        COMBINE_AS(int64_t)
    case 5:
        COMBINE_AS(uint64_t)
    case 10:
    case 11:
        return; /* no test checks sums of eight-bit floats */
    default:
        break;
    }
    size_t step = sizes[self->dtype];
    for (size_t i = 0; i < count; i++) {
        double left = load_float(self->dtype, target + i * step);
        double right = load_float(self->dtype, source + i * step);
        store_float(self->dtype, target + i * step, COMBINE(left, right));
    }
}

static void
scale(const call *self, char *data, double factor)
{
    size_t step = sizes[self->dtype];

    for (size_t i = 0; factor != 1.0 && i < self->count; i++) {
        double value = load_float(self->dtype, data + i * step);
        store_float(self->dtype, data + i * step, value * factor);
    }
}

static void
plan_transfer(plan *self, int from, int to, void *data, size_t size)
{
    if (self->count == 1024) {
        abort();
    }
    self->transfers[self->count++] =
        (transfer){.from = from, .to = to, .data = data, .size = size};
}

/* Moves one chunk if possible.  Between two ranks, transfers keep the order of the
 * plan. */
static bool
advance(plan *self, int number)
{
    transfer *moved = &self->transfers[number];
    comm *comm = self->comm;

    for (int i = 0; i < number; i++) {
        const transfer *before = &self->transfers[i];
        if (!before->is_over && before->from == moved->from
            && before->to == moved->to) {
            return false;
        }
    }
    return move_chunk(comm->shared->boxes, comm->rank, comm->size, moved, "nccl",
                      has_contract());
}

static void
run_plan(plan *self)
{
    int left = self->count;

    while (left > 0 && !is_stopped(self->comm)) {
        bool has_moved = false;
        left = 0;
        for (int i = 0; i < self->count; i++) {
            if (!self->transfers[i].is_over) {
                has_moved = advance(self, i) || has_moved;
                left += !self->transfers[i].is_over;
            }
        }
        if (!has_moved) {
            pause_briefly();
        }
    }
}

/* A rank copies its part for itself; that is not a transfer. */
static void
plan_reduction(plan *plan, const call *self, char **parts)
{
    comm *comm = self->comm;
    size_t bytes = self->count * sizes[self->dtype];

    for (int rank = 0; rank < comm->size; rank++) {
        bool i_get = self->kind != REDUCE || comm->rank == self->peer;
        bool they_get = self->kind != REDUCE || rank == self->peer;
        size_t offset = self->kind == SCATTER_SUM ? (size_t)rank * bytes : 0;
        if (rank == comm->rank) {
            parts[rank] = malloc(bytes + 1);
            memcpy(parts[rank], (const char *)self->in + offset, bytes);
            scale(self, parts[rank], self->factor);
            continue;
        }
        if (they_get) {
            char *copy = malloc(bytes + 1);
            memcpy(copy, (const char *)self->in + offset, bytes);
            scale(self, copy, self->factor);
            plan_transfer(plan, comm->rank, rank, copy, bytes);
            plan->transfers[plan->count - 1].is_copy = true;
        }
        if (i_get) {
            parts[rank] = malloc(bytes + 1);
            plan_transfer(plan, rank, comm->rank, parts[rank], bytes);
        }
    }
}

static void
finish_reduction(const call *self, char **parts)
{
    comm *comm = self->comm;
    size_t bytes = self->count * sizes[self->dtype];

    if (self->kind == REDUCE && comm->rank != self->peer) {
        return;
    }
    for (int rank = 1; rank < comm->size; rank++) {
        combine(self, parts[0], parts[rank]);
    }
    if (self->op == 4) {
        scale(self, parts[0], 1.0 / comm->size);
    }
    memcpy(self->out, parts[0], bytes);
}

static void
plan_call(plan *plan, const call *self, char **parts)
{
    comm *comm = self->comm;
    size_t bytes = self->count * sizes[self->dtype];
    char *in = (char *)(uintptr_t)self->in;

    switch (self->kind) {
    case ALL_REDUCE:
    case REDUCE:
    case SCATTER_SUM:
        plan_reduction(plan, self, parts);
        return;
    case SEND:
        plan_transfer(plan, comm->rank, self->peer, in, bytes);
        return;
    case RECV:
        plan_transfer(plan, self->peer, comm->rank, self->out, bytes);
        return;
    case BROADCAST:
        if (comm->rank == self->peer && self->out != self->in) {
            memmove(self->out, self->in, bytes);
        }
        break;
    case GATHER_ALL:
        memmove((char *)self->out + (size_t)comm->rank * bytes, in, bytes);
        break;
    }
    for (int rank = 0; rank < comm->size; rank++) {
        bool is_gather = self->kind == GATHER_ALL;
        char *target = (char *)self->out + (is_gather ? (size_t)rank * bytes : 0);
        if (rank != comm->rank && (is_gather || comm->rank == self->peer)) {
            plan_transfer(plan, comm->rank, rank, in, bytes);
        }
        if (rank != comm->rank && (is_gather || rank == self->peer)) {
            plan_transfer(plan, rank, comm->rank, target, bytes);
        }
    }
}

/* Matches each send of a rank to itself with its receive in the bundle. */
static void
join_own(call *calls)
{
    for (call *out = calls; out != NULL; out = out->next) {
        for (call *in = calls; out->kind == SEND && in != NULL; in = in->next) {
            if (in->kind == RECV && in->peer == out->peer
                && out->peer == out->comm->rank && in->count == out->count) {
                memmove(in->out, out->in, out->count * sizes[out->dtype]);
                in->count = out->count = 0;
            }
        }
    }
}

static void
free_calls(call *calls)
{
    while (calls != NULL) {
        call *next = calls->next;
        free(calls);
        calls = next;
    }
}

static void
describe(const call *self, int place, int count, char *text, size_t size)
{
    static const char *const names[] = {"AllReduce", "Reduce",        "Broadcast",
                                        "AllGather", "ReduceScatter", "Send",
                                        "Recv"};
    bool is_rooted = self->kind == REDUCE || self->kind == BROADCAST;

    snprintf(text, size, "%s of %zu (dtype %d, op %d, root %d), %d of %d in its bundle",
             names[self->kind], self->count, self->dtype, self->op,
             is_rooted ? self->peer : -1, place, count);
}

static void
compare(const call *self, int place, int count)
{
    comm *comm = self->comm;
    uint64_t number = ++comm->compared;
    signature *own = &comm->shared->signatures[comm->rank][number % SIGNATURES];
    char text[300];

    describe(self, place, count, own->text, sizeof own->text);
    atomic_store(&own->number, number);
    for (int rank = 0; rank < comm->size; rank++) {
        signature *other = &comm->shared->signatures[rank][number % SIGNATURES];
        while (atomic_load(&other->number) < number) {
            if (is_stopped(comm)) {
                return;
            }
            pause_briefly();
        }
        if (strcmp(own->text, other->text) != 0) {
            snprintf(text, sizeof text, "rank %d: %s; rank %d: %s", comm->rank,
                     own->text, rank, other->text);
            break_contract("ranks issue different calls", text);
        }
    }
}

static bool
is_collective(const call *self)
{
    return self->kind != SEND && self->kind != RECV;
}

static void
compare_all(const call *calls)
{
    int count = 0, place = 0;

    for (const call *each = calls; each != NULL; each = each->next) {
        count += is_collective(each);
    }
    for (const call *each = calls; each != NULL; each = each->next) {
        if (is_collective(each) && has_contract()) {
            compare(each, ++place, count);
        }
    }
}

/* Returns whether all peers that the bundle needs have come; the first call publishes
 * that this rank has. */
static bool
look_for_peers(const call *calls)
{
    comm *comm = calls->comm;
    shared *all = comm->shared;
    bool is_there = true;

    for (const call *each = calls; each != NULL; each = each->next) {
        if (is_collective(each)) {
            if (!comm->is_connected) {
                comm->is_connected = true;
                atomic_fetch_add(&all->connected, 1);
            }
            is_there = is_there && atomic_load(&all->connected) >= comm->size;
        } else if (each->kind == SEND) {
            atomic_store(&all->has_sent[comm->rank][each->peer], true);
            is_there =
                is_there && atomic_load(&all->has_received[comm->rank][each->peer]);
        } else {
            atomic_store(&all->has_received[each->peer][comm->rank], true);
            is_there = is_there && atomic_load(&all->has_sent[each->peer][comm->rank]);
        }
    }
    return is_there;
}

static int
connect_peers(const call *calls)
{
    gate *gate = &calls->comm->gate;

    while (has_contract() && !look_for_peers(calls)) {
        if (atomic_load(&gate->is_aborted) || atomic_load(&gate->is_revoked)) {
            return fail(REMOTE_ERROR, "connecting was given up");
        }
        pause_briefly();
    }
    return SUCCESS;
}

static void
run_calls(void *argument)
{
    call *calls = argument;
    plan *all = calloc(1, sizeof *all);
    char *parts[64][RANKS] = {{0}};
    int number = 0;

    all->comm = calls->comm;
    compare_all(calls);
    join_own(calls);
    for (call *each = calls; each != NULL; each = each->next, number++) {
        if (each->count > 0) {
            plan_call(all, each, parts[number % 64]);
        }
    }
    run_plan(all);
    bool is_whole = !is_stopped(all->comm);
    number = 0;
    for (call *each = calls; each != NULL; each = each->next, number++) {
        bool is_sum = each->kind <= REDUCE || each->kind == SCATTER_SUM;
        if (is_whole && is_sum && each->count > 0) {
            finish_reduction(each, parts[number % 64]);
        }
        for (int rank = 0; rank < RANKS; rank++) {
            free(parts[number % 64][rank]);
            parts[number % 64][rank] = NULL;
        }
    }
    comm *comm = all->comm;
    for (int i = 0; i < all->count; i++) {
        free(all->transfers[i].is_copy ? all->transfers[i].data : NULL);
    }
    free(all);
    bool is_busy = calls->is_busy;
    free_calls(calls);
    if (is_busy) {
        atomic_fetch_sub(&comm->busy, 1);
        atomic_fetch_sub(&running, 1);
    }
}

static void
release_graph(void *argument)
{
    atomic_fetch_sub(&((comm *)argument)->graphs, 1);
}

/* Gives the calls to their stream, or to the graph that it is being captured into. */
static int
hand_over(call *calls)
{
    comm *comm = calls->comm;
    int (*run)(void *, void (*)(void *), void *);
    int (*retain)(void *, void (*)(void *), void *);

    *(void **)&run = cuda_symbol("cudaLaunchHostFunc");
    *(void **)&retain = cuda_symbol("double_graph_retain");
    if (run == NULL || retain == NULL) {
        return fail(CUDA_ERROR, "no CUDA double");
    }
    if (retain(calls->stream, release_graph, comm) == 0) {
        atomic_fetch_add(&comm->graphs, 1);
    } else {
        calls->is_busy = true;
        atomic_fetch_add(&comm->busy, 1);
        atomic_fetch_add(&running, 1);
    }
    return run(calls->stream, run_calls, calls);
}

static int
connect_and_hand_over(call *calls)
{
    int result = connect_peers(calls);

    if (result != SUCCESS) {
        free_calls(calls);
        return result;
    }
    return hand_over(calls);
}

/* Work of a non-blocking communicator that goes on after the call has returned. */
typedef struct job {
    comm *comm;
    int (*run)(void *);
    void *argument;
} job;

static void *
run_job(void *argument)
{
    job self = *(job *)argument;

    free(argument);
    int result = self.run(self.argument);

    /* ThreadSanitizer sees the lock, and not atomics of a double. */
    pthread_mutex_lock(&lock);
    atomic_store(&self.comm->result, result);
    atomic_store(&self.comm->pending, 0);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int
begin_job(comm *self, int (*run)(void *), void *argument)
{
    job *made = malloc(sizeof *made);
    pthread_t thread;

    *made = (job){self, run, argument};
    atomic_store(&self->pending, this_thread());
    pthread_create(&thread, NULL, run_job, made);
    pthread_detach(thread);
    return IN_PROGRESS;
}

static int
run_launch(void *calls)
{
    return connect_and_hand_over(calls);
}

static int
launch(void)
{
    call *calls = first;

    first = NULL;
    if (calls == NULL) {
        return SUCCESS;
    }
    comm *comm = calls->comm;
    int failing = setting("DOUBLE_NCCL_LAUNCH_ERROR", 0);
    if (atomic_fetch_add(&launches, 1) + 1 >= failing && failing > 0) {
        free_calls(calls);
        return fail(CUDA_ERROR, "this bundle was to fail");
    }
    if (atomic_load(&comm->gate.is_revoked)) {
        free_calls(calls);
        return fail(INVALID_USAGE, "the communicator was revoked");
    }
    enter(comm);
    if (atomic_load(&comm->pending) != 0) {
        break_contract("a launch before the last one is done", comm->name);
    }
    if (!comm->is_blocking) {
        return leave(comm, begin_job(comm, run_launch, calls));
    }
    return leave(comm, connect_and_hand_over(calls));
}

static int
add(call wanted)
{
    comm *comm = wanted.comm;
    bool is_sum = wanted.kind <= REDUCE || wanted.kind == SCATTER_SUM;

    enter(comm);
    (void)leave(comm, 0);
    if (is_sum && wanted.dtype >= 10 && setting("DOUBLE_CUDA_CAPABILITY", 90) < 90) {
        return fail(INVALID_ARGUMENT, "FP8 reductions begin with sm90");
    }
    call *made = malloc(sizeof *made);
    *made = wanted;
    made->factor = 1.0;
    if (wanted.op >= DYNAMIC_OPS) {
        made->factor = comm->factors[wanted.op - DYNAMIC_OPS];
        made->op = 0;
    }
    if (first == NULL) {
        end = &first;
    }
    *end = made;
    end = &made->next;
    if (depth > 0) {
        return setting("DOUBLE_NCCL_IN_PROGRESS", 0) != 0 ? IN_PROGRESS : SUCCESS;
    }
    return launch();
}

int
ncclGetVersion(int *version)
{
    *version = setting("DOUBLE_NCCL_VERSION", 22902);
    return SUCCESS;
}

int
ncclGetUniqueId(id *made)
{
    unsigned long long number;

    if (getrandom(&number, sizeof number, 0) < 0) {
        return SYSTEM_ERROR;
    }
    snprintf(made->bytes, sizeof made->bytes, "/dev/shm/nccl-double-%llx", number);
    return SUCCESS;
}

const char *
ncclGetErrorString(int result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
    };

    return result >= 0 && result < 7 ? texts[result] : "unknown result code";
}

const char *
ncclGetLastError(void *comm)
{
    (void)comm;
    return detail;
}

static bool
has_met(const comm *self)
{
    return atomic_load(&self->shared->arrived) >= self->size;
}

/* A parent that is given up ends the wait in the making of a part of it. */
static int
meet(comm *self, const gate *parent)
{
    self->bytes = sizeof(shared) + (size_t)(self->size * self->size) * sizeof(box);
    self->shared = open_shared(self->name, self->bytes, self->size);
    if (self->shared == NULL) {
        return fail(SYSTEM_ERROR, self->name);
    }
    for (int i = 0; self->is_blocking && !has_met(self); i++) {
        bool is_over =
            parent != NULL
            && (atomic_load(&parent->is_aborted) || atomic_load(&parent->is_revoked));
        if (is_over || i > SECONDS_TO_MEET * 20000) {
            unlink(self->name);
            return fail(REMOTE_ERROR, "a rank did not join");
        }
        pause_briefly();
    }
    return SUCCESS;
}

static int
check_config(const config *given)
{
    if (given == NULL) {
        return SUCCESS;
    }
    if (given->magic != 0xcafebeef || given->size < 48 || given->version < 21800) {
        return fail(INVALID_ARGUMENT, "no config");
    }
    pthread_mutex_lock(&lock);
    double_config = *given;
    snprintf(double_net, sizeof double_net, "%s", given->net == NULL ? "" : given->net);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static int
open_comm(void **made, const char *name, int size, int rank, const config *given,
          const gate *parent)
{
    comm *self = calloc(1, sizeof *self);

    if (check_config(given) != SUCCESS || size > RANKS) {
        free(self);
        return INVALID_ARGUMENT;
    }
    snprintf(self->name, sizeof self->name, "%s", name);
    self->rank = rank;
    self->size = size;
    self->is_blocking = given == NULL || given->blocking != 0;
    int result = meet(self, parent);
    if (result != SUCCESS) {
        free(self);
        return result;
    }
    atomic_fetch_add(&double_comms, 1);
    *made = self;
    return self->is_blocking ? SUCCESS : IN_PROGRESS;
}

int
ncclCommInitRankConfig(void **made, int size, id name, int rank, config *given)
{
    return open_comm(made, name.bytes, size, rank, given, NULL);
}

#if !defined(OLD) && !defined(ANCIENT)
/* Ranks with different ids, or in another order, do not meet. */
int
ncclCommInitRankScalable(void **made, int size, int rank, int count, id *ids,
                         config *given)
{
    unsigned long long sum = 0;
    id name = {{0}};

    if (count < 1 || count > size) {
        return fail(INVALID_ARGUMENT, "the number of ids");
    }
    for (size_t i = 0; i < (size_t)count * sizeof *ids; i++) {
        sum = sum * 31 + (unsigned char)ids->bytes[i];
    }
    snprintf(name.bytes, sizeof name.bytes, "%.90s-%llx", ids->bytes, sum);
    atomic_store(&double_ids, count);
    return open_comm(made, name.bytes, size, rank, given, NULL);
}
#endif

int
ncclCommGetAsyncError(void *handle, int *error)
{
    comm *self = handle;
    int from = setting("DOUBLE_NCCL_ASYNC_ERROR", 0);

    enter(self);
    for (double_queries++; double_queries_are_held;) {
        pause_briefly();
    }
    pthread_mutex_lock(&lock);
    *error = atomic_load(&self->result);
    if (!has_met(self) || atomic_load(&self->pending) != 0) {
        *error = IN_PROGRESS;
    }
    pthread_mutex_unlock(&lock);
    if (from > 0 && atomic_load(&launches) >= from) {
        *error = fail(REMOTE_ERROR, "the cable was pulled");
    }
    return leave(self, SUCCESS);
}

static int
end_comm(comm *self)
{
    bool is_device_wide = setting("DOUBLE_NCCL_FREE_WAITS", 0) != 0;

    while (atomic_load(is_device_wide ? &running : &self->busy) > 0
           || atomic_load(&self->pending) != 0 || atomic_load(&self->graphs) > 0
           || setting("DOUBLE_NCCL_HANG", 0) != 0) {
        pause_briefly();
    }
    (void)leave(self, 0);
    if (!has_met(self)) {
        unlink(self->name);
    }
    munmap(self->shared, self->bytes);
    free(self);
    atomic_fetch_sub(&double_comms, 1);
    return SUCCESS;
}

int
ncclCommFinalize(void *handle)
{
    comm *self = handle;

    enter(self);
    return leave(self, self->is_blocking ? SUCCESS : IN_PROGRESS);
}

int
ncclCommDestroy(void *handle)
{
    comm *self = handle;

    enter(self);
    return end_comm(self);
}

/* A call of a non-blocking communicator may still be in progress: this waits for it. */
int
ncclCommAbort(void *handle)
{
    comm *self = handle;

    atomic_store(&self->gate.is_aborted, true);
    while (atomic_load(&self->pending) != 0) {
        pause_briefly();
    }
    enter(self);
    return end_comm(self);
}

#if !defined(OLD) && !defined(ANCIENT)
/* Makes calls in progress return; frees nothing. */
int
ncclCommRevoke(void *handle, int flags)
{
    comm *self = handle;

    if (flags != 0) {
        return fail(INVALID_ARGUMENT, "flags");
    }
    atomic_store(&self->gate.is_revoked, true);
    return SUCCESS;
}
#endif

int
ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

int
ncclGroupEnd(void)
{
    if (depth == 0) {
        return INVALID_USAGE;
    }
    if (--depth > 0 || first == NULL) {
        return SUCCESS;
    }
    return launch();
}

int
ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op, void *comm,
              void *stream)
{
    return add(
        (call){ALL_REDUCE, in, out, count, dtype, op, 0, 1, comm, stream, NULL, false});
}

int
ncclReduce(const void *in, void *out, size_t count, int dtype, int op, int root,
           void *comm, void *stream)
{
    return add(
        (call){REDUCE, in, out, count, dtype, op, root, 1, comm, stream, NULL, false});
}

int
ncclBroadcast(const void *in, void *out, size_t count, int dtype, int root, void *comm,
              void *stream)
{
    return add((call){BROADCAST, in, out, count, dtype, 0, root, 1, comm, stream, NULL,
                      false});
}

int
ncclAllGather(const void *in, void *out, size_t count, int dtype, void *comm,
              void *stream)
{
    return add(
        (call){GATHER_ALL, in, out, count, dtype, 0, 0, 1, comm, stream, NULL, false});
}

int
ncclReduceScatter(const void *in, void *out, size_t count, int dtype, int op,
                  void *comm, void *stream)
{
    return add((call){SCATTER_SUM, in, out, count, dtype, op, 0, 1, comm, stream, NULL,
                      false});
}

int
ncclSend(const void *in, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return add(
        (call){SEND, in, NULL, count, dtype, 0, peer, 1, comm, stream, NULL, false});
}

int
ncclRecv(void *out, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return add(
        (call){RECV, NULL, out, count, dtype, 0, peer, 1, comm, stream, NULL, false});
}

int
ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, void *handle)
{
    comm *self = handle;

    if (residence != 1) {
        return fail(INVALID_ARGUMENT, "the scalar is on the host");
    }
    int number = self->factor_count++ % 16;
    self->factors[number] = load_float(dtype, scalar);
    *op = DYNAMIC_OPS + number;
    return SUCCESS;
}

int
ncclRedOpDestroy(int op, void *comm)
{
    (void)comm;
    return op >= DYNAMIC_OPS ? SUCCESS : fail(INVALID_ARGUMENT, "not a made operation");
}

typedef struct parting {
    comm *parent;
    int color, key, rank, size;
    void **made;
    config given;
    bool has_config;
    char name[160];
} parting;

static int
open_part(parting *self)
{
    void *handle = NULL;
    int result =
        self->color < 0
            ? SUCCESS
            : open_comm(&handle, self->name, self->size, self->rank,
                        self->has_config ? &self->given : NULL, &self->parent->gate);

    *self->made = handle;
    free(self);
    return result == IN_PROGRESS ? SUCCESS : result;
}

static int
begin_parting(parting *self, int (*run)(void *))
{
    comm *parent = self->parent;

    enter(parent);
    *self->made = NULL;
    int result = parent->is_blocking ? run(self) : begin_job(parent, run, self);
    /* As NCCL, which tells the caller nothing of a job that has begun. */
    return leave(parent, result == IN_PROGRESS ? SUCCESS : result);
}

#ifndef ANCIENT
/* All ranks exchange the color and the key that they asked for. */
static int
run_split(void *argument)
{
    parting *self = argument;
    comm *parent = self->parent;
    plan *all = calloc(1, sizeof *all);
    int wishes[RANKS][2];

    while (atomic_load(&parent->busy) > 0 && !is_stopped(parent)) {
        pause_briefly();
    }
    all->comm = parent;
    wishes[parent->rank][0] = self->color;
    wishes[parent->rank][1] = self->key;
    for (int i = 0; i < parent->size; i++) {
        if (i != parent->rank) {
            plan_transfer(all, parent->rank, i, (char *)wishes[parent->rank], 8);
            plan_transfer(all, i, parent->rank, (char *)wishes[i], 8);
        }
    }
    run_plan(all);
    free(all);
    if (is_stopped(parent)) {
        free(self);
        return fail(REMOTE_ERROR, "a split was given up");
    }
    for (int i = 0; i < parent->size; i++) {
        bool is_before =
            wishes[i][1] < self->key || (wishes[i][1] == self->key && i < parent->rank);
        self->size += wishes[i][0] == self->color;
        self->rank += wishes[i][0] == self->color && i != parent->rank && is_before;
    }
    snprintf(self->name, sizeof self->name, "%.100s-s%d-%d", parent->name,
             parent->children++, self->color);
    return open_part(self);
}

int
ncclCommSplit(void *handle, int color, int key, void **made, config *given)
{
    parting *self = calloc(1, sizeof *self);

    *self = (parting){.parent = handle, .color = color, .key = key, .made = made};
    if (given != NULL) {
        self->has_config = true;
        self->given = *given;
    }
    return begin_parting(self, run_split);
}
#endif

#if !defined(OLD) && !defined(ANCIENT)
static int
meet_trouble(void)
{
    if (setting("DOUBLE_NCCL_TROUBLE", 0) == 1) {
        raise(SIGKILL);
    }
    while (setting("DOUBLE_NCCL_TROUBLE", 0) == 3) {
        pause_briefly();
    }
    return setting("DOUBLE_NCCL_TROUBLE", 0) == 2
               ? fail(SYSTEM_ERROR, "this call was to fail")
               : SUCCESS;
}

static int
run_shrink(void *argument)
{
    int result = open_part(argument);

    atomic_fetch_add(&double_shrinks, result == SUCCESS);
    return result;
}

int
ncclCommShrink(void *handle, int *excluded, int count, void **made, config *given,
               int flags)
{
    comm *parent = handle;

    for (int i = 0; i < count; i++) {
        if (excluded[i] < 0 || excluded[i] >= parent->size
            || excluded[i] == parent->rank) {
            return fail(INVALID_ARGUMENT, "ranks of others are excluded");
        }
    }
    if (count <= 0) {
        return fail(INVALID_ARGUMENT, "a rank is excluded");
    }
    if (meet_trouble() != SUCCESS) {
        return SYSTEM_ERROR;
    }
    parting *self = calloc(1, sizeof *self);
    *self = (parting){.parent = parent,
                      .rank = parent->rank,
                      .size = parent->size - count,
                      .made = made};
    if (given != NULL) {
        self->has_config = true;
        self->given = *given;
    }
    if (flags == 1) {
        atomic_store(&parent->gate.is_aborted, true);
        while (atomic_load(&parent->busy) > 0) {
            pause_briefly();
        }
        atomic_store(&parent->gate.is_aborted, false);
    }
    for (int i = 0; i < count; i++) {
        self->rank -= excluded[i] < parent->rank;
    }
    snprintf(self->name, sizeof self->name, "%.100s-x%d", parent->name,
             parent->children++);
    return begin_parting(self, run_shrink);
}

static void
check_idle(const comm *parent)
{
    if (atomic_load(&parent->busy) > 0) {
        break_contract("a communicator grows with operations outstanding",
                       parent->name);
    }
}

/* The last byte is the number of ranks that the new ones follow. */
static id
next_growth(const comm *parent)
{
    id made = {{0}};

    snprintf(made.bytes, sizeof made.bytes - 1, "%.100s-g%d", parent->name,
             parent->children);
    made.bytes[sizeof made.bytes - 1] = (char)parent->size;
    return made;
}

int
ncclCommGetUniqueId(void *handle, id *made)
{
    comm *self = handle;
    int next = self->children + 1;

    enter(self);
    check_idle(self);
    if (atomic_exchange(&self->shared->granted, next) == next) {
        break_contract("an id for growing is made before the last one was used",
                       self->name);
    }
    *made = next_growth(self);
    return leave(self, SUCCESS);
}

static int
finish_growth(int result)
{
    atomic_fetch_add(&double_grows, result == SUCCESS || result == IN_PROGRESS);
    /* As NCCL, which tells nothing of a job that has begun. */
    return result == IN_PROGRESS ? SUCCESS : result;
}

static int
grow_parent(comm *parent, int size, const id *given_id, void **made,
            const config *given)
{
    id own = next_growth(parent);
    int number = ++parent->children;

    check_idle(parent);
    if (given_id == NULL ? parent->size == 1
                         : memcmp(given_id, &own, sizeof own) != 0) {
        return fail(INVALID_ARGUMENT, "the first rank passes the id");
    }
    while (atomic_load(&parent->shared->granted) < number) {
        if (is_stopped(parent) || atomic_load(&parent->gate.is_revoked)) {
            return fail(REMOTE_ERROR, "growing was given up");
        }
        pause_briefly();
    }
    return finish_growth(open_comm(made, own.bytes, size, parent->rank, given, NULL));
}

int
ncclCommGrow(void *handle, int size, const id *given_id, int rank, void **made,
             config *given)
{
    comm *parent = handle;

    *made = NULL;
    if (meet_trouble() != SUCCESS) {
        return SYSTEM_ERROR;
    }
    if (parent != NULL) {
        if (rank != -1 || size <= parent->size) {
            return fail(INVALID_ARGUMENT, "old ranks pass -1 and more ranks");
        }
        enter(parent);
        return leave(parent, grow_parent(parent, size, given_id, made, given));
    }
    if (given_id == NULL || rank < 0 || rank >= size) {
        return fail(INVALID_ARGUMENT, "new ranks pass the id and their number");
    }
    if (rank < given_id->bytes[sizeof given_id->bytes - 1]) {
        break_contract("a new rank has the number of an old one", given_id->bytes);
    }
    return finish_growth(open_comm(made, given_id->bytes, size, rank, given, NULL));
}
#endif
