/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/deadlock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/debug_level.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "pg/group_state.h"
#include "pg/recorder_state.h"
#include "pg/wait_graph.h"
#include "pg/blocked_threads.h"

#define DEFAULT_SECONDS 5

/* Looks begin soon after each other and slow down: a cycle is confirmed quickly, and a
 * rank that waits for a slow one costs the store little. */
#define FIRST_PAUSE (250 * DL_MILLISECOND)
#define FIRST_LOOKS 8
#define LAST_PAUSE (2 * DL_SECOND)

/* The store serves all ranks: with many of them each asks less often. */
#define RANKS_PER_PAUSE 64

/* Ranks read in one look. */
#define READS 128

/* The store's answer to what it need not wait for. */
#define ANSWER_LIMIT (5 * DL_SECOND)

#define THREADS 64
#define KEY_SIZE 64
#define PICTURE_SIZE 1792
#define OPENING "deadlock: these ranks wait for each other:"

typedef enum mode {
    WARN,
    RAISE,
    OFF,
} mode;

/* What the rows of the recorder are made of, without atomics. */
typedef struct plain_record {
    uint64_t version;
    int64_t queued;
    int64_t started;
    int64_t ended;
    int64_t sequence;
    uint64_t count;
    uint64_t place;
    uint64_t what;
} plain_record;

_Static_assert(sizeof(plain_record) == sizeof(dl_record), "the same row");

/* An operation of this process that is in the picture. */
typedef struct told_record {
    const dl_record *record;
    int64_t started;
} told_record;

/* A cycle that was seen, and may be confirmed. */
typedef struct candidate {
    dl_wait_cycle cycle;
    uint64_t ids[DL_WAIT_STEPS];    /* of the waits */
    uint64_t epochs[DL_WAIT_STEPS]; /* of the processes */
    uint64_t beats[DL_WAIT_STEPS];
} candidate;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static dl_list groups;
static dl_group *world;
static bool is_running;
static char told_text[PICTURE_SIZE];
static told_record told[DL_WAIT_ROWS];
static int told_count;
static mode wanted_mode;
static bool is_mode_set; /* by the environment */
static int64_t after = DEFAULT_SECONDS * DL_SECOND;
static int (*count_threads)(void);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static pthread_cond_t moved; /* the world, for the thread that looks */

/* What the thread remembers between two looks. */
typedef struct detector {
    dl_store *store; /* counted */
    int rank;
    int size;
    uint64_t beat;
    uint64_t told_epoch;
    bool has_published;
    candidate candidate;
    dl_wait_state own;
    const dl_record *records[DL_WAIT_ROWS]; /* of the own rows, */
    int64_t started[DL_WAIT_ROWS];
    uint32_t serials[DL_WAIT_GROUPS]; /* and groups */
    dl_wait_state **states;           /* by rank; those of others are owned */
} detector;

/* In a forked child nothing of the parent's runs, and its lock may have been held. */
static void
forget_parent(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dl_condition_init(&moved);
    dl_list_init(&groups);
    world = NULL;
    is_running = false;
    told_count = 0;
}

static void
prepare(void)
{
    dl_list_init(&groups);
    dl_condition_init(&moved);
    pthread_atfork(NULL, NULL, forget_parent);
}

/* What this process waits for. */

static bool
is_message(uint8_t op)
{
    return op == DL_SEND || op == DL_RECV || op == DL_RECV_ANY;
}

static dl_group *
group_of(dl_list *node)
{
    return DL_LIST_ENTRY(node, dl_group, deadlock_node);
}

/* False: there are too many. */
static bool
add_groups_locked(detector *self)
{
    dl_wait_state *own = &self->own;

    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        dl_group *group = group_of(node);
        if (own->group_count == DL_WAIT_GROUPS) {
            return false;
        }
        dl_wait_group *row = &own->groups[own->group_count];
        snprintf(row->name, sizeof row->name, "%s", group->name);
        row->begun =
            atomic_load_explicit(&group->seat.row->begun, memory_order_acquire);
        row->running = DL_WAIT_IDLE;
        self->serials[own->group_count++] = (uint32_t)group->seat.serial;
    }
    return true;
}

