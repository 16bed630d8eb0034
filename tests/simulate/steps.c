/* SPDX-License-Identifier: BSD-3-Clause */
#include "steps.h"

#include <string.h>

#define LARGE_IN 12 /* one step in so many has a large array */
#define WINDOW_IN 12
#define WINDOW_MOST 3000
#define OBJECTS_IN 8
#define PAUSE_IN 5
#define PAUSE_LEAST (100 * DL_MILLISECOND / 1000)
#define PAUSE_MOST (200 * DL_MILLISECOND)

static const struct {
    const char *name;
    dl_op_type op;
    bool joins_all;
} kinds[SIM_STEP_KINDS] = {
    [SIM_STEP_BARRIER] = {"barrier", DL_BARRIER, true},
    [SIM_STEP_ALL_REDUCE] = {"all_reduce", DL_ALL_REDUCE, true},
    [SIM_STEP_REDUCE] = {"reduce", DL_REDUCE, false},
    [SIM_STEP_BROADCAST] = {"broadcast", DL_BROADCAST, false},
    [SIM_STEP_SCAN] = {"scan", DL_SCAN, false},
    [SIM_STEP_EXSCAN] = {"exscan", DL_EXSCAN, false},
    [SIM_STEP_ALL_GATHER] = {"all_gather", DL_ALL_GATHER, true},
    [SIM_STEP_GATHER] = {"gather", DL_GATHER, false},
    [SIM_STEP_SCATTER] = {"scatter", DL_SCATTER, false},
    [SIM_STEP_REDUCE_SCATTER] = {"reduce_scatter", DL_REDUCE_SCATTER, true},
    [SIM_STEP_ALL_TO_ALL] = {"all_to_all", DL_ALL_TO_ALL, true},
    [SIM_STEP_SEND] = {"send", DL_SEND, false},
    [SIM_STEP_RING] = {"ring of messages", DL_SEND, false},
    [SIM_STEP_MONITORED_BARRIER] = {"monitored_barrier", DL_BARRIER, true},
    [SIM_STEP_SPLIT] = {"split", DL_ALL_REDUCE, false},
    [SIM_STEP_WINDOW] = {"window", DL_BARRIER, true},
};

const char *
sim_step_name(const sim_step *step)
{
    return kinds[step->kind].name;
}

/* Blocks of no elements need no other rank. */
bool
sim_step_joins_all(const sim_step *step)
{
    return kinds[step->kind].joins_all && !step->is_queued
           && (step->count > 0 || kinds[step->kind].op == DL_BARRIER);
}

static bool
has_blocks(const sim_step *step)
{
    return step->kind >= SIM_STEP_ALL_GATHER && step->kind <= SIM_STEP_ALL_TO_ALL;
}

static size_t
draw_count(const sim_step *step, sim_random *random)
{
    static const size_t limits[] = {2, 20, 400, 4000};

    if (sim_random_once_in(random, LARGE_IN)) {
        return sim_random_below(random, has_blocks(step) ? 6000 : 40000);
    }
    return sim_random_below(random, limits[sim_random_below(random, 4)]);
}

/* Those that the library makes of blocks of objects. */
static bool
may_have_objects(const sim_step *step)
{
    return step->kind == SIM_STEP_BROADCAST || step->kind == SIM_STEP_ALL_GATHER
           || step->kind == SIM_STEP_GATHER || step->kind == SIM_STEP_SCATTER;
}

/* From a stream of their own: they came later. */
static void
draw_more(sim_step *step, sim_random *random)
{
    bool is_window = sim_random_once_in(random, WINDOW_IN);
    bool has_objects = sim_random_once_in(random, OBJECTS_IN);

    if (is_window) {
        step->kind = SIM_STEP_WINDOW;
        step->count %= WINDOW_MOST;
        step->is_queued = false;
    }
    step->has_objects = has_objects && !step->is_uneven && may_have_objects(step);
}

void
sim_step_draw(sim_step *step, sim_random *random, sim_random *more, int number,
              int size)
{
    static const dl_reduce_op reductions[] = {DL_SUM, DL_MIN, DL_MAX, DL_BXOR};

    *step = (sim_step){
        .kind = (sim_step_kind)sim_random_below(random, SIM_STEP_WINDOW),
        .number = number,
        .reduction = reductions[sim_random_below(random, 4)],
        .root = (int)sim_random_below(random, (uint64_t)size),
        .is_queued = sim_random_once_in(random, 5),
        .is_uneven = sim_random_once_in(random, 3),
        .members = (unsigned)sim_random_below(random, 1u << size),
    };
    step->count = draw_count(step, random);
    step->peer =
        (step->root + 1 + (int)sim_random_below(random, (uint64_t)size - 1)) % size;
    step->is_queued &= step->kind < SIM_STEP_SEND;
    draw_more(step, more);
    step->is_uneven &= has_blocks(step);
    step->is_float = step->kind == SIM_STEP_ALL_REDUCE && step->reduction == DL_SUM;
    for (int rank = 0; rank < size; rank++) {
        step->pauses[rank] = sim_random_once_in(random, PAUSE_IN)
                                 ? sim_random_span(random, PAUSE_LEAST, PAUSE_MOST)
                                 : 0;
    }
}

