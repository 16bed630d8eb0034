/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "pg/cpu/algorithms/algorithms.h"
#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/hosts.h"
#include "pg/cpu/algorithms/limits.h"
#include "tensor/strided.h"

/* Rounds under way at a time, so that a link has data to carry while an answer is on
 * its way, and while the rank at its other end does not run for a while.  Each of them
 * may have a scatter and a gather in the queues. */
#define ROUNDS_AHEAD (DL_ROUTE_QUEUE / 2)
_Static_assert(DL_HOSTS_REDUCE_COLLECT_LIMIT_OF_TWO / DL_HOSTS_ROUND <= ROUNDS_AHEAD,
               "all rounds are queued");

/* Reductions between hosts: the leader of each host has its host's partial result, and
 * all leaders or one of them get the result of all hosts.  It is always folded in the
 * order of the hosts. */

/* Returns whether leaders reduce parts that are of other hosts, for arrays of `size` bytes
 * on each. */
static bool
is_combined(const dl_hosts *hosts, dl_dtype dtype, size_t size)
{
    return dl_reduce_dtype(dtype) == dtype && dl_hosts_passes_on(hosts, size);
}

/* One reduction on one leader. */
typedef struct leader_fold {
    dl_hosts *hosts;
    dl_fold fold;
    int divisor; /* divides the folded result; 1: no division */
    int root;    /* host that gets the result; -1: all */
    uint8_t *data;
    size_t size;
} leader_fold;

