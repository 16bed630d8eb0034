/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for NCCL: ranks are processes of one host, which pass chunks through letter
 * boxes in shared memory, one for each pair of ranks and direction.  Every collective is
 * sends, receives and sums over them, carried out on the stream's thread of the CUDA
 * double, so calls return at once and what never ends can be aborted.  For tests alone;
 * found only where DISTLITE_NCCL_LIBRARY names it.
 *
 * DOUBLE_NCCL_VERSION: what it calls itself (22703).  DOUBLE_NCCL_LAUNCH_ERROR=n: from
 * the n-th on bundles fail.  DOUBLE_NCCL_ASYNC_ERROR=n: from the n-th on, the communicator does.
 * DOUBLE_NCCL_HANG=1: communicators do not come to an end.  Built with -DOLD it lacks
 * what came after 2.18, with -DANCIENT what came with it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7,
};

#define CHUNK 65536
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
config double_config; /* the last one given; guarded by lock, as the next */
char double_net[64];
atomic_int double_comms; /* alive */

typedef struct box {
    _Atomic uint32_t is_full;
    uint32_t size;
    char data[CHUNK];
} box;

typedef struct shared {
    atomic_int arrived;
    box boxes[]; /* [from * size + to] */
} shared;

typedef struct comm {
    char name[120];
    int rank, size;
    int children;
    bool is_blocking;
    atomic_bool is_aborted;
    atomic_int busy;
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
} call;

/* One array on its way between two ranks. */
typedef struct transfer {
    int from, to;
    char *data;
    size_t size, done;
    bool is_over;
    bool is_copy; /* freed with the plan */
} transfer;

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

static int
setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : atoi(text);
}

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

static double
from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double fraction = (bits & 1023) / 1024.0;
    double value = exponent == 0 ? fraction / 16384.0 : 1.0 + fraction;

    for (int i = 15; i < exponent; i++) {
        value *= 2;
    }
    for (int i = exponent; exponent > 0 && i < 15; i++) {
        value /= 2;
    }
    return bits >> 15 ? -value : value;
}

/* Exact values only: tests use small numbers. */
static uint16_t
to_half(double value)
{
    uint16_t sign = value < 0 ? 1 << 15 : 0;
    int exponent = 15;

    value = value < 0 ? -value : value;
    if (value == 0) {
        return sign;
    }
    for (; value >= 2; exponent++) {
        value /= 2;
    }
    for (; value < 1; exponent--) {
        value *= 2;
    }
    return (uint16_t)(sign | exponent << 10 | (int)((value - 1) * 1024 + 0.5));
}

