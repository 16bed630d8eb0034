/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "history.h"
#include "stage_store.h"
#include "store/tcp/tcp_store.h"
#include "store_calls.h"

/* How long before its deadline a read that times out may have been answered: what an
 * answer can take. */
#define ANSWER (DL_SECOND)

#define TIMEOUT_LEAST (50 * DL_MILLISECOND)
#define TIMEOUT_MOST (5 * DL_SECOND)
#define JOIN_TIMEOUT (30 * DL_SECOND)
#define FIRST_BARRIER_TIMEOUT (10 * DL_SECOND)
/* Longer than all operations of a client can take. */
#define LAST_BARRIER_TIMEOUT (200 * DL_SECOND)
#define PAUSE_MOST (400 * DL_MILLISECOND)

/* While there are faults a call may last longer than its deadline: it waits for answers
 * (DL_ANSWER_GRACE) on a connection, on each that replaces it, and is itself stopped. */
#define LATE_WITH_FAULTS (40 * DL_SECOND)
#define LATE (DL_SECOND)

static const char *const key_names[SIM_KEY_COUNT] = {"a", "b", "count", "queue",
                                                     "text"};

typedef struct worker {
    pthread_t thread;
    sim_client *client;
    dl_store *store;
    sim_random random;
    int number;
    int values; /* that it has made */
} worker;

/* When each client called a barrier and returned from it. */
typedef struct barrier_note {
    int64_t begun, ended;
    bool is_through;
} barrier_note;

static barrier_note first_barrier[SIM_CLIENTS];
static barrier_note last_barrier[SIM_CLIENTS];

static dl_bytes
key_of(int key)
{
    return dl_bytes_of(key_names[key]);
}

/* Checks that the call was in time, and that it did not fail without a cause. */
static void
check_call(const char *call, int64_t begun, dl_deadline deadline, dl_status status)
{
    bool is_calm = sim_store_is_calm(begun);
    int64_t late = sim.now - (deadline.at > begun ? deadline.at : begun);

    sim_result(call, status);
    if (late > (is_calm ? LATE : LATE_WITH_FAULTS)) {
        sim_fail("%s of %s returned %.3f s after its deadline%s", call,
                 sim_process_current()->name, (double)late / 1e9,
                 is_calm ? ", long after the last fault" : "");
    }
    bool is_expected =
        status == DL_OK || status == DL_TIMEOUT || status == DL_QUEUE_EMPTY;
    /* The server may have lost what it knew of the client, which is then told so. */
    bool may_fail =
        is_calm
            ? sim_store.may_forget
                  && strstr(dl_last_error()->text, "has forgotten this client") != NULL
            : sim_store.plan.count > 0;
    if (!is_expected && !may_fail) {
        sim_fail("%s fails without a fault: %s", call, dl_last_error()->text);
    }
    if (status == DL_INTERNAL || status == DL_DENIED || status == DL_INVALID) {
        sim_fail("%s fails: %s", call, dl_last_error()->text);
    }
}

static void
copy_value(const dl_buffer *from, char *to)
{
    size_t size = from->size < SIM_VALUE_SIZE - 1 ? from->size : SIM_VALUE_SIZE - 1;

    if (size > 0) {
        memcpy(to, from->data, size);
    }
    to[size] = '\0';
}

/* A value of its own; a single letter for keys whose values are joined. */
static void
make_value(worker *self, int key, char *value)
{
    int unique = 1 + self->values++;

    if (key == SIM_KEY_QUEUE || key == SIM_KEY_TEXT) {
        static int letters;
        snprintf(value, SIM_VALUE_SIZE, "%c", 33 + letters++ % 94);
    } else {
        snprintf(value, SIM_VALUE_SIZE, "%d.%d.%d", self->client->number, self->number,
                 unique);
    }
}

static void
end_operation(sim_operation *one, dl_status status)
{
    one->ended = sim.now;
    one->outcome = status == DL_OK ? SIM_DONE : SIM_UNKNOWN;
}

static void
end_read(sim_operation *one, dl_status status, dl_deadline deadline)
{
    end_operation(one, status);
    /* A wait that ran out says that the key was absent shortly before its time was up.
     * With faults the server may not have answered. */
    bool is_absent = status == DL_TIMEOUT && sim_store.plan.count == 0;
    if (is_absent) {
        one->verb = SIM_ABSENT;
        one->begun =
            deadline.at - ANSWER > one->begun ? deadline.at - ANSWER : one->begun;
        one->outcome = SIM_DONE;
    } else if (status != DL_OK) {
        one->outcome = SIM_DROPPED;
    }
}

static void
read_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_GET, key);
    dl_buffer value = {0};
    int64_t begun = sim.now;

    one->outcome = SIM_DROPPED;
    dl_status status = dl_store_get(self->store, key_of(key), &value, deadline);
    check_call("get", begun, deadline, status);
    copy_value(&value, one->got);
    end_read(one, status, deadline);
    dl_buffer_fini(&value);
}