static dl_group *
find_group_locked(uint32_t serial)
{
    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        if ((uint32_t)group_of(node)->seat.serial == serial) {
            return group_of(node);
        }
    }
    return NULL;
}

static int
find_serial(const detector *self, uint32_t serial)
{
    for (uint32_t i = 0; i < self->own.group_count; i++) {
        if (self->serials[i] == serial) {
            return (int)i;
        }
    }
    return -1;
}

/* False: it has ended, or is of a group that is not known here. */
static bool
read_record(const detector *self, const dl_record *record, plain_record *row,
            uint32_t *group)
{
    if (!dl_row_read(&record->version, row, sizeof *row / sizeof(uint64_t))) {
        return false;
    }
    uint64_t state = row->what >> 24 & 0xf;
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

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static void
describe_site(uint64_t number, char *text, size_t size)
{
    const dl_recorder *recorder = dl_recorder_self();
    struct {
        uint64_t version;
        uint64_t line;
        char function[64];
        char file[176];
    } site;

    text[0] = '\0';
    if (number > 0
        && dl_row_read(&recorder->tables.sites[number - 1].version, &site,
                       DL_SITE_WORDS)) {
        snprintf(text, size, "%.56s:%" PRIu64 " in %.28s", base_name(site.file),
                 site.line, site.function);
    }
}

/* A receive from any rank takes the first message that comes. */
static void
add_peers(const dl_group *group, dl_wait_row *row)
{
    bool is_any = row->op == DL_RECV_ANY;

    row->awaited.is_any = is_any ? 1 : 0;
    for (int rank = 0; rank < group->size; rank++) {
        if (is_any ? rank != group->rank : rank == (int)row->root) {
            dl_awaited_add(&row->awaited, rank);
        }
    }
}

static void
fill_row(const detector *self, const dl_blocked_thread *thread,
         const plain_record *from, dl_wait_row *row)
{
    const dl_group *group = find_group_locked(self->serials[row->group]);

    row->id = thread->id;
    row->count = from->count;
    row->waited = dl_now() - (from->queued != 0 ? from->queued : from->started);
    row->sequence = from->sequence;
    row->root = (uint32_t)(from->what >> 32);
    row->op = (uint8_t)from->what;
    row->dtype = (uint8_t)(from->what >> 8);
    row->reduce_op = (uint8_t)(from->what >> 16);
    row->awaited = thread->awaited;
    if (is_message(row->op)) {
        add_peers(group, row);
    }
    for (uint32_t i = 0; i < row->awaited.count; i++) {
        row->awaited.ranks[i] = global_rank(group, row->awaited.ranks[i]);
    }
    describe_site(from->place >> 32, row->site, sizeof row->site);
}

/* Index of the row in which the thread waits, or -1. */
static int
add_thread_locked(detector *self, const dl_blocked_thread *thread)
{
    dl_wait_state *own = &self->own;
    plain_record from;
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
    own->rows[own->row_count] = (dl_wait_row){.group = group};
    fill_row(self, thread, &from, &own->rows[own->row_count]);
    return (int)own->row_count++;
}

/* Asynchronous ones included.  False: there are too many, or some were not recorded. */
static bool
add_records_locked(detector *self)
{
    const dl_recorder *recorder = dl_recorder_self();
    dl_wait_state *own = &self->own;
    plain_record from;
    uint32_t group;

    for (uint32_t at = 0; at <= recorder->mask; at++) {
        const dl_record *record = &recorder->tables.records[at];
        if (!read_record(self, record, &from, &group)) {
            continue;
        }
        uint8_t op = (uint8_t)from.what;
        if (!is_message(op)) {
            dl_wait_group *row = &own->groups[group];
            bool is_queued = (from.what >> 24 & 0xf) == DL_RECORD_QUEUED;
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
                                      (int)(from.what >> 32)),
            .group = group,
            .op = op,
        };
    }
    return atomic_load(&recorder->dropped) == 0;
}

