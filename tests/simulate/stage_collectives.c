/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_collectives.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ranks.h"
#include "stage_join.h"
#include "steps.h"
#include "store/prefix_store.h"

#define STEPS 10
#define FAULTS 4

#define FROM (1000 * DL_SECOND)
#define FAULTS_SPAN (DL_SECOND)
#define SPAN_LEAST (10 * DL_MILLISECOND)
#define SPAN_MOST (8 * DL_SECOND)
#define LIMIT_LEAST (3 * DL_SECOND)
#define LIMIT_MOST (15 * DL_SECOND)
#define CALLS 4000 /* of a process, in which it is killed or something fails */
#define JOIN_LIMIT (30 * DL_SECOND)
#define SETTLE (3 * DL_SECOND)
#define DETAILED_IN 6
#define RUN_LIMIT (1600 * DL_SECOND)
/* A rank that fails tells others, and asks them for the cause. */
#define LATE (DL_SECOND)
#define NARROW (DL_SECOND / 2)
/* What a rank that leaves in order waits for the calls of others. */
#define VERIFY_LIMIT (DL_SECOND / 2)

typedef struct member {
    int rank;
    char name[16];
    sim_process *process;
    dl_store *store;
    dl_group *group;
    sim_act *acts[STEPS];
    bool has_ended;
    bool has_failed;
    bool has_left_window; /* which has failed */
    bool has_closed;      /* the group, or is about to, or has none */
    bool has_timed_out;
    int at; /* the step that it waits in; joining is before the first, leaving behind the last */
    bool has_begun[STEPS];
    uint64_t hashes[STEPS];
} member;

static struct {
    int size;
    int hosts[SIM_RANKS]; /* by rank */
    int step_count;
    int64_t limit; /* of each operation */
    sim_step steps[STEPS];
    sim_rank_fault faults[FAULTS];
    int count;
    int64_t calm_at;
    bool is_wire_bad;
    bool has_other_calls;
    bool is_detailed; /* ranks compare their calls before they begin them */
    bool is_faulty[SIM_RANKS];
    member members[SIM_RANKS];
    int at; /* the step of which the rank is told that is being checked */
    const sim_step *split; /* whose ranks the error may name by their number in it */
} run;

/* What ranks are told. */

static bool
has_come_to(const member *one, int step)
{
    return step < 0 || (step < run.step_count ? one->has_begun[step] : one->has_closed);
}

/* Returns whether a rank has failed or ended for another reason than a timeout, of which all
 * are told. */
static bool
has_any_failed(void)
{
    for (int rank = 0; rank < run.size; rank++) {
        const member *one = &run.members[rank];
        if (!one->process->is_alive || (one->has_failed && !one->has_timed_out)) {
            return true;
        }
    }
    return false;
}

/* Returns whether the rank waits in an operation that times out a moment later. */
static bool
is_about_to_time_out(const member *one)
{
    for (int i = 0; i < run.step_count && !has_any_failed(); i++) {
        const sim_act *act = one->acts[i];
        if (act != NULL && act->deadline.at <= sim.now + NARROW
            && (i == one->at || (act->work != NULL && !dl_work_is_done(act->work)))) {
            return true;
        }
    }
    return false;
}

/* In a timeout a rank may name one that has not come to the same step, because it waits for
 * the one at fault, or one that has timed out for the same reason.  A rank that has failed
 * and ended cannot be asked any more why it did.  And where a rank calls something else, it
 * may be told, and tell others, that one that was done has left. */
static bool
is_at_fault(int rank)
{
    const member *other = &run.members[rank];
    bool has_timed_out = other->has_timed_out || is_about_to_time_out(other)
                         || !has_come_to(other, run.at);
    bool has_gone =
        other->has_left_window
        || (other->has_closed && (other->has_failed || run.has_other_calls));

    return run.is_faulty[rank] || has_gone
           || (has_timed_out && dl_last_error()->status == DL_TIMEOUT)
           || sim_text_blames_host(rank, run.size, run.hosts, run.is_faulty);
}

static bool
is_member_at_fault(int number)
{
    for (int rank = 0; rank < run.size; rank++) {
        if ((run.split->members >> rank & 1) != 0 && number-- == 0) {
            return is_at_fault(rank);
        }
    }
    return false;
}