static size_t
least(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* Prepares a reduction of the call's tensor, which is contiguous and holds the partial
 * result on entry, and the result afterwards. */
static leader_fold
leader_fold_of(dl_hosts *hosts, const dl_call *call, int root)
{
    const dl_layout *layout = hosts->layout;
    leader_fold made = {
        .hosts = hosts,
        .fold = dl_fold_of(call, layout->host_count),
        .divisor = 1,
        .root = root,
        .data = call->tensor.data,
        .size = dl_tensor_size(&call->tensor),
    };

    /* The fold would divide by the number of hosts. */
    if (call->reduction == DL_AVG && layout->host_count < layout->size) {
        made.fold.op = DL_SUM;
        made.divisor = layout->size;
    }
    return made;
}

static void
divide(const leader_fold *self, uint8_t *data, size_t size, int divisor)
{
    if (divisor > 1) {
        dl_reduce_divide(data, self->fold.dtype, size / self->fold.item_size, divisor);
    }
}

/* Folds the parts of all hosts into `own`, which has this host's part; those of the
 * others are `stride` bytes apart at `slots`.  As only the first two sources of a fold
 * may be its target, the others fold into this host's slot, which is unused, and copy
 * from there. */
static void
fold_slots(const leader_fold *self, uint8_t *slots, size_t stride, dl_bytes own)
{
    int host = self->hosts->layout->host;
    uint8_t *place = (uint8_t *)(uintptr_t)own.data;
    bool is_late = host > 1;
    dl_fold_sources sources = {
        .first = slots, .stride = stride, .own_rank = host, .own = own.data};

    if (own.size == 0) {
        return;
    }
    dl_fold_run(&self->fold, &sources, own.size,
                is_late ? slots + (size_t)host * stride : place,
                is_late ? place : NULL);
    divide(self, place, own.size, self->divisor);
}

/* A host that does not get the result still folds its share. */
static bool
wants_result(const leader_fold *self, int host)
{
    return self->root < 0 || self->root == host;
}

/* A reduction takes the array stretch by stretch, a round for each.  fold_large() divides
 * a stretch into one share per host:
 *
 *     scatter   each leader sends each other host its share
 *     fold      and folds its own
 *     gather    each leader sends its result to the others, or to the root
 *
 * The order on every link is: scatter 0, 1, ... 11, gather 0, scatter 12, gather 1,
 * ...: the data for the next rounds is under way while one is folded. */
typedef struct rounds {
    const leader_fold *base;
    uint8_t *slots; /* of the rounds under way */
    size_t stretch;
    size_t share; /* largest share of a stretch, in bytes */
    uint64_t count;
} rounds;

/* Returns the share of `host` in a round. */
static dl_bytes
share_of(const rounds *all, uint64_t round, int host)
{
    const leader_fold *base = all->base;
    size_t start = round * all->stretch;
    size_t size = least(base->size - start, all->stretch);
    size_t first = least((size_t)host * all->share, size);

    return (dl_bytes){base->data + start + first, least(all->share, size - first)};
}

static uint8_t *
slots_of(const rounds *all, uint64_t round)
{
    size_t hosts = (size_t)all->base->hosts->layout->host_count;

    return all->slots + round % ROUNDS_AHEAD * hosts * all->share;
}

static dl_status
queue_scatter(const rounds *all, uint64_t round, uint32_t *stage)
{
    dl_hosts *hosts = all->base->hosts;
    const dl_layout *layout = hosts->layout;
    dl_bytes own = share_of(all, round, layout->host);

    for (int host = 0; host < layout->host_count; host++) {
        dl_bytes theirs = share_of(all, round, host);
        uint8_t *slot = slots_of(all, round) + (size_t)host * all->share;
        if (host != layout->host) {
            int leader = dl_layout_leader(layout, host);
            DL_TRY(dl_traffic_send(hosts->traffic, leader, theirs.data, theirs.size));
            DL_TRY(dl_traffic_receive(hosts->traffic, leader, slot, own.size));
        }
    }
    *stage = dl_traffic_next(hosts->traffic);
    return DL_OK;
}

static dl_status
queue_gather(const rounds *all, uint64_t round, uint32_t *stage)
{
    const leader_fold *base = all->base;
    dl_hosts *hosts = base->hosts;
    const dl_layout *layout = hosts->layout;
    dl_bytes own = share_of(all, round, layout->host);

    for (int host = 0; host < layout->host_count; host++) {
        dl_bytes theirs = share_of(all, round, host);
        int leader = dl_layout_leader(layout, host);
        if (host != layout->host && wants_result(base, host)) {
            DL_TRY(dl_traffic_send(hosts->traffic, leader, own.data, own.size));
        }
        if (host != layout->host && wants_result(base, layout->host)) {
            DL_TRY(dl_traffic_receive(hosts->traffic, leader,
                                      (uint8_t *)(uintptr_t)theirs.data, theirs.size));
        }
    }
    *stage = dl_traffic_next(hosts->traffic);
    return DL_OK;
}

static dl_status
run_rounds(const rounds *all)
{
    dl_hosts *hosts = all->base->hosts;
    uint32_t scattered[ROUNDS_AHEAD] = {0};
    uint32_t last = 0;
    uint64_t next = 0;

    for (uint64_t round = 0; round < all->count; round++) {
        for (; next < all->count && next < round + ROUNDS_AHEAD; next++) {
            DL_TRY(queue_scatter(all, next, &scattered[next % ROUNDS_AHEAD]));
        }
        DL_TRY(dl_traffic_wait(hosts->traffic, scattered[round % ROUNDS_AHEAD]));
        fold_slots(all->base, slots_of(all, round), all->share,
                   share_of(all, round, hosts->layout->host));
        DL_TRY(queue_gather(all, round, &last));
    }
    return dl_traffic_wait(hosts->traffic, last);
}

/* Returns whether this leader gets the data of all leaders in the ring: in a one-way
 * operation the root's does, or the head of its group. */
static bool
collects_data(const leader_fold *self)
{
    const dl_hosts *hosts = self->hosts;

    return self->root < 0 || !hosts->traffic->is_one_way
           || self->root / hosts->step == hosts->layout->host / hosts->step;
}

/* Collects the data of all leaders in the ring in a row, from `hosts->starts` on. */
static dl_status
collect_data(const leader_fold *self, uint8_t *row)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    int target = self->root - self->root % hosts->step;

    if (collects_data(self)) {
        dl_hosts_copy(row, self->data, self->size);
    }
    if (self->root < 0 || !hosts->traffic->is_one_way) {
        return dl_hosts_collect(hosts, row, hosts->starts);
    }
    if (!collects_data(self)) {
        DL_TRY(dl_traffic_send(hosts->traffic, dl_layout_leader(layout, target),
                               self->data, self->size));
    }
    for (int i = 1; collects_data(self) && i < dl_hosts_ring_count(hosts); i++) {
        int leader = dl_layout_leader(layout, dl_hosts_block_host(hosts, i));
        DL_TRY(dl_traffic_receive(hosts->traffic, leader, row + hosts->starts[i],
                                  self->size));
    }
    DL_TRY(dl_traffic_wait(hosts->traffic, hosts->traffic->stage));
    dl_hosts_skip_rounds(hosts);
    return DL_OK;
}