/* The row of what the lane is busy with, or -1. */
static int
find_lane_locked(const detector *self, const void *lane)
{
    for (dl_list *node = groups.next; node != &groups; node = node->next) {
        if (&group_of(node)->lane == lane) {
            int at = find_serial(self, (uint32_t)group_of(node)->seat.serial);
            return at < 0 ? -1 : self->own.groups[at].running;
        }
    }
    return -1;
}

static uint64_t
mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

/* Every thread that is known to call operations waits for one, and has for a while. */
static void
judge_threads_locked(detector *self, const dl_blocked_thread *threads, const int *rows,
                     int count)
{
    dl_wait_state *own = &self->own;
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
        own->epoch = mix(mix(own->epoch, thread->id), own->rows[row].id);
        own->others -= own->others > 0 ? 1 : 0;
    }
    own->is_blocked &= has_main ? 1 : 0;
}

/* Whether a thread of the program has waited long enough. */
static bool
describe_self(detector *self)
{
    dl_blocked_thread threads[THREADS];
    int rows[THREADS];
    int count;
    bool is_late = false;
    int others = count_threads == NULL ? 0 : count_threads();
    bool is_whole = dl_blocked_list(threads, THREADS, &count) && others >= 0;
    dl_wait_state *own = &self->own;

    memset(own, 0, sizeof *own);
    own->pid = getpid();
    own->rank = self->rank;
    own->others = others < 0 ? 0 : (uint32_t)others;
    own->beat = ++self->beat;
    gethostname(own->host, sizeof own->host - 1);
    pthread_mutex_lock(&lock);
    is_whole = add_groups_locked(self) && is_whole;
    for (int i = 0; i < count; i++) {
        rows[i] = add_thread_locked(self, &threads[i]);
        is_late |= threads[i].id != 0 && !threads[i].is_own
                   && dl_now() - threads[i].since >= after;
    }
    is_whole = add_records_locked(self) && is_whole;
    judge_threads_locked(self, threads, rows, count);
    pthread_mutex_unlock(&lock);
    own->is_blocked &= is_whole ? 1 : 0;
    return is_late;
}

/* What the store holds. */

static int64_t
slowest_pause(int size)
{
    return LAST_PAUSE * (1 + size / RANKS_PER_PAUSE);
}

static dl_bytes
key_of(const char *topic, int rank, uint64_t epoch, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "deadlock/%s/%d/%" PRIx64, topic, rank, epoch);
    return dl_bytes_of(text);
}

static dl_bytes
state_key(int rank, char text[KEY_SIZE])
{
    return key_of("waits", rank, 0, text);
}

static dl_status
publish(detector *self)
{
    dl_buffer bytes = {0};
    char key[KEY_SIZE];

    dl_wait_state_write(&self->own, &bytes);
    dl_status status = dl_buffer_check(&bytes);
    if (status == DL_OK) {
        status = dl_store_set(self->store, state_key(self->rank, key),
                              dl_buffer_bytes(&bytes), dl_deadline_after(ANSWER_LIMIT));
    }
    self->has_published |= status == DL_OK;
    dl_buffer_fini(&bytes);
    return status;
}

/* So that nobody takes it for waiting who looks much later. */
static void
withdraw(detector *self)
{
    char key[KEY_SIZE];

    if (self->has_published) {
        (void)dl_store_set(self->store, state_key(self->rank, key), DL_LITERAL("-"),
                           dl_deadline_after(ANSWER_LIMIT));
    }
}

/* Empty: there is nothing at the key. */
static dl_status
read_key(const detector *self, dl_bytes key, dl_buffer *value)
{
    dl_deadline deadline = dl_deadline_after(ANSWER_LIMIT);
    bool exists = false;

    dl_buffer_clear(value);
    DL_TRY(dl_store_check(self->store, &key, 1, &exists, deadline));
    return exists ? dl_store_get(self->store, key, value, deadline) : DL_OK;
}

static dl_status
read_state(detector *self, int rank)
{
    dl_buffer value = {0};
    char key[KEY_SIZE];
    dl_status status = read_key(self, state_key(rank, key), &value);
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
        if (rank != self->rank) {
            free(self->states[rank]);
        }
        self->states[rank] = NULL;
    }
}