static bool
names_rank_at_fault(const sim_step *split)
{
    const char *text = dl_last_error()->text;

    if (sim_text_names(text, run.size, is_at_fault)) {
        return true;
    }
    run.split = split;
    return split != NULL && sim_text_names(text, run.size, is_member_at_fault);
}

/* Returns whether a stopped rank goes on so shortly before the deadline that others may
 * wait for those that have waited for it. */
static bool
may_name_any(int64_t deadline)
{
    for (int i = 0; i < run.count; i++) {
        int64_t end = run.faults[i].at + run.faults[i].span;
        if (run.faults[i].kind == SIM_RANK_STOP && end <= deadline + LATE
            && end > deadline - NARROW) {
            return true;
        }
    }
    return run.is_wire_bad;
}

static void
check_failure(const member *self, const char *what, const sim_step *split,
              int64_t deadline)
{
    const dl_error *error = dl_last_error();

    if (run.count == 0) {
        sim_fail("%s: %s fails without a fault: %s", self->name, what, error->text);
    }
    if (error->text[0] == '\0') {
        sim_fail("%s: %s fails without a text: %d", self->name, what, error->status);
    }
    run.at = self->at;
    if (!may_name_any(deadline) && !run.is_faulty[self->rank]
        && !names_rank_at_fault(split)) {
        sim_fail("%s: %s names no rank at fault: %s", self->name, what, error->text);
    }
}

static void
check_time(const member *self, const char *what, int64_t deadline)
{
    int64_t end = deadline > run.calm_at ? deadline : run.calm_at;

    if (sim.now > end + LATE) {
        sim_fail("%s: %s ended %.3f s after its deadline: %s", self->name, what,
                 (double)(sim.now - end) / 1e9, dl_last_error()->text);
    }
}

/* A group that has failed fails again, at once. */
static void
check_broken(const member *self)
{
    int64_t start = sim.now;

    if (dl_group_barrier(self->group, dl_deadline_after(run.limit)) == DL_OK) {
        sim_fail("%s uses a group that has failed", self->name);
    }
    check_time(self, "an operation of a broken group", start);
}

/* Notes how something has ended; returns whether it has ended well. */
static bool
note_end(member *self, const char *what, dl_status status, dl_deadline deadline,
         const sim_step *split)
{
    sim_note("%s: %s: %d %s", self->name, what, status,
             status == DL_OK ? "" : dl_last_error()->text);
    check_time(self, what, deadline.at);
    if (status != DL_OK) {
        self->has_timed_out |= status == DL_TIMEOUT;
        check_failure(self, what, split, deadline.at);
        self->has_failed = true;
    }
    return status == DL_OK;
}

/* No rank passes a step in which it needs all others before they have begun it, and all
 * have the same bits. */
static void
check_end(member *self, const sim_act *act)
{
    int number = act->step->number;

    sim_act_check(act);
    self->hashes[number] = sim_act_hash(act);
    for (int rank = 0; rank < run.size; rank++) {
        const member *other = &run.members[rank];
        /* Another call may be the same as that of the step. */
        if (sim_step_joins_all(act->step) && !run.has_other_calls
            && !other->has_begun[number]) {
            sim_fail("%s has passed step %d, %s, before rank %d has begun it",
                     self->name, number, sim_step_name(act->step), rank);
        }
        if (self->hashes[number] != 0 && other->hashes[number] != 0
            && self->hashes[number] != other->hashes[number]) {
            sim_fail("%s and %s have other bits after step %d", self->name, other->name,
                     number);
        }
    }
}

/* What ranks do. */

/* Leaves a group in order, as a program does. */
static void
leave(member *self, dl_group *group, const sim_step *split)
{
    dl_deadline deadline = dl_deadline_after(VERIFY_LIMIT);
    dl_status status = dl_group_verify_calls(group, deadline);

    if (status != DL_OK) {
        (void)note_end(self, "the comparison of calls", status, deadline, split);
    }
    deadline = dl_deadline_after(run.limit);
    status = dl_group_finish(group, deadline);
    (void)note_end(self, "leaving", status, deadline, split);
    dl_group_close(group);
    dl_group_unref(group);
}

