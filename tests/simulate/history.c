/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The search is that of Wing and Gong (1993): it takes an operation that may come next,
 * applies it to the state, and goes back when a reply contradicts the state.  Pairs of
 * what was taken and the state are searched once (Lowe, 2017). */
#include "history.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPERATIONS 4096
#define PER_KEY 64
#define VISITED (1u << 16)
#define SURVIVORS 8192

typedef struct state {
    bool exists;
    char value[SIM_VALUE_SIZE];
} state;

typedef struct survivor {
    uint64_t taken;
    state at;
} survivor;

static sim_operation operations[OPERATIONS];
static int operation_count;
static int64_t lost_since = SIM_FOREVER;
static int64_t lost_at = SIM_FOREVER;

/* The search on one key. */
static sim_operation *own[PER_KEY];
static int own_count;
static uint64_t visited[VISITED];
static uint32_t visited_at[VISITED / 2]; /* the places that are not 0 */
static uint32_t visited_count;
static survivor survivors[SURVIVORS];
static int survivor_count;

sim_operation *
sim_history_begin(sim_verb verb, int key)
{
    if (operation_count == OPERATIONS) {
        sim_fail("more than %d operations", OPERATIONS);
    }
    sim_operation *made = &operations[operation_count++];
    *made = (sim_operation){.verb = verb,
                            .key = key,
                            .begun = sim.now,
                            .ended = SIM_FOREVER,
                            .who = sim_process_current()->name};
    return made;
}

void
sim_history_lose(int64_t since)
{
    lost_since = since;
    lost_at = sim.now;
}

static void
put_number(state *at, int64_t number)
{
    at->exists = true;
    snprintf(at->value, sizeof at->value, "%" PRId64, number);
}

static void
append(state *at, const char *text)
{
    size_t size = at->exists ? strlen(at->value) : 0;

    snprintf(at->value + size, sizeof at->value - size, "%s", text);
    at->exists = true;
}

static bool
compare_set(state *at, const sim_operation *one, bool is_told)
{
    bool is_same =
        at->exists ? strcmp(at->value, one->expected) == 0 : one->expected[0] == '\0';

    if (is_same) {
        *at = (state){.exists = true};
        strcpy(at->value, one->argument);
    }
    return !is_told || strcmp(one->got, at->exists ? at->value : one->expected) == 0;
}

static bool
pop(state *at, const sim_operation *one, bool is_told)
{
    if (is_told && (at->value[0] != one->got[0])) {
        return false;
    }
    if (at->value[0] != '\0') {
        memmove(at->value, at->value + 1, strlen(at->value));
    }
    return true;
}

/* Applies the operation; returns false if its reply contradicts the state. */
static bool
apply(state *at, const sim_operation *one)
{
    bool is_told = one->outcome == SIM_DONE;
    bool existed = at->exists;

    switch (one->verb) {
    case SIM_SET:
        *at = (state){.exists = true};
        strcpy(at->value, one->argument);
        return true;
    case SIM_GET:
        return at->exists && strcmp(at->value, one->got) == 0;
    case SIM_ADD:
        put_number(at, (existed ? atoll(at->value) : 0) + one->number);
        return !is_told || atoll(at->value) == one->told;
    case SIM_EXISTS:
        return existed == (one->told != 0);
    case SIM_ABSENT:
        return !existed;
    case SIM_DELETE:
        *at = (state){0};
        return !is_told || existed == (one->told != 0);
    case SIM_COMPARE_SET:
        return compare_set(at, one, is_told);
    case SIM_APPEND:
    case SIM_PUSH:
        append(at, one->argument);
        return true;
    case SIM_POP:
        return pop(at, one, is_told);
    case SIM_LENGTH:
        return (int64_t)strlen(at->value) == one->told;
    }
    return false;
}

/* Returns whether it is new; a full table forgets nothing and searches no further. */
static bool
visit(uint64_t taken, const state *at)
{
    uint64_t mark = taken * UINT64_C(0x9E3779B97F4A7C15) + at->exists + 1;

    for (const char *next = at->value; *next != '\0'; next++) {
        mark = (mark ^ (uint8_t)*next) * UINT64_C(1099511628211);
    }
    mark |= mark == 0;
    uint32_t place = (uint32_t)(mark >> 40) % VISITED;
    while (visited[place] != 0) {
        if (visited[place] == mark) {
            return false;
        }
        place = (place + 1) % VISITED;
    }
    if (visited_count >= VISITED / 2) {
        return false;
    }
    visited[place] = mark;
    visited_at[visited_count++] = place;
    return true;
}

/* The end of the first of those that were not taken. */
static int64_t
first_end(uint64_t taken)
{
    int64_t end = SIM_FOREVER;

    for (int i = 0; i < own_count; i++) {
        if ((taken >> i & 1) == 0 && own[i]->ended < end) {
            end = own[i]->ended;
        }
    }
    return end;
}

