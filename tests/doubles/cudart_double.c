/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for the CUDA runtime: device memory is the host's, a stream is a thread
 * with a queue, and events are marks in it.  It keeps the order that the real one
 * promises and no other, so that code which forgets an event reads too early.  For
 * tests alone; found only where DISTLITE_CUDART_LIBRARY names it.
 *
 * A stream that is being captured keeps its tasks for a graph; streams that wait for
 * its events join the capture.  Calls that would invalidate a capture of the real
 * runtime are counted, and fail.
 *
 * DOUBLE_CUDA_DEVICES: the number of devices (2).  DOUBLE_CUDA_NO_DRIVER=1: behaves as
 * on a machine without a driver. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "settings.h"

enum {
    SUCCESS = 0,
    INVALID = 1,
    NO_DRIVER = 35,
    BAD_DEVICE = 101,
    NOT_READY = 600,
    NOT_IN_CAPTURE = 900,
    UNJOINED = 904,
    ISOLATION = 905,
    IMPLICIT = 906,
    CAPTURED_EVENT = 907,
};

/* While held, queries of events do not return, as when another thread allocates. */
atomic_bool double_queries_are_held;
atomic_int double_queries; /* begun */

typedef struct task {
    struct task *next;
    void (*run)(void *);
    void *argument;
} task;

/* The tasks of a capture, in an order that agrees with that of each stream. */
typedef struct graph {
    struct owner *owners;
    task *first;
    task **end;
    struct stream *streams[8]; /* the capture began with the first one */
    int stream_count;
} graph;

/* A function that is called when its graph is destroyed. */
typedef struct owner {
    struct owner *next;
    void (*release)(void *);
    void *argument;
} owner;

typedef struct stream {
    graph *capture; /* guarded by `capturing`, as the next two */
    int captured;   /* tasks */
    int joined;     /* of these, how many the graph's first stream waits for */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *first;
    task **end;
    bool is_started;
    bool is_busy;
    bool is_stopping;
    int priority;
} stream;

typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded;
    uint64_t *coming; /* records that their streams have not reached, in any order */
    size_t coming_count;
    int references;
    graph *capture; /* of the last record; guarded by `capturing` */
    stream *from;   /* the stream of the last record */
    int captured;
} event;

typedef struct mark {
    event *event;
    uint64_t number;
} mark;

/* Page-locked memory of the host. */
typedef struct pinned {
    struct pinned *next;
    size_t size;
    char *memory;
} pinned;

static stream legacy = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local int current_device;
static _Thread_local int last;
static pthread_mutex_t capturing = PTHREAD_MUTEX_INITIALIZER;
static int captures;        /* open ones; guarded by `capturing`, as the next */
static int spoilt_captures; /* calls that would invalidate one */
static _Thread_local int capture_mode;
static atomic_int streams_alive;
static atomic_int events_alive;
static atomic_int memory_alive;
static struct pinned *pinned_alive; /* guarded by `capturing`, as the next */
static size_t pinned_size;

/* A device's primary context is made by the first call of a thread that needs one.
 * They are counted by threads: a context that nobody asked for takes memory of the
 * device in each process, and the thread tells which call made it. */
#define DEVICES 8
static atomic_int context_threads[DEVICES];
static _Thread_local bool has_context[DEVICES];

static void
need_context(void)
{
    if (!has_context[current_device]) {
        has_context[current_device] = true;
        atomic_fetch_add(&context_threads[current_device], 1);
    }
}

static bool
has_driver(void)
{
    return setting("DOUBLE_CUDA_NO_DRIVER", 0) == 0;
}

static stream *
stream_of(void *handle)
{
    return (uintptr_t)handle <= 2 ? &legacy : handle;
}

static void *
work(void *argument)
{
    stream *self = argument;

    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (self->first == NULL && !self->is_stopping) {
            pthread_cond_wait(&self->changed, &self->lock);
        }
        if (self->first == NULL) {
            break;
        }
        task *next = self->first;
        self->first = next->next;
        self->is_busy = true;
        pthread_mutex_unlock(&self->lock);
        next->run(next->argument);
        free(next);
        pthread_mutex_lock(&self->lock);
        self->is_busy = false;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    if (self != &legacy) {
        pthread_mutex_destroy(&self->lock);
        pthread_cond_destroy(&self->changed);
        free(self);
    }
    return NULL;
}

