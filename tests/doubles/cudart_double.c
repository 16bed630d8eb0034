/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for the CUDA runtime: device memory is the host's, a stream is a thread with
 * a queue, events are marks in it.  The order of streams is what the real one promises,
 * and nothing more: whoever forgets an event reads too early.  For tests alone; found
 * only where DISTLITE_CUDART_LIBRARY names it.
 *
 * DOUBLE_CUDA_DEVICES: how many (2).  DOUBLE_CUDA_NO_DRIVER=1: as on a plain machine. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID = 1, NO_DRIVER = 35, BAD_DEVICE = 101, NOT_READY = 600 };

typedef struct task {
    struct task *next;
    void (*run)(void *);
    void *argument;
} task;

typedef struct stream {
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
    uint64_t reached;
    int references;
} event;

typedef struct mark {
    event *event;
    uint64_t number;
} mark;

static stream legacy = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local int current_device;
static _Thread_local int last;
static atomic_int streams_alive;
static atomic_int events_alive;

static int
setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : atoi(text);
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

int
cudaLaunchHostFunc(void *handle, void (*run)(void *), void *argument)
{
    stream *self = stream_of(handle);
    task *next = malloc(sizeof *next);
    pthread_t thread;

    *next = (task){NULL, run, argument};
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

/* What is queued still runs. */
int
cudaStreamDestroy(void *handle)
{
    stream *self = handle;

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

    pthread_mutex_lock(&self->lock);
    while (self->first != NULL || self->is_busy) {
        pthread_cond_wait(&self->changed, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    return SUCCESS;
}

int
cudaEventCreateWithFlags(void **handle, unsigned flags)
{
    event *self = calloc(1, sizeof *self);

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
        free(self);
        atomic_fetch_sub(&events_alive, 1);
    }
}

int
cudaEventDestroy(void *handle)
{
    drop(handle);
    return SUCCESS;
}

static mark *
mark_of(event *self, bool is_new)
{
    mark *made = malloc(sizeof *made);

    pthread_mutex_lock(&self->lock);
    self->recorded += is_new;
    self->references++;
    *made = (mark){self, self->recorded};
    pthread_mutex_unlock(&self->lock);
    return made;
}

static void
reach(void *argument)
{
    mark *self = argument;

    pthread_mutex_lock(&self->event->lock);
    if (self->event->reached < self->number) {
        self->event->reached = self->number;
    }
    pthread_cond_broadcast(&self->event->changed);
    pthread_mutex_unlock(&self->event->lock);
    drop(self->event);
    free(self);
}

static void
await(void *argument)
{
    mark *self = argument;

    pthread_mutex_lock(&self->event->lock);
    while (self->event->reached < self->number) {
        pthread_cond_wait(&self->event->changed, &self->event->lock);
    }
    pthread_mutex_unlock(&self->event->lock);
    drop(self->event);
    free(self);
}

int
cudaEventRecord(void *handle, void *on)
{
    return cudaLaunchHostFunc(on, reach, mark_of(handle, true));
}

int
cudaStreamWaitEvent(void *on, void *handle, unsigned flags)
{
    (void)flags;
    return cudaLaunchHostFunc(on, await, mark_of(handle, false));
}

int
cudaEventQuery(void *handle)
{
    event *self = handle;

    pthread_mutex_lock(&self->lock);
    bool is_ready = self->reached >= self->recorded;
    pthread_mutex_unlock(&self->lock);
    return is_ready ? SUCCESS : (last = NOT_READY);
}

/* For tests: a copy that waits until somebody sets its flag, and what is left over. */
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

int
double_streams_alive(void)
{
    return atomic_load(&streams_alive);
}

int
double_events_alive(void)
{
    return atomic_load(&events_alive);
}

/* The struct's first two fields; what is behind them stays zero. */
int
cudaPointerGetAttributes(int *attributes, const void *pointer)
{
    (void)pointer;
    attributes[0] = 2;
    attributes[1] = setting("DOUBLE_CUDA_DEVICE", 0);
    return SUCCESS;
}
