/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/record/wait_graph.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x35746961776c64) /* "dlwait5" */

/* The most ranks that one operation is found to wait for. */
#define TARGETS 256

void
dl_wait_state_write(const dl_wait_state *state, dl_buffer *bytes)
{
    dl_wait_state head = *state;

    head.magic = MAGIC;
    dl_buffer_put(bytes,
                  (dl_bytes){(const uint8_t *)&head, offsetof(dl_wait_state, groups)});
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

/* Ends the texts, and checks the indices. */
static bool
check_rows(dl_wait_state *state)
{
    dl_doing *doing = &state->doing;

    doing->group[sizeof doing->group - 1] = '\0';
    doing->host[sizeof doing->host - 1] = '\0';
    doing->site[sizeof doing->site - 1] = '\0';
    doing->wait[sizeof doing->wait - 1] = '\0';
    for (uint32_t i = 0; i < state->group_count; i++) {
        dl_wait_group *group = &state->groups[i];
        group->name[sizeof group->name - 1] = '\0';
    }
    for (uint32_t i = 0; i < state->message_count; i++) {
        if (state->messages[i].group >= state->group_count) {
            return false;
        }
    }
    return state->awaited.count <= DL_WAIT_AWAITED
           && (!state->is_blocked || state->group < state->group_count);
}

bool
dl_wait_state_read(dl_bytes bytes, dl_wait_state *state)
{
    return take_bytes(&bytes, state, offsetof(dl_wait_state, groups))
           && state->magic == MAGIC && state->group_count <= DL_WAIT_GROUPS
           && state->message_count <= DL_WAIT_MESSAGES
           && take_bytes(&bytes, state->groups,
                         state->group_count * sizeof *state->groups)
           && take_bytes(&bytes, state->messages,
                         state->message_count * sizeof *state->messages)
           && bytes.size == 0 && check_rows(state);
}

typedef struct graph {
    dl_wait_state *const *states;
    int size;
} graph;

typedef struct rank_list {
    int ranks[TARGETS];
    int count;
} rank_list;

static void
add_rank(rank_list *list, int rank)
{
    for (int i = 0; i < list->count; i++) {
        if (list->ranks[i] == rank) {
            return;
        }
    }
    if (list->count < TARGETS) {
        list->ranks[list->count++] = rank;
    }
}

/* Returns NULL unless the rank is known to be blocked. */
static const dl_wait_state *
blocked_state(const graph *self, int rank)
{
    const dl_wait_state *state =
        rank >= 0 && rank < self->size ? self->states[rank] : NULL;

    return state != NULL && state->is_blocked ? state : NULL;
}

/* Groups of different ranks are the same if their names are. */
static const dl_wait_group *
find_group(const dl_wait_state *state, const char *name)
{
    for (uint32_t i = 0; i < state->group_count; i++) {
        if (strcmp(state->groups[i].name, name) == 0) {
            return &state->groups[i];
        }
    }
    return NULL;
}

static const char *
group_name(const dl_wait_state *state)
{
    return state->groups[state->group].name;
}

static bool
are_in_one_collective(const dl_wait_state *left, const dl_wait_state *right)
{
    return !dl_op_type_is_message(right->doing.op)
           && left->doing.sequence == right->doing.sequence
           && strcmp(group_name(left), group_name(right)) == 0;
}

/* A rank that is about to begin its next operation does not wait. */
static bool
has_to_begin(const dl_wait_state *there, const char *name, int64_t sequence)
{
    const dl_wait_group *group = find_group(there, name);

    return group == NULL || (group->begun < (uint64_t)sequence && !group->is_busy);
}

/* Two ranks in one collective wait for data of each other, which is no cycle: a rank in
 * it waits for whatever the others in it wait for. */
static void
find_collective_targets(const graph *self, int rank, rank_list *targets)
{
    rank_list same = {.count = 0};

    add_rank(&same, rank);
    for (int i = 0; i < same.count; i++) {
        const dl_wait_state *state = self->states[same.ranks[i]];
        for (uint32_t j = 0; j < state->awaited.count; j++) {
            int awaited = state->awaited.ranks[j];
            const dl_wait_state *there = blocked_state(self, awaited);
            if (there == NULL) {
                continue;
            }
            if (!are_in_one_collective(state, there)) {
                if (has_to_begin(there, group_name(state), state->doing.sequence)) {
                    add_rank(targets, awaited);
                }
            } else if ((state->awaited.unless_begun >> j & 1) == 0) {
                add_rank(&same, awaited);
            }
        }
    }
}

/* Returns true if the peer has called its side of the message in which `state` waits:
 * the message then needs no more calls to proceed. */
static bool
is_matched(const dl_wait_state *there, const dl_wait_state *state)
{
    bool is_send = state->doing.op == DL_SEND;

    for (uint32_t i = 0; i < there->message_count; i++) {
        const dl_wait_message *message = &there->messages[i];
        if (strcmp(there->groups[message->group].name, group_name(state)) == 0
            && (message->op == DL_SEND) != is_send
            && message->tag == state->doing.sequence
            && (message->peer < 0 || message->peer == state->rank)) {
            return true;
        }
    }
    return false;
}

/* Lists the blocked ranks that have to go on before `rank` can.  Nothing is known of
 * those from which a receive from any rank may get its message. */
static void
find_targets(const graph *self, int rank, rank_list *targets)
{
    const dl_wait_state *state = self->states[rank];

    targets->count = 0;
    if (!dl_op_type_is_message(state->doing.op)) {
        find_collective_targets(self, rank, targets);
        return;
    }
    for (uint32_t i = 0; state->doing.op != DL_RECV_ANY && i < state->awaited.count;
         i++) {
        const dl_wait_state *there = blocked_state(self, state->awaited.ranks[i]);
        if (there != NULL && !is_matched(there, state)) {
            add_rank(targets, state->awaited.ranks[i]);
        }
    }
}

/* `parents` by rank lead back to the first one; returns false if they are too many. */
static bool
write_cycle(const int *parents, int first, int last, dl_wait_cycle *cycle)
{
    int found[DL_WAIT_STEPS];
    int count = 0, lowest = 0;

    for (int rank = last;; rank = parents[rank]) {
        if (count == DL_WAIT_STEPS) {
            return false;
        }
        found[count] = rank;
        lowest = rank < found[lowest] ? count : lowest;
        count++;
        if (rank == first) {
            break;
        }
    }
    /* They were collected from the last one backwards. */
    cycle->count = count;
    for (int i = 0; i < count; i++) {
        cycle->ranks[i] = found[(lowest - i + count) % count];
    }
    return true;
}

/* A breadth-first search; `parents` are negative for ranks that were not reached. */
static bool
search_from(const graph *self, int first, int *parents, int *queue,
            dl_wait_cycle *cycle)
{
    rank_list targets;
    int count = 0;

    memset(parents, -1, (size_t)self->size * sizeof *parents);
    queue[count++] = first;
    for (int at = 0; at < count; at++) {
        find_targets(self, queue[at], &targets);
        for (int i = 0; i < targets.count; i++) {
            int next = targets.ranks[i];
            if (next == first) {
                return write_cycle(parents, first, queue[at], cycle);
            }
            if (parents[next] < 0) {
                parents[next] = queue[at];
                queue[count++] = next;
            }
        }
    }
    return false;
}

bool
dl_wait_cycle_find(dl_wait_state *const *states, int size, int rank,
                   dl_wait_cycle *cycle)
{
    const graph self = {.states = states, .size = size};
    int *parents = calloc(2 * (size_t)size, sizeof *parents);
    bool has_found = parents != NULL && blocked_state(&self, rank) != NULL
                     && search_from(&self, rank, parents, parents + size, cycle);

    free(parents);
    return has_found;
}