/* Collects the whole partial results of all leaders, and folds them. */
static dl_status
fold_collected(const leader_fold *self)
{
    dl_hosts *hosts = self->hosts;
    int count = hosts->layout->host_count;
    size_t stride = dl_round_up(self->size, DL_HOSTS_SHARE_UNIT);
    dl_fold_sources sources = {.by_rank = hosts->blocks, .own_rank = -1};
    uint8_t *row;

    DL_TRY(dl_hosts_room(&hosts->incoming, (size_t)count * stride, &row));
    for (int i = 0; i < count; i++) {
        hosts->starts[i] = (size_t)i * stride;
        hosts->blocks[dl_hosts_block_host(hosts, i)] = row + hosts->starts[i];
    }
    hosts->starts[count] = (size_t)count * stride;
    DL_TRY(collect_data(self, row));
    if (wants_result(self, hosts->layout->host)) {
        dl_fold_run(&self->fold, &sources, self->size, self->data, NULL);
        divide(self, self->data, self->size, self->divisor);
    }
    return DL_OK;
}

/* Folds the `count` arrays in slots into the data, in their order. */
static void
add_slots(const leader_fold *self, const uint8_t *slots, size_t stride, int count)
{
    size_t items = self->size / self->fold.item_size;

    for (int i = 0; i < count; i++) {
        self->fold.kernel(self->data, self->data, slots + (size_t)i * stride, items);
    }
}

/* The part of a head: folds what its group has, collects what all groups have, and folds
 * that in the order of the groups. */
static dl_status
fold_groups(const leader_fold *self, uint8_t *row, size_t stride)
{
    dl_hosts *hosts = self->hosts;
    int count = dl_hosts_ring_count(hosts);
    int first = count - hosts->layout->host / hosts->step;

    for (int i = 0; i <= count; i++) {
        hosts->starts[i] = (size_t)i * stride;
    }
    DL_TRY(collect_data(self, row));
    if (!collects_data(self)) {
        return DL_OK;
    }
    first %= count;
    dl_hosts_copy(self->data, row + (size_t)first * stride, self->size);
    add_slots(self, row + (size_t)(first + 1) * stride, stride, count - first - 1);
    add_slots(self, row, stride, first);
    divide(self, self->data, self->size,
           self->fold.op == DL_AVG ? self->fold.count : self->divisor);
    return DL_OK;
}

static dl_status
fold_by_groups(const leader_fold *self)
{
    dl_hosts *hosts = self->hosts;
    int host = hosts->layout->host;
    int others = hosts->layout->host_count - host - 1;
    size_t stride = dl_round_up(self->size, DL_HOSTS_SHARE_UNIT);
    const dl_hosts_share share = {self->data, self->size, self->root};
    int groups = (hosts->layout->host_count - 1) / hosts->group + 1;
    uint8_t *row;

    others = others < hosts->group - 1 ? others : hosts->group - 1;
    int slots = others > groups ? others : groups;
    DL_TRY(dl_hosts_room(&hosts->incoming, (size_t)slots * stride, &row));
    DL_TRY(dl_hosts_up(hosts, &share, row, stride));
    if (dl_hosts_is_head(hosts)) {
        add_slots(self, row, stride, others);
        DL_TRY(fold_groups(self, row, stride));
        DL_TRY(dl_hosts_down(hosts, &share));
    }
    return dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic));
}

