/* SPDX-License-Identifier: BSD-3-Clause */
#include "faults.h"

/* The longest time that a fault lasts: beyond the time for which a client tries to
 * reconnect. */
#define SPAN_LEAST (10 * DL_MILLISECOND)
#define SPAN_MOST (8 * DL_SECOND)

static const char *const names[SIM_FAULT_KINDS] = {
    [SIM_CUT] = "cut a connection",
    [SIM_PARTITION] = "part the server from client",
    [SIM_STOP_SERVER] = "stop the server",
    [SIM_STOP_CLIENT] = "stop client",
    [SIM_KILL_CLIENT] = "kill client",
    [SIM_NO_MEMORY_SERVER] = "no memory in the server",
    [SIM_NO_MEMORY_CLIENT] = "no memory in client",
    [SIM_NO_DESCRIPTORS] = "no descriptors in the server",
    [SIM_JUMP] = "set the wall clock",
    [SIM_KILL_SERVER] = "kill the server",
    [SIM_CRASH_HOST] = "crash the server's host",
    [SIM_FULL_DISK] = "fill the disk",
    [SIM_SLOW_DISK] = "slow the disk down",
};

static sim_fault
draw_fault(sim_random *random, int clients, bool has_journal, int64_t from,
           int64_t span)
{
    int kinds = has_journal ? SIM_FAULT_KINDS : SIM_NEEDS_JOURNAL;

    return (sim_fault){
        .kind = sim_random_once_in(random, 3)
                    ? SIM_CUT
                    : (sim_fault_kind)sim_random_below(random, (uint64_t)kinds),
        .at = from + (int64_t)sim_random_below(random, (uint64_t)span),
        .span = sim_random_span(random, SPAN_LEAST, SPAN_MOST),
        .client = (int)sim_random_below(random, (uint64_t)clients),
        .number = 1 + sim_random_below(random, 60),
    };
}

/* The checker of histories knows one crash that loses changes.  And a change that was
 * refused because the disk is full can be read until the server ends, which is
 * documented. */
static bool
is_excluded(const sim_plan *plan, sim_fault_kind kind)
{
    bool has_end =
        sim_plan_has(plan, SIM_CRASH_HOST) || sim_plan_has(plan, SIM_KILL_SERVER);

    switch (kind) {
    case SIM_FULL_DISK:
        return has_end;
    case SIM_CRASH_HOST:
        return sim_plan_has(plan, SIM_CRASH_HOST) || sim_plan_has(plan, SIM_FULL_DISK);
    case SIM_KILL_SERVER:
        return sim_plan_has(plan, SIM_FULL_DISK);
    default:
        return false;
    }
}

void
sim_plan_draw(sim_plan *plan, sim_random *random, uint64_t kept, int clients,
              bool has_journal, int64_t from, int64_t span)
{
    uint64_t count = sim_random_below(random, SIM_FAULTS + 1);

    *plan = (sim_plan){.calm_at = from};
    if (sim_random_once_in(random, 5)) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        sim_fault drawn = draw_fault(random, clients, has_journal, from, span);
        if ((kept >> i & 1) == 0 || is_excluded(plan, drawn.kind)) {
            continue;
        }
        plan->faults[plan->count++] = drawn;
        /* A sync that begins while the disk is slow lasts as long once more. */
        int64_t end = drawn.at + (drawn.kind == SIM_SLOW_DISK ? 2 : 1) * drawn.span;
        plan->calm_at = end > plan->calm_at ? end : plan->calm_at;
    }
}

bool
sim_plan_has(const sim_plan *plan, sim_fault_kind kind)
{
    for (int i = 0; i < plan->count; i++) {
        if (plan->faults[i].kind == kind) {
            return true;
        }
    }
    return false;
}

int64_t
sim_plan_span(const sim_plan *plan, sim_fault_kind kind)
{
    int64_t span = 0;

    for (int i = 0; i < plan->count; i++) {
        span += plan->faults[i].kind == kind ? plan->faults[i].span : 0;
    }
    return span;
}

void
sim_plan_print(const sim_plan *plan)
{
    for (int i = 0; i < plan->count; i++) {
        const sim_fault *one = &plan->faults[i];
        printf("  at %9.6f for %8.6f: %s (client %d, number %d)\n",
               (double)(one->at - 1000 * DL_SECOND) / 1e9, (double)one->span / 1e9,
               names[one->kind], one->client, (int)one->number);
    }
}