static double
load_float(int dtype, const char *at)
{
    uint16_t half;
    uint32_t bits;
    float single;
    double value;

    switch (dtype) {
    case 6:
        memcpy(&half, at, 2);
        return from_half(half);
    case 9:
        memcpy(&half, at, 2);
        bits = (uint32_t)half << 16;
        memcpy(&single, &bits, 4);
        return (double)single;
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
    uint32_t bits;
    uint16_t half;

    switch (dtype) {
    case 6:
        half = to_half(value);
        memcpy(at, &half, 2);
        return;
    case 9:
        memcpy(&bits, &single, 4);
        half = (uint16_t)(bits >> 16);
        memcpy(at, &half, 2);
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

/* One chunk if the box allows; between two ranks in the order of the plan. */
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
    box *box = &comm->shared->boxes[moved->from * comm->size + moved->to];
    bool is_sending = moved->from == comm->rank;
    if ((atomic_load(&box->is_full) != 0) == is_sending) {
        return false;
    }
    size_t left = moved->size - moved->done;
    uint32_t size = (uint32_t)(left < CHUNK ? left : CHUNK);
    if (is_sending) {
        box->size = size;
        memcpy(box->data, moved->data + moved->done, size);
    } else {
        size = box->size;
        if (size > left) {
            fprintf(stderr, "nccl double: rank %d sent more than rank %d expects\n",
                    moved->from, moved->to);
            abort();
        }
        memcpy(moved->data + moved->done, box->data, size);
    }
    atomic_store(&box->is_full, is_sending);
    moved->done += size;
    moved->is_over = moved->done == moved->size;
    return true;
}

static void
run_plan(plan *self)
{
    int left = self->count;

    while (left > 0 && !atomic_load(&self->comm->is_aborted)) {
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

/* Copies of this rank's part for itself are no transfers. */
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

/* A send to oneself meets its receive within the bundle. */
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
run_calls(void *argument)
{
    call *calls = argument;
    plan *all = calloc(1, sizeof *all);
    char *parts[64][RANKS] = {{0}};
    int number = 0;

    all->comm = calls->comm;
    join_own(calls);
    for (call *each = calls; each != NULL; each = each->next, number++) {
        if (each->count > 0) {
            plan_call(all, each, parts[number % 64]);
        }
    }
    run_plan(all);
    bool is_whole = !atomic_load(&all->comm->is_aborted);
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
    while (calls != NULL) {
        call *next = calls->next;
        free(calls);
        calls = next;
    }
    atomic_fetch_sub(&comm->busy, 1);
}

static int
launch(void)
{
    call *calls = first;

    first = NULL;
    if (calls == NULL) {
        return SUCCESS;
    }
    int doomed = setting("DOUBLE_NCCL_LAUNCH_ERROR", 0);
    if (atomic_fetch_add(&launches, 1) + 1 >= doomed && doomed > 0) {
        return fail(CUDA_ERROR, "this bundle was to fail");
    }
    int (*run)(void *, void (*)(void *), void *);
    void *cudart = dlopen(getenv("DISTLITE_CUDART_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    *(void **)&run = cudart == NULL ? NULL : dlsym(cudart, "cudaLaunchHostFunc");
    if (run == NULL) {
        return fail(CUDA_ERROR, "no CUDA double");
    }
    atomic_fetch_add(&calls->comm->busy, 1);
    return run(calls->stream, run_calls, calls);
}

static int
add(call wanted)
{
    call *made = malloc(sizeof *made);
    comm *comm = wanted.comm;

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
        return SUCCESS;
    }
    int result = launch();
    return result == SUCCESS && !comm->is_blocking ? IN_PROGRESS : result;
}

int
ncclGetVersion(int *version)
{
    *version = setting("DOUBLE_NCCL_VERSION", 22703);
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

/* The last one to come takes the name away. */
static int
meet(comm *self)
{
    self->bytes = sizeof(shared) + (size_t)(self->size * self->size) * sizeof(box);
    int fd = open(self->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)self->bytes) < 0) {
        return fail(SYSTEM_ERROR, self->name);
    }
    self->shared = mmap(NULL, self->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (atomic_fetch_add(&self->shared->arrived, 1) + 1 == self->size) {
        unlink(self->name);
    }
    for (int i = 0; self->is_blocking && !has_met(self); i++) {
        if (i > SECONDS_TO_MEET * 20000) {
            unlink(self->name);
            return fail(REMOTE_ERROR, "a rank did not come");
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
open_comm(void **made, const char *name, int size, int rank, const config *given)
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
    int result = meet(self);
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
    return open_comm(made, name.bytes, size, rank, given);
}

int
ncclCommGetAsyncError(void *handle, int *error)
{
    comm *self = handle;
    int from = setting("DOUBLE_NCCL_ASYNC_ERROR", 0);

    *error = has_met(self) ? SUCCESS : IN_PROGRESS;
    if (from > 0 && atomic_load(&launches) >= from) {
        *error = fail(REMOTE_ERROR, "the cable was pulled");
    }
    return SUCCESS;
}

static int
end_comm(comm *self)
{
    while (atomic_load(&self->busy) > 0 || (setting("DOUBLE_NCCL_HANG", 0) != 0)) {
        pause_briefly();
    }
    munmap(self->shared, self->bytes);
    free(self);
    atomic_fetch_sub(&double_comms, 1);
    return SUCCESS;
}

int
ncclCommFinalize(void *handle)
{
    return ((comm *)handle)->is_blocking ? SUCCESS : IN_PROGRESS;
}

int
ncclCommDestroy(void *handle)
{
    return end_comm(handle);
}

int
ncclCommAbort(void *handle)
{
    comm *self = handle;

    atomic_store(&self->is_aborted, true);
    return end_comm(self);
}

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
    comm *comm = first->comm;
    int result = launch();
    return result == SUCCESS && !comm->is_blocking ? IN_PROGRESS : result;
}

int
ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op, void *comm,
              void *stream)
{
    return add((call){ALL_REDUCE, in, out, count, dtype, op, 0, 1, comm, stream, NULL});
}

int
ncclReduce(const void *in, void *out, size_t count, int dtype, int op, int root,
           void *comm, void *stream)
{
    return add((call){REDUCE, in, out, count, dtype, op, root, 1, comm, stream, NULL});
}

int
ncclBroadcast(const void *in, void *out, size_t count, int dtype, int root, void *comm,
              void *stream)
{
    return add(
        (call){BROADCAST, in, out, count, dtype, 0, root, 1, comm, stream, NULL});
}

int
ncclAllGather(const void *in, void *out, size_t count, int dtype, void *comm,
              void *stream)
{
    return add((call){GATHER_ALL, in, out, count, dtype, 0, 0, 1, comm, stream, NULL});
}

int
ncclReduceScatter(const void *in, void *out, size_t count, int dtype, int op,
                  void *comm, void *stream)
{
    return add(
        (call){SCATTER_SUM, in, out, count, dtype, op, 0, 1, comm, stream, NULL});
}

int
ncclSend(const void *in, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return add((call){SEND, in, NULL, count, dtype, 0, peer, 1, comm, stream, NULL});
}

int
ncclRecv(void *out, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return add((call){RECV, NULL, out, count, dtype, 0, peer, 1, comm, stream, NULL});
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

#ifndef ANCIENT
/* Everybody tells everybody where it goes. */
int
ncclCommSplit(void *handle, int color, int key, void **made, config *given)
{
    comm *self = handle;
    plan *all = calloc(1, sizeof *all);
    int wishes[RANKS][2];
    char name[160];
    int rank = 0, size = 0;

    while (atomic_load(&self->busy) > 0) {
        pause_briefly();
    }
    all->comm = self;
    wishes[self->rank][0] = color;
    wishes[self->rank][1] = key;
    for (int i = 0; i < self->size; i++) {
        if (i != self->rank) {
            plan_transfer(all, self->rank, i, (char *)wishes[self->rank], 8);
            plan_transfer(all, i, self->rank, (char *)wishes[i], 8);
        }
    }
    run_plan(all);
    free(all);
    for (int i = 0; i < self->size; i++) {
        bool is_before = wishes[i][1] < key || (wishes[i][1] == key && i < self->rank);
        size += wishes[i][0] == color;
        rank += wishes[i][0] == color && i != self->rank && is_before;
    }
    snprintf(name, sizeof name, "%s-s%d-%d", self->name, self->children++, color);
    if (color < 0) {
        *made = NULL;
        return SUCCESS;
    }
    return open_comm(made, name, size, rank, given);
}
#endif

#if !defined(OLD) && !defined(ANCIENT)
int
ncclCommShrink(void *handle, int *excluded, int count, void **made, config *given,
               int flags)
{
    comm *self = handle;
    char name[160];
    int rank = self->rank;

    if (flags == 1) {
        atomic_store(&self->is_aborted, true);
    }
    for (int i = 0; i < count; i++) {
        rank -= excluded[i] < self->rank;
    }
    snprintf(name, sizeof name, "%s-x%d", self->name, self->children++);
    return open_comm(made, name, self->size - count, rank, given);
}
#endif