/* Of the ranks that this one waits for, of those that they wait for, and so on. */
static dl_status
read_states(detector *self)
{
    int ranks[READS];
    bool *is_known = calloc((size_t)self->size, sizeof *is_known);
    int count = 1;
    dl_status status = is_known == NULL ? dl_fail_no_memory() : DL_OK;

    forget_states(self);
    self->states[self->rank] = &self->own;
    ranks[0] = self->rank;
    for (int i = 0; status == DL_OK && i < count; i++) {
        const dl_wait_state *state;
        if (i > 0) {
            status = read_state(self, ranks[i]);
        } else {
            is_known[self->rank] = true;
        }
        state = self->states[ranks[i]];
        for (uint32_t row = 0; state != NULL && row < state->row_count; row++) {
            const dl_awaited *awaited = &state->rows[row].awaited;
            for (uint32_t j = 0; j < awaited->count; j++) {
                int rank = awaited->ranks[j];
                if (rank >= 0 && rank < self->size && !is_known[rank]
                    && count < READS) {
                    is_known[rank] = true;
                    ranks[count++] = rank;
                }
            }
        }
    }
    free(is_known);
    return status;
}

/* The picture. */

/* Text that grows at its end and is cut at its limit. */
typedef struct picture {
    char text[PICTURE_SIZE];
    size_t size;
} picture;

static void
append_operation(picture *self, const dl_wait_state *state, const dl_wait_row *row)
{
    char call[DL_FINGERPRINT_TEXT_SIZE];
    dl_fingerprint what = {
        .count = row->count,
        .op = row->op,
        .dtype = row->dtype,
        .reduce_op = row->reduce_op,
        .root = row->root,
    };

    dl_fingerprint_describe(&what, call, sizeof call);
    dl_text_append(self->text, sizeof self->text, &self->size, "%s", call);
    if (is_message(row->op)) {
        dl_text_append(self->text, sizeof self->text, &self->size, " with tag %" PRId64,
                       row->sequence);
    } else {
        dl_text_append(self->text, sizeof self->text, &self->size, " #%" PRId64,
                       row->sequence);
    }
    dl_text_append(self->text, sizeof self->text, &self->size, " in group %s",
                   state->groups[row->group].name);
    if (row->site[0] != '\0') {
        dl_text_append(self->text, sizeof self->text, &self->size, ", called at %s",
                       row->site);
    }
    dl_text_append(self->text, sizeof self->text, &self->size, " %.1f s ago",
                   (double)row->waited / (double)DL_SECOND);
}

static void
append_awaited(picture *self, const dl_wait_row *row, int rank)
{
    if (rank >= 0) {
        dl_text_append(self->text, sizeof self->text, &self->size, "rank %d", rank);
        return;
    }
    dl_text_append(self->text, sizeof self->text, &self->size, "any of ranks");
    for (uint32_t i = 0; i < row->awaited.count; i++) {
        dl_text_append(self->text, sizeof self->text, &self->size, "%s %" PRId32,
                       i == 0 ? "" : ",", row->awaited.ranks[i]);
    }
}

static void
describe_cycle(const detector *self, const dl_wait_cycle *cycle, picture *picture)
{
    dl_text_append(picture->text, sizeof picture->text, &picture->size, OPENING);
    for (int i = 0; i < cycle->count; i++) {
        dl_wait_step step = cycle->steps[i];
        const dl_wait_state *state = self->states[step.rank];
        dl_text_append(picture->text, sizeof picture->text, &picture->size,
                       "\n  rank %d (pid %" PRId64 " on host %s) waits for ", step.rank,
                       state->pid, state->host);
        append_awaited(picture, &state->rows[step.row], step.awaits);
        dl_text_append(picture->text, sizeof picture->text, &picture->size, " in ");
        append_operation(picture, state, &state->rows[step.row]);
        if (state->others > 0) {
            dl_text_append(picture->text, sizeof picture->text, &picture->size,
                           "; it has %" PRIu32
                           " more thread%s, which may yet make the call",
                           state->others, state->others == 1 ? "" : "s");
        }
    }
}

