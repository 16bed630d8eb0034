/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/work/completions.h"

#include "base/thread.h"

void
dlpy_completions_init(dlpy_completions *self)
{
    pthread_mutex_init(&self->lock, NULL);
    dl_condition_init(&self->is_wanted);
    dl_list_init(&self->to_drop);
    dl_list_init(&self->to_call);
}

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

PyObject *
dlpy_completions_next(dlpy_completions *self)
{
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

void
dlpy_completions_stop(dlpy_completions *self)
{
    pthread_mutex_lock(&self->lock);
    self->is_stopped = true;
    pthread_cond_broadcast(&self->is_wanted);
    pthread_mutex_unlock(&self->lock);
}

void
dlpy_completions_renew(dlpy_completions *self)
{
    pthread_mutex_init(&self->lock, NULL);
    dl_condition_init(&self->is_wanted);
    /* The callbacks of the parent's works are called in the parent.  The references are
     * kept: dropping them could run code, and the memory is the parent's in any
     * case. */
    while (!dl_list_is_empty(&self->to_call)) {
        take_first(&self->to_call);
    }
}
