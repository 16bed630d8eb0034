/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/deadlock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/thread.h"
#include "pg/agree/wait_exchange.h"
#include "pg/agree/wait_words.h"
#include "pg/group_state.h"
#include "pg/record/blocked_threads.h"
#include "pg/agree/own_waits.h"
#include "pg/record/recorder.h"
#include "pg/record/wait_graph.h"
#include "store/store.h"

#define DEFAULT_SECONDS 5

/* The searches follow each other quickly at first and then slow down, so a cycle is
 * confirmed soon, and a rank that waits for a slow one costs the store little. */
#define FIRST_PAUSE (200 * DL_MILLISECOND)
#define FIRST_SEARCHES 8
#define LAST_PAUSE (2 * DL_SECOND)

/* The pauses grow by LAST_PAUSE per this many ranks, since the store serves
 * all of them. */
#define RANKS_PER_PAUSE 64

/* Late ranks that are described one by one; the others are only counted. */
#define LISTED_RANKS 3

#define LATE_RANKS DL_WAIT_AWAITED

/* An operation of this process that is in the reported cycle. */
typedef struct reported_record {
    const dl_record *record;
    int64_t started;
} reported_record;

/* A cycle that was found once and is to be confirmed. */
typedef struct candidate {
    dl_wait_cycle cycle;
    uint64_t ids[DL_WAIT_STEPS];    /* of the waits in the cycle */
    uint64_t epochs[DL_WAIT_STEPS]; /* of their processes, like beats */
    uint64_t beats[DL_WAIT_STEPS];
} candidate;

typedef struct late_rank {
    int rank;
    bool is_known;
    bool is_here; /* it has begun the operation after all */
    dl_doing doing;
} late_rank;

/* The ranks that an operation waits for. */
typedef struct late_list {
    const char *group;
    int64_t sequence;
    bool is_message;
    int count;
    late_rank ranks[LATE_RANKS];
} late_list;

/* A text about the late ranks of an operation that is about to time out. */
typedef struct late_text {
    const dl_record *record;
    int64_t started;
    char text[DL_WAIT_LATE_SIZE];
} late_text;

/* The state of the detector's thread between two searches. */
typedef struct detector {
    dl_wait_exchange exchange;
    dl_own_waits own;
    uint64_t reported_epoch;
    candidate candidate;
} detector;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static dl_group *world;
static bool is_running;
static char reported_text[DL_WAIT_TEXT_SIZE];
static reported_record reported[DL_WAIT_ROWS];
static int reported_count;
static bool is_off; /* by the environment */
static int64_t after = DEFAULT_SECONDS * DL_SECOND;
static late_text lates[DL_WAIT_ROWS];
static int late_count;
static bool is_urgent; /* a deadline is near, so the next look is to be soon */

/* signalled for the detector's thread when `world` or `is_urgent` changes */
static pthread_cond_t wakeup;

static void
reset_detector(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dl_condition_init(&wakeup);
    world = NULL;
    is_running = false;
    reported_count = 0;
    late_count = 0;
    is_urgent = false;
}

__attribute__((constructor)) static void
init_detector(void)
{
    dl_reset_at_fork(reset_detector);
}

static int64_t
slowest_pause(int size)
{
    return LAST_PAUSE * (1 + size / RANKS_PER_PAUSE);
}

/* Returns how long a wait must last before the detector considers it. */
static int64_t
least_wait(void)
{
    pthread_mutex_lock(&lock);
    int64_t found = after;
    pthread_mutex_unlock(&lock);
    return found;
}

static const dl_wait_state *const *
states_of(const detector *self)
{
    return (const dl_wait_state *const *)self->exchange.states;
}

/* Keeps the report for the errors of this process's operations. */
static void
remember_report(const detector *self, const char *text)
{
    pthread_mutex_lock(&lock);
    snprintf(reported_text, sizeof reported_text, "%s", text);
    reported_count = 0;
    for (uint32_t i = 0; i < self->own.state.row_count; i++) {
        if (self->own.state.rows[i].is_program) {
            reported[reported_count++] =
                (reported_record){self->own.records[i], self->own.started[i]};
        }
    }
    pthread_mutex_unlock(&lock);
}

static bool
take_recording(void *context, const char *path, dl_buffer *copy)
{
    late_list *self = context;
    dl_bytes snapshot = dl_buffer_bytes(copy);
    dl_recording_header header;

    (void)path;
    if (!dl_recording_check(snapshot.data, snapshot.size, &header)) {
        return true;
    }
    for (int i = 0; i < self->count; i++) {
        late_rank *late = &self->ranks[i];
        if (late->rank == header.rank) {
            late->is_known = dl_doing_read(snapshot, &late->doing);
            late->is_here =
                !self->is_message
                && dl_doing_has_begun(snapshot, self->group, (uint64_t)self->sequence);
        }
    }
    return true;
}