/* Notes the state as one that the crash may have left: nothing that ended before the
 * loss is missing. */
static void
note_survivor(uint64_t taken, const state *at)
{
    if (first_end(taken) > lost_since && survivor_count < SURVIVORS) {
        survivors[survivor_count++] = (survivor){taken, *at};
    }
}

/* Searches on among the operations that began before `before`; all that have ended by
 * then have to be explained. */
static bool
search(uint64_t taken, const state *at, int64_t before, bool is_noting)
{
    bool is_explained = false;

    if (!visit(taken, at)) {
        return false;
    }
    if (is_noting) {
        note_survivor(taken, at);
    }
    int64_t end = first_end(taken);
    if (end >= before) {
        is_explained = true;
        if (!is_noting) {
            return true;
        }
    }
    for (int i = 0; i < own_count; i++) {
        state next = *at;
        if ((taken >> i & 1) == 0 && own[i]->begun <= end && own[i]->begun < before
            && apply(&next, own[i])
            && search(taken | UINT64_C(1) << i, &next, before, is_noting)) {
            is_explained = true;
            if (!is_noting) {
                return true;
            }
        }
    }
    return is_explained;
}

static void
begin_search(void)
{
    while (visited_count > 0) {
        visited[visited_at[--visited_count]] = 0;
    }
}

/* What ended before the crash is explained without it.  Then the operations that it
 * undid are left out, and what was under way or began later has to follow from a state
 * that it may have left. */
static bool
explain_with_loss(void)
{
    const state nothing = {0};
    uint64_t ended = 0;

    survivor_count = 0;
    begin_search();
    if (!search(0, &nothing, lost_at, true)) {
        return false;
    }
    for (int i = 0; i < own_count; i++) {
        ended |= own[i]->ended < lost_at ? UINT64_C(1) << i : 0;
    }
    begin_search();
    for (int i = 0; i < survivor_count; i++) {
        if (search(survivors[i].taken | ended, &survivors[i].at, SIM_FOREVER, false)) {
            return true;
        }
    }
    /* Of more than it can note it has not tried them all. */
    return survivor_count == SURVIVORS;
}

static bool
explain(void)
{
    const state nothing = {0};

    if (lost_at != SIM_FOREVER) {
        return explain_with_loss();
    }
    begin_search();
    return search(0, &nothing, SIM_FOREVER, false);
}

static void
print_operation(const sim_operation *one)
{
    static const char *const verbs[] = {
        "set",         "get",    "add",  "exists", "absent", "delete",
        "compare_set", "append", "push", "pop",    "length",
    };
    double start = (double)(one->begun - 1000 * DL_SECOND) / 1e9;

    printf("  %10.6f ", start);
    if (one->ended == SIM_FOREVER) {
        printf("%10s ", "-");
    } else {
        printf("%10.6f ", (double)(one->ended - 1000 * DL_SECOND) / 1e9);
    }
    printf("%-9s %s(%s%s%s %" PRId64 ")", one->who, verbs[one->verb], one->expected,
           one->expected[0] ? "->" : "", one->argument, one->number);
    if (one->outcome == SIM_DONE) {
        printf(" = %s %" PRId64 "\n", one->got, one->told);
    } else {
        printf(": unknown\n");
    }
}

/* What was under way in a crash that lost changes may have been answered before it, and
 * then undone. */
static bool
is_across_loss(const sim_operation *one)
{
    return one->begun < lost_at && one->ended >= lost_at && lost_at != SIM_FOREVER;
}

static bool
is_read(sim_verb verb)
{
    return verb == SIM_GET || verb == SIM_EXISTS || verb == SIM_ABSENT
           || verb == SIM_LENGTH;
}

static void
collect(int key)
{
    own_count = 0;
    for (int i = 0; i < operation_count; i++) {
        if (operations[i].key != key || operations[i].outcome == SIM_DROPPED) {
            continue;
        }
        if (own_count == PER_KEY) {
            sim_fail("more than %d operations on one key", PER_KEY);
        }
        if (is_across_loss(&operations[i])) {
            if (is_read(operations[i].verb)) {
                continue;
            }
            operations[i].outcome = SIM_UNKNOWN;
        }
        own[own_count++] = &operations[i];
        /* It may still happen after it has failed. */
        if (operations[i].outcome == SIM_UNKNOWN) {
            operations[i].ended = SIM_FOREVER;
        }
    }
}

void
sim_history_check(int keys)
{
    for (int key = 0; key < keys; key++) {
        collect(key);
        if (explain() || visited_count >= VISITED / 2) {
            continue;
        }
        for (int i = 0; i < own_count; i++) {
            print_operation(own[i]);
        }
        sim_fail("the history of key %d has no explanation", key);
    }
}
