/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/work/completions.h"

#include "base/thread.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"

void
dlpy_completions_note(dlpy_completions *self, dlpy_completion *completion)
{
    pthread_mutex_lock(&self->lock);
    completion->is_noted = true;
    if (completion->has_callbacks) {
        dl_list_append(&self->to_call, &completion->node);
        pthread_cond_signal(&self->is_wanted);
    } else {
        dl_list_append(&self->to_drop, &completion->node);
        atomic_store_explicit(&self->has_some, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&self->lock);
}

static PyObject *
take_first(dl_list *list)
{
    dlpy_completion *first = DL_LIST_ENTRY(list->next, dlpy_completion, node);

    dl_list_remove(&first->node);
    return first->object;
}

void
dlpy_completions_drain(dlpy_completions *self)
{
    /* Dropping a reference may run arbitrary code, this function included: so one
     * object at a time, and without the lock. */
    while (atomic_load_explicit(&self->has_some, memory_order_relaxed)) {
        PyObject *object = NULL;
        pthread_mutex_lock(&self->lock);
        if (!dl_list_is_empty(&self->to_drop)) {
            object = take_first(&self->to_drop);
        }
        atomic_store_explicit(&self->has_some, !dl_list_is_empty(&self->to_drop),
                              memory_order_relaxed);
        pthread_mutex_unlock(&self->lock);
        if (object == NULL) {
            return;
        }
        Py_DECREF(object);
    }
}

void
dlpy_completions_want(dlpy_completions *self, dlpy_completion *completion)
{
    pthread_mutex_lock(&self->lock);
    bool is_dropped = completion->is_noted && completion->node.next == NULL;
    if (!completion->has_callbacks && completion->is_noted) {
        if (is_dropped) {
            Py_INCREF(completion->object);
        }
        dl_list_remove(&completion->node);
        dl_list_append(&self->to_call, &completion->node);
        pthread_cond_signal(&self->is_wanted);
    } else if (completion->has_callbacks && is_dropped) {
        /* The callback thread has already taken it; queue it again for the callbacks
         * added since. */
        Py_INCREF(completion->object);
        dl_list_append(&self->to_call, &completion->node);
        pthread_cond_signal(&self->is_wanted);
    }
    completion->has_callbacks = true;
    pthread_mutex_unlock(&self->lock);
}

/* Blocks, with the GIL released, until an object with callbacks is available.  Returns
 * it, or None after _stop_completions(). */
static PyObject *
next_finished(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    dlpy_completions *self = dlpy_state_of_module(module)->completions;
    PyObject *object = NULL;
    bool is_stopped;

    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    while (dl_list_is_empty(&self->to_call) && !self->is_stopped) {
        pthread_cond_wait(&self->is_wanted, &self->lock);
    }
    is_stopped = self->is_stopped;
    if (!is_stopped) {
        object = take_first(&self->to_call);
    }
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    return is_stopped ? Py_NewRef(Py_None) : object;
}

static PyObject *
stop_completions(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    dlpy_completions *self = dlpy_state_of_module(module)->completions;

    pthread_mutex_lock(&self->lock);
    self->is_stopped = true;
    pthread_cond_broadcast(&self->is_wanted);
    pthread_mutex_unlock(&self->lock);
    Py_RETURN_NONE;
}

/* For a forked child, which has neither the callback thread nor the threads that may
 * have held the lock. */
static PyObject *
renew_completions(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    dlpy_completions *self = dlpy_state_of_module(module)->completions;

    pthread_mutex_init(&self->lock, NULL);
    dl_condition_init(&self->is_wanted);
    /* The callbacks of the parent's works are called in the parent.  The references are
     * kept: dropping them could run code, and the memory is the parent's in any
     * case. */
    while (!dl_list_is_empty(&self->to_call)) {
        take_first(&self->to_call);
    }
    Py_RETURN_NONE;
}

static PyObject *
set_future_of_work(PyObject *module, PyObject *factory)
{
    dlpy_state *state = dlpy_state_of_module(module);

    dlpy_state_set(&state->future_of_work, factory);
    Py_RETURN_NONE;
}

/* The functions that futures.py uses. */
static PyMethodDef functions[] = {
    {"_next_finished", next_finished, METH_NOARGS, DLPY_DOC__NEXT_FINISHED},
    {"_stop_completions", stop_completions, METH_NOARGS, DLPY_DOC__STOP_COMPLETIONS},
    {"_renew_completions", renew_completions, METH_NOARGS, DLPY_DOC__RENEW_COMPLETIONS},
    {"_set_future_of_work", set_future_of_work, METH_O, DLPY_DOC__SET_FUTURE_OF_WORK},
    {0},
};

static int
begin_completions(dlpy_state *state, PyObject *Py_UNUSED(module))
{
    dlpy_completions *made = PyMem_RawCalloc(1, sizeof *made);
    if (made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    pthread_mutex_init(&made->lock, NULL);
    dl_condition_init(&made->is_wanted);
    dl_list_init(&made->to_drop);
    dl_list_init(&made->to_call);
    state->completions = made;
    return 0;
}

const dlpy_part dlpy_completed_works = {.begin = begin_completions,
                                        .functions = functions};