/* Gives the task to the graph if the stream is being captured, and
 * returns whether it is. */
static bool
capture(stream *self, task *next)
{
    pthread_mutex_lock(&capturing);
    graph *graph = self->capture;
    if (graph != NULL) {
        *graph->end = next;
        graph->end = &next->next;
        self->captured++;
    }
    pthread_mutex_unlock(&capturing);
    return graph != NULL;
}

int
cudaLaunchHostFunc(void *handle, void (*run)(void *), void *argument)
{
    stream *self = stream_of(handle);
    task *next = malloc(sizeof *next);
    pthread_t thread;

    *next = (task){NULL, run, argument};
    if (capture(self, next)) {
        return SUCCESS;
    }
    pthread_mutex_lock(&self->lock);
    if (!self->is_started) {
        self->is_started = true;
        pthread_create(&thread, NULL, work, self);
        pthread_detach(thread);
    }
    if (self->first == NULL) {
        self->end = &self->first;
    }
    *self->end = next;
    self->end = &next->next;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return SUCCESS;
}

int
cudaDriverGetVersion(int *version)
{
    *version = has_driver() ? 13000 : 0;
    return SUCCESS;
}

int
cudaGetDeviceCount(int *count)
{
    if (!has_driver()) {
        return last = NO_DRIVER;
    }
    *count = setting("DOUBLE_CUDA_DEVICES", 2);
    return SUCCESS;
}

const char *
cudaGetErrorString(int error)
{
    return error == NO_DRIVER    ? "CUDA driver version is insufficient"
           : error == BAD_DEVICE ? "invalid device ordinal"
                                 : "some CUDA error";
}

int
cudaGetLastError(void)
{
    int error = last;

    last = SUCCESS;
    return error;
}

int
cudaGetDevice(int *device)
{
    *device = current_device;
    return SUCCESS;
}

int
cudaSetDevice(int device)
{
    if (device < 0 || device >= setting("DOUBLE_CUDA_DEVICES", 2)) {
        return last = BAD_DEVICE;
    }
    current_device = device;
    need_context();
    return SUCCESS;
}

/* Returns how many threads have a context on the device. */
int
double_contexts(int device)
{
    return atomic_load(&context_threads[device]);
}

/* Like the driver's function: the query makes no context. */
static int
primary_context_state(int device, unsigned *flags, int *is_active)
{
    *flags = 0;
    *is_active = atomic_load(&context_threads[device]) > 0;
    return SUCCESS;
}

int
cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                 unsigned long long flags, int *found)
{
    bool is_known = strcmp(name, "cuDevicePrimaryCtxGetState") == 0 && version >= 7000;

    (void)flags;
    *(int (**)(int, unsigned *, int *))function =
        is_known ? primary_context_state : NULL;
    *found = is_known ? 0 : 1;
    return SUCCESS;
}

/* Knows the two parts of the compute capability, and no other attribute. */
int
cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    int capability = setting("DOUBLE_CUDA_CAPABILITY", 90);

    (void)device;
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
    return SUCCESS;
}

int
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

int
cudaStreamCreateWithPriority(void **handle, unsigned flags, int priority)
{
    stream *self = calloc(1, sizeof *self);

    need_context();
    (void)flags;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->priority = priority;
    atomic_fetch_add(&streams_alive, 1);
    *handle = self;
    return SUCCESS;
}

int
cudaStreamGetPriority(void *handle, int *priority)
{
    *priority = stream_of(handle)->priority;
    return SUCCESS;
}

/* Tasks that are queued still run. */
int
cudaStreamDestroy(void *handle)
{
    stream *self = handle;

    need_context();
    atomic_fetch_sub(&streams_alive, 1);
    pthread_mutex_lock(&self->lock);
    bool is_started = self->is_started;
    self->is_stopping = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (!is_started) {
        free(self);
    }
    return SUCCESS;
}

