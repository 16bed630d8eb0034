/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/own_waits.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "pg/group_state.h"
#include "pg/record/blocked_threads.h"
#include "pg/record/recorder.h"

#define THREADS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static dl_list groups;
static int (*count_threads)(void);

static void
reset_groups(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dl_list_init(&groups);
}

__attribute__((constructor)) static void
init_groups(void)
{
    dl_reset_at_fork(reset_groups);
}

static dl_group *
group_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_group, deadlock_node);
}

/* Adds all groups; returns false if there are too many. */
static bool
add_groups_locked(dl_own_waits *self)
{
    dl_wait_state *own = &self->state;

    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        dl_group *group = group_of(node);
        if (own->group_count == DL_WAIT_GROUPS) {
            return false;
        }
        dl_wait_group *row = &own->groups[own->group_count];
        snprintf(row->name, sizeof row->name, "%s", group->name);
        row->begun =
            atomic_load_explicit(&group->host.seat.row->begun, memory_order_acquire);
        row->running = DL_WAIT_IDLE;
        self->serials[own->group_count++] = (uint32_t)group->host.seat.serial;
    }
    return true;
}

static dl_group *
find_group_locked(uint32_t serial)
{
    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        if ((uint32_t)group_of(node)->host.seat.serial == serial) {
            return group_of(node);
        }
    }
    return NULL;
}

static int
find_serial(const dl_own_waits *self, uint32_t serial)
{
    for (uint32_t i = 0; i < self->state.group_count; i++) {
        if (self->serials[i] == serial) {
            return (int)i;
        }
    }
    return -1;
}

/* Reads a record; returns false if it has ended or its group is not in the state. */
static bool
read_record(const dl_own_waits *self, const dl_record *record, dl_plain_record *row,
            uint32_t *group)
{
    if (!dl_row_read(&record->version, row, DL_ROW_WORDS(*row))) {
        return false;
    }
    uint8_t state = dl_record_state(row->what);
    int at = find_serial(self, (uint32_t)row->place);
    *group = (uint32_t)at;
    return (state == DL_RECORD_QUEUED || state == DL_RECORD_RUNNING) && at >= 0;
}

static int32_t
global_rank(const dl_group *group, int rank)
{
    bool is_known = rank >= 0 && rank < group->size;

    return !is_known                     ? -1
           : group->global_ranks == NULL ? rank
                                         : group->global_ranks[rank];
}

/* Adds the peers of a message; a receive from any rank may be served by
 * any other rank. */
static void
add_peers(const dl_group *group, dl_wait_row *row)
{
    bool is_any = row->op == DL_RECV_ANY;

    for (int rank = 0; rank < group->size; rank++) {
        if (is_any ? rank != group->rank : rank == (int)row->root) {
            dl_awaited_add(&row->awaited, rank);
        }
    }
}

static void
fill_row(const dl_own_waits *self, const dl_blocked_thread *thread,
         const dl_plain_record *from, dl_wait_row *row)
{
    const dl_group *group = find_group_locked(self->serials[row->group]);

    row->id = thread->id;
    row->count = from->count;
    row->waited = dl_now() - (from->queued != 0 ? from->queued : from->started);
    row->sequence = from->sequence;
    row->root = dl_record_root(from->what);
    row->op = dl_record_op(from->what);
    row->dtype = dl_record_dtype(from->what);
    row->reduce_op = dl_record_reduce_op(from->what);
    row->awaited = thread->awaited;
    if (dl_op_type_is_message(row->op)) {
        add_peers(group, row);
    }
    for (uint32_t i = 0; i < row->awaited.count; i++) {
        row->awaited.ranks[i] = global_rank(group, row->awaited.ranks[i]);
    }
    dl_recorder_describe_site(from->place, row->site);
}

/* Adds the row in which the thread waits and returns its index; -1 if there is none. */
static int
add_thread_locked(dl_own_waits *self, const dl_blocked_thread *thread)
{
    dl_wait_state *own = &self->state;
    dl_plain_record from;
    uint32_t group;

    if (thread->id == 0 || thread->record == NULL
        || !read_record(self, thread->record, &from, &group)) {
        return -1;
    }
    for (uint32_t i = 0; i < own->row_count; i++) {
        if (self->records[i] == thread->record) {
            return (int)i;
        }
    }
    if (own->row_count == DL_WAIT_ROWS) {
        return -1;
    }
    self->records[own->row_count] = thread->record;
    self->started[own->row_count] = from.started;
    self->fails_soon[own->row_count] = dl_deadline_is_near(thread->deadline);
    own->rows[own->row_count] = (dl_wait_row){.group = group};
    fill_row(self, thread, &from, &own->rows[own->row_count]);
    return (int)own->row_count++;
}

/* Adds the operations that have not ended, including those that nobody waits for.
 * Returns false if there are too many or some were not recorded. */
