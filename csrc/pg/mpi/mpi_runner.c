/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_runner.h"

#include <pthread.h>
#include <time.h>

#include "base/thread.h"
#include "pg/mpi/mpi_world.h"

/* Between two looks at all tasks: short at first, as long as a thread may still come
 * to wait, then doubled. */
#define FIRST_NAP (50 * INT64_C(1000))
#define LONGEST_NAP DL_MILLISECOND
/* Between two calls of MPI if there are no tasks. */
#define IDLE_NAP (10 * DL_MILLISECOND)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    dl_list tasks; /* guarded by lock, as all below */
    pthread_t thread;
    bool is_running;
    bool is_stopping;
} state = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .tasks = {&state.tasks, &state.tasks},
};

/* Looks at all tasks once.  Returns whether some of them are done. */
static bool
look_at_all(dl_list *tasks)
{
    dl_list left;
    bool has_done = false;

    dl_list_init(&left);
    while (!dl_list_is_empty(tasks)) {
        dl_mpi_task *task = DL_LIST_ENTRY(tasks->next, dl_mpi_task, node);
        dl_list_remove(&task->node);
        if (task->look(task)) {
            has_done = true; /* and may be gone */
        } else {
            dl_list_append(&left, &task->node);
        }
    }
    dl_list_move(&left, tasks);
    return has_done;
}

static void
nap(int64_t span)
{
    struct timespec time = {.tv_nsec = span};

    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static void *
run(void *argument)
{
    int64_t span = FIRST_NAP;
    dl_list mine;

    (void)argument;
    dl_list_init(&mine);
    pthread_mutex_lock(&state.lock);
    while (!state.is_stopping) {
        dl_list_move(&state.tasks, &mine);
        if (dl_list_is_empty(&mine)) {
            span = FIRST_NAP;
            if (dl_condition_wait(&state.wanted, &state.lock,
                                  dl_deadline_after(IDLE_NAP))
                != DL_OK) {
                pthread_mutex_unlock(&state.lock);
                dl_mpi_world_progress();
                pthread_mutex_lock(&state.lock);
            }
            continue;
        }
        pthread_mutex_unlock(&state.lock);
        nap(span);
        span = look_at_all(&mine) ? FIRST_NAP : span * 2;
        span = span < LONGEST_NAP ? span : LONGEST_NAP;
        pthread_mutex_lock(&state.lock);
    }
    dl_list_move(&mine, &state.tasks);
    pthread_mutex_unlock(&state.lock);
    return NULL;
}

/* Called before MPI ends: the thread stops, and the tasks that are left are ended. */
static void
stop(void)
{
    pthread_mutex_lock(&state.lock);
    bool is_running = state.is_running;
    state.is_stopping = true;
    pthread_cond_signal(&state.wanted);
    pthread_mutex_unlock(&state.lock);
    if (is_running) {
        pthread_join(state.thread, NULL);
    }
    /* Nothing is added any more. */
    while (!dl_list_is_empty(&state.tasks)) {
        dl_mpi_task *task = DL_LIST_ENTRY(state.tasks.next, dl_mpi_task, node);
        dl_list_remove(&task->node);
        task->end(task);
    }
}

static dl_status
start_locked(void)
{
    if (state.is_stopping) {
        return dl_fail(DL_CLOSED, "MPI is being ended in this process");
    }
    if (state.is_running) {
        return DL_OK;
    }
    dl_condition_init(&state.wanted);
    DL_TRY(dl_thread_start(&state.thread, run, NULL));
    state.is_running = true;
    dl_mpi_world_at_end(stop);
    return DL_OK;
}

dl_status
dl_mpi_runner_start(void)
{
    pthread_mutex_lock(&state.lock);
    dl_status status = start_locked();
    pthread_mutex_unlock(&state.lock);
    return status;
}

dl_status
dl_mpi_runner_add(dl_mpi_task *task)
{
    pthread_mutex_lock(&state.lock);
    dl_status status = start_locked();
    if (status == DL_OK) {
        dl_list_append(&state.tasks, &task->node);
        pthread_cond_signal(&state.wanted);
    }
    pthread_mutex_unlock(&state.lock);
    return status;
}
