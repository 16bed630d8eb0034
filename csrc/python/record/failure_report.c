/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/record/failure_report.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "pg/record/recorder.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/gil.h"
#include "python/module/parts.h"

/* An exit waits at most this long for a report: standard error may be a pipe that is
 * not read. */
#define FINISH_LIMIT (5 * DL_SECOND)
#define FINISH_PAUSE DL_MILLISECOND

/* Bits of `wanted`. */
enum {
    TABLE = 1,
    DUMP = 2,
    RUNNING = 4, /* a thread writes; before it ends it checks the others */
};

static atomic_uint wanted;
static _Atomic(dl_buffer *) own_snapshot; /* for the next report; owned */

/* One rank of the job at the time of the failure. */
typedef struct seen_rank {
    char *path;
    dl_buffer snapshot;
} seen_rank;

typedef struct seen_ranks {
    seen_rank *ranks;
    size_t count;
} seen_ranks;

static bool
add_rank(void *context, const char *path, dl_buffer *snapshot)
{
    seen_ranks *self = context;
    seen_rank *ranks = realloc(self->ranks, (self->count + 1) * sizeof *ranks);

    if (ranks == NULL) {
        return false;
    }
    self->ranks = ranks;
    seen_rank *added = &ranks[self->count];
    *added = (seen_rank){.path = strdup(path)};
    if (added->path == NULL) {
        return false;
    }
    added->snapshot = *snapshot;
    *snapshot = (dl_buffer){0};
    self->count++;
    return true;
}

static void
drop_own(dl_buffer *own)
{
    if (own != NULL) {
        dl_buffer_fini(own);
        free(own);
    }
}

/* Taken on the thread that raises, which may be in its next operation when the report
 * runs. */
static void
see_own(void)
{
    dl_buffer *own = calloc(1, sizeof *own);

    if (own != NULL && dl_recorder_snapshot(own) != DL_OK) {
        drop_own(own);
        own = NULL;
    }
    drop_own(atomic_exchange(&own_snapshot, own));
}

static void
see_ranks(seen_ranks *self, bool sees_all)
{
    dl_buffer *own = atomic_exchange(&own_snapshot, NULL);
    char path[PATH_MAX];

    dl_recorder_path(path);
    if (own != NULL && own->size != 0 && add_rank(self, path, own) && sees_all) {
        dl_recorder_visit_job(add_rank, self);
    }
    drop_own(own);
}

static void
seen_ranks_fini(seen_ranks *self)
{
    for (size_t i = 0; i < self->count; i++) {
        free(self->ranks[i].path);
        dl_buffer_fini(&self->ranks[i].snapshot);
    }
    free(self->ranks);
}

/* The memory of the snapshots is only read during the report. */
static PyObject *
list_of(const seen_ranks *self)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list != NULL && i < self->count; i++) {
        const dl_buffer *snapshot = &self->ranks[i].snapshot;
        PyObject *path = PyUnicode_DecodeFSDefault(self->ranks[i].path);
        PyObject *view = PyMemoryView_FromMemory(
            (char *)snapshot->data, (Py_ssize_t)snapshot->size, PyBUF_READ);
        if (dlpy_append(list, Py_BuildValue("(NN)", path, view)) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* Errors are ignored here: the operation's own error has been raised. */
static void
call_report(const seen_ranks *seen, unsigned asked)
{
    PyObject *list = list_of(seen);
    PyObject *module =
        list == NULL ? NULL : PyImport_ImportModule("distlite.tools.failure");
    PyObject *result = module == NULL
                           ? NULL
                           : PyObject_CallMethod(module, "report", "OOO", list,
                                                 asked & TABLE ? Py_True : Py_False,
                                                 asked & DUMP ? Py_True : Py_False);

    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(module);
    Py_XDECREF(list);
}

/* Takes the snapshots first, as the ranks continue meanwhile. */
static void
write_report(unsigned asked)
{
    seen_ranks seen = {0};

    see_ranks(&seen, asked & TABLE);
    if (dlpy_may_enter()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        call_report(&seen, asked);
        PyGILState_Release(gil);
    }
    if (asked & TABLE) {
        dl_recorder_end_table();
    }
    seen_ranks_fini(&seen);
}

static void *
write_reports(void *Py_UNUSED(unused))
{
    for (;;) {
        unsigned asked = atomic_fetch_and(&wanted, RUNNING) & ~(unsigned)RUNNING;
        unsigned nothing = RUNNING;
        if (asked != 0) {
            write_report(asked);
        } else if (atomic_compare_exchange_strong(&wanted, &nothing, 0)) {
            return NULL;
        }
    }
}

static void
reset_wanted(void)
{
    atomic_store(&wanted, 0);
}

__attribute__((constructor)) static void
init_wanted(void)
{
    dl_reset_at_fork(reset_wanted);
}

static bool
has_text(const char *variable)
{
    const char *text = getenv(variable);

    return text != NULL && text[0] != '\0';
}

void
dlpy_note_failure(void)
{
    pthread_t thread;
    unsigned asked = 0;

    if (!dl_recorder_take_failure()) {
        return;
    }
    asked |= dl_recorder_claim_table() ? TABLE : 0;
    /* The same variable as in tools/dump.py. */
    asked |= has_text("TORCH_FR_DUMP_TEMP_FILE") ? DUMP : 0;
    if (asked == 0) {
        return;
    }
    see_own();
    if ((atomic_fetch_or(&wanted, asked | RUNNING) & RUNNING)) {
        return;
    }
    if (dl_thread_start(&thread, write_reports, NULL) == DL_OK) {
        pthread_detach(thread);
    } else {
        atomic_fetch_and(&wanted, ~(unsigned)RUNNING);
    }
}

static PyObject *
finish_report(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    struct timespec pause = {.tv_nsec = FINISH_PAUSE};
    dl_deadline deadline = dl_deadline_after(FINISH_LIMIT);

    Py_BEGIN_ALLOW_THREADS
    /* The thread could not be started; write the report here. */
    if (atomic_load(&wanted) != 0 && !(atomic_fetch_or(&wanted, RUNNING) & RUNNING)) {
        write_reports(NULL);
    }
    while (atomic_load(&wanted) != 0 && !dl_deadline_passed(deadline)) {
        nanosleep(&pause, NULL);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_finish_report", finish_report, METH_NOARGS, DLPY_DOC__FINISH_REPORT},
    {0},
};

const dlpy_part dlpy_failure_report = {.functions = functions};