static bool
add_records_locked(dl_own_waits *self)
{
    const dl_recorder *recorder = dl_recorder_self();
    dl_wait_state *own = &self->state;
    dl_plain_record from;
    uint32_t group;

    for (uint32_t at = 0; at <= recorder->mask; at++) {
        const dl_record *record = &recorder->tables.records[at];
        if (!read_record(self, record, &from, &group)) {
            continue;
        }
        uint8_t op = dl_record_op(from.what);
        if (!dl_op_type_is_message(op)) {
            dl_wait_group *row = &own->groups[group];
            bool is_queued = dl_record_state(from.what) == DL_RECORD_QUEUED;
            row->queued += is_queued ? 1 : 0;
            row->running = is_queued ? row->running : DL_WAIT_UNKNOWN;
            for (uint32_t i = 0; !is_queued && i < own->row_count; i++) {
                row->running = self->records[i] == record ? (int32_t)i : row->running;
            }
            continue;
        }
        if (own->message_count == DL_WAIT_MESSAGES) {
            return false;
        }
        own->messages[own->message_count++] = (dl_wait_message){
            .tag = from.sequence,
            .peer = op == DL_RECV_ANY
                        ? -1
                        : global_rank(find_group_locked(self->serials[group]),
                                      (int)dl_record_root(from.what)),
            .group = group,
            .op = op,
        };
    }
    return atomic_load(&recorder->dropped) == 0;
}

/* Returns the row of the operation that occupies the lane, or -1. */
static int
find_lane_locked(const dl_own_waits *self, const void *lane)
{
    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        if (&group_of(node)->host.lane == lane) {
            int at = find_serial(self, (uint32_t)group_of(node)->host.seat.serial);
            return at < 0 ? -1 : self->state.groups[at].running;
        }
    }
    return -1;
}

static uint64_t
mix_hash(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

/* The process is blocked if every thread that is known to call operations has waited
 * for one for at least `after`. */
static void
find_blocked_threads_locked(dl_own_waits *self, const dl_blocked_thread *threads,
                            const int *rows, int count, int64_t after)
{
    dl_wait_state *own = &self->state;
    int64_t now = dl_now();
    bool has_main = false;

    own->is_blocked = 1;
    for (int i = 0; i < count; i++) {
        const dl_blocked_thread *thread = &threads[i];
        if (thread->is_own) {
            continue;
        }
        int row = thread->id != 0 && thread->lane != NULL
                      ? find_lane_locked(self, thread->lane)
                      : rows[i];
        has_main |= thread->is_main;
        if (row < 0 || now - thread->since < after) {
            own->is_blocked = 0;
            continue;
        }
        own->rows[row].is_program = 1;
        own->epoch = mix_hash(mix_hash(own->epoch, thread->id), own->rows[row].id);
        own->others -= own->others > 0 ? 1 : 0;
    }
    own->is_blocked &= has_main ? 1 : 0;
}

static void
describe_doing(dl_doing *doing)
{
    dl_buffer copy = {0};

    *doing = (dl_doing){0};
    if (dl_recorder_snapshot(&copy) == DL_OK && copy.size > 0) {
        (void)dl_doing_read(dl_buffer_bytes(&copy), doing);
    }
    dl_buffer_fini(&copy);
}

bool
dl_own_waits_describe(dl_own_waits *self, int64_t after)
{
    dl_blocked_thread threads[THREADS];
    int rows[THREADS];
    int count;
    bool is_late = false;
    int others = count_threads == NULL ? 0 : count_threads();
    bool is_whole = dl_blocked_list(threads, THREADS, &count) && others >= 0;
    dl_wait_state *own = &self->state;

    memset(own, 0, sizeof *own);
    own->pid = getpid();
    own->rank = self->rank;
    own->others = others < 0 ? 0 : (uint32_t)others;
    own->beat = ++self->beat;
    own->written = dl_wall_clock();
    describe_doing(&own->doing);
    self->has_failing = false;
    gethostname(own->host, sizeof own->host - 1);
    pthread_mutex_lock(&lock);
    is_whole = add_groups_locked(self) && is_whole;
    for (int i = 0; i < count; i++) {
        rows[i] = add_thread_locked(self, &threads[i]);
        bool is_long = threads[i].id != 0 && !threads[i].is_own
                       && dl_now() - threads[i].since >= after;
        bool fails_soon = rows[i] >= 0 && self->fails_soon[rows[i]];
        is_late |= is_long || fails_soon;
        self->has_failing |= fails_soon;
    }
    is_whole = add_records_locked(self) && is_whole;
    find_blocked_threads_locked(self, threads, rows, count, after);
    pthread_mutex_unlock(&lock);
    own->is_blocked &= is_whole ? 1 : 0;
    return is_late;
}

void
dl_own_waits_count_threads(int (*count)(void))
{
    pthread_mutex_lock(&lock);
    count_threads = count;
    pthread_mutex_unlock(&lock);
}

void
dl_own_waits_enter(dl_group *group)
{
    pthread_mutex_lock(&lock);
    if (group->host.seat.row != NULL && group->deadlock_node.next == NULL) {
        dl_list_append(&groups, &group->deadlock_node);
    }
    pthread_mutex_unlock(&lock);
}

void
dl_own_waits_leave(dl_group *group)
{
    pthread_mutex_lock(&lock);
    /* A group from before a fork is still linked to the list of then. */
    if (!dl_group_is_inherited(group)) {
        dl_list_remove(&group->deadlock_node);
    }
    pthread_mutex_unlock(&lock);
}
