/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/deadlock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "pg/agree/own_waits.h"
#include "pg/group_state.h"
#include "pg/record/blocked_threads.h"
#include "pg/record/recorder.h"
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

/* The most ranks whose states are read in one search. */
#define READS 128

/* The time that the store has for requests that it answers at once. */
#define ANSWER_LIMIT (5 * DL_SECOND)

#define KEY_SIZE 64

/* Late ranks that are described one by one; the others are only counted. */
#define LISTED_RANKS 3

/* Leave room in an error's text for what happened. */
#define REPORT_SIZE 1792
#define LATE_SIZE 704

/* Many messages may time out at once: what a look at the late ranks found is told for
 * this long, and the looks of one such time end after LOOKS in all. */
#define LOOK_LIFE DL_SECOND
#define LOOKS (100 * DL_MILLISECOND)

/* A cycle that was found once and is to be confirmed. */
typedef struct candidate {
    dl_wait_cycle cycle;
    uint64_t ids[DL_WAIT_STEPS];   /* of the waits in the cycle */
    uint64_t beats[DL_WAIT_STEPS]; /* of their processes */
} candidate;

/* The state of the detector's thread between two searches. */
typedef struct detector {
    dl_store *store; /* owns a reference */
    int size;
    dl_own_waits own;
    dl_wait_state **states; /* by rank; all but this rank's own are owned */
    uint64_t reported_id;
    candidate candidate;
} detector;

/* The last look at late ranks, and the time that looks have taken since. */
typedef struct last_look {
    dl_own_wait wait;
    char text[LATE_SIZE];
    int64_t since;
    int64_t spent;
} last_look;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static dl_group *world;
static bool is_running;
static char reported_text[REPORT_SIZE];
static const dl_record *reported; /* the operation that it is about */
static int64_t reported_started;
static last_look look;
static bool is_off; /* by the environment */
static int64_t after = DEFAULT_SECONDS * DL_SECOND;

/* signalled for the detector's thread when `world` changes */
static pthread_cond_t wakeup;

static void
reset_detector(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dl_condition_init(&wakeup);
    world = NULL;
    is_running = false;
    reported = NULL;
}