/* Each leader folds its share of each round and passes it on, while the next rounds are
 * under way. */
static dl_status
fold_large(const leader_fold *self)
{
    size_t hosts = (size_t)self->hosts->layout->host_count;
    size_t share = dl_round_up((self->size + hosts - 1) / hosts, DL_HOSTS_SHARE_UNIT);
    rounds all = {.base = self, .share = least(share, DL_HOSTS_ROUND)};

    all.stretch = all.share * hosts;
    all.count = (self->size + all.stretch - 1) / all.stretch;
    DL_TRY(dl_hosts_room(&self->hosts->incoming, ROUNDS_AHEAD * hosts * all.share,
                         &all.slots));
    return run_rounds(&all);
}

/* Reduces the parts of all hosts, which end at `ends`, into this host's block of `*row`,
 * a row of scratch memory. */
static dl_status
combine(const leader_fold *self, const size_t *ends, uint8_t **row)
{
    dl_hosts *hosts = self->hosts;

    DL_TRY(dl_hosts_room(&hosts->incoming, self->size, row));
    dl_hosts_rotate_in(hosts, *row, self->data, ends);
    DL_TRY(dl_hosts_combine(hosts, &self->fold, *row, hosts->starts));
    divide(self, *row, hosts->starts[1],
           self->fold.op == DL_AVG ? self->fold.count : self->divisor);
    return DL_OK;
}

/* Each leader folds a share, and all collect these. */
static dl_status
fold_shares(const leader_fold *self)
{
    dl_hosts *hosts = self->hosts;
    size_t count = (size_t)hosts->layout->host_count;
    size_t share = dl_round_up((self->size + count - 1) / count, DL_HOSTS_SHARE_UNIT);
    uint8_t *row;

    for (size_t i = 0; i < count; i++) {
        hosts->ends[i] = least((i + 1) * share, self->size);
    }
    DL_TRY(combine(self, hosts->ends, &row));
    DL_TRY(dl_hosts_collect(hosts, row, hosts->starts));
    if (wants_result(self, hosts->layout->host)) {
        dl_hosts_rotate_out(hosts, self->data, row);
    }
    return DL_OK;
}

/* Runs one of these, chosen by the size. */
static dl_status
run_leader_fold(const leader_fold *self)
{
    const dl_hosts *hosts = self->hosts;
    size_t others = (size_t)hosts->layout->host_count - 1;
    size_t heads = others / (size_t)hosts->group + 1;
    size_t limit = others == 1 ? DL_HOSTS_REDUCE_COLLECT_LIMIT_OF_TWO
                               : DL_HOSTS_REDUCE_COLLECT_LIMIT;

    if (hosts->group > 1 && self->size <= DL_HOSTS_GROUP_LIMIT
        && self->size * heads <= limit) {
        return fold_by_groups(self);
    }
    if (hosts->group == 1 && self->size * others <= limit) {
        return fold_collected(self);
    }
    return is_combined(hosts, self->fold.dtype, self->size) ? fold_shares(self)
                                                            : fold_large(self);
}

/* Sends each host its part of `data`: `starts` has the first byte of each part, by
 * host, and the end of the last.  Afterwards this host's part has the result.  Does not
 * work in rounds: each host receives only its part, and passes nothing on afterwards. */