/* Arrays. */

int64_t
sim_step_value(const sim_step *step, int from, int to, size_t i)
{
    return (int64_t)((size_t)step->number * 37 + (size_t)from * 101 + (size_t)to * 13
                     + i * 7)
               % 1009
           + 1;
}

static float
real_of(int64_t value)
{
    return (float)value / 7;
}

static int64_t
reduce(dl_reduce_op reduction, int64_t left, int64_t right)
{
    switch (reduction) {
    case DL_MIN:
        return left < right ? left : right;
    case DL_MAX:
        return left > right ? left : right;
    case DL_BXOR:
        return left ^ right;
    default:
        return left + right;
    }
}

/* Of the elements that the first `count` ranks have for rank `to`. */
static int64_t
reduced(const sim_step *step, int count, int to, size_t i)
{
    int64_t value = sim_step_value(step, 0, to, i);

    for (int rank = 1; rank < count; rank++) {
        value = reduce(step->reduction, value, sim_step_value(step, rank, to, i));
    }
    return value;
}

/* The same of the members of a split. */
static int64_t
reduced_by_members(const sim_step *step, size_t i)
{
    int64_t value = 0;
    bool is_first = true;

    for (int rank = 0; rank < SIM_RANKS; rank++) {
        if ((step->members >> rank & 1) != 0) {
            int64_t own = sim_step_value(step, rank, 0, i);
            value = is_first ? own : reduce(step->reduction, value, own);
            is_first = false;
        }
    }
    return value;
}

static size_t
block_size(const sim_step *step, int from, int to)
{
    bool has_from =
        step->kind != SIM_STEP_SCATTER && step->kind != SIM_STEP_REDUCE_SCATTER;
    bool has_to = step->kind != SIM_STEP_ALL_GATHER && step->kind != SIM_STEP_GATHER;

    return step->count
           + (step->is_uneven
                  ? (size_t)((has_from ? from * 3 : 0) + (has_to ? to * 5 : 0)) % 4
                  : 0);
}

