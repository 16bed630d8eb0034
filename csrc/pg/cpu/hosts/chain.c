/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/hosts/leaders.h"

/* Pieces that the first host may be ahead of the second; a route's queue has room for
 * them. */
#define AHEAD 8

/* A piece that is passed on stays in a core's own cache, along with what it is folded into,
 * until it is sent.  Where no other host waits for what one folds, fewer messages take less
 * time than smaller ones. */
#define PIECE ((size_t)128 << 10)
#define PIECE_AT_END ((size_t)512 << 10)

/* A scan goes in the order of the ranks, wherever these are, so that its bits do not
 * depend on who shares a host.  Large arrays go through the board to each host's
 * leader, along a chain of the leaders, and back through the board.  The reduction of
 * all ranks so far goes along the chain, piece by piece: the linear pipeline of Sanders
 * and Traeff, "Parallel prefix (scan) algorithms for MPI" (EuroPVM/MPI 2006). */
typedef struct chain {
    dl_hosts *hosts;
    dl_fold fold;
    bool is_exclusive;
    uint8_t *first; /* the arrays of this host's ranks, in the order of ranks */
    size_t stride;
    uint8_t *carry; /* in the dtype that the fold computes in */
    size_t worked;  /* bytes of its elements */
    size_t size;    /* of an array */
} chain;

/* Returns the first rank behind `rank` that is on another host; the number of ranks if
 * there is none. */
static int
end_of_run(const dl_layout *layout, int rank)
{
    int host = layout->host_of[rank];

    while (rank < layout->size && layout->host_of[rank] == host) {
        rank++;
    }
    return rank;
}

static uint8_t *
array_of(const chain *self, int rank, size_t start)
{
    int local_rank = self->hosts->layout->local_rank_of[rank];

    return self->first + (size_t)local_rank * self->stride + start;
}

static uint8_t *
carry_at(const chain *self, size_t start)
{
    return self->carry + start / self->fold.item_size * self->worked;
}

/* Returns whether the last rank's result is what its host receives. */
static bool
receives_result(const chain *self, int rank)
{
    return self->is_exclusive && self->worked == self->fold.item_size
           && rank == self->hosts->layout->size - 1;
}

/* Returns whether the array of `rank`, the last of a run, has the reduction of all ranks
 * up to it. */
static bool
has_reduction(const chain *self, int rank)
{
    return self->worked == self->fold.item_size && (!self->is_exclusive || rank == 0);
}

/* Moves the reduction of all ranks before `rank`, the first of a run, from the previous
 * host to that of the run.  All leaders count the stages alike, whether they take part
 * or not, as both sides of a message have to be in the same one. */
static dl_status
pass_on(const chain *self, int rank, size_t start, size_t size)
{
    const dl_layout *layout = self->hosts->layout;
    dl_traffic *traffic = self->hosts->traffic;
    int from = layout->host_of[rank - 1];
    int to = layout->host_of[rank];
    size_t moved = size / self->fold.item_size * self->worked;

    if (layout->host == from) {
        const uint8_t *sent = has_reduction(self, rank - 1)
                                  ? array_of(self, rank - 1, start)
                                  : carry_at(self, start);
        DL_TRY(dl_traffic_send(traffic, dl_layout_leader(layout, to), sent, moved));
    }
    if (layout->host == to) {
        uint8_t *received = receives_result(self, rank) ? array_of(self, rank, start)
                                                        : carry_at(self, start);
        DL_TRY(dl_traffic_receive(traffic, dl_layout_leader(layout, from), received,
                                  moved));
    }
    uint32_t stage = dl_traffic_next(traffic);
    return layout->host == to ? dl_traffic_wait(traffic, stage) : DL_OK;
}

/* Computes the prefixes of a run, of which the ranks from `rank` to `end` are. */
static void
fold_run(const chain *self, int rank, int end, size_t start, size_t size)
{
    bool is_carried = end < self->hosts->layout->size && !has_reduction(self, end - 1);
    dl_prefixes prefixes = {
        .first = array_of(self, rank, start),
        .stride = self->stride,
        .count = end - rank,
        .is_exclusive = self->is_exclusive,
        .before = rank > 0 ? carry_at(self, start) : NULL,
        .after = is_carried ? carry_at(self, start) : NULL,
    };

    dl_fold_prefixes(&self->fold, &prefixes, size);
}