static dl_status
fold_parts(const leader_fold *self, const size_t *starts)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    size_t own = starts[layout->host + 1] - starts[layout->host];
    size_t stride = dl_round_up(own, DL_HOSTS_SHARE_UNIT);
    uint8_t *slots;

    DL_TRY(
        dl_hosts_room(&hosts->incoming, stride * (size_t)layout->host_count, &slots));
    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        if (host == layout->host) {
            continue;
        }
        DL_TRY(dl_traffic_send(hosts->traffic, leader, self->data + starts[host],
                               starts[host + 1] - starts[host]));
        DL_TRY(dl_traffic_receive(hosts->traffic, leader, slots + (size_t)host * stride,
                                  own));
    }
    DL_TRY(dl_traffic_wait(hosts->traffic, dl_traffic_next(hosts->traffic)));
    fold_slots(self, slots, stride, (dl_bytes){self->data + starts[layout->host], own});
    return DL_OK;
}

/* Sends each host its part, directly or through others. */
static dl_status
run_parts(const leader_fold *self, const size_t *starts)
{
    size_t own = starts[self->hosts->layout->host];
    uint8_t *row;

    if (!is_combined(self->hosts, self->fold.dtype, self->size)) {
        return fold_parts(self, starts);
    }
    DL_TRY(combine(self, starts + 1, &row));
    dl_hosts_copy(self->data + own, row, self->hosts->starts[1]);
    return DL_OK;
}

/* Returns the operation that all levels use: PREMUL_SUM's factors have been multiplied
 * into the data by now. */
static dl_reduce_op
plain_op(dl_reduce_op op)
{
    return op == DL_PREMUL_SUM ? DL_SUM : op;
}

/* Returns whether partial results of `count` elements would have to be rounded between
 * the levels, or between the leaders that they pass. */
static bool
is_widened(const dl_hosts *hosts, dl_dtype dtype, size_t count)
{
    return dl_reduce_dtype(dtype) != dtype
           && (hosts->layout->host_count < hosts->layout->size
               || dl_hosts_passes_on(hosts, count * sizeof(float)));
}

/* Reduces the arrays of this host to its leader's.  An average is a sum here; the
 * leaders divide at the end. */
static dl_status
fold_host(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    dl_call within = {.op = DL_REDUCE,
                      .tensor = call->tensor,
                      .reduction =
                          call->reduction == DL_AVG ? DL_SUM : call->reduction};

    return hosts->board == NULL ? DL_OK : dl_reduce_board(hosts->exchange, op, &within);
}

/* Runs all three levels.  `root` is the host that gets the result; -1: all do. */
static dl_status
run_levels(dl_hosts *hosts, const dl_op_context *op, const dl_call *call, int root)
{
    leader_fold between = leader_fold_of(hosts, call, root);
    const dl_op_context *first = root < 0
                                     ? dl_hosts_first(hosts, op)
                                     : dl_hosts_first_one_way(hosts, op, DL_REDUCE);

    DL_TRY(fold_host(hosts, first, call));
    dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        DL_TRY(run_leader_fold(&between));
    }
    return root < 0 || root == hosts->layout->host
               ? dl_hosts_broadcast_within(hosts, dl_hosts_last(hosts), &call->tensor,
                                           0)
               : dl_hosts_arrive(hosts, dl_hosts_last(hosts));
}

/* Makes a contiguous array of `dtype` in this rank's scratch memory. */
static dl_status
make_row(dl_hosts *hosts, size_t count, dl_dtype dtype, dl_tensor *row)
{
    uint8_t *room;
    size_t item_size = dl_dtype_size(dtype);

    DL_TRY(dl_hosts_room(&hosts->work, count * item_size, &room));
    *row = (dl_tensor){
        .data = room,
        .count = count,
        .item_size = item_size,
        .dtype = dtype,
        .ndim = 1,
        .is_contiguous = true,
        .is_writable = true,
    };
    return DL_OK;
}

/* Reduces in float32 from the first addition on, so that there is one rounding, at the
 * end, and the same on all ranks. */
