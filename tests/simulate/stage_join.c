/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_join.h"

#include <string.h>

#include "pg/cpu/bootstrap.h"
#include "ranks.h"
#include "store/prefix_store.h"

#define RANKS 12
#define MEMBERS 64
#define FAULTS 6

#define FROM (1000 * DL_SECOND)
#define FAULTS_SPAN (DL_SECOND)
#define SPAN_LEAST (10 * DL_MILLISECOND)
#define SPAN_MOST (8 * DL_SECOND)
#define DEADLINE_LEAST (2 * DL_SECOND)
#define DEADLINE_MOST (15 * DL_SECOND)
#define CALLS 1500 /* of a process, in which it is killed or something fails */
#define SETTLE (3 * DL_SECOND)
#define LAST_DEADLINE (30 * DL_SECOND)
#define RUN_LIMIT (1600 * DL_SECOND)
/* A rank that fails asks the store for the cause, and tells others. */
#define LATE (DL_SECOND)
/* What the rest of a join takes when all have come, with slow messages. */
#define NARROW (3 * DL_SECOND)

/* A process of a rank, and what it was told. */
typedef struct member {
    int rank, size;
    char name[24];
    sim_process *process;
    bool is_last; /* of the group that has to come about */
    bool has_ended;
    bool has_joined, has_sub, has_timed_out;
    int64_t deadline;    /* of what it joins */
    int64_t pids[RANKS]; /* by rank, of the processes that it has joined with */
    int64_t sub_pids[RANKS];
} member;

static struct {
    int size;
    int hosts[RANKS]; /* by rank */
    int64_t limit;    /* of the first group's ranks */
    sim_rank_fault faults[FAULTS];
    int count;
    int64_t calm_at;
    bool is_wire_bad;
    bool has_twins;
    bool is_faulty[RANKS];
    member members[MEMBERS];
    int member_count;
    unsigned sub; /* by rank, a bit: member of the group of some */
    bool is_last;
} run;

/* Returns whether the process has a rank that is over: it returned, or was killed. */
static bool
is_over(const member *one)
{
    return one->has_ended || !one->process->is_alive;
}

static bool
are_over(void)
{
    for (int i = 0; i < run.member_count; i++) {
        if (!is_over(&run.members[i])) {
            return false;
        }
    }
    return true;
}

static bool
have_decided(void *context)
{
    const member *own = context;

    for (int i = 0; i < run.member_count; i++) {
        const member *one = &run.members[i];
        if (one->is_last == own->is_last && !is_over(one) && !one->has_joined) {
            return false;
        }
    }
    return true;
}

/* What ranks are told. */

/* Where ranks are started twice, also a member that times out in a moment, or still asks the
 * store whom it has waited for: they may wait for each other in a circle. */
static bool
is_late(const member *one)
{
    bool is_waiting =
        !is_over(one) && !one->has_joined && one->deadline <= sim.now + LATE;

    return one->has_timed_out || (run.has_twins && is_waiting);
}

/* In a timeout a rank may name one that has timed out for the same reason, because it does
 * not know whom that waited for, or the leader of a host whose ranks have not all come. */
static bool
is_at_fault(int rank)
{
    dl_status status = dl_last_error()->status;

    for (int i = 0; status == DL_TIMEOUT && i < run.member_count; i++) {
        if (run.members[i].rank == rank && is_late(&run.members[i])) {
            return true;
        }
    }
    return run.is_faulty[rank]
           || sim_text_blames_host(rank, run.size, run.hosts, run.is_faulty);
}

/* Returns whether the texts may name any rank: connections fail, or a rank is there again so
 * shortly before the deadline, or while others ask the store whom they wait for, that the
 * others may miss it too. */
static bool
may_name_any(int64_t deadline)
{
    for (int i = 0; i < run.count; i++) {
        const sim_rank_fault *one = &run.faults[i];
        bool comes_back = one->kind == SIM_RANK_STOP || one->kind == SIM_RANK_RESTART
                          || one->kind == SIM_RANK_LATE;
        int64_t end = (one->kind == SIM_RANK_LATE ? FROM : one->at) + one->span;
        if (comes_back && end <= deadline + LATE && end > deadline - NARROW) {
            return true;
        }
    }
    return run.is_wire_bad;
}

static void
check_failure(const member *self, int64_t deadline)
{
    const dl_error *error = dl_last_error();

    if (self->is_last || run.count == 0) {
        sim_fail("%s cannot join without a fault: %s", self->name, error->text);
    }
    if (error->text[0] == '\0') {
        sim_fail("%s cannot join, and is not told why: %d", self->name, error->status);
    }
    if (!may_name_any(deadline) && !run.is_faulty[self->rank]
        && !sim_text_names(error->text, run.size, is_at_fault)) {
        sim_fail("%s is told of no rank at fault: %s", self->name, error->text);
    }
}