int
cudaStreamSynchronize(void *handle)
{
    stream *self = stream_of(handle);

    need_context();
    pthread_mutex_lock(&self->lock);
    while (self->first != NULL || self->is_busy) {
        pthread_cond_wait(&self->changed, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    return SUCCESS;
}

int
cudaStreamQuery(void *handle)
{
    stream *self = stream_of(handle);

    need_context();
    pthread_mutex_lock(&self->lock);
    bool is_idle = self->first == NULL && !self->is_busy;
    pthread_mutex_unlock(&self->lock);
    return is_idle ? SUCCESS : (last = NOT_READY);
}

int
cudaEventCreateWithFlags(void **handle, unsigned flags)
{
    event *self = calloc(1, sizeof *self);

    need_context();
    (void)flags;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->references = 1;
    atomic_fetch_add(&events_alive, 1);
    *handle = self;
    return SUCCESS;
}

static void
drop(event *self)
{
    pthread_mutex_lock(&self->lock);
    int left = --self->references;
    pthread_mutex_unlock(&self->lock);
    if (left == 0) {
        pthread_mutex_destroy(&self->lock);
        pthread_cond_destroy(&self->changed);
        free(self->coming);
        free(self);
        atomic_fetch_sub(&events_alive, 1);
    }
}

int
cudaEventDestroy(void *handle)
{
    need_context();
    drop(handle);
    return SUCCESS;
}

/* Returns whether record `number` is still to be reached.  A wait is for one record,
 * even if the event is recorded again meanwhile. */
static bool
is_coming(const event *self, uint64_t number)
{
    for (size_t i = 0; i < self->coming_count; i++) {
        if (self->coming[i] == number) {
            return true;
        }
    }
    return false;
}

static mark *
mark_of(event *self, bool is_new)
{
    mark *made = malloc(sizeof *made);

    pthread_mutex_lock(&self->lock);
    if (is_new) {
        size_t size = (self->coming_count + 1) * sizeof *self->coming;
        self->coming = realloc(self->coming, size);
        self->coming[self->coming_count++] = ++self->recorded;
    }
    self->references++;
    *made = (mark){self, self->recorded};
    pthread_mutex_unlock(&self->lock);
    return made;
}

static void
reach(void *argument)
{
    mark *self = argument;

    event *event = self->event;

    pthread_mutex_lock(&event->lock);
    for (size_t i = 0; i < event->coming_count; i++) {
        if (event->coming[i] == self->number) {
            event->coming[i] = event->coming[--event->coming_count];
        }
    }
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    drop(event);
    free(self);
}

static void
await(void *argument)
{
    mark *self = argument;

    pthread_mutex_lock(&self->event->lock);
    while (is_coming(self->event, self->number)) {
        pthread_cond_wait(&self->event->changed, &self->event->lock);
    }
    pthread_mutex_unlock(&self->event->lock);
    drop(self->event);
    free(self);
}

/* In a capture an event is a place in the graph, which no stream ever reaches. */
static bool
record_captured(event *self, stream *on)
{
    pthread_mutex_lock(&capturing);
    self->capture = on->capture;
    self->from = on;
    self->captured = on->captured;
    bool is_captured = on->capture != NULL;
    pthread_mutex_unlock(&capturing);
    return is_captured;
}

int
cudaEventRecord(void *handle, void *on)
{
    need_context();
    if (record_captured(handle, stream_of(on))) {
        return SUCCESS;
    }
    return cudaLaunchHostFunc(on, reach, mark_of(handle, true));
}

/* Joins the stream to the capture of an event that it waits for.  Returns -1 if
 * neither is captured. */
static int
wait_captured(stream *self, const event *event)
{
    graph *graph = event->capture;

    if (graph == NULL) {
        return self->capture == NULL ? -1 : ISOLATION;
    }
    if (self->capture == NULL) {
        self->capture = graph;
        self->captured = self->joined = 0;
        graph->streams[graph->stream_count++] = self;
    }
    if (self == graph->streams[0]) {
        event->from->joined = event->captured;
    }
    return self->capture == graph ? SUCCESS : ISOLATION;
}

int
cudaStreamWaitEvent(void *on, void *handle, unsigned flags)
{
    need_context();
    (void)flags;
    pthread_mutex_lock(&capturing);
    int result = wait_captured(stream_of(on), handle);
    pthread_mutex_unlock(&capturing);
    if (result >= 0) {
        return last = result;
    }
    return cudaLaunchHostFunc(on, await, mark_of(handle, false));
}

int
cudaEventQuery(void *handle)
{
    event *self = handle;

    need_context();
    for (double_queries++; double_queries_are_held;) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    pthread_mutex_lock(&capturing);
    bool is_captured = self->capture != NULL;
    bool is_spoiling = is_captured || (captures > 0 && capture_mode == 0);
    spoilt_captures += is_spoiling;
    pthread_mutex_unlock(&capturing);
    if (is_spoiling) {
        return last = is_captured ? CAPTURED_EVENT : NOT_IN_CAPTURE;
    }
    pthread_mutex_lock(&self->lock);
    bool is_ready = !is_coming(self, self->recorded);
    pthread_mutex_unlock(&self->lock);
    return is_ready ? SUCCESS : (last = NOT_READY);
}

int
cudaThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;

    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}

int
cudaStreamIsCapturing(void *handle, int *state)
{
    stream *self = stream_of(handle);

    need_context();
    pthread_mutex_lock(&capturing);
    bool is_implicit = self == &legacy && captures > 0;
    *state = self->capture != NULL;
    pthread_mutex_unlock(&capturing);
    return is_implicit ? (last = IMPLICIT) : SUCCESS;
}

int
cudaStreamBeginCapture(void *handle, int mode)
{
    stream *self = stream_of(handle);
    graph *made = calloc(1, sizeof *made);

    (void)mode;
    made->end = &made->first;
    made->streams[made->stream_count++] = self;
    pthread_mutex_lock(&capturing);
    captures++;
    self->capture = made;
    self->captured = self->joined = 0;
    pthread_mutex_unlock(&capturing);
    return SUCCESS;
}

/* Fails unless the first stream waits for all tasks of the other streams. */
int
cudaStreamEndCapture(void *handle, void **made)
{
    stream *self = stream_of(handle);
    int result = SUCCESS;

    pthread_mutex_lock(&capturing);
    graph *graph = self->capture;
    for (int i = 0; i < graph->stream_count; i++) {
        stream *each = graph->streams[i];
        result = i > 0 && each->joined < each->captured ? UNJOINED : result;
        each->capture = NULL;
    }
    captures--;
    pthread_mutex_unlock(&capturing);
    *made = graph;
    return last = result;
}

int
cudaGraphInstantiate(void **made, void *handle, unsigned long long flags)
{
    (void)flags;
    *made = handle;
    return SUCCESS;
}

/* Returns 0 if the stream is being captured: its graph then calls `release` when
 * it is destroyed. */
int
double_graph_retain(void *handle, void (*release)(void *), void *argument)
{
    owner *made = malloc(sizeof *made);

    *made = (owner){NULL, release, argument};
    pthread_mutex_lock(&capturing);
    graph *graph = stream_of(handle)->capture;
    if (graph != NULL) {
        made->next = graph->owners;
        graph->owners = made;
    }
    pthread_mutex_unlock(&capturing);
    if (graph == NULL) {
        free(made);
    }
    return graph == NULL;
}

int
cudaGraphExecDestroy(void *handle)
{
    graph *self = handle;

    while (self->owners != NULL) {
        owner *next = self->owners;
        self->owners = next->next;
        next->release(next->argument);
        free(next);
    }
    while (self->first != NULL) {
        task *next = self->first;
        self->first = next->next;
        free(next);
    }
    free(self);
    return SUCCESS;
}

/* Does nothing: the graph is the same object as its executable. */
int
cudaGraphDestroy(void *handle)
{
    (void)handle;
    return SUCCESS;
}

/* A graph can be launched only once, unlike a real one. */
int
cudaGraphLaunch(void *handle, void *on)
{
    graph *self = handle;

    while (self->first != NULL) {
        task *next = self->first;
        self->first = next->next;
        cudaLaunchHostFunc(on, next->run, next->argument);
        free(next);
    }
    return SUCCESS;
}

int
cudaMalloc(void **made, size_t size)
{
    need_context();
    atomic_fetch_add(&memory_alive, 1);
    *made = malloc(size + 1);
    return *made == NULL ? 2 : SUCCESS;
}

int
cudaFree(void *memory)
{
    need_context();
    atomic_fetch_sub(&memory_alive, 1);
    free(memory);
    return SUCCESS;
}

/* DOUBLE_CUDA_PINNED_LIMIT: the largest piece there is, in bytes. */
int
cudaHostAlloc(void **made, size_t size, unsigned flags)
{
    pinned *self = malloc(sizeof *self);

    (void)flags;
    need_context();
    if (size > (size_t)setting("DOUBLE_CUDA_PINNED_LIMIT", 1 << 30)) {
        free(self);
        return last = 2;
    }
    *self = (pinned){.size = size, .memory = malloc(size)};
    pthread_mutex_lock(&capturing);
    self->next = pinned_alive;
    pinned_alive = self;
    pinned_size += size;
    pthread_mutex_unlock(&capturing);
    *made = self->memory;
    return SUCCESS;
}

int
cudaFreeHost(void *memory)
{
    need_context();
    pthread_mutex_lock(&capturing);
    pinned **at = &pinned_alive;
    while (*at != NULL && (*at)->memory != memory) {
        at = &(*at)->next;
    }
    pinned *found = *at;
    if (found != NULL) {
        *at = found->next;
        pinned_size -= found->size;
    }
    pthread_mutex_unlock(&capturing);
    if (found == NULL) {
        return last = INVALID;
    }
    free(found->memory);
    free(found);
    return SUCCESS;
}

/* For tests: the bytes of page-locked memory. */
size_t
double_pinned_size(void)
{
    pthread_mutex_lock(&capturing);
    size_t size = pinned_size;
    pthread_mutex_unlock(&capturing);
    return size;
}

static bool
is_pinned(const char *memory, size_t size)
{
    bool is_inside = false;

    pthread_mutex_lock(&capturing);
    for (pinned *at = pinned_alive; at != NULL; at = at->next) {
        is_inside = is_inside
                    || (memory >= at->memory && memory + size <= at->memory + at->size);
    }
    pthread_mutex_unlock(&capturing);
    return is_inside;
}

/* Runs in the order of the default stream, and has ended when it returns. */
int
cudaMemcpy(void *target, const void *source, size_t size, int kind)
{
    (void)kind;
    need_context();
    cudaStreamSynchronize(NULL);
    memcpy(target, source, size);
    return SUCCESS;
}

/* For tests: returns how many calls would have invalidated a capture. */
int
double_spoilt_captures(void)
{
    pthread_mutex_lock(&capturing);
    int count = spoilt_captures;
    pthread_mutex_unlock(&capturing);
    return count;
}

/* For tests: a copy that waits until a flag is set, and counts of live objects. */
typedef struct order {
    void *target;
    const void *source;
    size_t size;
    atomic_int *flag;
} order;

static void
carry_out(void *argument)
{
    order *self = argument;

    while (atomic_load(self->flag) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    memcpy(self->target, self->source, self->size);
    free(self);
}

int
double_copy_when(void *handle, void *target, const void *source, size_t size,
                 atomic_int *flag)
{
    order *made = malloc(sizeof *made);

    *made = (order){target, source, size, flag};
    return cudaLaunchHostFunc(handle, carry_out, made);
}

/* Runs in the order of the stream.  A copy to or from the host needs page-locked memory,
 * or it would not be asynchronous. */
int
cudaMemcpyAsync(void *target, const void *source, size_t size, int kind, void *on)
{
    static atomic_int at_once = 1;

    if ((kind == 1 && !is_pinned(source, size))
        || (kind == 2 && !is_pinned(target, size))) {
        return last = INVALID;
    }
    return double_copy_when(on, target, source, size, &at_once);
}

int
cudaMallocAsync(void **made, size_t size, void *on)
{
    (void)on;
    atomic_fetch_add(&memory_alive, 1);
    *made = malloc(size + 1);
    return *made == NULL ? 2 : SUCCESS;
}

static void
free_in_order(void *memory)
{
    atomic_fetch_sub(&memory_alive, 1);
    free(memory);
}

int
cudaFreeAsync(void *memory, void *on)
{
    return cudaLaunchHostFunc(on, free_in_order, memory);
}

int
double_streams_alive(void)
{
    return atomic_load(&streams_alive);
}

int
double_memory_alive(void)
{
    return atomic_load(&memory_alive);
}

int
double_events_alive(void)
{
    return atomic_load(&events_alive);
}

/* Sets the struct's first two fields; those behind them stay zero. */
int
cudaPointerGetAttributes(int *attributes, const void *pointer)
{
    (void)pointer;
    attributes[0] = 2;
    attributes[1] = setting("DOUBLE_CUDA_DEVICE", 0);
    return SUCCESS;
}
