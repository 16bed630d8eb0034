/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_world.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "pg/cpu/cpu_backend.h"

/* Between two calls of MPI. */
#define NAP (10 * DL_MILLISECOND)

/* How long the end waits for all ranks once an operation has failed here: those that were
 * told may end without MPI_Finalize, also on hosts whose processes are not watched. */
#define LONGEST_END (5 * DL_SECOND)

static struct {
    pthread_mutex_t lock;
    atomic_bool is_open; /* set with the lock held; what follows is fixed then */
    dl_mpi_world world;
    uint32_t fork_generation;
    /* any thread */
    atomic_bool skips_finalize;
    atomic_bool has_failed; /* an operation */
    atomic_bool is_ending;  /* some part of the program has called MPI_Finalize */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    pthread_t thread; /* guarded by lock, as all below */
    bool is_running;
    bool is_stopping;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Signals for which MPI_Init, or a network's library in it, installs handlers. */
static const struct taken_signal {
    int number;
    bool is_ending;
} taken_signals[] = {
    /* These handlers print C frames, and stay unless the program had one of its own. */
    {SIGSEGV, false},
    {SIGBUS, false},
    {SIGFPE, false},
    {SIGILL, false},
    {SIGABRT, false},
    /* These handlers call exit(), which then waits in MPI for the other ranks:
     * they never stay. */
    {SIGINT, true},
    {SIGTERM, true},
};
#define TAKEN_SIGNALS (sizeof taken_signals / sizeof *taken_signals)

/* The environment variables in which launchers publish the size of a world. */
static const struct launcher {
    const char *variable;
    const char *title;
    bool is_part; /* the size may be of a part of MPI's world, unless that is 1 */
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun", false},
    {"PMI_SIZE", "an mpirun of MPICH or Intel MPI", false},
    /* In a heterogeneous job, the number of one component's tasks. */
    {"SLURM_STEP_NUM_TASKS", "srun", true},
};

bool
dl_mpi_world_is_open(void)
{
    /* MPI_Finalized reports the same, but costs too much in each operation. */
    return atomic_load_explicit(&state.is_open, memory_order_acquire)
           && !atomic_load_explicit(&state.is_ending, memory_order_acquire)
           && state.fork_generation == dl_fork_generation();
}

dl_status
dl_mpi_world_admit(void)
{
    if (dl_mpi_world_is_open()) {
        return DL_OK;
    }
    return state.fork_generation != dl_fork_generation()
               ? dl_fail(DL_CLOSED,
                         "MPI was started before a fork; a forked child is not a rank")
               : dl_fail(DL_CLOSED,
                         "MPI has been finalized in this process (MPI_Finalize)");
}

/* Calls MPI, so that it makes progress with what is in flight. */
static void
progress_world(void)
{
    const dl_mpi_table *mpi = state.world.mpi;
    int is_there;

    if (dl_mpi_world_is_open()) {
        mpi->iprobe(mpi->abi.any_source, 0, mpi->world, &is_there,
                    mpi->abi.status_ignore);
    }
}

static void *
run_progress(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&progress.lock);
    while (!progress.is_stopping) {
        dl_condition_wait_until(&progress.wanted, &progress.lock, dl_now() + NAP);
        pthread_mutex_unlock(&progress.lock);
        progress_world();
        pthread_mutex_lock(&progress.lock);
    }
    pthread_mutex_unlock(&progress.lock);
    return NULL;
}

/* Stops the thread, because nothing may call MPI once it ends. */
static void
stop_runner(void)
{
    pthread_mutex_lock(&progress.lock);
    bool is_running = progress.is_running;
    progress.is_stopping = true;
    progress.is_running = false;
    if (is_running) {
        pthread_cond_signal(&progress.wanted);
    }
    pthread_mutex_unlock(&progress.lock);
    if (is_running) {
        pthread_join(progress.thread, NULL);
    }
}