static void
check_time(const member *self, int64_t deadline)
{
    int64_t end = self->is_last || deadline > run.calm_at ? deadline : run.calm_at;

    if (sim.now > end + LATE) {
        sim_fail("%s returned %.3f s after its deadline: %s", self->name,
                 (double)(sim.now - end) / 1e9, dl_last_error()->text);
    }
}

/* What ranks do. */

static dl_status
join_group(member *self, const dl_backend_options *options, int64_t limit,
           int64_t *pids, dl_bootstrap **bootstrap)
{
    dl_deadline deadline = dl_deadline_after(limit);

    self->deadline = deadline.at;
    dl_status status = dl_bootstrap_new(options, deadline, bootstrap);
    sim_note("%s joins %s: %d %s", self->name, options->group_name, status,
             status == DL_OK ? "" : dl_last_error()->text);
    if (status != DL_OK) {
        self->has_timed_out = status == DL_TIMEOUT;
        check_failure(self, deadline.at);
    }
    check_time(self, deadline.at);
    for (int rank = 0; status == DL_OK && rank < options->size; rank++) {
        pids[rank] = dl_peers_find(&(*bootstrap)->endpoint.peers, rank).pid;
    }
    return status;
}

/* Some members make a group of their own. */
static void
join_sub(member *self, dl_store *store)
{
    dl_backend_options options = {.group_name = "some"};
    dl_bootstrap *bootstrap = NULL;
    dl_store *below = NULL;

    for (int rank = 0; rank < run.size; rank++) {
        options.rank += rank < self->rank && (run.sub >> rank & 1) != 0;
        options.size += (int)(run.sub >> rank & 1);
    }
    if ((run.sub >> self->rank & 1) == 0) {
        return;
    }
    if (dl_prefix_store_new(DL_LITERAL("some"), store, &below) != DL_OK) {
        sim_fail("no store: %s", dl_last_error()->text);
    }
    options.store = below;
    if (join_group(self, &options, LAST_DEADLINE, self->sub_pids, &bootstrap)
        == DL_OK) {
        self->has_sub = true;
        dl_backend_origin_unref(&bootstrap->base);
    }
    dl_store_unref(below);
}

static void
run_member(member *self, dl_store *store)
{
    const dl_backend_options options = {
        .store = store,
        .rank = self->rank,
        .size = self->size,
        .group_name = "all",
    };
    dl_bootstrap *bootstrap = NULL;

    if (join_group(self, &options, self->is_last ? LAST_DEADLINE : run.limit,
                   self->pids, &bootstrap)
        != DL_OK) {
        return;
    }
    self->has_joined = true;
    sim_wait("the other ranks", have_decided, self, SIM_FOREVER);
    if (self->is_last) {
        join_sub(self, store);
    }
    dl_backend_origin_unref(&bootstrap->base);
}

static void *
member_main(void *argument)
{
    member *self = argument;
    dl_store *store = NULL;

    if (sim_join_store_open(run.is_last ? "last" : "first", LAST_DEADLINE, &store)
        == DL_OK) {
        run_member(self, store);
        dl_store_unref(store);
    } else if (run.count == 0 || self->is_last) {
        sim_fail("%s has no store: %s", self->name, dl_last_error()->text);
    }
    sim_check_nothing_left(self->process, 1);
    self->has_ended = true;
    return NULL;
}

static member *
start_member(int rank)
{
    member *made = &run.members[run.member_count++];

    *made = (member){.rank = rank, .size = run.size, .is_last = run.is_last};
    snprintf(made->name, sizeof made->name, "rank %d.%d", rank, run.member_count);
    made->process = sim_process_start(made->name, run.hosts[rank], member_main, made);
    return made;
}

static member *
newest_of(int rank)
{
    for (int i = run.member_count - 1; i >= 0; i--) {
        if (run.members[i].rank == rank) {
            return &run.members[i];
        }
    }
    return NULL;
}

/* Faults. */

static void
start_again(void *context)
{
    const sim_rank_fault *one = context;
    const member *before = newest_of(one->rank);

    if (!run.is_last
        && (before == NULL || is_over(before) || one->kind == SIM_RANK_TWICE)) {
        start_member(one->rank);
    }
}

static void
end_fault(void *context)
{
    const sim_rank_fault *one = context;
    member *found = newest_of(one->rank);

    if (found != NULL && !run.is_last) {
        sim_rank_fault_end(found->process);
    }
    if (one->kind == SIM_RANK_RESTART) {
        start_again(context);
    }
}

static void
inject(void *context)
{
    sim_rank_fault *one = context;
    member *found = newest_of(one->rank);

    sim_note("fault: %s %d", sim_rank_fault_name(one->kind), one->rank);
    switch (one->kind) {
    case SIM_RANK_CUT:
        (void)sim_net_cut(&sim.wire);
        break;
    case SIM_RANK_PARTITION:
        sim_rank_fault_part(one, run.hosts);
        break;
    case SIM_RANK_TWICE:
        start_again(one);
        break;
    default:
        if (found != NULL && !is_over(found)) {
            sim_rank_fault_begin(one, found->process);
            sim_at(sim.now + one->span, end_fault, one);
        }
    }
}