static dl_status
run_widened(dl_hosts *hosts, const dl_op_context *op, const dl_call *call, int root)
{
    const dl_tensor *tensor = &call->tensor;
    dl_call wide = {.op = DL_ALL_REDUCE, .reduction = call->reduction};

    DL_TRY(make_row(hosts, tensor->count, DL_FLOAT32, &wide.tensor));
    dl_reduce_widen(wide.tensor.data, tensor->dtype, tensor->data, tensor->count);
    DL_TRY(run_levels(hosts, op, &wide, root));
    dl_reduce_narrow(tensor->data, tensor->dtype, wide.tensor.data, tensor->count);
    return DL_OK;
}

static dl_status
reduce_to_host(dl_hosts *hosts, const dl_op_context *op, const dl_call *call, int root)
{
    dl_call plain = dl_call_all_reduce(&call->tensor, plain_op(call->reduction));

    return is_widened(hosts, call->tensor.dtype, call->tensor.count)
               ? run_widened(hosts, op, &plain, root)
               : run_levels(hosts, op, &plain, root);
}

dl_status
dl_hosts_all_reduce(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    return reduce_to_host(hosts, op, call, -1);
}

/* Copies the tensor to `target`, contiguous, and multiplied for PREMUL_SUM. */
static void
copy_scaled(uint8_t *target, const dl_tensor *tensor, dl_reduce_op op, double factor)
{
    dl_strided_gather_part(target, tensor, 0, dl_tensor_size(tensor));
    if (op == DL_PREMUL_SUM) {
        dl_reduce_scale(target, tensor->dtype, target, tensor->count, factor);
    }
}

/* Works on a copy, because the tensors of ranks other than the root do not change. */
dl_status
dl_hosts_reduce(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    const dl_layout *layout = hosts->layout;
    dl_call copy = dl_call_all_reduce(&call->tensor, call->reduction);
    uint8_t *room;

    DL_TRY(dl_hosts_room(&hosts->flat, dl_tensor_size(&call->tensor), &room));
    copy.tensor.data = room;
    copy.tensor.is_contiguous = true;
    copy_scaled(room, &call->tensor, call->reduction, call->factor);
    DL_TRY(reduce_to_host(hosts, op, &copy, layout->host_of[call->root]));
    if (layout->rank == call->root) {
        dl_strided_scatter_part(&call->tensor, room, 0, dl_tensor_size(&call->tensor));
    }
    return DL_OK;
}

/* A reduce_scatter; `row` has its blocks, contiguous, those of a host side by side. */
typedef struct blocks {
    dl_hosts *hosts;
    const dl_call *call;
    dl_tensor row;
    size_t *starts; /* by host: offset of its blocks in bytes; and the end */
} blocks;

/* Multiplies in the type of the input and then widens, as on one host. */
static void
put_block(const blocks *self, size_t at, const dl_tensor *input)
{
    const dl_call *call = self->call;
    uint8_t *place = (uint8_t *)self->row.data + at;
    uint8_t *narrow = self->hosts->flat.data;

    if (self->row.dtype == input->dtype) {
        copy_scaled(place, input, call->reduction, call->factor);
        return;
    }
    copy_scaled(narrow, input, call->reduction, call->factor);
    dl_reduce_widen((float *)(void *)place, input->dtype, narrow, input->count);
}

/* Reserves `hosts->flat` for the largest block, which put_block() widens from there. */
static dl_status
make_blocks(blocks *self)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    const dl_tensor *inputs = self->call->inputs;
    size_t count = 0;
    size_t largest = 0;
    uint8_t *narrow;

    for (int rank = 0; rank < layout->size; rank++) {
        size_t size = dl_tensor_size(&inputs[rank]);
        count += inputs[rank].count;
        largest = size > largest ? size : largest;
    }
    self->starts = calloc((size_t)layout->host_count + 1, sizeof *self->starts);
    if (self->starts == NULL) {
        return dl_fail_no_memory();
    }
    DL_TRY(dl_hosts_room(&hosts->flat, largest, &narrow));
    bool is_wide = is_widened(hosts, inputs->dtype, count);
    return make_row(hosts, count, is_wide ? DL_FLOAT32 : inputs->dtype, &self->row);
}