static dl_status
run_split(member *self, sim_act *act)
{
    const sim_step *step = act->step;
    int ranks[SIM_RANKS];
    char name[16];
    dl_store *below;
    dl_group_options options = {
        .name = name,
        .backend = "cpu",
        .timeout = run.limit,
        .parent = self->group,
        .parent_ranks = ranks,
    };
    dl_group *group = NULL;

    for (int rank = 0; rank < run.size; rank++) {
        if ((step->members >> rank & 1) != 0) {
            options.rank = rank == self->rank ? options.size : options.rank;
            ranks[options.size++] = rank;
        }
    }
    if ((step->members >> self->rank & 1) == 0) {
        return DL_OK;
    }
    snprintf(name, sizeof name, "split-%d", step->number);
    DL_TRY(dl_prefix_store_new(dl_bytes_of(name), self->store, &below));
    dl_status status = dl_group_new(&options, below, &group);
    dl_store_unref(below);
    if (status != DL_OK) {
        return status;
    }
    status = dl_group_run(group, &act->calls[0], act->deadline);
    if (status == DL_OK) {
        sim_act_check(act);
        leave(self, group, step);
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    dl_group_close(group);
    dl_group_unref(group);
    return dl_rethrow(&error);
}

/* A rank that has failed closes its window before its group. */
static dl_status
run_window(member *self, sim_act *act)
{
    dl_window *window = NULL;
    dl_status status = sim_window_run(self->group, act->step, &act->deadline, &window);
    dl_error error = *dl_last_error();

    self->has_left_window = status != DL_OK;
    dl_window_free(window);
    return status == DL_OK ? DL_OK : dl_rethrow(&error);
}

static dl_status
begin_act(member *self, sim_act *act)
{
    const sim_step *step = act->step;
    dl_call *call = &act->calls[0];
    dl_message_end ends[2];

    switch (step->kind) {
    case SIM_STEP_SEND:
        if (act->call_count == 0) {
            return DL_OK;
        }
        return call->op == DL_SEND
                   ? dl_group_post(self->group, call, act->deadline, &act->work)
                   : dl_group_exchange(self->group, call, act->deadline, NULL);
    case SIM_STEP_RING:
        return dl_group_exchange_all(self->group, act->calls, 2, act->deadline, ends);
    case SIM_STEP_MONITORED_BARRIER:
        return dl_group_monitored_barrier(self->group, step->is_uneven, act->deadline);
    case SIM_STEP_SPLIT:
        return run_split(self, act);
    case SIM_STEP_WINDOW:
        return run_window(self, act);
    default:
        return step->is_queued
                   ? dl_group_submit(self->group, call, act->deadline, &act->work)
                   : dl_group_run(self->group, call, act->deadline);
    }
}

static void
begin_faults_of(member *self, int number)
{
    for (int i = 0; i < run.count; i++) {
        const sim_rank_fault *one = &run.faults[i];
        if (one->rank != self->rank || (int)one->number % run.step_count != number) {
            continue;
        }
        if (one->kind == SIM_RANK_LATE) {
            sim_wait("its turn to be late", NULL, NULL, sim.now + one->span);
        } else if (one->kind == SIM_RANK_ABORTS) {
            dl_group_abort(self->group, "it wants to");
        } else if (one->kind == SIM_RANK_DIFFERS) {
            (void)dl_group_barrier(self->group, dl_deadline_after(run.limit));
        }
    }
}

/* Returns whether the step has ended well, or goes on. */
static bool
run_step(member *self, int number)
{
    const sim_step *step = &run.steps[number];
    sim_act *act = sim_act_new(step, self->rank, run.size);

    if (step->pauses[self->rank] > 0) {
        sim_wait("a pause", NULL, NULL, sim.now + step->pauses[self->rank]);
    }
    begin_faults_of(self, number);
    self->has_begun[number] = true;
    self->at = number;
    self->acts[number] = act;
    act->deadline = dl_deadline_after(run.limit);
    dl_status status = begin_act(self, act);
    const sim_step *split = step->kind == SIM_STEP_SPLIT ? step : NULL;
    if (!note_end(self, sim_step_name(step), status, act->deadline, split)) {
        bool is_of_world = step->kind < SIM_STEP_SEND;
        /* A barrier that was refused before it began may be called again. */
        bool may_repeat = status == DL_NO_MEMORY && step->kind == SIM_STEP_BARRIER;
        if (is_of_world && !may_repeat) {
            check_broken(self);
        }
        return false;
    }
    if (act->work == NULL && split == NULL) {
        check_end(self, act);
    }
    return true;
}

/* Waits for what was left to go on. */
static void
end_acts(member *self)
{
    for (int i = 0; i < run.step_count; i++) {
        sim_act *act = self->acts[i];
        if (act == NULL || act->work == NULL) {
            continue;
        }
        dl_deadline deadline = act->deadline;
        self->at = i;
        /* After a failure, only for the arrays. */
        int64_t limit = self->has_failed ? 0 : -1;
        int64_t start = sim.now;
        dl_status status = dl_work_wait(act->work, dl_deadline_after(limit));
        /* It may have ended long before. */
        deadline.at = deadline.at > start ? deadline.at : start;
        if (!self->has_failed
            && note_end(self, sim_step_name(act->step), status, deadline, NULL)) {
            check_end(self, act);
        }
        dl_work_unref(act->work);
        act->work = NULL;
    }
}

static void
run_program(member *self)
{
    bool is_good = true;

    for (int i = 0; i < run.step_count && is_good; i++) {
        is_good = run_step(self, i);
    }
    end_acts(self);
    self->has_closed = true;
    self->at = run.step_count;
    if (!self->has_failed) {
        leave(self, self->group, NULL);
        return;
    }
    if (run.steps[0].pauses[self->rank] > 0) {
        dl_group_abort(self->group, "a step has failed");
    }
    dl_group_close(self->group);
    dl_group_unref(self->group);
}

static void
join_and_run(member *self)
{
    const dl_group_options options = {
        .name = "all",
        .backend = "cpu",
        .rank = self->rank,
        .size = run.size,
        .timeout = run.limit,
    };

    dl_deadline deadline = dl_deadline_after(run.limit);
    dl_status status = dl_group_new(&options, self->store, &self->group);
    self->has_closed = !note_end(self, "joining", status, deadline, NULL);
    if (!self->has_closed) {
        run_program(self);
    }
}

static bool
has_window(void)
{
    bool is_any = false;

    for (int i = 0; i < run.step_count; i++) {
        is_any |= run.steps[i].kind == SIM_STEP_WINDOW;
    }
    return is_any;
}

static void *
member_main(void *argument)
{
    member *self = argument;
    dl_store *store = NULL;

    dl_debug_level_set(run.is_detailed ? DL_DEBUG_DETAIL : DL_DEBUG_OFF);
    if (sim_join_store_open("group", JOIN_LIMIT, &store) == DL_OK) {
        self->store = store;
        join_and_run(self);
        dl_store_unref(store);
    } else if (run.count == 0) {
        sim_fail("%s has no store: %s", self->name, dl_last_error()->text);
    }
    sim_check_nothing_left(self->process, 1 + has_window());
    self->has_ended = true;
    return NULL;
}

/* Faults. */

static bool
is_over(const member *one)
{
    return one->has_ended || !one->process->is_alive;
}

static void
end_fault(void *context)
{
    const sim_rank_fault *one = context;

    sim_rank_fault_end(run.members[one->rank].process);
}

static void
inject(void *context)
{
    sim_rank_fault *one = context;
    member *found = &run.members[one->rank];

    sim_note("fault: %s %d", sim_rank_fault_name(one->kind), one->rank);
    if (one->kind == SIM_RANK_CUT) {
        (void)sim_net_cut(&sim.wire);
    } else if (one->kind == SIM_RANK_PARTITION) {
        sim_rank_fault_part(one, run.hosts);
    } else if (!is_over(found)) {
        sim_rank_fault_begin(one, found->process);
        sim_at(sim.now + one->span, end_fault, one);
    }
}

static void
print_faults(void)
{
    printf("  %d ranks, %.3f s%s:", run.size, (double)run.limit / 1e9,
           run.is_detailed ? ", detailed" : "");
    for (int i = 0; i < run.step_count; i++) {
        const sim_step *step = &run.steps[i];
        printf(" %s%s(%zu; %d)", sim_step_name(step), step->is_queued ? "*" : "",
               step->count, step->root);
    }
    printf("\n");
    for (int rank = 0; rank < run.size; rank++) {
        const member *one = &run.members[rank];
        int begun = 0;
        while (begun < run.step_count && one->has_begun[begun]) {
            begun++;
        }
        printf("  rank %d on host %d%s: %d steps begun\n", rank, run.hosts[rank],
               one->has_closed ? ", ended" : "", begun);
    }
    sim_rank_faults_print(run.faults, run.count, run.hosts, FROM);
}

static sim_rank_fault
draw_fault(sim_random *random)
{
    static const sim_rank_fault_kind kinds[] = {
        SIM_RANK_CUT,  SIM_RANK_PARTITION, SIM_RANK_STOP,      SIM_RANK_KILL,
        SIM_RANK_KILL, SIM_RANK_CRASH,     SIM_RANK_NO_MEMORY, SIM_RANK_NO_DESCRIPTORS,
        SIM_RANK_LATE, SIM_RANK_DIFFERS,   SIM_RANK_ABORTS,
    };

    return (sim_rank_fault){
        .kind = kinds[sim_random_below(random, sizeof kinds / sizeof *kinds)],
        .at = FROM + sim_random_span(random, DL_MILLISECOND, FAULTS_SPAN),
        .span = sim_random_span(random, SPAN_LEAST, SPAN_MOST),
        .rank = (int)sim_random_below(random, (uint64_t)run.size),
        .other = (int)sim_random_below(random, (uint64_t)run.size + 1),
        .number = 1 + sim_random_below(random, CALLS),
    };
}

static void
draw_run(sim_random *random, uint64_t kept)
{
    uint64_t count =
        sim_random_once_in(random, 6) ? 0 : sim_random_below(random, FAULTS);

    sim_random more = sim_random_of(sim.seed, 8);

    run.size = 2 + (int)sim_random_below(random, SIM_RANKS - 1);
    sim_ranks_place(run.size, run.hosts);
    run.limit = sim_random_span(random, LIMIT_LEAST, LIMIT_MOST);
    run.step_count = 1 + (int)sim_random_below(random, STEPS);
    run.is_detailed = sim_random_once_in(&more, DETAILED_IN);
    run.calm_at = FROM;
    for (int i = 0; i < run.step_count; i++) {
        sim_step_draw(&run.steps[i], random, &more, i, run.size);
    }
    for (uint64_t i = 0; i < count; i++) {
        sim_rank_fault one = draw_fault(random);
        if ((kept >> i & 1) == 0) {
            continue;
        }
        bool is_wire = sim_rank_fault_is_of_wire(&one);
        run.is_wire_bad |= is_wire || one.kind == SIM_RANK_CRASH;
        sim_rank_fault_blame(&one, run.size, run.hosts, run.is_faulty);
        run.has_other_calls |= one.kind == SIM_RANK_DIFFERS;
        run.calm_at = one.at + one.span > run.calm_at ? one.at + one.span : run.calm_at;
        run.faults[run.count++] = one;
    }
}

/* The run. */

static bool
are_over(void)
{
    for (int rank = 0; rank < run.size; rank++) {
        if (!is_over(&run.members[rank])) {
            return false;
        }
    }
    return true;
}

static bool
is_calm(void)
{
    return sim.now > run.calm_at + SETTLE && are_over();
}

static void
run_ranks(void)
{
    for (int rank = 0; rank < run.size; rank++) {
        member *made = &run.members[rank];
        made->rank = rank;
        made->at = -1;
        snprintf(made->name, sizeof made->name, "rank %d", rank);
        made->process =
            sim_process_start(made->name, run.hosts[rank], member_main, made);
    }
    for (int i = 0; i < run.count; i++) {
        sim_rank_fault *one = &run.faults[i];
        if (one->kind != SIM_RANK_LATE && one->kind < SIM_RANK_JOIN_KINDS) {
            sim_at(one->at, inject, one);
        }
    }
    sim_at(run.calm_at + SETTLE + 1, NULL, NULL);
    sim_run(is_calm, RUN_LIMIT);
}

void
sim_stage_collectives(uint64_t kept)
{
    sim_random random = sim_random_of(sim.seed, 6);

    setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    sim.has_buffers = true;
    sim.print_faults = print_faults;
    draw_run(&random, kept);
    if (sim.has_trace) {
        print_faults();
    }
    sim_join_server_start();
    run_ranks();
    sim_join_server_stop();
}
