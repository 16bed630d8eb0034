/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/p2p_runner.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/thread.h"
#include "pg/cpu/p2p/p2p_wait.h"
#include "pg/blocked_threads.h"

/* Time after the last unawaited post before the runner drives the engine: usually the
 * caller soon waits for the operation, and drives the engine itself. */
#define PATIENCE (50 * INT64_C(1000))

/* The runner keeps looking for operations this long after the last one, at this
 * interval.  Sleeping at once would add a wake-up to the first operation of each
 * burst. */
#define LINGER (5 * DL_MILLISECOND)
#define LOOK_EVERY (100 * INT64_C(1000))

typedef struct dl_p2p_runner {
    dl_p2p *engine;
    pthread_t thread;
    pthread_cond_t wanted;
    int64_t last_wanted; /* guarded by the engine's lock, as are all below */
    bool is_asleep;
    bool is_stopping;
} runner;

static void
nap(dl_p2p *engine, int64_t span)
{
    struct timespec time = {.tv_nsec = span};

    pthread_mutex_unlock(&engine->lock);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    pthread_mutex_lock(&engine->lock);
}

static void
sleep_until_wanted(runner *self)
{
    self->is_asleep = true;
    while (self->is_asleep && !self->is_stopping) {
        pthread_cond_wait(&self->wanted, &self->engine->lock);
    }
    self->is_asleep = false;
}

/* Called with the lock held, which is released while it sleeps. */
static void
drive(dl_p2p *engine)
{
    dl_doorbell *bell = &engine->bells[engine->place];

    atomic_fetch_add(&bell->sleepers, 1);
    uint32_t seen = atomic_load(&bell->rings);
    dl_p2p_end_failed(engine);
    bool is_over = !dl_p2p_has_work(engine);
    dl_p2p_unlock_and_finish(engine);
    if (!is_over) {
        dl_p2p_sleep(engine, seen, DL_WAIT_SLICE);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    pthread_mutex_lock(&engine->lock);
}

static void
look(runner *self)
{
    dl_p2p *engine = self->engine;
    int64_t idle = dl_now() - self->last_wanted;

    bool has_work = dl_p2p_has_work(engine);
    bool is_needed = has_work && engine->drivers == 0;

    if (!is_needed && idle < LINGER) {
        nap(engine, LOOK_EVERY);
    } else if (!has_work) {
        sleep_until_wanted(self);
    } else if (!is_needed) {
        /* The waiting threads do the work; a second driver would only cost their peers
         * extra wake-ups. */
        (void)dl_condition_wait(&engine->left, &engine->lock, dl_deadline_after(-1));
    } else if (idle < PATIENCE) {
        nap(engine, PATIENCE - idle);
    } else {
        drive(engine);
    }
}

static void *
run(void *argument)
{
    runner *self = argument;

    dl_blocked_mark_internal();
    /* The default timer slack of 50 microseconds is as long as PATIENCE. */
    prctl(PR_SET_TIMERSLACK, 1000UL);
    pthread_mutex_lock(&self->engine->lock);
    while (!self->is_stopping) {
        look(self);
    }
    pthread_mutex_unlock(&self->engine->lock);
    return NULL;
}

static dl_status
start(dl_p2p *engine)
{
    runner *self = calloc(1, sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->engine = engine;
    self->last_wanted = dl_now();
    dl_condition_init(&self->wanted);
    dl_status status = dl_thread_start(&self->thread, run, self);
    if (status != DL_OK) {
        pthread_cond_destroy(&self->wanted);
        free(self);
        return status;
    }
    engine->runner = self;
    return DL_OK;
}

dl_status
dl_p2p_runner_want(dl_p2p *engine)
{
    if (engine->runner == NULL) {
        return start(engine);
    }
    engine->runner->last_wanted = dl_now();
    dl_p2p_runner_nudge(engine);
    return DL_OK;
}

void
dl_p2p_runner_take_over(dl_p2p *engine)
{
    runner *self = engine->runner;

    if (engine->pending > 0 || engine->drivers > 0 || !dl_p2p_has_work(engine)) {
        return; /* the poster has woken the runner, or drives the engine itself */
    }
    if ((self == NULL || self->is_asleep) && dl_p2p_runner_want(engine) != DL_OK) {
        dl_p2p_break(engine);
    }
}

void
dl_p2p_runner_nudge(dl_p2p *engine)
{
    runner *self = engine->runner;

    if (self != NULL && self->is_asleep) {
        self->is_asleep = false;
        pthread_cond_signal(&self->wanted);
    }
}

void
dl_p2p_runner_stop(dl_p2p *engine)
{
    pthread_mutex_lock(&engine->lock);
    runner *self = engine->runner;
    engine->runner = NULL;
    if (self != NULL) {
        self->is_stopping = true;
        pthread_cond_signal(&self->wanted);
        pthread_cond_broadcast(&engine->left);
        dl_p2p_ring(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    if (self != NULL) {
        pthread_join(self->thread, NULL);
        pthread_cond_destroy(&self->wanted);
        free(self);
    }
}