static void
print_faults(void)
{
    printf("  %d ranks, %.3f s, %d members\n", run.size, (double)run.limit / 1e9,
           run.member_count);
    sim_rank_faults_print(run.faults, run.count, run.hosts, FROM);
}

static bool
begins_with(int rank)
{
    for (int i = 0; i < run.count; i++) {
        sim_rank_fault_kind kind = run.faults[i].kind;
        if (run.faults[i].rank == rank
            && (kind == SIM_RANK_LATE || kind == SIM_RANK_ABSENT)) {
            return false;
        }
    }
    return true;
}

static void
draw_run(sim_random *random, uint64_t kept)
{
    uint64_t count =
        sim_random_once_in(random, 6) ? 0 : sim_random_below(random, FAULTS);

    run.size = 2 + (int)sim_random_below(random, RANKS - 1);
    sim_ranks_place(run.size, run.hosts);
    run.limit = sim_random_span(random, DEADLINE_LEAST, DEADLINE_MOST);
    run.sub = (unsigned)sim_random_below(random, 1u << run.size);
    run.calm_at = FROM;
    for (uint64_t i = 0; i < count; i++) {
        sim_rank_fault one = {
            .kind = (sim_rank_fault_kind)sim_random_below(random, SIM_RANK_JOIN_KINDS),
            .at = FROM + sim_random_span(random, DL_MILLISECOND, FAULTS_SPAN),
            .span = sim_random_span(random, SPAN_LEAST, SPAN_MOST),
            .rank = (int)sim_random_below(random, (uint64_t)run.size),
            .other = (int)sim_random_below(random, (uint64_t)run.size + 1),
            .number = 1 + sim_random_below(random, CALLS),
        };
        if ((kept >> i & 1) == 0) {
            continue;
        }
        bool is_wire = sim_rank_fault_is_of_wire(&one);
        run.is_wire_bad |= is_wire || one.kind == SIM_RANK_CRASH;
        sim_rank_fault_blame(&one, run.size, run.hosts, run.is_faulty);
        run.has_twins |= one.kind == SIM_RANK_TWICE;
        run.calm_at = one.at + one.span > run.calm_at ? one.at + one.span : run.calm_at;
        run.faults[run.count++] = one;
    }
}

/* The run. */

static bool
is_calm(void)
{
    return sim.now > run.calm_at + SETTLE && are_over();
}

static void
compare(const member *left, const member *right, const int64_t *pids,
        const int64_t *others)
{
    if (memcmp(pids, others, RANKS * sizeof *pids) != 0) {
        sim_fail("%s and %s have joined different ranks", left->name, right->name);
    }
}

/* Of ranks that were all started twice there may be two groups. */
static void
check_pair(const member *left, const member *right)
{
    if (left->pids[right->rank] == right->pids[right->rank]) {
        compare(left, right, left->pids, right->pids);
    }
    if (left->has_sub && right->has_sub) {
        compare(left, right, left->sub_pids, right->sub_pids);
    }
}

static void
check_members(bool is_last)
{
    for (int i = 0; i < run.member_count; i++) {
        const member *left = &run.members[i];
        for (int j = 0; j < i; j++) {
            const member *right = &run.members[j];
            if (left->is_last == is_last && right->is_last == is_last
                && left->has_joined && right->has_joined) {
                check_pair(left, right);
            }
        }
    }
}

static void
run_first(void)
{
    for (int rank = 0; rank < run.size; rank++) {
        if (begins_with(rank)) {
            start_member(rank);
        }
    }
    for (int i = 0; i < run.count; i++) {
        sim_rank_fault *one = &run.faults[i];
        if (one->kind == SIM_RANK_LATE) {
            sim_at(FROM + one->span, start_again, one);
        } else if (one->kind != SIM_RANK_ABSENT) {
            sim_at(one->at, inject, one);
        }
    }
    sim_at(run.calm_at + SETTLE + 1, NULL, NULL);
    sim_run(is_calm, RUN_LIMIT);
    check_members(false);
}

static void
run_last(void)
{
    run.is_last = true;
    for (int rank = 0; rank < run.size; rank++) {
        start_member(rank);
    }
    sim_run(are_over, RUN_LIMIT);
    check_members(true);
}

void
sim_stage_join(uint64_t kept)
{
    sim_random random = sim_random_of(sim.seed, 5);

    sim.has_buffers = true;
    sim.print_faults = print_faults;
    draw_run(&random, kept);
    if (sim.has_trace) {
        print_faults();
    }
    sim_join_server_start();
    run_first();
    run_last();
    sim_join_server_stop();
}
