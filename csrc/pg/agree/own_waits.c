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
add_groups_locked(dl_wait_state *own)
{
    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        dl_group *group = group_of(node);
        if (own->group_count == DL_WAIT_GROUPS) {
            return false;
        }
        dl_wait_group *row = &own->groups[own->group_count++];
        snprintf(row->name, sizeof row->name, "%s", group->name);
        row->begun =
            atomic_load_explicit(&group->host.seat.row->begun, memory_order_acquire);
    }
    return true;
}

/* Returns the group of a record, and its index in the state; NULL if it is not there. */
static dl_group *
find_group_locked(const dl_plain_record *row, uint32_t *index)
{
    *index = 0;
    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        if ((uint32_t)group_of(node)->host.seat.serial == (uint32_t)row->place) {
            return group_of(node);
        }
        ++*index;
    }
    return NULL;
}

/* Reads a record; returns false if it has ended. */
static bool
read_record(const dl_record *record, dl_plain_record *row)
{
    if (!dl_row_read(&record->version, row, DL_ROW_WORDS(*row))) {
        return false;
    }
    uint8_t state = dl_record_state(row->what);
    return state == DL_RECORD_QUEUED || state == DL_RECORD_RUNNING;
}

static int32_t
global_rank(const dl_group *group, int rank)
{
    bool is_known = rank >= 0 && rank < group->size;

    return !is_known                     ? -1
           : group->global_ranks == NULL ? rank
                                         : group->global_ranks[rank];
}

/* Sets the ranks in the job that an operation waits for: those that its thread has
 * noted, or the peer of a message; a receive from any rank may be served by any other
 * rank. */
static void
set_awaited(const dl_group *group, const dl_plain_record *row, const dl_awaited *noted,
            dl_awaited *awaited)
{
    uint8_t op = dl_record_op(row->what);
    int peer = (int)dl_record_root(row->what);

    *awaited = noted == NULL ? (dl_awaited){.count = 0} : *noted;
    for (int rank = 0; dl_op_type_is_message(op) && rank < group->size; rank++) {
        if (op == DL_RECV_ANY ? rank != group->rank : rank == peer) {
            dl_awaited_add(awaited, rank);
        }
    }
    for (uint32_t i = 0; i < awaited->count; i++) {
        awaited->ranks[i] = global_rank(group, awaited->ranks[i]);
    }
}

/* Describes the operation that the thread waits in; returns false if it has ended. */
static bool
add_wait_locked(dl_own_waits *self, const dl_blocked_thread *thread)
{
    dl_wait_state *own = &self->state;
    dl_plain_record row;

    if (thread->record == NULL || !read_record(thread->record, &row)) {
        return false;
    }
    const dl_group *group = find_group_locked(&row, &own->group);
    if (group == NULL) {
        return false;
    }
    self->record = thread->record;
    self->started = row.started;
    set_awaited(group, &row, &thread->awaited, &own->awaited);
    dl_doing_take(&own->doing, &row);
    snprintf(own->doing.group, sizeof own->doing.group, "%s", group->name);
    dl_recorder_describe_site(row.place, own->doing.site);
    own->doing.pid = getpid();
    gethostname(own->doing.host, sizeof own->doing.host - 1);
    return true;
}

/* Adds the other operations that have not ended, including those that nobody waits for.
 * Returns false if there are too many or some were not recorded. */
static bool
add_records_locked(dl_own_waits *self)
{
    const dl_recorder *recorder = dl_recorder_self();
    dl_wait_state *own = &self->state;
    dl_plain_record row;
    uint32_t index;

    for (uint32_t at = 0; at <= recorder->mask; at++) {
        const dl_record *record = &recorder->tables.records[at];
        const dl_group *group =
            read_record(record, &row) ? find_group_locked(&row, &index) : NULL;
        uint8_t op = dl_record_op(row.what);
        if (group == NULL) {
            continue;
        }
        if (!dl_op_type_is_message(op)) {
            own->groups[index].is_busy |= record != self->record;
            continue;
        }
        if (own->message_count == DL_WAIT_MESSAGES) {
            return false;
        }
        int peer = (int)dl_record_root(row.what);
        own->messages[own->message_count++] = (dl_wait_message){
            .tag = row.sequence,
            .peer = op == DL_RECV_ANY ? -1 : global_rank(group, peer),
            .group = index,
            .op = op,
        };
    }
    return atomic_load(&recorder->dropped) == 0;
}

/* Returns whether the operation of the thread, which runs the jobs of a group, is the one
 * that occupies the lane. */
static bool
is_in_lane_locked(const dl_blocked_thread *thread, const void *lane)
{
    dl_plain_record row;
    uint32_t index;

    if (thread->id == 0 || thread->record == NULL
        || !read_record(thread->record, &row)) {
        return false;
    }
    const dl_group *group = find_group_locked(&row, &index);
    return group != NULL && &group->host.lane == lane;
}

/* Adds what the main thread waits for: an operation of its own, or one in whose lane it
 * stands.  Returns false if that is not known. */
static bool
add_main_locked(dl_own_waits *self, const dl_blocked_thread *threads, int count,
                const dl_blocked_thread *main)
{
    self->state.id = main->id;
    if (main->id == 0 || main->lane == NULL) {
        return main->id != 0 && add_wait_locked(self, main);
    }
    for (int i = 0; i < count; i++) {
        if (is_in_lane_locked(&threads[i], main->lane)) {
            self->state.id = main->id ^ threads[i].id << 32;
            return add_wait_locked(self, &threads[i]);
        }
    }
    return false;
}

bool
dl_own_waits_describe(dl_own_waits *self, int64_t after)
{
    dl_blocked_thread threads[THREADS];
    const dl_blocked_thread *caller = NULL;
    int count, callers = 0;
    bool is_late = false;
    int others = count_threads == NULL ? 0 : count_threads();
    bool is_whole = dl_blocked_list(threads, THREADS, &count) && others >= 0;
    dl_wait_state *own = &self->state;

    memset(own, 0, sizeof *own);
    self->record = NULL;
    own->rank = self->rank;
    own->others = others > 1 ? (uint32_t)others - 1 : 0;
    own->beat = ++self->beat;
    for (int i = 0; i < count; i++) {
        if (!threads[i].is_own) {
            caller = &threads[i];
            callers++;
            is_late |= caller->id != 0 && dl_now() - caller->since >= after;
        }
    }
    pthread_mutex_lock(&lock);
    is_whole = add_groups_locked(own) && is_whole;
    own->is_blocked = is_whole && is_late && callers == 1 && caller->is_main
                      && add_main_locked(self, threads, count, caller)
                      && add_records_locked(self);
    pthread_mutex_unlock(&lock);
    return is_late;
}

bool
dl_own_waits_find(const dl_record *record, dl_own_wait *wait)
{
    dl_plain_record row;
    uint32_t index;

    pthread_mutex_lock(&lock);
    const dl_group *group =
        read_record(record, &row) ? find_group_locked(&row, &index) : NULL;
    if (group != NULL) {
        wait->sequence = row.sequence;
        wait->is_message = dl_op_type_is_message(dl_record_op(row.what));
        snprintf(wait->group, sizeof wait->group, "%s", group->name);
        set_awaited(group, &row, dl_blocked_awaited(record, row.started),
                    &wait->awaited);
    }
    pthread_mutex_unlock(&lock);
    return group != NULL;
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
