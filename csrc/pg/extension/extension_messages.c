/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One lock makes sure that a table gets one call about messages at a time, in the order
 * in which they were posted:
 *
 *     posted -> pending, in the list -> taken off the list by whoever finds that it has
 *               ended or is too late, gives it up, or ends the group
 *            -> finished, without the lock, since callbacks run then */
#include "pg/extension/extension_messages.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "base/thread.h"
#include "tensor/strided.h"

/* How often a waiting thread tests before it sleeps in between: a message is often on
 * its way already. */
#define POLLS 50

/* Pauses between two tests, which grow. */
#define FIRST_PAUSE (20 * DL_MILLISECOND / 1000)
#define LAST_PAUSE (2 * DL_MILLISECOND)

#define TEXT_SIZE 96

struct dl_extension_messages {
    atomic_uint references; /* the backend's, each message's and the thread's */
    pthread_mutex_t lock;
    /* guarded by lock */
    dl_extension *self; /* NULL: the backend has ended, for the reason in `cause` */
    dl_error cause;
    dl_list pending;
    bool has_thread;
    pthread_cond_t changed; /* for the thread */
};

typedef struct message {
    dl_work work;
    dl_extension_messages *home;
    dl_list node; /* in the list while it is pending; guarded by the lock */
    void *request;
    dl_deadline deadline;
    int64_t tag;
    int peer;
    const dl_guard *guard;
    void *copy; /* what the backend uses in place of the array; or NULL */
    distlite_array array;
    dl_tensor tensor;  /* with the numbers below, if there is a copy */
    int64_t numbers[]; /* shape and strides */
} message;

static message *
message_of(dl_work *work)
{
    return (message *)(void *)work;
}

static dl_extension *
extension_of(dl_backend *backend)
{
    return (dl_extension *)backend;
}

static void
unref_messages(dl_extension_messages *home)
{
    if (atomic_fetch_sub(&home->references, 1) == 1) {
        pthread_cond_destroy(&home->changed);
        pthread_mutex_destroy(&home->lock);
        free(home);
    }
}

/* The functions of the table run with the lock held and may use the store, in whose waits
 * no signal handler may run then: it might come back here. */
static void
lock_messages(dl_extension_messages *home)
{
    pthread_mutex_lock(&home->lock);
    dl_interrupt_hold(true);
}

static void
unlock_messages(dl_extension_messages *home)
{
    dl_interrupt_hold(false);
    pthread_mutex_unlock(&home->lock);
}

static void
free_message(dl_work *work)
{
    message *self = message_of(work);

    unref_messages(self->home);
    free(self->copy);
    dl_work_fini(work);
    free(self);
}

/* Writes "recv from rank 1 with tag 0" and the like. */
static const char *
describe_message(const message *self, char text[TEXT_SIZE])
{
    const char *what = dl_op_type_name((uint8_t)self->work.op);

    if (self->peer == DL_ANY_RANK) {
        snprintf(text, TEXT_SIZE, "%s from any rank with tag %" PRId64, what,
                 self->tag);
    } else {
        snprintf(text, TEXT_SIZE, "%s %s rank %d with tag %" PRId64, what,
                 self->work.op == DL_SEND ? "to" : "from", self->peer, self->tag);
    }
    return text;
}

/* Ends a message that is no longer pending, with the thread's last error unless `status`
 * is DL_OK. */
static void
finish_message(message *self, dl_status status)
{
    bool is_send = self->work.op == DL_SEND;

    if (status == DL_OK && !is_send) {
        status = dl_guard_check(self->guard);
    }
    if (status == DL_OK && !is_send && self->copy != NULL
        && dl_tensor_size(&self->tensor) > 0) {
        dl_strided_scatter_part(&self->tensor, self->copy, 0,
                                dl_tensor_size(&self->tensor));
    }
    dl_work_finish(&self->work, status);
    dl_work_unref(&self->work);
}

/* Takes the message off the list and gives up its request. */
static void
give_up_locked(message *self)
{
    dl_extension *of = self->home->self;

    dl_list_remove(&self->node);
    of->table->cancel(of->state, self->request);
}