/* For the errors of what this process waits for. */
static void
remember_picture(const detector *self, const char *text)
{
    pthread_mutex_lock(&lock);
    snprintf(told_text, sizeof told_text, "%s", text);
    told_count = 0;
    for (uint32_t i = 0; i < self->own.row_count; i++) {
        if (self->own.rows[i].is_program) {
            told[told_count++] = (told_record){self->records[i], self->started[i]};
        }
    }
    pthread_mutex_unlock(&lock);
}

dl_status
dl_deadlock_explain(const dl_record *record)
{
    char text[PICTURE_SIZE] = "";
    dl_error error = *dl_last_error();

    if (record == NULL) {
        return error.status;
    }
    int64_t started = atomic_load_explicit(&record->started, memory_order_acquire);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < told_count; i++) {
        if (told[i].record == record && told[i].started == started) {
            memcpy(text, told_text, sizeof text);
        }
    }
    pthread_mutex_unlock(&lock);
    if (text[0] == '\0' || strstr(error.text, text) != NULL) {
        return error.status;
    }
    /* Another rank, whose end was heard of first, may have said it, and been cut short. */
    char *same = strstr(error.text, OPENING);
    if (same != NULL) {
        *same = '\0';
        return dl_fail(error.status, "%.1000s%s", error.text, text);
    }
    return dl_fail(error.status, "%.1000s; %s", error.text, text);
}

/* Ends what this process waits for in the cycle. */
static void
end_waits(const detector *self, const char *text)
{
    for (uint32_t i = 0; i < self->own.row_count; i++) {
        dl_error cause = {.status = DL_BACKEND};
        pthread_mutex_lock(&lock);
        dl_group *group = find_group_locked(self->serials[self->own.rows[i].group]);
        group = group == NULL ? NULL : dl_group_ref_if_alive(group);
        pthread_mutex_unlock(&lock);
        if (group != NULL && self->own.rows[i].is_program) {
            snprintf(cause.text, sizeof cause.text, "group %s was ended by a %s",
                     group->name, text);
            dl_group_fail(group, &cause);
        }
        dl_group_unref(group);
    }
}

static mode
current_mode(void)
{
    pthread_mutex_lock(&lock);
    mode found = is_mode_set                               ? wanted_mode
                 : dl_debug_level_get() == DL_DEBUG_DETAIL ? RAISE
                                                           : WARN;
    pthread_mutex_unlock(&lock);
    return found;
}

static bool
is_certain(const detector *self, const dl_wait_cycle *cycle)
{
    for (int i = 0; i < cycle->count; i++) {
        if (self->states[cycle->steps[i].rank]->others > 0) {
            return false;
        }
    }
    return true;
}

/* What all ranks of a cycle are to fail with, once all of them know it: whoever raises
 * first may end, and the others are to name the deadlock and not its absence. */
typedef struct verdict {
    int32_t count;
    int32_t ranks[DL_WAIT_STEPS];
    uint64_t epochs[DL_WAIT_STEPS];
    char text[PICTURE_SIZE];
} verdict;

static dl_status
write_verdict(const detector *self, const verdict *found)
{
    dl_bytes value = {(const uint8_t *)found, sizeof *found};
    char key[KEY_SIZE];

    for (int i = 0; i < found->count; i++) {
        if (found->ranks[i] != self->rank) {
            DL_TRY(dl_store_set(self->store,
                                key_of("told", found->ranks[i], found->epochs[i], key),
                                value, dl_deadline_after(ANSWER_LIMIT)));
        }
    }
    return DL_OK;
}

/* Until all have, or are too late for it. */
static dl_status
await_known(const detector *self, const verdict *found)
{
    dl_deadline deadline = dl_deadline_after(2 * slowest_pause(self->size));
    char key[KEY_SIZE];

    for (int i = 0; i < found->count && !dl_deadline_passed(deadline); i++) {
        dl_bytes asked = key_of("known", found->ranks[i], found->epochs[i], key);
        bool exists = false;
        for (;;) {
            DL_TRY(dl_store_check(self->store, &asked, 1, &exists,
                                  dl_deadline_after(ANSWER_LIMIT)));
            if (exists || dl_deadline_passed(deadline)) {
                break;
            }
            (void)dl_sleep_until(dl_deadline_after(DL_WAIT_SLICE));
        }
    }
    return DL_OK;
}