/* Takes what a rank has reported of itself, whose recording is not on this host.  That grows
 * by its age. */
static void
copy_state(late_rank *late, const dl_wait_state *state)
{
    if (state == NULL || state->doing.pid == 0) {
        return;
    }
    int64_t age = dl_wall_clock() - state->written;
    late->doing = state->doing;
    late->doing.span += age > 0 ? age : 0;
    late->is_known = true;
}

/* Writes what is known of the ranks that `row` of `rank` waits for; the text is empty
 * if nothing is.  It comes from the recordings of ranks on this host, and otherwise from
 * `states`, which is indexed by rank, as for dl_wait_late_find(). */
static void
describe_late(const dl_wait_state *const *states, int size, int rank, int row,
              char text[DL_WAIT_LATE_SIZE])
{
    const dl_wait_row *own = &states[rank]->rows[row];
    int ranks[LATE_RANKS];
    late_list late = {
        .group = states[rank]->groups[own->group].name,
        .sequence = own->sequence,
        .is_message = dl_op_type_is_message(own->op),
        .count = dl_wait_late_find(states, size, rank, row, ranks, LATE_RANKS),
    };
    int described = 0;
    int more = 0;

    for (int i = 0; i < late.count; i++) {
        late.ranks[i].rank = ranks[i];
    }
    dl_recorder_visit_job(take_recording, &late);
    text[0] = '\0';
    for (int i = 0; i < late.count; i++) {
        if (!late.ranks[i].is_known) {
            copy_state(&late.ranks[i], states[ranks[i]]);
        }
        if (!late.ranks[i].is_known || late.ranks[i].is_here || ranks[i] == rank) {
            continue;
        }
        if (described < LISTED_RANKS) {
            dl_wait_words_late(ranks[i], &late.ranks[i].doing, text);
            described++;
        } else {
            more++;
        }
    }
    if (more > 0) {
        dl_wait_words_more(more, text);
    }
}

static bool
has_not_ended(const dl_own_waits *own, const late_text *text)
{
    for (uint32_t i = 0; i < own->state.row_count; i++) {
        if (own->records[i] == text->record && own->started[i] == text->started) {
            return true;
        }
    }
    return false;
}

/* Returns the index of the slot for an operation of `own`: its own one, a new one, or
 * that of an operation that has ended.  One of these exists, since `own` has no more
 * operations than there are slots. */
static int
find_slot_locked(const dl_own_waits *own, const dl_record *record)
{
    int at = 0;

    while (at < late_count && lates[at].record != record) {
        at++;
    }
    if (at < DL_WAIT_ROWS) {
        late_count = at < late_count ? late_count : at + 1;
        return at;
    }
    at = 0;
    while (at < DL_WAIT_ROWS - 1 && has_not_ended(own, &lates[at])) {
        at++;
    }
    return at;
}

/* Keeps what the late ranks are doing, because after the deadline there is no time to
 * ask for it. */
static void
remember_late_ranks(const detector *self)
{
    const dl_own_waits *own = &self->own;
    late_text found;

    for (uint32_t i = 0; i < own->state.row_count; i++) {
        if (!own->fails_soon[i]) {
            continue;
        }
        found.record = own->records[i];
        found.started = own->started[i];
        describe_late(states_of(self), self->exchange.size, own->rank, (int)i,
                      found.text);
        pthread_mutex_lock(&lock);
        lates[find_slot_locked(own, found.record)] = found;
        pthread_mutex_unlock(&lock);
    }
}

/* Adds what the late ranks were doing to the error of an operation that timed out here,
 * or on another rank first: backends repeat the status of the rank that gave up. */
static dl_status
add_late(const dl_record *record, int64_t started, const dl_error *error)
{
    char text[DL_WAIT_LATE_SIZE] = "";

    if (error->status != DL_TIMEOUT) {
        return error->status;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < late_count; i++) {
        if (lates[i].record == record && lates[i].started == started) {
            memcpy(text, lates[i].text, sizeof text);
        }
    }
    pthread_mutex_unlock(&lock);
    return text[0] == '\0' ? error->status
                           : dl_fail(error->status, "%.1300s%s", error->text, text);
}