static void
wait_for_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_EXISTS, key);
    dl_bytes name = key_of(key);
    int64_t begun = sim.now;

    one->outcome = SIM_DROPPED;
    one->told = 1;
    dl_status status = dl_store_wait(self->store, &name, 1, deadline);
    check_call("wait", begun, deadline, status);
    end_read(one, status, deadline);
}

static void
check_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_EXISTS, key);
    dl_bytes name = key_of(key);
    int64_t begun = sim.now;
    bool exists = false;

    one->outcome = SIM_DROPPED;
    dl_status status = dl_store_check(self->store, &name, 1, &exists, deadline);
    check_call("check", begun, deadline, status);
    one->told = exists;
    end_read(one, status == DL_TIMEOUT ? DL_NETWORK : status, deadline);
}

static void
set_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_SET, key);
    int64_t begun = sim.now;

    make_value(self, key, one->argument);
    dl_status status =
        dl_store_set(self->store, key_of(key), dl_bytes_of(one->argument), deadline);
    check_call("set", begun, deadline, status);
    end_operation(one, status);
}

static void
compare_set_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_COMPARE_SET, key);
    dl_buffer held = {0};
    int64_t begun = sim.now;

    make_value(self, key, one->argument);
    /* Sometimes of this client's latest value, which may be there. */
    if (self->values > 1 && sim_random_once_in(&self->random, 2)) {
        snprintf(one->expected, sizeof one->expected, "%d.%d.%d", self->client->number,
                 self->number, self->values - 1);
    }
    dl_status status =
        dl_store_compare_set(self->store, key_of(key), dl_bytes_of(one->expected),
                             dl_bytes_of(one->argument), &held, deadline);
    check_call("compare_set", begun, deadline, status);
    copy_value(&held, one->got);
    end_operation(one, status);
    dl_buffer_fini(&held);
}

static void
delete_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_DELETE, key);
    int64_t begun = sim.now;
    bool existed = false;

    dl_status status =
        dl_store_delete_key(self->store, key_of(key), &existed, deadline);
    check_call("delete_key", begun, deadline, status);
    one->told = existed;
    end_operation(one, status);
}

static void
add_to_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_ADD, key);
    int64_t begun = sim.now;

    one->number = 1 + (int64_t)sim_random_below(&self->random, 9);
    dl_status status =
        dl_store_add(self->store, key_of(key), one->number, &one->told, deadline);
    check_call("add", begun, deadline, status);
    end_operation(one, status);
}

static void
append_to_key(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_APPEND, key);
    int64_t begun = sim.now;

    make_value(self, key, one->argument);
    dl_status status =
        dl_store_append(self->store, key_of(key), dl_bytes_of(one->argument), deadline);
    check_call("append", begun, deadline, status);
    end_operation(one, status);
}

static void
push_item(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_PUSH, key);
    int64_t begun = sim.now;

    make_value(self, key, one->argument);
    dl_status status = dl_store_queue_push(self->store, key_of(key),
                                           dl_bytes_of(one->argument), deadline);
    check_call("queue_push", begun, deadline, status);
    end_operation(one, status);
}

static void
pop_item(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_POP, key);
    bool is_blocking = sim_random_once_in(&self->random, 2);
    dl_buffer item = {0};
    int64_t begun = sim.now;

    dl_status status =
        dl_store_queue_pop(self->store, key_of(key), is_blocking, &item, deadline);
    check_call("queue_pop", begun, deadline, status);
    bool is_empty =
        status == DL_QUEUE_EMPTY || (status == DL_TIMEOUT && sim_store.plan.count == 0);
    if (!is_empty) {
        copy_value(&item, one->got);
    } else if (status == DL_TIMEOUT && deadline.at - ANSWER > one->begun) {
        one->begun = deadline.at - ANSWER;
    }
    end_operation(one, is_empty ? DL_OK : status);
    dl_buffer_fini(&item);
}

static void
count_items(worker *self, int key, dl_deadline deadline)
{
    sim_operation *one = sim_history_begin(SIM_LENGTH, key);
    int64_t begun = sim.now;

    one->outcome = SIM_DROPPED;
    dl_status status =
        dl_store_queue_len(self->store, key_of(key), &one->told, deadline);
    check_call("queue_len", begun, deadline, status);
    end_read(one, status == DL_TIMEOUT ? DL_NETWORK : status, deadline);
}

typedef void (*action)(worker *, int, dl_deadline);

static const struct {
    action actions[8];
    uint64_t count;
} menu[SIM_KEY_COUNT] = {
    [SIM_KEY_REGISTER] = {{set_key, read_key, compare_set_key, delete_key, check_key,
                           wait_for_key},
                          6},
    [SIM_KEY_OTHER] = {{set_key, wait_for_key, delete_key, read_key}, 4},
    [SIM_KEY_COUNTER] = {{add_to_key, add_to_key, read_key}, 3},
    [SIM_KEY_QUEUE] = {{push_item, push_item, pop_item, count_items}, 4},
    [SIM_KEY_TEXT] = {{append_to_key, read_key, append_to_key}, 3},
};