static void
carry_out(detector *self, const verdict *found)
{
    uint64_t epoch = self->own.epoch;
    char key[KEY_SIZE];

    remember_picture(self, found->text);
    self->told_epoch = epoch;
    dl_status status =
        dl_store_set(self->store, key_of("known", self->rank, epoch, key),
                     DL_LITERAL("1"), dl_deadline_after(ANSWER_LIMIT));
    if (status == DL_OK) {
        (void)await_known(self, found);
    }
    (void)describe_self(self);
    if (self->own.epoch == epoch) {
        end_waits(self, found->text);
    }
}

static void
tell(detector *self, const dl_wait_cycle *cycle)
{
    picture picture = {.size = 0};
    verdict found = {.count = cycle->count};

    describe_cycle(self, cycle, &picture);
    if (current_mode() == RAISE && is_certain(self, cycle)) {
        for (int i = 0; i < cycle->count; i++) {
            found.ranks[i] = cycle->steps[i].rank;
            found.epochs[i] = self->states[cycle->steps[i].rank]->epoch;
        }
        memcpy(found.text, picture.text, sizeof found.text);
        (void)write_verdict(self, &found);
        carry_out(self, &found);
        return;
    }
    remember_picture(self, picture.text);
    self->told_epoch = self->own.epoch;
    dl_log(DL_LOG_WARNING, "%s\n  (DISTLITE_DEADLOCK=raise ends these operations)",
           picture.text);
}

/* Another rank found the cycle that this one is in. */
static dl_status
hear(detector *self)
{
    dl_buffer value = {0};
    char key[KEY_SIZE];
    verdict found;
    dl_status status =
        read_key(self, key_of("told", self->rank, self->own.epoch, key), &value);

    if (status == DL_OK && value.size == sizeof found) {
        memcpy(&found, value.data, sizeof found);
        found.text[sizeof found.text - 1] = '\0';
        if (found.count >= 0 && found.count <= DL_WAIT_STEPS) {
            carry_out(self, &found);
        }
    }
    dl_buffer_fini(&value);
    return status;
}