/* Adds the report of a deadlock that includes the operation, or, after a timeout, what
 * the late ranks were doing, as far as that was known before the deadline. */
static dl_status
explain_failure(const dl_record *record)
{
    char text[DL_WAIT_TEXT_SIZE] = "";
    dl_error error = *dl_last_error();

    int64_t started = atomic_load_explicit(&record->started, memory_order_acquire);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < reported_count; i++) {
        if (reported[i].record == record && reported[i].started == started) {
            memcpy(text, reported_text, sizeof text);
        }
    }
    pthread_mutex_unlock(&lock);
    if (text[0] == '\0') {
        return add_late(record, started, &error);
    }
    if (strstr(error.text, text) != NULL) {
        return error.status;
    }
    /* The error may come from another rank that failed first, and hold its
     * report, cut short. */
    char *same = dl_wait_words_find_cycle(error.text);
    if (same != NULL) {
        *same = '\0';
        return dl_fail(error.status, "%.1000s%s", error.text, text);
    }
    return dl_fail(error.status, "%.1000s; %s", error.text, text);
}

static void
report_cycle(detector *self, const dl_wait_cycle *cycle)
{
    char text[DL_WAIT_TEXT_SIZE];

    dl_wait_words_cycle(states_of(self), cycle, text);
    remember_report(self, text);
    self->reported_epoch = self->own.state.epoch;
    dl_log(DL_LOG_WARNING, "%s", text);
}

static candidate
make_candidate(const detector *self, const dl_wait_cycle *cycle)
{
    candidate made = {.cycle = *cycle};

    for (int i = 0; i < cycle->count; i++) {
        const dl_wait_state *state = self->exchange.states[cycle->steps[i].rank];
        made.ids[i] = state->rows[cycle->steps[i].row].id;
        made.epochs[i] = state->epoch;
        made.beats[i] = state->beat;
    }
    return made;
}

static bool
is_same(const candidate *left, const candidate *right)
{
    bool is_same = left->cycle.count == right->cycle.count;

    for (int i = 0; is_same && i < left->cycle.count; i++) {
        is_same = left->cycle.steps[i].rank == right->cycle.steps[i].rank
                  && left->ids[i] == right->ids[i]
                  && left->epochs[i] == right->epochs[i];
    }
    return is_same;
}

/* A description may be older than the search that read it.  The description two beats
 * later was begun after the one in between had been published, hence after the first
 * search. */
static bool
is_confirmed(const detector *self, const candidate *first, const candidate *second)
{
    for (int i = 0; i < first->cycle.count; i++) {
        if (first->cycle.steps[i].rank != self->own.rank
            && second->beats[i] < first->beats[i] + 2) {
            return false;
        }
    }
    return true;
}

static void
search_cycle(detector *self)
{
    dl_wait_cycle cycle;

    if (!dl_wait_cycle_find(states_of(self), self->exchange.size, self->own.rank,
                            &cycle)) {
        self->candidate.cycle.count = 0;
        return;
    }
    candidate found = make_candidate(self, &cycle);
    if (!is_same(&self->candidate, &found)) {
        self->candidate = found;
    } else if (is_confirmed(self, &self->candidate, &found)) {
        report_cycle(self, &cycle);
    }
}

/* Searches once.  Returns false if no thread waits any more or the store does not
 * answer. */
static bool
search_once(detector *self)
{
    uint64_t epoch = self->own.state.epoch;

    pthread_mutex_lock(&lock);
    is_urgent = false;
    pthread_mutex_unlock(&lock);
    bool is_late = dl_own_waits_describe(&self->own, least_wait());
    if (!is_late) {
        return false;
    }
    if (epoch != self->own.state.epoch) {
        self->candidate.cycle.count = 0;
    }
    /* What is known on this host comes first, as the store may answer too late. */
    if (self->own.has_failing) {
        dl_wait_exchange_forget(&self->exchange, &self->own.state);
        remember_late_ranks(self);
    }
    if (dl_wait_exchange_publish(&self->exchange, &self->own.state) != DL_OK) {
        return false;
    }
    if (self->own.has_failing) {
        if (dl_wait_exchange_read(&self->exchange, &self->own.state) != DL_OK) {
            return false;
        }
        remember_late_ranks(self);
    }
    if (self->own.state.epoch == self->reported_epoch) {
        return true;
    }
    if (dl_wait_exchange_read(&self->exchange, &self->own.state) != DL_OK) {
        return false;
    }
    search_cycle(self);
    return true;
}

/* Pauses, for less time if a deadline is near.  Returns false if the job's group has
 * changed or is gone. */
