/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/health/process_table.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/map.h"
#include "base/references.h"
#include "base/thread.h"
#include "net/socket.h"

/* Events that one epoll_wait(2) returns. */
#define BATCH 64

/* Number of the event that stops the thread, or has it wake the notifier; processes are
 * numbered from 1. */
#define WAKE_NUMBER 0

/* Number of the events of all call sources. */
#define CALL_NUMBER UINT64_MAX

struct dl_process {
    dl_map_entry entry;     /* by `id` */
    atomic_uint references; /* changed with the table's lock held */
    atomic_bool has_ended;
    uint32_t fork_generation;
    dl_process_id id;
    uint64_t number;
    int descriptors[2]; /* lifeline and pidfd; -1: not watched */
    bool is_watched;    /* counted in `watched`, also after its end */
};

/* The threads and what they sleep on; exists while any process or call source is
 * watched.  Its members do not change after it is made, except for those of the
 * notifier, which the detector's thread starts. */
typedef struct detector {
    int epoll;
    int wake; /* eventfd that wakes the detector's thread */
    bool has_thread;
    pthread_t thread;
    int untold;        /* eventfd that wakes the notifier */
    atomic_bool stops; /* both threads */
    bool has_notifier;
    pthread_t notifier;
} detector;

static struct {
    pthread_mutex_t lock;
    /* guarded by lock */
    dl_map processes;
    uint64_t last_number;
    int watched;
    detector *detector;
    bool has_id;
    bool has_lines;
    int held; /* the lifeline's write end */
    dl_process_own own;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Of a process whose entry may be gone. */
static atomic_bool has_seen_end;

/* Another host has reported an end. */
static atomic_bool has_set_end;

/* Subscribers and call sources, separate from the table.  Calling `read` may take a
 * while, and a wake-up must not wait for it, so there is a lock for each.  The lists
 * change with both held; `notifying` is taken first.  Calling `notify` takes even
 * longer, so it holds no lock: it only keeps its own subscriber, `told`, from being
 * removed. */
static struct {
    pthread_mutex_t notifying;
    pthread_mutex_t waking;
    pthread_cond_t is_told;
    dl_end_subscriber *told; /* guarded by `notifying` */
    int to_notify;           /* subscribers with `notify`; guarded as the lists */
    dl_list subscribers;
    dl_list sources;
} audience = {.notifying = PTHREAD_MUTEX_INITIALIZER,
              .waking = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A forked child is another process: it has no detector thread, the fork handler has
 * closed the descriptors, and the owners of inherited entries free them. */
static void
forget_parent(void)
{
    pthread_mutex_init(&table.lock, NULL);
    pthread_mutex_init(&audience.notifying, NULL);
    pthread_mutex_init(&audience.waking, NULL);
    dl_condition_init(&audience.is_told);
    audience.told = NULL;
    audience.to_notify = 0;
    /* Not freed: another thread of the parent may have been changing it. */
    table.processes = (dl_map){0};
    dl_list_init(&audience.subscribers);
    dl_list_init(&audience.sources);
    table.watched = 0;
    table.detector = NULL;
    table.has_id = false;
    table.has_lines = false;
}

static void
init_once(void)
{
    dl_condition_init(&audience.is_told);
    dl_list_init(&audience.subscribers);
    dl_list_init(&audience.sources);
    pthread_atfork(NULL, NULL, forget_parent);
}

static void
lock_table(void)
{
    pthread_once(&once, init_once);
    pthread_mutex_lock(&table.lock);
}

static void
unlock_table(void)
{
    pthread_mutex_unlock(&table.lock);
}

static dl_status
draw_id_locked(void)
{
    if (!table.has_id
        && getrandom(&table.own.id, sizeof table.own.id, 0)
               != (ssize_t)sizeof table.own.id) {
        return dl_fail(DL_INTERNAL, "getrandom: %s", strerror(errno));
    }
    table.has_id = true;
    return DL_OK;
}

static dl_status
open_lines_locked(void)
{
    int ends[2];

    if (table.has_lines) {
        return DL_OK;
    }
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        return dl_fail(DL_INTERNAL, "making a pipe: %s", strerror(errno));
    }
    /* Some sandboxes have no pidfds.  The pipe alone then misses the end of a process
     * only while a child of it holds the write end open. */
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (pidfd < 0) {
        pidfd = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    }
    if (pidfd < 0) {
        dl_status status = dl_fail(DL_INTERNAL, "making a pidfd: %s", strerror(errno));
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    table.own.lifeline = ends[0];
    table.own.pidfd = pidfd;
    table.held = ends[1];
    dl_fork_guard(table.own.lifeline);
    dl_fork_guard(table.own.pidfd);
    dl_fork_guard(table.held);
    table.has_lines = true;
    return DL_OK;
}

dl_status
dl_process_own_get(dl_process_own *own)
{
    lock_table();
    dl_status status = draw_id_locked();
    if (status == DL_OK) {
        status = open_lines_locked();
    }
    if (status == DL_OK) {
        *own = table.own;
    }
    unlock_table();
    return status;
}

dl_status
dl_process_own_id(dl_process_id *id)
{
    lock_table();
    dl_status status = draw_id_locked();
    if (status == DL_OK) {
        *id = table.own.id;
    }
    unlock_table();
    return status;
}

static dl_process *
process_of(dl_map_entry *entry)
{
    return DL_MAP_ENTRY(entry, dl_process, entry);
}

static dl_bytes
id_bytes(const dl_process_id *id)
{
    return (dl_bytes){id->bytes, sizeof id->bytes};
}

/* Returns NULL if there is no memory. */
static dl_process *
find_locked(const dl_process_id *id)
{
    dl_map_entry *entry = dl_map_find(&table.processes, id_bytes(id));
    dl_process *found = entry == NULL ? NULL : process_of(entry);
    if (found == NULL && (found = calloc(1, sizeof *found)) != NULL) {
        found->id = *id;
        found->number = ++table.last_number;
        found->fork_generation = dl_fork_generation();
        found->descriptors[0] = -1;
        found->descriptors[1] = -1;
        dl_map_insert(&table.processes, &found->entry, id_bytes(&found->id));
    }
    if (found != NULL) {
        dl_reference_take(&found->references);
    }
    return found;
}

dl_status
dl_process_find(const dl_process_id *id, dl_process **process)
{
    lock_table();
    *process = find_locked(id);
    unlock_table();
    return *process == NULL ? dl_fail_no_memory() : DL_OK;
}

dl_process *
dl_process_find_in(dl_process **slot, const dl_process_id *id)
{
    lock_table();
    if (*slot == NULL) {
        *slot = find_locked(id);
    }
    dl_process *found = *slot;
    unlock_table();
    return found;
}

void
dl_process_ref(dl_process *process)
{
    dl_reference_take(&process->references);
}

static void
close_descriptors(dl_process *self, detector *watcher)
{
    for (int i = 0; i < 2; i++) {
        /* Closing alone would not remove it from epoll where another process shares the
         * file. */
        if (self->descriptors[i] >= 0 && watcher != NULL) {
            (void)epoll_ctl(watcher->epoll, EPOLL_CTL_DEL, self->descriptors[i], NULL);
        }
        dl_socket_close(self->descriptors[i]);
        self->descriptors[i] = -1;
    }
}

static dl_process *
find_number_locked(uint64_t number)
{
    for (dl_map_entry *entry = dl_map_first(&table.processes); entry != NULL;
         entry = dl_map_next(&table.processes, entry)) {
        if (process_of(entry)->number == number) {
            return process_of(entry);
        }
    }
    return NULL;
}

/* Kinds of events since the last inspection. */
typedef struct findings {
    bool has_ends;
    bool has_calls;
    bool is_woken;
} findings;

/* Nothing is ever written into the pipes: any event of a process is its end. */
static void
take_event_locked(detector *watcher, const struct epoll_event *event, findings *found)
{
    if (event->data.u64 == CALL_NUMBER) {
        found->has_calls = true;
        return;
    }
    if (event->data.u64 == WAKE_NUMBER) {
        found->is_woken = true;
        return;
    }
    dl_process *process = find_number_locked(event->data.u64);
    if (process != NULL) {
        atomic_store(&has_seen_end, true);
        atomic_store(&process->has_ended, true);
        close_descriptors(process, watcher);
        found->has_ends = true;
    }
}

/* No event is returned twice: a process's descriptors are closed, and the others are
 * edge-triggered. */
static void
poll_locked(detector *watcher, findings *found)
{
    struct epoll_event events[BATCH];
    int count;

    do {
        count = epoll_wait(watcher->epoll, events, BATCH, 0);
        for (int i = 0; i < count; i++) {
            take_event_locked(watcher, &events[i], found);
        }
    } while (count == BATCH);
}

static void
wake_all(void)
{
    pthread_once(&once, init_once);
    pthread_mutex_lock(&audience.waking);
    for (dl_list *node = audience.subscribers.next; node != &audience.subscribers;
         node = node->next) {
        dl_end_subscriber *self = DL_LIST_ENTRY(node, dl_end_subscriber, node);
        self->wake(self->context);
    }
    pthread_mutex_unlock(&audience.waking);
}

/* Returns whether any source asks to be called again. */
static bool
read_all_sources(void)
{
    bool goes_on = false;

    pthread_mutex_lock(&audience.notifying);
    for (dl_list *node = audience.sources.next; node != &audience.sources;
         node = node->next) {
        dl_call_source *self = DL_LIST_ENTRY(node, dl_call_source, node);
        goes_on |= self->read(self->context);
    }
    pthread_mutex_unlock(&audience.notifying);
    return goes_on;
}

/* Returns whether any subscriber asks to be called again.  The one that is called stays
 * in the list meanwhile; others may come and go. */
static bool
notify_all(void)
{
    bool goes_on = false;

    pthread_mutex_lock(&audience.notifying);
    for (dl_list *node = audience.subscribers.next; node != &audience.subscribers;
         node = node->next) {
        dl_end_subscriber *self = DL_LIST_ENTRY(node, dl_end_subscriber, node);
        if (self->notify == NULL) {
            continue;
        }
        audience.told = self;
        pthread_mutex_unlock(&audience.notifying);
        goes_on |= self->notify(self->context);
        pthread_mutex_lock(&audience.notifying);
        audience.told = NULL;
        pthread_cond_broadcast(&audience.is_told);
    }
    pthread_mutex_unlock(&audience.notifying);
    return goes_on;
}

/* The notifier, a thread of its own: another host that does not answer keeps it for a
 * while, in which the detector has to go on. */
static void *
run_notifier(void *argument)
{
    detector *self = argument;
    bool goes_on = false;

    /* Its last wake-up may have been read together with one before. */
    while (!atomic_load(&self->stops)) {
        struct pollfd entry = {.fd = self->untold, .events = POLLIN};
        uint64_t events;
        (void)poll(&entry, 1, goes_on ? (int)(DL_END_RETRY / DL_MILLISECOND) : -1);
        ssize_t size = read(self->untold, &events, sizeof events);
        if (!atomic_load(&self->stops) && (size > 0 || goes_on)) {
            goes_on = notify_all();
        }
    }
    return NULL;
}

static void
wake_thread(int fd)
{
    const uint64_t one = 1;
    ssize_t size = write(fd, &one, sizeof one);

    (void)size;
}

static bool
is_anybody_to_notify(void)
{
    pthread_mutex_lock(&audience.waking);
    bool is_any = audience.to_notify > 0;
    pthread_mutex_unlock(&audience.waking);
    return is_any;
}

/* Has the ends told to the subscribers that ask for it.  If this thread cannot be
 * started, another rank of the host tells of them. */
static void
wake_notifier(detector *self)
{
    if (!self->has_notifier && is_anybody_to_notify()) {
        if (self->untold < 0) {
            self->untold = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
            dl_fork_guard(self->untold);
        }
        self->has_notifier =
            self->untold >= 0
            && dl_thread_start(&self->notifier, run_notifier, self) == DL_OK;
    }
    if (self->has_notifier) {
        wake_thread(self->untold);
    }
}

/* Waits are woken a second time after this delay: one that checked just before the mark
 * and sleeps just after the wake-up would miss the first, and a caller's data may
 * arrive a moment after its connection. */
#define SECOND_WAKE_AFTER (2 * DL_MILLISECOND)

/* Returns whether any source asks to be called again, as `goes_on_reading` says of the
 * last time. */
static bool
notify(detector *self, const findings *found, bool goes_on_reading)
{
    bool has_calls = found->has_calls || goes_on_reading;
    bool goes_on = has_calls && read_all_sources();

    if (found->has_ends || has_calls) {
        wake_all();
    }
    if (found->has_ends || found->is_woken) {
        wake_notifier(self);
    }
    if (!found->has_ends && !has_calls) {
        return goes_on;
    }
    (void)dl_sleep_until(dl_deadline_after(SECOND_WAKE_AFTER));
    wake_all();
    return goes_on;
}

static void *
run_detector(void *argument)
{
    detector *self = argument;
    struct epoll_event event;
    bool goes_on_reading = false;

    while (!atomic_load(&self->stops)) {
        findings found = {0};
        int limit = goes_on_reading ? (int)(DL_CALL_SOURCE_RETRY / DL_MILLISECOND) : -1;
        int count = epoll_wait(self->epoll, &event, 1, limit);
        if (count < 0 && errno != EINTR) {
            return NULL;
        }
        lock_table();
        if (count == 1) {
            take_event_locked(self, &event, &found);
        }
        poll_locked(self, &found);
        unlock_table();
        goes_on_reading = notify(self, &found, goes_on_reading);
    }
    return NULL;
}

static bool
add_descriptor(detector *self, int fd, uint32_t events, uint64_t number)
{
    struct epoll_event event = {.events = events, .data.u64 = number};

    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void
free_detector(detector *self)
{
    atomic_store(&self->stops, true);
    if (self->has_thread) {
        wake_thread(self->wake);
        pthread_join(self->thread, NULL);
    }
    if (self->has_notifier) {
        wake_thread(self->untold);
        pthread_join(self->notifier, NULL);
    }
    dl_socket_close(self->untold);
    dl_socket_close(self->epoll);
    dl_socket_close(self->wake);
    free(self);
}

/* If the thread cannot be started, waits inspect the table themselves
 * (dl_process_table_poll). */
static dl_status
start_detector_locked(void)
{
    detector *made = calloc(1, sizeof *made);

    if (made == NULL) {
        return dl_fail_no_memory();
    }
    made->untold = -1;
    made->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    made->epoll = epoll_create1(EPOLL_CLOEXEC);
    dl_fork_guard(made->wake);
    dl_fork_guard(made->epoll);
    if (made->wake < 0 || made->epoll < 0
        || !add_descriptor(made, made->wake, EPOLLIN | EPOLLET, WAKE_NUMBER)) {
        dl_status status =
            dl_fail(DL_INTERNAL, "watching other processes: %s", strerror(errno));
        free_detector(made);
        return status;
    }
    made->has_thread = dl_thread_start(&made->thread, run_detector, made) == DL_OK;
    table.detector = made;
    return DL_OK;
}

/* Counts down the watched processes and sources.  Returns the detector if nothing is
 * watched any more, for the caller to free without the lock; else NULL. */
static detector *
drop_watch_locked(void)
{
    detector *idle = NULL;

    if (--table.watched == 0) {
        idle = table.detector;
        table.detector = NULL;
    }
    return idle;
}

/* The last reference is dropped with the lock held, so that dl_process_find() cannot
 * return the entry meanwhile. */
void
dl_process_unref(dl_process *process)
{
    detector *idle = NULL;

    if (process == NULL) {
        return;
    }
    lock_table();
    bool is_last = dl_reference_drop(&process->references);
    if (is_last && process->fork_generation == dl_fork_generation()) {
        dl_map_remove(&table.processes, &process->entry);
        close_descriptors(process, table.detector);
        idle = process->is_watched ? drop_watch_locked() : NULL;
    }
    unlock_table();
    if (idle != NULL) {
        free_detector(idle);
    }
    if (is_last) {
        free(process);
    }
}

/* `*idle` becomes a detector that the caller frees without the lock, if any. */
static dl_status
watch_locked(dl_process *self, int lifeline, int pidfd, detector **idle)
{
    bool is_own =
        table.has_id && memcmp(&self->id, &table.own.id, sizeof self->id) == 0;

    if (is_own || self->is_watched || atomic_load(&self->has_ended)) {
        dl_socket_close(lifeline);
        dl_socket_close(pidfd);
        return DL_OK;
    }
    self->descriptors[0] = lifeline;
    self->descriptors[1] = pidfd;
    if (table.detector == NULL) {
        dl_status status = start_detector_locked();
        if (status != DL_OK) {
            close_descriptors(self, NULL);
            return status;
        }
    }
    table.watched++;
    for (int i = 0; i < 2; i++) {
        if (self->descriptors[i] >= 0
            && !add_descriptor(table.detector, self->descriptors[i], EPOLLIN,
                               self->number)) {
            dl_status status =
                dl_fail(DL_INTERNAL, "watching another process: %s", strerror(errno));
            close_descriptors(self, table.detector);
            *idle = drop_watch_locked();
            return status;
        }
    }
    self->is_watched = true;
    return DL_OK;
}

dl_status
dl_process_watch(dl_process *process, int lifeline, int pidfd)
{
    detector *idle = NULL;

    lock_table();
    dl_status status = watch_locked(process, lifeline, pidfd, &idle);
    unlock_table();
    if (idle != NULL) {
        free_detector(idle);
    }
    return status;
}

bool
dl_process_has_ended(const dl_process *process)
{
    return process != NULL && atomic_load(&process->has_ended);
}

/* Returns whether a descriptor of the process says that it has ended. */
static bool
is_gone_locked(const dl_process *process)
{
    struct pollfd polls[2];

    for (int i = 0; i < 2; i++) {
        polls[i] = (struct pollfd){.fd = process->descriptors[i], .events = POLLIN};
    }
    bool is_gone = poll(polls, 2, 0) > 0;
    if (is_gone) {
        atomic_store(&has_seen_end, true);
    }
    return is_gone;
}

bool
dl_process_is_gone(const dl_process *process)
{
    if (process == NULL || dl_process_has_ended(process)) {
        return process != NULL;
    }
    lock_table();
    bool is_gone = is_gone_locked(process);
    unlock_table();
    return is_gone || dl_process_has_ended(process);
}

bool
dl_process_any_has_ended(void)
{
    lock_table();
    for (dl_map_entry *entry = dl_map_first(&table.processes); entry != NULL;
         entry = dl_map_next(&table.processes, entry)) {
        (void)is_gone_locked(process_of(entry));
    }
    unlock_table();
    return atomic_load(&has_seen_end);
}

void
dl_process_set_ended(dl_process *process)
{
    if (!atomic_exchange(&process->has_ended, true)) {
        atomic_store(&has_set_end, true);
        wake_all();
    }
}

bool
dl_process_any_end_is_known(void)
{
    return atomic_load(&has_seen_end) || atomic_load(&has_set_end);
}

void
dl_process_table_poll(void)
{
    findings found = {0};

    lock_table();
    if (table.detector != NULL && !table.detector->has_thread) {
        poll_locked(table.detector, &found);
    }
    unlock_table();
    if (found.has_ends) {
        wake_all();
    }
}

static void
lock_audience(void)
{
    pthread_once(&once, init_once);
    pthread_mutex_lock(&audience.notifying);
    pthread_mutex_lock(&audience.waking);
}

static void
unlock_audience(void)
{
    pthread_mutex_unlock(&audience.waking);
    pthread_mutex_unlock(&audience.notifying);
}

void
dl_end_subscribe(dl_end_subscriber *subscriber)
{
    lock_audience();
    dl_list_append(&audience.subscribers, &subscriber->node);
    audience.to_notify += subscriber->notify != NULL;
    unlock_audience();
}

void
dl_end_unsubscribe(dl_end_subscriber *subscriber)
{
    lock_audience();
    while (audience.told == subscriber) {
        pthread_mutex_unlock(&audience.waking);
        pthread_cond_wait(&audience.is_told, &audience.notifying);
        pthread_mutex_lock(&audience.waking);
    }
    /* Removing a neighbour changes the node as well, so it is read with the locks
     * held. */
    if (subscriber->node.next != NULL) {
        dl_list_remove(&subscriber->node);
        audience.to_notify -= subscriber->notify != NULL;
    }
    unlock_audience();
}

void
dl_end_call_notifier(void)
{
    lock_table();
    if (table.detector != NULL) {
        wake_thread(table.detector->wake);
    }
    unlock_table();
}

/* Edge-triggered: a connection that cannot be accepted, for lack of descriptors, must
 * not wake the thread again and again. */
static dl_status
watch_calls_locked(dl_call_source *source)
{
    if (table.detector == NULL) {
        DL_TRY(start_detector_locked());
    }
    table.watched++;
    source->is_watched = true;
    return add_descriptor(table.detector, source->fd, EPOLLIN | EPOLLET, CALL_NUMBER)
               ? DL_OK
               : dl_fail(DL_INTERNAL, "watching a socket: %s", strerror(errno));
}

dl_status
dl_call_source_add(dl_call_source *source)
{
    source->fork_generation = dl_fork_generation();
    lock_audience();
    dl_list_append(&audience.sources, &source->node);
    unlock_audience();
    lock_table();
    dl_status status = watch_calls_locked(source);
    unlock_table();
    if (status != DL_OK) {
        dl_call_source_remove(source);
    }
    return status;
}

void
dl_call_source_remove(dl_call_source *source)
{
    detector *idle = NULL;

    if (source->node.next == NULL || source->fork_generation != dl_fork_generation()) {
        return;
    }
    lock_audience();
    dl_list_remove(&source->node);
    unlock_audience();
    lock_table();
    if (source->is_watched) {
        (void)epoll_ctl(table.detector->epoll, EPOLL_CTL_DEL, source->fd, NULL);
        idle = drop_watch_locked();
    }
    source->is_watched = false;
    unlock_table();
    if (idle != NULL) {
        free_detector(idle);
    }
}