static dl_status
start_runner_locked(void)
{
    if (progress.is_stopping) {
        return dl_fail(DL_CLOSED, "MPI is being finalized in this process");
    }
    if (progress.is_running) {
        return DL_OK;
    }
    dl_condition_init(&progress.wanted);
    DL_TRY(dl_thread_start(&progress.thread, run_progress, NULL));
    progress.is_running = true;
    return DL_OK;
}

dl_status
dl_mpi_progress_start(void)
{
    pthread_mutex_lock(&progress.lock);
    dl_status status = start_runner_locked();
    pthread_mutex_unlock(&progress.lock);
    return status;
}

/* Called as MPI_Finalize begins; mpi4py may call that, too.  MPI may be called until
 * this returns. */
static int
close_world(dl_mpi_handle comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    if (dl_mpi_world_is_open()) {
        stop_runner();
    }
    atomic_store(&state.is_ending, true);
    return 0;
}

static int
copy_no_attribute(dl_mpi_handle comm, int key, void *extra, void *value, void *copy,
                  int *is_copied)
{
    (void)comm, (void)key, (void)extra, (void)value, (void)copy;
    *is_copied = 0;
    return 0;
}

/* MPI_Finalize waits for all ranks, also for those that have ended without it.  Returns
 * true once all ranks have come, and false if one has ended instead, or may have. */
static bool
have_all_come(const dl_mpi_table *mpi)
{
    dl_deadline limit =
        dl_deadline_after(atomic_load(&state.has_failed) ? LONGEST_END : -1);
    dl_mpi_handle request = 0;
    int is_done = 0;
    int result = mpi->ibarrier(mpi->world, &request);

    while (result == 0 && !is_done && !dl_cpu_any_has_ended()
           && !dl_deadline_passed(limit)) {
        result = dl_mpi_test(mpi, &request, &is_done);
        (void)dl_sleep_until(dl_deadline_after(is_done ? 0 : DL_MILLISECOND));
    }
    return result == 0 && is_done;
}

/* Called at exit, if MPI was started here.  A forked child that exits does nothing. */
static void
end_mpi(void)
{
    if (!dl_mpi_world_is_open()) {
        return;
    }
    stop_runner();
    if (!atomic_load(&state.skips_finalize) && have_all_come(state.world.mpi)) {
        state.world.mpi->finalize();
    }
}

void
dl_mpi_world_skip_finalize(void)
{
    atomic_store(&state.skips_finalize, true);
}

void
dl_mpi_world_note_failure(void)
{
    atomic_store(&state.has_failed, true);
}

/* Starts MPI.  Handlers of the program that report crashes, such as those of
 * faulthandler, stay in place. */
static int
init_thread(const dl_mpi_table *mpi, int *provided)
{
    struct sigaction before[TAKEN_SIGNALS];

    for (size_t i = 0; i < TAKEN_SIGNALS; i++) {
        sigaction(taken_signals[i].number, NULL, &before[i]);
    }
    int result = mpi->init_thread(NULL, NULL, mpi->abi.thread_multiple, provided);
    for (size_t i = 0; i < TAKEN_SIGNALS; i++) {
        if (taken_signals[i].is_ending || before[i].sa_handler != SIG_DFL) {
            sigaction(taken_signals[i].number, &before[i], NULL);
        }
    }
    return result;
}

/* The first part of the program that needs MPI starts it, and only that part ends it:
 * mpi4py does the same. */