static void
fill_blocks(const blocks *self)
{
    const dl_layout *layout = self->hosts->layout;
    size_t at = 0;

    for (int host = 0; host < layout->host_count; host++) {
        self->starts[host] = at;
        for (int i = 0; i < dl_layout_count(layout, host); i++) {
            const dl_tensor *input =
                &self->call->inputs[dl_layout_ranks(layout, host)[i]];
            put_block(self, at, input);
            at += input->count * self->row.item_size;
        }
    }
    self->starts[layout->host_count] = at;
}

/* Distributes the leader's row to the outputs of this host's ranks, through the
 * board. */
static dl_status
scatter_result(const blocks *self, const dl_op_context *op, const dl_tensor *output)
{
    dl_hosts *hosts = self->hosts;
    const dl_layout *layout = hosts->layout;
    dl_tensor *parts = hosts->locals[0];
    uint8_t *at = (uint8_t *)self->row.data + self->starts[layout->host];

    for (int i = 0; i < dl_hosts_local_count(hosts); i++) {
        int rank = dl_layout_ranks(layout, layout->host)[i];
        parts[i] = self->row;
        parts[i].data = at;
        parts[i].count = self->call->inputs[rank].count;
        at += dl_tensor_size(&parts[i]);
    }
    dl_call call = {.op = DL_SCATTER,
                    .inputs = dl_layout_leads(layout) ? parts : NULL,
                    .tensor = *output,
                    .is_uneven = true};
    if (hosts->board != NULL) {
        return dl_scatter_board(hosts->exchange, op, &call);
    }
    dl_strided_scatter_part(output, parts[0].data, 0, dl_tensor_size(output));
    return DL_OK;
}

/* Used where the row has a wider type than the output: receives this rank's block in
 * that type and rounds it. */
static dl_status
scatter_narrowed(const blocks *self, const dl_op_context *op)
{
    const dl_tensor *output = &self->call->tensor;
    dl_hosts *hosts = self->hosts;
    dl_tensor wide = self->row;
    uint8_t *room;

    DL_TRY(dl_hosts_room(&hosts->incoming, output->count * 2 * sizeof(float), &room));
    wide.data = room;
    wide.count = output->count;
    uint8_t *narrow = room + output->count * sizeof(float);
    DL_TRY(scatter_result(self, op, &wide));
    dl_reduce_narrow(narrow, output->dtype, wide.data, output->count);
    dl_strided_scatter_part(output, narrow, 0, dl_tensor_size(output));
    return DL_OK;
}

/* The blocks of a host are side by side in the row, so that what goes to another host
 * is one message. */
static dl_status
reduce_blocks(blocks *self, const dl_op_context *op)
{
    dl_hosts *hosts = self->hosts;

    DL_TRY(make_blocks(self));
    fill_blocks(self);
    dl_call call = dl_call_all_reduce(&self->row, plain_op(self->call->reduction));
    DL_TRY(fold_host(hosts, dl_hosts_first(hosts, op), &call));
    dl_hosts_last(hosts);
    if (dl_layout_leads(hosts->layout)) {
        leader_fold between = leader_fold_of(hosts, &call, -1);
        DL_TRY(run_parts(&between, self->starts));
    }
    return self->row.dtype == self->call->tensor.dtype
               ? scatter_result(self, dl_hosts_last(hosts), &self->call->tensor)
               : scatter_narrowed(self, dl_hosts_last(hosts));
}

dl_status
dl_hosts_reduce_scatter(dl_hosts *hosts, const dl_op_context *op, const dl_call *call)
{
    blocks all = {.hosts = hosts, .call = call};
    dl_status status = reduce_blocks(&all, op);

    free(all.starts);
    return status;
}