__attribute__((constructor)) static void
init_detector(void)
{
    dl_reset_at_fork(reset_detector);
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

static const char opening[] = "deadlock: these ranks wait for each other:";

/* A text that grows at its end and is cut at its limit. */
typedef struct report {
    char *text;
    size_t room;
    size_t size;
} report;

static void
append_site(report *self, const char *site)
{
    if (site[0] != '\0') {
        dl_text_append(self->text, self->room, &self->size, ", called at %s", site);
    }
}

/* `peer` is "to" or "from" for a message whose peer is named. */
static void
append_call(report *self, const dl_doing *doing, const char *peer)
{
    char text[DL_FINGERPRINT_TEXT_SIZE];
    dl_fingerprint what = {.op = doing->op,
                           .dtype = doing->dtype,
                           .root = doing->root,
                           .detail = doing->reduce_op};

    dl_fingerprint_set_count(&what, doing->count);
    dl_fingerprint_describe(&what, text, sizeof text);
    dl_text_append(self->text, self->room, &self->size, "%s", text);
    if (peer != NULL) {
        dl_text_append(self->text, self->room, &self->size, " %s rank %" PRIu32, peer,
                       what.root);
    }
    dl_text_append(self->text, self->room, &self->size, "%s%" PRId64 " in group %s",
                   dl_op_type_is_message(what.op) ? " with tag " : " #",
                   doing->sequence, doing->group);
    append_site(self, doing->site);
}

static void
append_span(report *self, int64_t span)
{
    dl_text_append(self->text, self->room, &self->size, " %.1f s ago",
                   (double)span / (double)DL_SECOND);
}

/* Writes a headline and a line for each rank of the cycle.  What does not fit into
 * REPORT_SIZE bytes is cut off. */
static void
describe_cycle(dl_wait_state *const *states, const dl_wait_cycle *cycle, char *text)
{
    report report = {.text = text, .room = REPORT_SIZE};

    dl_text_append(report.text, report.room, &report.size, "%s", opening);
    for (int i = 0; i < cycle->count; i++) {
        int rank = cycle->ranks[i];
        const dl_wait_state *state = states[rank];
        dl_text_append(report.text, report.room, &report.size,
                       "\n  rank %d (pid %" PRId64 " on host %s) waits for rank %d in ",
                       rank, state->doing.pid, state->doing.host,
                       cycle->ranks[(i + 1) % cycle->count]);
        append_call(&report, &state->doing, NULL);
        append_span(&report, state->doing.span);
        if (state->others > 0) {
            dl_text_append(report.text, report.room, &report.size,
                           "; it has %" PRIu32
                           " more thread%s, which may still make the call",
                           state->others, state->others == 1 ? "" : "s");
        }
    }
}

/* Appends what a late rank is doing. */
static void
describe_late(int rank, const dl_doing *doing, char text[LATE_SIZE])
{
    report report = {.text = text, .room = LATE_SIZE, .size = strlen(text)};
    bool has_ended = doing->state == DL_RECORD_ENDED;

    dl_text_append(report.text, report.room, &report.size,
                   "; rank %d (pid %" PRId64 " on host %s) %s", rank, doing->pid,
                   doing->host,
                   doing->state == 0 ? "has called no operation yet"
                   : has_ended       ? "is in no operation since "
                                     : "is in ");
    if (doing->state == 0) {
        return;
    }
    if (doing->wait[0] != '\0') {
        dl_text_append(report.text, report.room, &report.size, "%s", doing->wait);
        append_site(&report, doing->site);
    } else {
        append_call(&report, doing,
                    doing->op == DL_SEND   ? "to"
                    : doing->op == DL_RECV ? "from"
                                           : NULL);
        dl_text_append(report.text, report.room, &report.size, "%s",
                       has_ended ? ", which ended" : "");
    }
    append_span(&report, doing->span);
}

/* The late ranks of an operation that has timed out. */
typedef struct late_ranks {
    dl_own_wait wait;
    dl_doing doing[DL_WAIT_AWAITED]; /* zeroed for ranks that are not late */
} late_ranks;

static bool
take_recording(void *context, const char *path, dl_buffer *copy)
{
    late_ranks *self = context;
    dl_bytes snapshot = dl_buffer_bytes(copy);
    dl_recording_header header;

    (void)path;
    if (!dl_recording_check(snapshot.data, snapshot.size, &header)) {
        return true;
    }
    bool is_whole = true;
    for (uint32_t i = 0; i < self->wait.awaited.count; i++) {
        if (self->wait.awaited.ranks[i] == header.rank
            && (self->wait.is_message
                || !dl_doing_has_begun(snapshot, self->wait.group,
                                       (uint64_t)self->wait.sequence))) {
            (void)dl_doing_read(snapshot, &self->doing[i]);
        }
        is_whole = is_whole && self->doing[i].pid != 0;
    }
    return !is_whole;
}

static void
look_at_late(late_ranks *late, char text[LATE_SIZE])
{
    int count = 0;

    dl_recorder_visit_job(take_recording, late);
    for (uint32_t i = 0; i < late->wait.awaited.count; i++) {
        if (late->doing[i].pid != 0 && ++count <= LISTED_RANKS) {
            describe_late(late->wait.awaited.ranks[i], &late->doing[i], text);
        }
    }
    if (count > LISTED_RANKS) {
        size_t used = strlen(text);
        dl_text_append(text, LATE_SIZE, &used, "; and %d more", count - LISTED_RANKS);
    }
}

/* Messages from the same ranks wait for the same. */
static bool
is_same_wait(const dl_own_wait *left, const dl_own_wait *right)
{
    size_t count = left->awaited.count;

    return left->awaited.count == right->awaited.count
           && memcmp(left->awaited.ranks, right->awaited.ranks,
                     count * sizeof *left->awaited.ranks)
                  == 0
           && left->is_message == right->is_message
           && (left->is_message
               || (left->sequence == right->sequence
                   && strcmp(left->group, right->group) == 0));
}

/* Returns whether to look at late ranks; if not, `text` is what is known of them. */
static bool
begin_look(const dl_own_wait *wait, int64_t now, char text[LATE_SIZE])
{
    bool looks = false;

    pthread_mutex_lock(&lock);
    if (now - look.since >= LOOK_LIFE) {
        look.wait.awaited.count = 0;
        look.since = now;
        look.spent = 0;
    }
    if (is_same_wait(&look.wait, wait)) {
        memcpy(text, look.text, LATE_SIZE);
    } else {
        looks = look.spent < LOOKS;
    }
    pthread_mutex_unlock(&lock);
    return looks;
}

static void
end_look(const dl_own_wait *wait, int64_t began, const char text[LATE_SIZE])
{
    pthread_mutex_lock(&lock);
    look.wait = *wait;
    memcpy(look.text, text, LATE_SIZE);
    look.spent += dl_now() - began;
    pthread_mutex_unlock(&lock);
}

/* Adds to an error what the late ranks of this host do, according to their recordings,
 * when an operation has timed out here, or on another rank first: backends repeat the
 * status of the rank that gave up. */
static dl_status
add_late(const dl_record *record, const dl_error *error)
{
    char text[LATE_SIZE] = "";
    int64_t now = dl_now();
    late_ranks *late = error->status == DL_TIMEOUT ? calloc(1, sizeof *late) : NULL;

    if (late != NULL && dl_own_waits_find(record, &late->wait)
        && late->wait.awaited.count > 0 && begin_look(&late->wait, now, text)) {
        look_at_late(late, text);
        end_look(&late->wait, now, text);
    }
    free(late);
    return text[0] == '\0' ? error->status
                           : dl_fail(error->status, "%.1300s%s", error->text, text);
}

/* Adds the report of a deadlock that includes the operation, or, after a timeout, what
 * the late ranks are doing. */
static dl_status
explain_failure(const dl_record *record)
{
    char text[REPORT_SIZE] = "";
    dl_error error = *dl_last_error();

    int64_t started = atomic_load_explicit(&record->started, memory_order_acquire);
    pthread_mutex_lock(&lock);
    bool looks = !is_off;
    if (reported == record && reported_started == started) {
        memcpy(text, reported_text, sizeof text);
    }
    pthread_mutex_unlock(&lock);
    if (text[0] == '\0') {
        return looks ? add_late(record, &error) : error.status;
    }
    if (strstr(error.text, text) != NULL) {
        return error.status;
    }
    /* The error may come from another rank that failed first, and hold its
     * report, cut short. */
    char *same = strstr(error.text, opening);
    if (same != NULL) {
        *same = '\0';
        return dl_fail(error.status, "%.1000s%s", error.text, text);
    }
    return dl_fail(error.status, "%.1000s; %s", error.text, text);
}

static dl_bytes
state_key(int rank, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "deadlock/waits/%d", rank);
    return dl_bytes_of(text);
}