static dl_status
start_mpi(const dl_mpi_table *mpi)
{
    int is_started = 0, is_over = 0, provided = 0;

    DL_TRY(dl_mpi_check(mpi, mpi->finalized(&is_over), "MPI_Finalized"));
    if (is_over) {
        return dl_fail(DL_CLOSED, "MPI has been finalized in this process "
                                  "(MPI_Finalize), and cannot be started again");
    }
    DL_TRY(dl_mpi_check(mpi, mpi->initialized(&is_started), "MPI_Initialized"));
    if (is_started) {
        DL_TRY(dl_mpi_check(mpi, mpi->query_thread(&provided), "MPI_Query_thread"));
    } else {
        DL_TRY(dl_mpi_check(mpi, init_thread(mpi, &provided), "MPI_Init_thread"));
        mpi->comm_set_errhandler(mpi->world, mpi->errors_return);
        atexit(end_mpi);
    }
    if (provided < mpi->abi.thread_multiple) {
        return dl_fail(
            DL_UNSUPPORTED,
            "MPI was started %s a thread level below MPI_THREAD_MULTIPLE (%d of %d): "
            "operations of several groups, and asynchronous ones, are called from "
            "several threads; %s",
            is_started ? "by another part of the program with" : "but grants", provided,
            mpi->abi.thread_multiple,
            is_started ? "start it with MPI_THREAD_MULTIPLE (mpi4py's default), or let "
                         "init_process_group start it"
                       : "use a library that was built with support for it");
    }
    return DL_OK;
}

/* Ranks that a launcher of another MPI has started would each be a world of one to this
 * library, without an error. */
static dl_status
check_launcher(const dl_mpi_world *world)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *text = getenv(launchers[i].variable);
        int expected = text == NULL ? 0 : atoi(text);
        bool is_allowed = launchers[i].is_part && world->size > 1;
        if (expected > 0 && expected != world->size && !is_allowed) {
            return dl_fail(DL_UNSUPPORTED,
                           "%s has started %d ranks (%s=%s), but %s (%s) sees a world "
                           "of %d: it belongs to another launcher; use that, or set %s "
                           "to the library of the mpirun in use",
                           launchers[i].title, expected, launchers[i].variable, text,
                           dl_mpi_library_path(), dl_mpi_library_text(), world->size,
                           dl_mpi_library.variable);
        }
        if (text != NULL) {
            break; /* the next launchers, if any, started the job around this one */
        }
    }
    return DL_OK;
}

/* MPI guarantees tags up to 32767 at least. */
static int
read_last_tag(const dl_mpi_table *mpi, int *tag)
{
    const int *value = NULL;
    int is_set = 0;
    int result = mpi->comm_get_attr(mpi->world, mpi->abi.tag_ub, &value, &is_set);

    *tag = result == 0 && is_set ? *value : 32767;
    return result;
}

/* MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF, whichever part of the
 * program calls it. */
static int
register_end(const dl_mpi_table *mpi)
{
    int key;
    int result = mpi->comm_create_keyval(copy_no_attribute, close_world, &key, NULL);

    return result == 0 ? mpi->comm_set_attr(mpi->self, key, NULL) : result;
}

static dl_status
open_locked(void)
{
    dl_mpi_world *world = &state.world;

    DL_TRY(dl_mpi_load(&world->mpi));
    const dl_mpi_table *mpi = world->mpi;
    DL_TRY(start_mpi(mpi));
    DL_TRY(
        dl_mpi_check(mpi, mpi->comm_rank(mpi->world, &world->rank), "MPI_Comm_rank"));
    DL_TRY(
        dl_mpi_check(mpi, mpi->comm_size(mpi->world, &world->size), "MPI_Comm_size"));
    DL_TRY(
        dl_mpi_check(mpi, read_last_tag(mpi, &world->last_tag), "MPI_Comm_get_attr"));
    DL_TRY(check_launcher(world));
    DL_TRY(dl_mpi_check(mpi, register_end(mpi), "MPI_Comm_set_attr"));
    state.fork_generation = dl_fork_generation();
    atomic_store(&state.is_open, true);
    return DL_OK;
}

dl_status
dl_mpi_world_open(const dl_mpi_world **world)
{
    pthread_mutex_lock(&state.lock);
    dl_status status = atomic_load(&state.is_open) ? DL_OK : open_locked();
    pthread_mutex_unlock(&state.lock);
    if (status == DL_OK) {
        status = dl_mpi_world_admit();
    }
    *world = status == DL_OK ? &state.world : NULL;
    return status;
}
