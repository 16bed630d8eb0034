/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/wait_graph.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x34746961776c64) /* "dlwait4" */

/* The most targets of one operation, and operations inspected on the way to them. */
#define TARGETS 256

void
dl_wait_state_write(const dl_wait_state *state, dl_buffer *bytes)
{
    dl_wait_state head = *state;

    head.magic = MAGIC;
    dl_buffer_put(bytes,
                  (dl_bytes){(const uint8_t *)&head, offsetof(dl_wait_state, rows)});
    dl_buffer_put(bytes, (dl_bytes){(const uint8_t *)state->rows,
                                    state->row_count * sizeof *state->rows});
    dl_buffer_put(bytes, (dl_bytes){(const uint8_t *)state->groups,
                                    state->group_count * sizeof *state->groups});
    dl_buffer_put(bytes, (dl_bytes){(const uint8_t *)state->messages,
                                    state->message_count * sizeof *state->messages});
}

static bool
take_bytes(dl_bytes *bytes, void *to, size_t size)
{
    if (bytes->size < size) {
        return false;
    }
    if (size > 0) {
        memcpy(to, bytes->data, size);
    }
    *bytes = (dl_bytes){bytes->data + size, bytes->size - size};
    return true;
}

static bool
check_rows(dl_wait_state *state)
{
    for (uint32_t i = 0; i < state->row_count; i++) {
        dl_wait_row *row = &state->rows[i];
        row->site[sizeof row->site - 1] = '\0';
        if (row->group >= state->group_count || row->awaited.count > DL_WAIT_AWAITED) {
            return false;
        }
    }
    for (uint32_t i = 0; i < state->group_count; i++) {
        dl_wait_group *group = &state->groups[i];
        group->name[sizeof group->name - 1] = '\0';
        if (group->running >= (int32_t)state->row_count) {
            return false;
        }
    }
    for (uint32_t i = 0; i < state->message_count; i++) {
        if (state->messages[i].group >= state->group_count) {
            return false;
        }
    }
    return true;
}

bool
dl_wait_state_read(dl_bytes bytes, dl_wait_state *state)
{
    if (!take_bytes(&bytes, state, offsetof(dl_wait_state, rows))
        || state->magic != MAGIC || state->row_count > DL_WAIT_ROWS
        || state->group_count > DL_WAIT_GROUPS
        || state->message_count > DL_WAIT_MESSAGES) {
        return false;
    }
    state->host[sizeof state->host - 1] = '\0';
    state->doing.group[sizeof state->doing.group - 1] = '\0';
    state->doing.host[sizeof state->doing.host - 1] = '\0';
    state->doing.site[sizeof state->doing.site - 1] = '\0';
    state->doing.wait[sizeof state->doing.wait - 1] = '\0';
    return take_bytes(&bytes, state->rows, state->row_count * sizeof *state->rows)
           && take_bytes(&bytes, state->groups,
                         state->group_count * sizeof *state->groups)
           && take_bytes(&bytes, state->messages,
                         state->message_count * sizeof *state->messages)
           && bytes.size == 0 && check_rows(state);
}

typedef struct graph {
    const dl_wait_state *const *states;
    int size;
    bool (*is_stuck)[DL_WAIT_ROWS]; /* indexed by rank and row */
} graph;

/* Something that has to make progress before an operation can: a row, or, if `row` is
 * negative, any thread of the process. */
typedef struct target {
    int rank;
    int row;
} target;

typedef struct target_list {
    target items[TARGETS];
    int count;
} target_list;

static void
add_target(target_list *list, int rank, int row)
{
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].rank == rank && list->items[i].row == row) {
            return;
        }
    }
    if (list->count < TARGETS) {
        list->items[list->count++] = (target){rank, row};
    }
}

static const dl_wait_state *
wait_state_of(const graph *self, int rank)
{
    return rank >= 0 && rank < self->size ? self->states[rank] : NULL;
}

static const dl_wait_row *
row_at(const graph *self, target at)
{
    return &self->states[at.rank]->rows[at.row];
}