static dl_tensor
new_array(const sim_step *step, size_t count)
{
    size_t item_size = step->is_float ? sizeof(float) : sizeof(int64_t);

    return (dl_tensor){
        .data = sim_allocate((count + 1) * item_size),
        .count = count,
        .item_size = item_size,
        .dtype = step->is_float ? DL_FLOAT32 : DL_INT64,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
}

static dl_tensor
filled_array(const sim_step *step, int from, int to, size_t count)
{
    dl_tensor made = new_array(step, count);

    for (size_t i = 0; i < count; i++) {
        int64_t value = sim_step_value(step, from, to, i);
        if (step->is_float) {
            ((float *)made.data)[i] = real_of(value);
        } else {
            ((int64_t *)made.data)[i] = value;
        }
    }
    return made;
}

/* The lists of blocks, and the array beside them. */
static void
fill_blocks(sim_act *act)
{
    const sim_step *step = act->step;
    dl_call *call = &act->calls[0];
    int rank = act->rank;
    bool is_root = rank == step->root;
    bool has_inputs = step->kind == SIM_STEP_ALL_TO_ALL
                      || step->kind == SIM_STEP_REDUCE_SCATTER
                      || (step->kind == SIM_STEP_SCATTER && is_root);
    bool has_outputs = step->kind == SIM_STEP_ALL_TO_ALL
                       || step->kind == SIM_STEP_ALL_GATHER
                       || (step->kind == SIM_STEP_GATHER && is_root);

    for (int other = 0; other < act->size; other++) {
        act->inputs[other] =
            filled_array(step, rank, other, block_size(step, rank, other));
        act->outputs[other] = new_array(step, block_size(step, other, rank));
    }
    call->inputs = has_inputs ? act->inputs : NULL;
    call->outputs = has_outputs ? act->outputs : NULL;
    call->is_uneven =
        step->is_uneven
        && (step->kind == SIM_STEP_GATHER || step->kind == SIM_STEP_SCATTER);
    if (step->kind == SIM_STEP_ALL_GATHER || step->kind == SIM_STEP_GATHER) {
        call->tensor = filled_array(step, rank, 0, block_size(step, rank, 0));
    } else if (step->kind != SIM_STEP_ALL_TO_ALL) {
        call->tensor = new_array(step, block_size(step, 0, rank));
    }
}

static void
fill_message(sim_act *act, dl_op_type op, int peer)
{
    const sim_step *step = act->step;

    act->calls[act->call_count++] = (dl_call){
        .op = op,
        .peer = peer,
        .tag = step->number,
        .tensor = op == DL_SEND ? filled_array(step, act->rank, peer, step->count)
                                : new_array(step, step->count),
    };
}

sim_act *
sim_act_new(const sim_step *step, int rank, int size)
{
    sim_act *act = sim_allocate(sizeof *act);

    *act = (sim_act){.step = step, .rank = rank, .size = size};
    if (step->kind == SIM_STEP_RING) {
        fill_message(act, DL_SEND, (rank + 1) % size);
        fill_message(act, DL_RECV, (rank + size - 1) % size);
        return act;
    }
    if (step->kind == SIM_STEP_SEND) {
        if (rank == step->root) {
            fill_message(act, DL_SEND, step->peer);
        } else if (rank == step->peer) {
            fill_message(act, DL_RECV, step->root);
        }
        return act;
    }
    act->call_count = 1;
    act->calls[0] = (dl_call){
        .op = kinds[step->kind].op,
        .root = step->root,
        .reduction = step->reduction,
        .has_objects = step->has_objects,
    };
    if (has_blocks(step)) {
        fill_blocks(act);
    } else if (act->calls[0].op != DL_BARRIER) {
        act->calls[0].tensor = filled_array(step, rank, 0, step->count);
    }
    return act;
}

/* Results. */

static void
check_element(const sim_act *act, const dl_tensor *tensor, size_t i, int64_t expected)
{
    int64_t found = ((const int64_t *)tensor->data)[i];

    if (found != expected) {
        sim_fail("rank %d has %lld in place of %lld at %zu of step %d, %s", act->rank,
                 (long long)found, (long long)expected, i, act->step->number,
                 sim_step_name(act->step));
    }
}

/* The result of a step with one array; false: it has none on this rank. */
static bool
expected_of(const sim_act *act, size_t i, int64_t *expected)
{
    const sim_step *step = act->step;
    int rank = act->rank;

    switch (step->kind) {
    case SIM_STEP_ALL_REDUCE:
        *expected = reduced(step, act->size, 0, i);
        return true;
    case SIM_STEP_REDUCE:
        *expected = reduced(step, act->size, 0, i);
        return rank == step->root;
    case SIM_STEP_BROADCAST:
        *expected = sim_step_value(step, step->root, 0, i);
        return true;
    case SIM_STEP_SCAN:
        *expected = reduced(step, rank + 1, 0, i);
        return true;
    case SIM_STEP_EXSCAN:
        *expected = reduced(step, rank, 0, i);
        return rank > 0;
    case SIM_STEP_SCATTER:
        *expected = sim_step_value(step, step->root, rank, i);
        return true;
    case SIM_STEP_REDUCE_SCATTER:
        *expected = reduced(step, act->size, rank, i);
        return true;
    case SIM_STEP_SPLIT:
        *expected = reduced_by_members(step, i);
        return true;
    default:
        return false;
    }
}

static void
check_real(const sim_act *act)
{
    const dl_tensor *tensor = &act->calls[0].tensor;

    for (size_t i = 0; i < tensor->count; i++) {
        float expected = real_of(reduced(act->step, act->size, 0, i));
        float off = ((const float *)tensor->data)[i] - expected;
        if (off > expected / 1000 || -off > expected / 1000) {
            sim_fail("rank %d has a sum that is wrong by %g at %zu of step %d",
                     act->rank, (double)off, i, act->step->number);
        }
    }
}

static void
check_messages(const sim_act *act)
{
    for (int k = 0; k < act->call_count; k++) {
        const dl_call *call = &act->calls[k];
        for (size_t i = 0; call->op == DL_RECV && i < call->tensor.count; i++) {
            check_element(act, &call->tensor, i,
                          sim_step_value(act->step, call->peer, act->rank, i));
        }
    }
}

void
sim_act_check(const sim_act *act)
{
    const dl_call *call = &act->calls[0];
    int64_t expected;

    if (act->step->kind == SIM_STEP_SEND || act->step->kind == SIM_STEP_RING) {
        check_messages(act);
        return;
    }
    if (act->step->is_float) {
        check_real(act);
        return;
    }
    for (size_t i = 0; i < call->tensor.count && expected_of(act, i, &expected); i++) {
        check_element(act, &call->tensor, i, expected);
    }
    bool is_for_one = act->step->kind == SIM_STEP_ALL_TO_ALL;
    for (int other = 0; call->outputs != NULL && other < act->size; other++) {
        for (size_t i = 0; i < act->outputs[other].count; i++) {
            check_element(
                act, &act->outputs[other], i,
                sim_step_value(act->step, other, is_for_one ? act->rank : 0, i));
        }
    }
}

uint64_t
sim_act_hash(const sim_act *act)
{
    const dl_tensor *tensor = &act->calls[0].tensor;
    const uint8_t *bytes = tensor->data;
    uint64_t hash = 1;

    if (act->step->kind != SIM_STEP_ALL_REDUCE) {
        return 0;
    }
    for (size_t i = 0; i < dl_tensor_size(tensor); i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}