static void
act(worker *self)
{
    int key = (int)sim_random_below(&self->random, SIM_KEY_COUNT);
    int64_t limit = sim_random_once_in(&self->random, 8)
                        ? 0
                        : sim_random_span(&self->random, TIMEOUT_LEAST, TIMEOUT_MOST);
    uint64_t choice = sim_random_below(&self->random, menu[key].count);

    menu[key].actions[choice](self, key, dl_deadline_after(limit));
}

static void *
work(void *argument)
{
    worker *self = argument;

    for (int i = 0; i < sim_store.operations; i++) {
        act(self);
        int64_t pause = sim_random_span(&self->random, DL_MILLISECOND, PAUSE_MOST);
        (void)dl_sleep_until(dl_deadline_after(pause));
    }
    return NULL;
}

static void
pass_barrier(sim_client *client, dl_store *store, const char *name, int64_t limit,
             barrier_note *notes)
{
    dl_deadline deadline = dl_deadline_after(limit);
    barrier_note *note = &notes[client->number];

    *note = (barrier_note){.begun = sim.now};
    dl_status status =
        dl_store_barrier(store, dl_bytes_of(name), sim_store.clients, deadline);
    /* A client that was killed never comes. */
    note->is_through = status == DL_OK;
    note->ended = sim.now;
    check_call("barrier", note->begun, deadline, status);
}

static void
check_barrier(const barrier_note *notes, bool must_pass)
{
    int64_t complete_at = 0;

    for (int i = 0; i < sim_store.clients; i++) {
        complete_at = notes[i].begun > complete_at ? notes[i].begun : complete_at;
    }
    for (int i = 0; i < sim_store.clients; i++) {
        for (int j = 0; j < sim_store.clients && notes[i].is_through; j++) {
            if (notes[j].begun == 0 || notes[j].begun > notes[i].ended) {
                sim_fail("client %d left a barrier before client %d came", i, j);
            }
        }
        if (must_pass && !notes[i].is_through) {
            sim_fail("client %d does not get through the barrier", i);
        }
        /* A wake that was lost shows only when the time is up. */
        if (sim_store.plan.count == 0 && notes[i].ended > complete_at + 2 * ANSWER) {
            sim_fail("client %d leaves a complete barrier late", i);
        }
    }
}

void
sim_client_check(void)
{
    check_barrier(first_barrier, sim_store.plan.count == 0);
    check_barrier(last_barrier, !sim_store.are_killed && !sim_store.may_forget);
}

static dl_store *
join_store(void)
{
    const dl_tcp_store_options options = {
        .host = SIM_SERVER_ADDRESS,
        .port = SIM_PORT,
        .world_size = -1,
        .listen_fd = -1,
        .use_libuv = true,
        .timeout = JOIN_TIMEOUT,
    };
    dl_store *store = NULL;

    while (dl_tcp_store_new(&options, dl_deadline_after(JOIN_TIMEOUT), &store)
           != DL_OK) {
        sim_note("joining fails: %s", dl_last_error()->text);
        if (sim_store.plan.count == 0) {
            sim_fail("joining fails without a fault: %s", dl_last_error()->text);
        }
    }
    return store;
}

static bool
is_calm(void *context)
{
    (void)context;
    return sim_store_is_calm(sim.now);
}

static void
run_workers(sim_client *client, dl_store *store)
{
    worker workers[2];

    for (int i = 0; i < sim_store.threads; i++) {
        workers[i] = (worker){
            .client = client,
            .store = store,
            .number = i,
            .random = sim_random_of(sim.seed, client->stream + (uint64_t)i),
        };
        if (dl_thread_start(&workers[i].thread, work, &workers[i]) != DL_OK) {
            sim_fail("no thread");
        }
    }
    for (int i = 0; i < sim_store.threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
}

/* Reads all keys, so that what was lost is missed. */
static void
read_all(sim_client *client, dl_store *store)
{
    worker self = {.client = client,
                   .store = store,
                   .random = sim_random_of(sim.seed, client->stream + 9)};

    for (int key = 0; key < SIM_KEY_COUNT; key++) {
        if (key == SIM_KEY_QUEUE) {
            count_items(&self, key, dl_deadline_after(DL_SECOND));
            pop_item(&self, key, dl_deadline_after(DL_SECOND));
        } else {
            check_key(&self, key, dl_deadline_after(DL_SECOND));
            read_key(&self, key, dl_deadline_after(0));
        }
    }
}

void *
sim_client_main(void *argument)
{
    sim_client *client = argument;
    sim_process *process = sim_process_current();

    dl_store *store = join_store();
    pass_barrier(client, store, "first", FIRST_BARRIER_TIMEOUT, first_barrier);
    run_workers(client, store);
    while (!sim_store_is_calm(sim.now)) {
        sim_wait("the end of the faults", is_calm, NULL, sim.now + DL_SECOND);
    }
    pass_barrier(client, store, "last", LAST_BARRIER_TIMEOUT, last_barrier);
    if (client->number == 0) {
        read_all(client, store);
    }
    dl_store_unref(store);
    if (process->live_allocations != 0 || sim_net_open_count(process) != 0) {
        sim_fail("%s has %ld blocks of memory and %d descriptors left", client->name,
                 process->live_allocations, sim_net_open_count(process));
    }
    client->has_ended = true;
    return NULL;
}