static bool
pause_detector(const detector *self, int64_t pause)
{
    int64_t begin = dl_now();
    int64_t end = begin + pause;
    int64_t soon =
        begin + slowest_pause(self->exchange.size) * FIRST_PAUSE / LAST_PAUSE;

    pthread_mutex_lock(&lock);
    bool is_here = true;
    while (is_here && dl_now() < end) {
        end = is_urgent && soon < end ? soon : end;
        is_here = world != NULL && world->store == self->exchange.store;
        if (is_here && !dl_condition_wait_until(&wakeup, &lock, end)) {
            break;
        }
    }
    is_here = world != NULL && world->store == self->exchange.store;
    pthread_mutex_unlock(&lock);
    return is_here;
}

static void
detector_free(detector *self)
{
    dl_wait_exchange_fini(&self->exchange);
    free(self);
}

static void *
run_detector(void *argument)
{
    detector *self = argument;
    int64_t slowest = slowest_pause(self->exchange.size);
    int64_t first = slowest * FIRST_PAUSE / LAST_PAUSE;
    int64_t pause = first;
    bool continues = true;
    int count = 0;

    while (continues) {
        uint64_t epoch = self->own.state.epoch;
        continues = search_once(self);
        count = epoch == self->own.state.epoch ? count + 1 : 0;
        pause = count < FIRST_SEARCHES ? first
                : 2 * pause < slowest  ? 2 * pause
                                       : slowest;
        continues = continues && pause_detector(self, pause);
    }
    dl_wait_exchange_withdraw(&self->exchange);
    detector_free(self);
    pthread_mutex_lock(&lock);
    is_running = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Returns NULL if there is nothing to look at or no memory. */
static detector *
detector_new_locked(void)
{
    if (world == NULL || world->store == NULL || world->size < 2) {
        return NULL;
    }
    detector *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return NULL;
    }
    self->own.rank = world->rank;
    if (dl_wait_exchange_init(&self->exchange, world->store, world->rank, world->size)
        != DL_OK) {
        detector_free(self);
        return NULL;
    }
    return self;
}

/* Called when a thread has waited for long, or when its operation is about to time out;
 * starts the detector's thread. */
static void
start_detector(bool fails_soon)
{
    detector *made = NULL;
    pthread_t thread;

    pthread_mutex_lock(&lock);
    if (fails_soon && !is_urgent) {
        is_urgent = true;
        pthread_cond_broadcast(&wakeup);
    }
    if (!is_running && !is_off) {
        made = detector_new_locked();
        is_running = made != NULL;
    }
    pthread_mutex_unlock(&lock);
    if (made == NULL) {
        return;
    }
    if (dl_thread_start(&thread, run_detector, made) == DL_OK) {
        pthread_detach(thread);
        return;
    }
    detector_free(made);
    pthread_mutex_lock(&lock);
    is_running = false;
    pthread_mutex_unlock(&lock);
}

static dl_status
read_mode_locked(void)
{
    const char *text = getenv("DISTLITE_DEADLOCK");

    is_off = text != NULL && strcmp(text, "off") == 0;
    if (text == NULL || text[0] == '\0' || is_off || strcmp(text, "warn") == 0) {
        return DL_OK;
    }
    return dl_fail(DL_INVALID,
                   "DISTLITE_DEADLOCK=%.100s: the value must be warn or off", text);
}

dl_status
dl_deadlock_configure(void)
{
    pthread_mutex_lock(&lock);
    dl_status status = read_mode_locked();
    if (status == DL_OK) {
        status = dl_environment_seconds("DISTLITE_DEADLOCK_SECONDS", 0.1,
                                        DEFAULT_SECONDS, &after);
    }
    dl_blocked_watch(start_detector, after);
    pthread_mutex_unlock(&lock);
    return status;
}

void
dl_deadlock_set_world(dl_group *group)
{
    if (group != NULL) {
        dl_deadlock_enter(group);
    }
    pthread_mutex_lock(&lock);
    world = group;
    pthread_cond_broadcast(&wakeup);
    pthread_mutex_unlock(&lock);
}

void
dl_deadlock_enter(dl_group *group)
{
    dl_recorder_set_explain(explain_failure);
    dl_own_waits_enter(group);
}

void
dl_deadlock_leave(dl_group *group)
{
    dl_own_waits_leave(group);
    pthread_mutex_lock(&lock);
    if (world == group) {
        world = NULL;
        pthread_cond_broadcast(&wakeup);
    }
    pthread_mutex_unlock(&lock);
}