static dl_status
publish_state(const detector *self)
{
    dl_buffer bytes = {0};
    char key[KEY_SIZE];

    dl_wait_state_write(&self->own.state, &bytes);
    dl_status status = dl_buffer_check(&bytes);
    if (status == DL_OK) {
        status = dl_store_set(self->store, state_key(self->own.rank, key),
                              dl_buffer_bytes(&bytes), dl_deadline_after(ANSWER_LIMIT));
    }
    dl_buffer_fini(&bytes);
    return status;
}

/* Later searches must not take this rank for waiting. */
static void
withdraw_state(const detector *self)
{
    char key[KEY_SIZE];

    (void)dl_store_set(self->store, state_key(self->own.rank, key), DL_LITERAL("-"),
                       dl_deadline_after(ANSWER_LIMIT));
}

static dl_status
read_state(detector *self, int rank)
{
    dl_buffer value = {0};
    char key[KEY_SIZE];
    dl_status status = dl_store_get_if_set(self->store, state_key(rank, key), &value,
                                           dl_deadline_after(ANSWER_LIMIT));
    dl_wait_state *state = status == DL_OK ? calloc(1, sizeof *state) : NULL;

    if (state != NULL && dl_wait_state_read(dl_buffer_bytes(&value), state)
        && state->rank == rank) {
        self->states[rank] = state;
    } else {
        free(state);
    }
    dl_buffer_fini(&value);
    return status;
}

static void
forget_states(detector *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->own.rank) {
            free(self->states[rank]);
        }
        self->states[rank] = NULL;
    }
}

/* Reads the states of the ranks that this one waits for, of those that they wait for,
 * and so on. */
static dl_status
read_states(detector *self)
{
    int ranks[READS] = {self->own.rank};
    int count = 1;

    forget_states(self);
    self->states[self->own.rank] = &self->own.state;
    for (int i = 0; i < count; i++) {
        if (i > 0) {
            DL_TRY(read_state(self, ranks[i]));
        }
        const dl_wait_state *state = self->states[ranks[i]];
        for (uint32_t j = 0; state != NULL && j < state->awaited.count; j++) {
            int rank = state->awaited.ranks[j];
            bool is_new = rank >= 0 && rank < self->size && count < READS;
            for (int k = 0; is_new && k < count; k++) {
                is_new = ranks[k] != rank;
            }
            if (is_new) {
                ranks[count++] = rank;
            }
        }
    }
    return DL_OK;
}