/* Groups of different ranks are the same if their names are. */
static int
find_group(const dl_wait_state *state, const char *name)
{
    for (uint32_t i = 0; i < state->group_count; i++) {
        if (strcmp(state->groups[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Adds what the collective `row` waits for at one of its awaited ranks.  A
 * rank in the same collective waits for others in turn; it is added to `same`
 * and inspected next. */
static void
add_awaited(const graph *self, const dl_wait_row *row, const char *name,
            uint32_t awaited, target_list *same, target_list *targets)
{
    int rank = row->awaited.ranks[awaited];
    bool is_passed_by = (row->awaited.unless_begun >> awaited & 1) != 0;
    const dl_wait_state *there = wait_state_of(self, rank);

    if (there == NULL) {
        return;
    }
    int at = find_group(there, name);
    const dl_wait_group *group = at < 0 ? NULL : &there->groups[at];
    bool has_begun = group != NULL && group->begun >= (uint64_t)row->sequence;
    if (group != NULL && group->running >= 0) {
        int64_t running = there->rows[group->running].sequence;
        if (running == row->sequence && !is_passed_by) {
            add_target(same, rank, group->running);
        } else if (running < row->sequence) {
            add_target(targets, rank, group->running);
        }
        return;
    }
    /* A rank that is about to begin its next operation is not stuck. */
    if (!has_begun
        && (group == NULL || (group->running == DL_WAIT_IDLE && group->queued == 0))) {
        add_target(targets, rank, -1);
    }
}

static void
find_collective_targets(const graph *self, target at, target_list *targets)
{
    const dl_wait_state *state = self->states[at.rank];
    const char *name = state->groups[row_at(self, at)->group].name;
    target_list same = {.count = 0};

    add_target(&same, at.rank, at.row);
    for (int i = 0; i < same.count; i++) {
        const dl_wait_row *row = row_at(self, same.items[i]);
        for (uint32_t j = 0; j < row->awaited.count; j++) {
            add_awaited(self, row, name, j, &same, targets);
        }
    }
}

/* Returns true if the peer has called its side of the message `row` of `rank`: the
 * message then needs no more calls to proceed. */
static bool
is_matched(const dl_wait_state *there, int rank, const dl_wait_row *row,
           const char *name)
{
    int group = find_group(there, name);
    bool is_send = row->op == DL_SEND;

    for (uint32_t i = 0; group >= 0 && i < there->message_count; i++) {
        const dl_wait_message *message = &there->messages[i];
        if ((int)message->group == group && (message->op == DL_SEND) != is_send
            && message->tag == row->sequence
            && (message->peer < 0 || message->peer == rank)) {
            return true;
        }
    }
    return false;
}

static void
find_message_targets(const graph *self, target at, target_list *targets)
{
    const dl_wait_row *row = row_at(self, at);
    const char *name = self->states[at.rank]->groups[row->group].name;

    for (uint32_t i = 0; i < row->awaited.count; i++) {
        int rank = row->awaited.ranks[i];
        const dl_wait_state *there = wait_state_of(self, rank);
        if (there != NULL && !is_matched(there, at.rank, row, name)) {
            add_target(targets, rank, -1);
        }
    }
}

static void
find_targets(const graph *self, target at, target_list *targets)
{
    targets->count = 0;
    if (dl_op_type_is_message(row_at(self, at)->op)) {
        find_message_targets(self, at, targets);
    } else {
        find_collective_targets(self, at, targets);
    }
}

/* Returns true if the awaited rank is late; a rank of which nothing is known
 * counts as late. */
static bool
is_late(const graph *self, const dl_wait_row *row, const char *name, uint32_t awaited)
{
    int rank = row->awaited.ranks[awaited];
    const dl_wait_state *there = wait_state_of(self, rank);
    int group = there == NULL ? -1 : find_group(there, name);

    if (group < 0) {
        return rank >= 0 && rank < self->size;
    }
    return dl_op_type_is_message(row->op)
           || there->groups[group].begun < (uint64_t)row->sequence;
}

int
dl_wait_late_find(const dl_wait_state *const *states, int size, int rank, int row,
                  int *late, int room)
{
    graph self = {.states = states, .size = size};
    target_list same = {.count = 0};
    target_list others = {.count = 0};
    target_list found = {.count = 0};
    const dl_wait_state *own = states[rank];
    const char *name = own->groups[own->rows[row].group].name;

    add_target(&same, rank, row);
    for (int i = 0; i < same.count; i++) {
        const dl_wait_row *at = row_at(&self, same.items[i]);
        for (uint32_t j = 0; j < at->awaited.count; j++) {
            if (is_late(&self, at, name, j)) {
                add_target(&found, at->awaited.ranks[j], -1);
            } else if (!dl_op_type_is_message(at->op)) {
                add_awaited(&self, at, name, j, &same, &others);
            }
        }
    }
    int count = found.count < room ? found.count : room;
    for (int i = 0; i < count; i++) {
        late[i] = found.items[i].rank;
    }
    return count;
}

static bool
is_process_stuck(const graph *self, int rank)
{
    const dl_wait_state *state = self->states[rank];
    bool has_any = false;

    for (uint32_t i = 0; i < state->row_count; i++) {
        if (state->rows[i].is_program) {
            has_any = true;
            if (!self->is_stuck[rank][i]) {
                return false;
            }
        }
    }
    return has_any && state->is_blocked != 0;
}

static bool
is_target_stuck(const graph *self, target at)
{
    return at.row < 0 ? is_process_stuck(self, at.rank)
                      : self->is_stuck[at.rank][at.row];
}

/* A receive from any rank is never stuck: which ranks may still send is not known. */
static bool
is_row_stuck(const graph *self, target at)
{
    target_list targets;
    bool is_stuck = false;

    if (row_at(self, at)->op == DL_RECV_ANY) {
        return false;
    }
    find_targets(self, at, &targets);
    for (int i = 0; i < targets.count && !is_stuck; i++) {
        is_stuck = is_target_stuck(self, targets.items[i]);
    }
    return is_stuck;
}

/* Computes the greatest fixed point: all rows count as stuck at first, and those with
 * evidence against them are removed until none is left. */
static void
find_stuck(graph *self)
{
    bool has_changed = true;

    while (has_changed) {
        has_changed = false;
        for (int rank = 0; rank < self->size; rank++) {
            const dl_wait_state *state = self->states[rank];
            for (int i = 0; state != NULL && i < (int)state->row_count; i++) {
                if (self->is_stuck[rank][i] && !is_row_stuck(self, (target){rank, i})) {
                    self->is_stuck[rank][i] = false;
                    has_changed = true;
                }
            }
        }
    }
}

/* A breadth-first search: rows in the order of their distance from the first. */
typedef struct search {
    target *rows;
    int *parents;
    int count;
    int room;
} search;

static void
push_if_stuck(search *self, const graph *graph, target at, int parent)
{
    if (!graph->is_stuck[at.rank][at.row]) {
        return;
    }
    for (int i = 0; i < self->count; i++) {
        if (self->rows[i].rank == at.rank && self->rows[i].row == at.row) {
            return;
        }
    }
    if (self->count < self->room) {
        self->rows[self->count] = at;
        self->parents[self->count++] = parent;
    }
}

/* Returns true if `at` leads back to where the search began, and queues all else that
 * it leads to. */
static bool
expand_row(search *self, const graph *graph, int at)
{
    target first = self->rows[0];
    target_list targets;
    bool is_closed = false;

    find_targets(graph, self->rows[at], &targets);
    for (int i = 0; i < targets.count; i++) {
        target next = targets.items[i];
        if (!is_target_stuck(graph, next)) {
            continue;
        }
        bool is_home = next.rank == first.rank
                       && (next.row == first.row
                           || (next.row < 0 && row_at(graph, first)->is_program));
        if (is_home) {
            is_closed = true;
            continue;
        }
        if (next.row >= 0) {
            push_if_stuck(self, graph, next, at);
            continue;
        }
        const dl_wait_state *state = graph->states[next.rank];
        for (int row = 0; row < (int)state->row_count; row++) {
            if (state->rows[row].is_program) {
                push_if_stuck(self, graph, (target){next.rank, row}, at);
            }
        }
    }
    return is_closed;
}

static bool
write_cycle(const search *self, int last, dl_wait_cycle *cycle)
{
    target found[DL_WAIT_STEPS];
    int count = 0;
    int lowest = 0;

    for (int at = last; at >= 0; at = self->parents[at]) {
        if (count == DL_WAIT_STEPS) {
            return false;
        }
        found[count++] = self->rows[at];
    }
    for (int i = 0; i < count; i++) {
        lowest = found[i].rank < found[lowest].rank ? i : lowest;
    }
    /* They were collected from the last one backwards. */
    cycle->count = count;
    for (int i = 0; i < count; i++) {
        target at = found[(lowest - i + count) % count];
        cycle->steps[i] = (dl_wait_step){at.rank, at.row};
    }
    return true;
}

static bool
search_from(const graph *graph, search *self, target first, dl_wait_cycle *cycle)
{
    self->count = 0;
    push_if_stuck(self, graph, first, -1);
    for (int at = 0; at < self->count; at++) {
        if (expand_row(self, graph, at)) {
            return write_cycle(self, at, cycle);
        }
    }
    return false;
}

bool
dl_wait_cycle_find(const dl_wait_state *const *states, int size, int rank,
                   dl_wait_cycle *cycle)
{
    graph self = {.states = states, .size = size};
    search search = {.room = size * DL_WAIT_ROWS};
    bool has_found = false;

    self.is_stuck = calloc((size_t)size, sizeof *self.is_stuck);
    search.rows = calloc((size_t)search.room, sizeof *search.rows);
    search.parents = calloc((size_t)search.room, sizeof *search.parents);
    if (self.is_stuck != NULL && search.rows != NULL && search.parents != NULL
        && states[rank] != NULL) {
        memset(self.is_stuck, true, (size_t)size * sizeof *self.is_stuck);
        find_stuck(&self);
        for (int i = 0; !has_found && i < (int)states[rank]->row_count; i++) {
            has_found = search_from(&self, &search, (target){rank, i}, cycle);
        }
    }
    free(self.is_stuck);
    free(search.rows);
    free(search.parents);
    return has_found;
}