/* Returns whether the message has ended, with `*status`; it is off the list then. */
static bool
test_locked(message *self, dl_status *status)
{
    dl_extension *of = self->home->self;
    dl_extension_call call =
        dl_extension_call_begin(of, &(dl_op_context){.deadline = dl_deadline_after(0)});
    int32_t is_done = 0, source = self->peer;
    char text[TEXT_SIZE];

    dl_extension_forget_error();
    int result =
        of->table->test(of->state, &call.base, self->request, &is_done, &source);
    if (result != DISTLITE_OK || is_done != 0) {
        dl_list_remove(&self->node);
        self->work.source = self->work.op == DL_SEND ? -1 : source;
        *status = dl_extension_result(of, describe_message(self, text), result);
        return true;
    }
    if (dl_deadline_passed(self->deadline)) {
        give_up_locked(self);
        *status = dl_fail(DL_TIMEOUT,
                          "%s timed out after %lldms on rank %d of %d, backend %s",
                          describe_message(self, text),
                          (long long)(self->deadline.limit / DL_MILLISECOND), of->rank,
                          of->size, of->name);
        return true;
    }
    return false;
}

/* Tests the pending messages once and finishes those that have ended.  Returns whether
 * there were any. */
static bool
test_all(dl_extension_messages *home)
{
    bool has_any = false;
    message *ended;

    do {
        dl_status status = DL_OK;
        ended = NULL;
        lock_messages(home);
        for (dl_list *node = home->pending.next; node != &home->pending;
             node = node->next) {
            message *next = DL_LIST_ENTRY(node, message, node);
            if (test_locked(next, &status)) {
                ended = next;
                break;
            }
        }
        unlock_messages(home);
        if (ended != NULL) {
            has_any = true;
            finish_message(ended, status);
        }
    } while (ended != NULL);
    return has_any;
}

/* The thread, which lasts until the backend ends. */
static void *
run_tests(void *argument)
{
    dl_extension_messages *home = argument;
    int64_t pause = FIRST_PAUSE;

    for (;;) {
        pause = test_all(home) ? FIRST_PAUSE : pause * 2;
        pause = pause < LAST_PAUSE ? pause : LAST_PAUSE;
        lock_messages(home);
        while (home->self != NULL && dl_list_is_empty(&home->pending)) {
            pthread_cond_wait(&home->changed, &home->lock);
            pause = FIRST_PAUSE;
        }
        bool is_over = home->self == NULL;
        if (!is_over) {
            dl_condition_wait_until(&home->changed, &home->lock, dl_now() + pause);
        }
        unlock_messages(home);
        if (is_over) {
            unref_messages(home);
            return NULL;
        }
    }
}

static dl_status
start_thread_locked(dl_extension_messages *home)
{
    pthread_t thread;

    if (home->has_thread) {
        pthread_cond_signal(&home->changed);
        return DL_OK;
    }
    atomic_fetch_add(&home->references, 1);
    dl_status status = dl_thread_start(&thread, run_tests, home);
    if (status != DL_OK) {
        atomic_fetch_sub(&home->references, 1);
        return status;
    }
    pthread_detach(thread);
    home->has_thread = true;
    return DL_OK;
}

static dl_status
wait_for_message(dl_work *work, dl_deadline deadline)
{
    dl_extension_messages *home = message_of(work)->home;
    int64_t pause = FIRST_PAUSE;

    dl_blocking_begin();
    for (int looks = 0;; looks++) {
        (void)test_all(home);
        if (dl_work_is_done(work)) {
            return DL_OK;
        }
        if (dl_deadline_passed(deadline)) {
            return DL_TIMEOUT;
        }
        DL_TRY(dl_interrupt_check());
        if (looks < POLLS) {
            sched_yield();
            continue;
        }
        DL_TRY(dl_sleep_until(dl_deadline_earlier(deadline, pause)));
        pause = pause * 2 < LAST_PAUSE ? pause * 2 : LAST_PAUSE;
    }
}

static void
withdraw_message(dl_work *work)
{
    message *self = message_of(work);
    dl_extension_messages *home = self->home;
    dl_error why = *dl_last_error();

    lock_messages(home);
    bool is_pending = self->node.next != NULL;
    if (is_pending) {
        give_up_locked(self);
    }
    unlock_messages(home);
    if (is_pending) {
        finish_message(self, dl_fail_again(&why));
    }
}

static const dl_work_ops message_ops = {
    .wait = wait_for_message,
    .withdraw = withdraw_message,
    .free = free_message,
};

bool
dl_extension_has_messages(const distlite_backend *table)
{
    return table->size >= offsetof(distlite_backend, cancel) + sizeof table->cancel
           && table->post != NULL;
}

dl_status
dl_extension_check_messages(const char *name, const distlite_backend *table)
{
    if (!dl_extension_has_messages(table)
        || (table->test != NULL && table->cancel != NULL)) {
        return DL_OK;
    }
    return dl_fail(DL_INVALID,
                   "backend %s has post() and no %s(), and messages need both", name,
                   table->test == NULL ? "test" : "cancel");
}