static candidate
make_candidate(const detector *self, const dl_wait_cycle *cycle)
{
    candidate made = {.cycle = *cycle};

    for (int i = 0; i < cycle->count; i++) {
        const dl_wait_state *state = self->states[cycle->steps[i].rank];
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

/* A description may be older than its being read.  The second one after that was begun
 * when the first had been published, hence later than the first look. */
static bool
is_confirmed(const detector *self, const candidate *first, const candidate *second)
{
    for (int i = 0; i < first->cycle.count; i++) {
        if (first->cycle.steps[i].rank != self->rank
            && second->beats[i] < first->beats[i] + 2) {
            return false;
        }
    }
    return true;
}

static void
look_for_cycle(detector *self)
{
    dl_wait_cycle cycle;

    if (!dl_wait_cycle_find((const dl_wait_state *const *)self->states, self->size,
                            self->rank, &cycle)) {
        self->candidate.cycle.count = 0;
        return;
    }
    candidate found = make_candidate(self, &cycle);
    if (!is_same(&self->candidate, &found)) {
        self->candidate = found;
    } else if (is_confirmed(self, &self->candidate, &found)) {
        tell(self, &cycle);
    }
}

/* False: nobody waits any more, or the store does not answer. */
static bool
look(detector *self)
{
    uint64_t epoch = self->own.epoch;
    bool is_late = describe_self(self);

    if (!is_late) {
        return false;
    }
    if (epoch != self->own.epoch) {
        self->candidate.cycle.count = 0;
    }
    if (publish(self) != DL_OK) {
        return false;
    }
    if (self->own.epoch == self->told_epoch) {
        return true;
    }
    if (current_mode() == RAISE && hear(self) != DL_OK) {
        return false;
    }
    if (self->own.epoch == self->told_epoch || read_states(self) != DL_OK) {
        return self->own.epoch == self->told_epoch;
    }
    look_for_cycle(self);
    return true;
}

/* False: the world is another one, or gone. */
static bool
rest(const detector *self, int64_t pause)
{
    int64_t end = dl_now() + pause;

    pthread_mutex_lock(&lock);
    bool is_here = true;
    while (is_here && dl_now() < end) {
        is_here = world != NULL && world->store == self->store;
        if (is_here && !dl_condition_wait_until(&moved, &lock, end)) {
            break;
        }
    }
    is_here = world != NULL && world->store == self->store;
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
run(void *argument)
{
    detector *self = argument;
    int64_t slowest = slowest_pause(self->size);
    int64_t first = slowest * FIRST_PAUSE / LAST_PAUSE;
    int64_t pause = first;
    bool goes_on = true;
    int looks = 0;

    while (goes_on) {
        uint64_t epoch = self->own.epoch;
        goes_on = look(self);
        looks = epoch == self->own.epoch ? looks + 1 : 0;
        pause = looks < FIRST_LOOKS ? first : 2 * pause < slowest ? 2 * pause : slowest;
        goes_on = goes_on && rest(self, pause);
    }
    withdraw(self);
    detector_free(self);
    pthread_mutex_lock(&lock);
    is_running = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* NULL: there is nothing to look at, or no memory. */
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
    self->rank = world->rank;
    self->size = world->size;
    self->store = dl_store_ref(world->store);
    self->states = calloc((size_t)self->size, sizeof *self->states);
    if (self->states == NULL) {
        detector_free(self);
        return NULL;
    }
    return self;
}

/* A thread has waited for long. */
static void
start(void)
{
    detector *made = NULL;
    pthread_t thread;

    pthread_mutex_lock(&lock);
    if (!is_running && !(is_mode_set && wanted_mode == OFF)) {
        made = detector_new_locked();
        is_running = made != NULL;
    }
    pthread_mutex_unlock(&lock);
    if (made == NULL) {
        return;
    }
    if (dl_thread_start(&thread, run, made) == DL_OK) {
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
    static const char *const names[] = {
        [WARN] = "warn", [RAISE] = "raise", [OFF] = "off"};
    const char *text = getenv("DISTLITE_DEADLOCK");

    is_mode_set = false;
    if (text == NULL || text[0] == '\0') {
        return DL_OK;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            is_mode_set = true;
            wanted_mode = (mode)i;
            return DL_OK;
        }
    }
    return dl_fail(DL_INVALID, "DISTLITE_DEADLOCK=%.100s: it is warn, raise or off",
                   text);
}

static dl_status
read_seconds_locked(void)
{
    const char *text = getenv("DISTLITE_DEADLOCK_SECONDS");
    char *end = NULL;
    double seconds =
        text == NULL || text[0] == '\0' ? DEFAULT_SECONDS : strtod(text, &end);

    if ((end != NULL && (end == text || *end != '\0')) || !(seconds >= 0.1)
        || seconds > 1e6) {
        return dl_fail(
            DL_INVALID,
            "DISTLITE_DEADLOCK_SECONDS=%.100s: it is a number of seconds, at "
            "least 0.1",
            text);
    }
    after = (int64_t)(seconds * (double)DL_SECOND);
    return DL_OK;
}

dl_status
dl_deadlock_configure(void)
{
    pthread_mutex_lock(&lock);
    dl_status status = read_mode_locked();
    status = status == DL_OK ? read_seconds_locked() : status;
    dl_blocked_watch(start, after);
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
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

void
dl_deadlock_count_threads(int (*count)(void))
{
    pthread_mutex_lock(&lock);
    count_threads = count;
    pthread_mutex_unlock(&lock);
}

void
dl_deadlock_enter(dl_group *group)
{
    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
    if (group->seat.row != NULL && group->deadlock_node.next == NULL) {
        dl_list_append(&groups, &group->deadlock_node);
    }
    pthread_mutex_unlock(&lock);
}

void
dl_deadlock_leave(dl_group *group)
{
    pthread_mutex_lock(&lock);
    dl_list_remove(&group->deadlock_node);
    if (world == group) {
        world = NULL;
        pthread_cond_broadcast(&moved);
    }
    pthread_mutex_unlock(&lock);
}