/* The text is kept for the error of the operation. */
static void
report_cycle(detector *self, const dl_wait_cycle *cycle)
{
    char text[REPORT_SIZE];

    describe_cycle(self->states, cycle, text);
    pthread_mutex_lock(&lock);
    memcpy(reported_text, text, sizeof text);
    reported = self->own.record;
    reported_started = self->own.started;
    pthread_mutex_unlock(&lock);
    self->reported_id = self->own.state.id;
    dl_log(DL_LOG_WARNING, "%s", text);
}

/* A description may be older than the search that read it.  The description two beats
 * later was begun after the one in between had been published, hence after the first
 * search. */
static bool
is_confirmed(const detector *self, const candidate *first, const candidate *second)
{
    for (int i = 0; i < first->cycle.count; i++) {
        if (first->cycle.ranks[i] != self->own.rank
            && second->beats[i] < first->beats[i] + 2) {
            return false;
        }
    }
    return true;
}

static bool
is_same(const candidate *left, const candidate *right)
{
    size_t count = (size_t)left->cycle.count;

    return left->cycle.count == right->cycle.count
           && memcmp(left->cycle.ranks, right->cycle.ranks,
                     count * sizeof *left->cycle.ranks)
                  == 0
           && memcmp(left->ids, right->ids, count * sizeof *left->ids) == 0;
}

static void
search_cycle(detector *self)
{
    candidate found;

    if (!dl_wait_cycle_find(self->states, self->size, self->own.rank, &found.cycle)) {
        self->candidate.cycle.count = 0;
        return;
    }
    for (int i = 0; i < found.cycle.count; i++) {
        const dl_wait_state *state = self->states[found.cycle.ranks[i]];
        found.ids[i] = state->id;
        found.beats[i] = state->beat;
    }
    if (!is_same(&self->candidate, &found)) {
        self->candidate = found;
    } else if (is_confirmed(self, &self->candidate, &found)) {
        report_cycle(self, &found.cycle);
    }
}

/* Searches once.  Returns false if no thread waits any more or the store does not
 * answer. */
static bool
search_once(detector *self)
{
    if (!dl_own_waits_describe(&self->own, least_wait())
        || publish_state(self) != DL_OK) {
        return false;
    }
    if (!self->own.state.is_blocked || self->own.state.id == self->reported_id) {
        return true;
    }
    if (read_states(self) != DL_OK) {
        return false;
    }
    search_cycle(self);
    return true;
}

/* Pauses.  Returns false if the job's group has changed or is gone. */
static bool
pause_detector(const detector *self, int64_t pause)
{
    int64_t end = dl_now() + pause;
    bool is_here = true;

    pthread_mutex_lock(&lock);
    do {
        is_here = world != NULL && world->store == self->store;
    } while (is_here && dl_condition_wait_until(&wakeup, &lock, end));
    pthread_mutex_unlock(&lock);
    return is_here;
}

static void
detector_free(detector *self)
{
    if (self->states != NULL) {
        forget_states(self);
    }
    free(self->states);
    dl_store_unref(self->store);
    free(self);
}

static void *
run_detector(void *argument)
{
    detector *self = argument;
    int64_t slowest = LAST_PAUSE * (1 + self->size / RANKS_PER_PAUSE);
    int64_t first = slowest * FIRST_PAUSE / LAST_PAUSE;
    int64_t pause = first;
    bool continues = true;
    int count = 0;

    while (continues) {
        uint64_t id = self->own.state.id;
        continues = search_once(self);
        count = id == self->own.state.id ? count + 1 : 0;
        pause = count < FIRST_SEARCHES ? first
                : 2 * pause < slowest  ? 2 * pause
                                       : slowest;
        continues = continues && pause_detector(self, pause);
    }
    withdraw_state(self);
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
    self->store = dl_store_ref(world->store);
    self->size = world->size;
    self->own.rank = world->rank;
    self->states = calloc((size_t)self->size, sizeof *self->states);
    if (self->states == NULL) {
        detector_free(self);
        return NULL;
    }
    return self;
}

/* Called when a thread has waited for long; starts the detector's thread. */
static void
start_detector(void)
{
    detector *made = NULL;
    pthread_t thread;

    pthread_mutex_lock(&lock);
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