dl_extension_messages *
dl_extension_messages_new(dl_extension *self)
{
    dl_extension_messages *made = calloc(1, sizeof *made);

    if (made != NULL) {
        atomic_init(&made->references, 1);
        pthread_mutex_init(&made->lock, NULL);
        dl_condition_init(&made->changed);
        dl_list_init(&made->pending);
        made->self = self;
    }
    return made;
}

void
dl_extension_messages_end(dl_extension_messages *home, const dl_error *cause)
{
    message *next = NULL;

    do {
        lock_messages(home);
        next = NULL;
        if (!dl_list_is_empty(&home->pending)) {
            next = DL_LIST_ENTRY(home->pending.next, message, node);
            give_up_locked(next);
        } else if (home->self != NULL) {
            home->cause = *cause;
            home->self = NULL;
            pthread_cond_signal(&home->changed);
        }
        unlock_messages(home);
        if (next != NULL) {
            finish_message(next, dl_fail_again(cause));
        }
    } while (next != NULL);
}

void
dl_extension_messages_unref(dl_extension_messages *home)
{
    unref_messages(home);
}

/* Makes a message whose array is contiguous, with a copy in place of one that is not. */
static message *
make_message(const dl_call *call, dl_deadline deadline)
{
    const dl_tensor *tensor = &call->tensor;
    bool has_layout = !tensor->is_contiguous && tensor->shape != NULL;
    size_t entries = has_layout ? (size_t)tensor->ndim : 0;
    message *self = calloc(1, sizeof *self + 2 * entries * sizeof *self->numbers);
    size_t size = dl_tensor_size(tensor);

    if (self == NULL) {
        return NULL;
    }
    self->deadline = deadline;
    self->tag = call->tag;
    self->peer = call->op == DL_RECV_ANY ? DL_ANY_RANK : call->peer;
    self->guard = call->guard;
    self->tensor = *tensor;
    if (entries > 0) {
        memcpy(self->numbers, tensor->shape, entries * sizeof *self->numbers);
        memcpy(self->numbers + entries, tensor->strides,
               entries * sizeof *self->numbers);
        self->tensor.shape = self->numbers;
        self->tensor.strides = self->numbers + entries;
    }
    if (!dl_tensor_is_plain(tensor)) {
        self->copy = malloc(size + 1); /* never of size 0 */
        if (self->copy == NULL) {
            free(self);
            return NULL;
        }
        if (call->op == DL_SEND && size > 0) {
            dl_strided_gather_part(self->copy, tensor, 0, size);
        }
    }
    self->array = (distlite_array){
        .data = self->copy != NULL ? self->copy : tensor->data,
        .count = tensor->count,
        .item_size = tensor->item_size,
        .dtype = (int32_t)tensor->dtype,
    };
    return self;
}

/* Hands the message to the backend; it is pending after a success. */
static dl_status
post_locked(dl_extension_messages *home, message *self, bool is_awaited)
{
    dl_extension *of = home->self;
    const distlite_message said = {
        .array = self->array,
        .tag = self->tag,
        .peer = self->peer,
        .is_send = self->work.op == DL_SEND,
    };
    char text[TEXT_SIZE];

    if (of == NULL) {
        return dl_fail_again(&home->cause);
    }
    /* First, since a message that is posted cannot be taken back in all cases. */
    if (!is_awaited) {
        DL_TRY(start_thread_locked(home));
    }
    dl_extension_call call =
        dl_extension_call_begin(of, &(dl_op_context){.deadline = self->deadline});
    dl_extension_forget_error();
    int result = of->table->post(of->state, &call.base, &said, &self->request);
    DL_TRY(dl_extension_result(of, describe_message(self, text), result));
    dl_list_append(&home->pending, &self->node);
    return DL_OK;
}

dl_status
dl_extension_post(dl_backend *backend, const dl_call *call, dl_deadline deadline,
                  dl_work **work)
{
    dl_extension_messages *home = extension_of(backend)->messages;

    if (call->probed != NULL) {
        return dl_fail(DL_UNSUPPORTED, "backend %s has no probe",
                       extension_of(backend)->name);
    }
    message *made = make_message(call, deadline);
    if (made == NULL) {
        return dl_fail_no_memory();
    }
    dl_work_init(&made->work, &message_ops, call->op);
    atomic_fetch_add(&home->references, 1);
    made->home = home;
    lock_messages(home);
    dl_status status = post_locked(home, made, call->is_awaited);
    unlock_messages(home);
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_work_unref(&made->work);
        dl_work_unref(&made->work);
        return dl_fail_again(&error);
    }
    *work = &made->work;
    return DL_OK;
}