/* Takes one piece through all ranks, of which those from `rank` to `end` share a host. */
static dl_status
scan_piece(const chain *self, size_t start, size_t size)
{
    const dl_layout *layout = self->hosts->layout;
    int end;

    for (int rank = 0; rank < layout->size; rank = end) {
        end = end_of_run(layout, rank);
        if (rank > 0) {
            DL_TRY(pass_on(self, rank, start, size));
        }
        if (layout->host_of[rank] == layout->host && !receives_result(self, rank)) {
            fold_run(self, rank, end, start, size);
        }
    }
    return DL_OK;
}

/* The greetings compare the calls of all hosts, of which the chain connects only
 * neighbours. */
static dl_status
run_chain(const chain *self)
{
    const dl_layout *layout = self->hosts->layout;
    dl_traffic *traffic = self->hosts->traffic;
    bool is_passed_on = end_of_run(layout, end_of_run(layout, 0)) < layout->size;
    size_t piece = is_passed_on ? PIECE : PIECE_AT_END;
    uint32_t stages[AHEAD] = {0};
    size_t pieces = 0;

    DL_TRY(dl_hosts_greet(self->hosts));
    dl_traffic_next(traffic);
    for (size_t start = 0; start < self->size; start += piece, pieces++) {
        if (pieces >= AHEAD) {
            DL_TRY(dl_traffic_wait(traffic, stages[pieces % AHEAD]));
        }
        DL_TRY(scan_piece(self, start, dl_least(self->size - start, piece)));
        stages[pieces % AHEAD] = dl_traffic_next(traffic);
    }
    return dl_traffic_wait(traffic, dl_traffic_next(traffic));
}

/* Describes the arrays of this host's ranks, which a leader has in its scratch
 * memory. */
static void
describe_locals(const chain *self, const dl_tensor *tensor, dl_tensor *locals)
{
    for (int i = 0; i < dl_hosts_local_count(self->hosts); i++) {
        locals[i] = *tensor;
        locals[i].data = self->first + (size_t)i * self->stride;
        locals[i].is_writable = true;
    }
}

static dl_status
reserve_memory(chain *self, const dl_tensor *tensor)
{
    dl_hosts *hosts = self->hosts;
    size_t count = (size_t)dl_hosts_local_count(hosts);

    self->first = tensor->data;
    if (!dl_layout_leads(hosts->layout)) {
        return DL_OK;
    }
    if (hosts->board != NULL) {
        DL_TRY(dl_hosts_room(&hosts->work, count * self->stride, &self->first));
        describe_locals(self, tensor, hosts->locals[0]);
    }
    return dl_hosts_room(&hosts->incoming, tensor->count * self->worked, &self->carry);
}

dl_status
dl_scan_chain(const dl_leaders *between)
{
    dl_hosts *hosts = between->hosts;
    const dl_call *call = between->call;
    const dl_tensor *tensor = &call->tensor;
    bool leads = dl_layout_leads(hosts->layout);
    chain self = {
        .hosts = hosts,
        .fold = dl_fold_of(call, 2),
        .is_exclusive = call->op == DL_EXSCAN,
        .stride = dl_round_up(dl_tensor_size(tensor), DL_LINE),
        .worked = dl_dtype_size(dl_reduce_dtype(tensor->dtype)),
        .size = dl_tensor_size(tensor),
    };
    dl_call in = {
        .op = DL_GATHER, .tensor = *tensor, .outputs = leads ? hosts->locals[0] : NULL};
    dl_call out = {.op = DL_SCATTER, .tensor = *tensor, .inputs = in.outputs};

    DL_TRY(reserve_memory(&self, tensor));
    const dl_op_context *first = dl_hosts_first(hosts, between->op);
    DL_TRY(hosts->board == NULL ? DL_OK : dl_gather_board(hosts->exchange, first, &in));
    dl_hosts_last(hosts);
    if (leads) {
        DL_TRY(run_chain(&self));
    }
    return hosts->board == NULL
               ? DL_OK
               : dl_scatter_board(hosts->exchange, dl_hosts_last(hosts), &out);
}
