/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Takes one rank through every operation that moves blocks over a board.  Each
 * operation gets new arrays; afterwards every element, and the memory between
 * elements, is checked. */
#ifndef DISTLITE_TESTS_BLOCKS_WALKER_H
#define DISTLITE_TESTS_BLOCKS_WALKER_H

#include "boards.h"
#include "pg/check.h"
#include "pg/cpu/algorithms/algorithms.h"

#define MOST_RANKS 8

/* One rank's part in a sequence of operations on one board. */
typedef struct walker {
    int rank;
    int size;
    uint64_t sequence;
    bool is_in_place;
    bool is_strided;
    dl_arena *lender; /* lends the memory of rows; NULL: malloc(3) does */
    dl_exchange exchange;
} walker;

/* Tensors of int32 in one array: contiguous, or of every other element. */
typedef struct row {
    int32_t *data;
    dl_tensor tensors[MOST_RANKS];
    int64_t shapes[MOST_RANKS];
    int64_t stride;
    dl_region *region; /* NULL: the memory is from malloc(3) */
} row;

#define UNTOUCHED (-77)

static int32_t
value_of(int source, int destination, size_t i)
{
    return (int32_t)(i * 3 + (size_t)source * 1009 + (size_t)destination * 70001);
}

static int32_t *
row_memory(row *self, dl_arena *lender, size_t size)
{
    self->region = NULL;
    if (lender == NULL) {
        return malloc(size);
    }
    CHECK_OK(dl_shared_new(lender, size, &self->region));
    return self->region->memory;
}

static void
row_fini(row *self)
{
    if (self->region == NULL) {
        free(self->data);
    }
    dl_region_free(self->region);
}

static void
row_init(const walker *owner, row *self, int size, const size_t *counts,
         bool is_strided)
{
    size_t step = is_strided ? 2 : 1;
    size_t at = 0;

    for (int i = 0; i < size; i++) {
        at += counts[i];
    }
    size_t total = at * step + 1;
    self->data = row_memory(self, owner->lender, total * sizeof(int32_t));
    CHECK(self->data != NULL);
    for (size_t i = 0; i < total; i++) {
        self->data[i] = UNTOUCHED;
    }
    self->stride = (int64_t)(step * sizeof(int32_t));
    at = 0;
    for (int i = 0; i < size; i++) {
        self->shapes[i] = (int64_t)counts[i];
        self->tensors[i] = (dl_tensor){.data = self->data + at * step,
                                       .count = counts[i],
                                       .item_size = sizeof(int32_t),
                                       .dtype = DL_INT32,
                                       .ndim = 1,
                                       .is_contiguous = !is_strided,
                                       .is_writable = true,
                                       .shape = &self->shapes[i],
                                       .strides = &self->stride};
        at += counts[i];
    }
}

static int32_t *
element(const dl_tensor *tensor, size_t i)
{
    size_t step = tensor->is_contiguous ? 1 : 2;

    return (int32_t *)tensor->data + i * step;
}

static void
fill(const dl_tensor *tensor, int source, int destination)
{
    for (size_t i = 0; i < tensor->count; i++) {
        *element(tensor, i) = value_of(source, destination, i);
    }
}

static void
check_values(const walker *self, const dl_tensor *tensor, int source, int destination)
{
    for (size_t i = 0; i < tensor->count; i++) {
        int32_t expected = value_of(source, destination, i);
        if (*element(tensor, i) != expected) {
            DL_CHECK_FAIL(
                "#%d, rank %d of %d: element %zu of %zu from %d is %d, not %d",
                (int)self->sequence, self->rank, self->size, i, tensor->count, source,
                *element(tensor, i), expected);
        }
    }
}

/* Checks that the memory between elements and behind the last one is unchanged. */
static void
check_gaps(const row *self, int size)
{
    const dl_tensor *last = &self->tensors[size - 1];

    CHECK_EQUAL(*(element(last, last->count)), UNTOUCHED);
    for (int i = 0; i < size && !last->is_contiguous; i++) {
        for (size_t k = 0; k < self->tensors[i].count; k++) {
            CHECK_EQUAL(element(&self->tensors[i], k)[1], UNTOUCHED);
        }
    }
}

static dl_op_context
next_op(walker *self, dl_op_type op, const dl_tensor *like)
{
    dl_op_context context = test_op(++self->sequence, op, 15 * DL_SECOND);

    dl_check_describe(like, &context.fingerprint);
    context.fingerprint.count_low = 0;
    return context;
}

static void
check_all_gather(walker *self, const size_t *counts)
{
    row outputs;
    row input;

    row_init(self, &outputs, self->size, counts, self->is_strided);
    row_init(self, &input, 1, &counts[self->rank], self->is_strided);
    dl_call args = {
        .op = DL_ALL_GATHER, .tensor = input.tensors[0], .outputs = outputs.tensors};
    if (self->is_in_place) {
        args.tensor = outputs.tensors[self->rank];
    }
    fill(&args.tensor, self->rank, 0);
    dl_op_context op = next_op(self, DL_ALL_GATHER, &args.tensor);
    CHECK_OK(dl_all_gather_board(&self->exchange, &op, &args));
    for (int source = 0; source < self->size; source++) {
        check_values(self, &outputs.tensors[source], source, 0);
    }
    check_gaps(&outputs, self->size);
    row_fini(&outputs);
    row_fini(&input);
}

static void
check_gather(walker *self, const size_t *counts, int root, bool is_uneven)
{
    row outputs;
    row input;

    row_init(self, &outputs, self->size, counts, self->is_strided);
    row_init(self, &input, 1, &counts[self->rank], self->is_strided);
    bool is_root = self->rank == root;
    dl_call args = {.op = DL_GATHER,
                    .tensor = input.tensors[0],
                    .outputs = is_root ? outputs.tensors : NULL,
                    .root = root,
                    .is_uneven = is_uneven};
    if (self->is_in_place && is_root) {
        args.tensor = outputs.tensors[self->rank];
    }
    fill(&args.tensor, self->rank, 0);
    dl_op_context op = next_op(self, is_uneven ? DL_GATHER_V : DL_GATHER, &args.tensor);
    CHECK_OK(dl_gather_board(&self->exchange, &op, &args));
    for (int source = 0; is_root && source < self->size; source++) {
        check_values(self, &outputs.tensors[source], source, 0);
    }
    check_gaps(&outputs, self->size);
    row_fini(&outputs);
    row_fini(&input);
}

static void
check_scatter(walker *self, const size_t *counts, int root, bool is_uneven)
{
    row inputs;
    row output;

    row_init(self, &inputs, self->size, counts, self->is_strided);
    row_init(self, &output, 1, &counts[self->rank], self->is_strided);
    bool is_root = self->rank == root;
    dl_call args = {.op = DL_SCATTER,
                    .inputs = is_root ? inputs.tensors : NULL,
                    .tensor = output.tensors[0],
                    .root = root,
                    .is_uneven = is_uneven};
    if (self->is_in_place && is_root) {
        args.tensor = inputs.tensors[self->rank];
    }
    for (int i = 0; i < self->size; i++) {
        fill(&inputs.tensors[i], root, i);
    }
    dl_op_context op =
        next_op(self, is_uneven ? DL_SCATTER_V : DL_SCATTER, &args.tensor);
    CHECK_OK(dl_scatter_board(&self->exchange, &op, &args));
    check_values(self, &args.tensor, root, self->rank);
    check_gaps(&output, 1);
    row_fini(&inputs);
    row_fini(&output);
}

/* Returns how many elements `source` has for `destination`; no two
 * ranks' rows are alike. */
static size_t
pair_count(const size_t *counts, int source, int destination, int size)
{
    return counts[(source * 3 + destination) % size];
}

static void
check_all_to_all(walker *self, const size_t *counts)
{
    size_t sent[MOST_RANKS];
    size_t received[MOST_RANKS];
    row inputs;
    row outputs;

    for (int i = 0; i < self->size; i++) {
        sent[i] = pair_count(counts, self->rank, i, self->size);
        received[i] = pair_count(counts, i, self->rank, self->size);
    }
    row_init(self, &inputs, self->size, sent, self->is_strided);
    row_init(self, &outputs, self->size, received, self->is_strided);
    dl_call args = {
        .op = DL_ALL_TO_ALL, .inputs = inputs.tensors, .outputs = outputs.tensors};
    for (int i = 0; i < self->size; i++) {
        fill(&inputs.tensors[i], self->rank, i);
    }
    dl_op_context op = next_op(self, DL_ALL_TO_ALL, &inputs.tensors[0]);
    CHECK_OK(dl_all_to_all_board(&self->exchange, &op, &args));
    for (int i = 0; i < self->size; i++) {
        check_values(self, &outputs.tensors[i], i, self->rank);
        check_values(self, &inputs.tensors[i], self->rank, i);
    }
    check_gaps(&outputs, self->size);
    row_fini(&inputs);
    row_fini(&outputs);
}

static void
check_sum(const walker *self, const dl_tensor *tensor, int destination)
{
    for (size_t i = 0; i < tensor->count; i++) {
        int32_t sum = 0;
        for (int source = 0; source < self->size; source++) {
            sum += value_of(source, destination, i);
        }
        CHECK_EQUAL(*element(tensor, i), sum);
    }
}

static void
check_reduce(walker *self, size_t count, int root)
{
    row tensor;
    bool is_root = self->rank == root;

    /* The algorithm requires that the root's array is contiguous. */
    row_init(self, &tensor, 1, &count, self->is_strided && !is_root);
    fill(&tensor.tensors[0], self->rank, 0);
    dl_call args = {.op = DL_REDUCE,
                    .tensor = tensor.tensors[0],
                    .root = root,
                    .reduction = DL_SUM};
    dl_op_context op = next_op(self, DL_REDUCE, &args.tensor);
    CHECK_OK(dl_reduce_board(&self->exchange, &op, &args));
    if (is_root) {
        check_sum(self, &args.tensor, 0);
    } else {
        check_values(self, &args.tensor, self->rank, 0);
    }
    check_gaps(&tensor, 1);
    row_fini(&tensor);
}

static void
check_reduce_scatter(walker *self, const size_t *counts)
{
    row inputs;
    row output;

    row_init(self, &inputs, self->size, counts, false);
    row_init(self, &output, 1, &counts[self->rank], self->is_strided);
    dl_call args = {.op = DL_REDUCE_SCATTER,
                    .inputs = inputs.tensors,
                    .tensor = output.tensors[0],
                    .reduction = DL_SUM};
    if (self->is_in_place) {
        args.tensor = inputs.tensors[self->rank];
    }
    for (int i = 0; i < self->size; i++) {
        fill(&inputs.tensors[i], self->rank, i);
    }
    dl_op_context op = next_op(self, DL_REDUCE_SCATTER, &args.tensor);
    CHECK_OK(dl_reduce_scatter_board(&self->exchange, &op, &args,
                                     &inputs.tensors[self->rank]));
    check_sum(self, &args.tensor, self->rank);
    for (int i = 0; i < self->size; i++) {
        if (i != self->rank || !self->is_in_place) {
            check_values(self, &inputs.tensors[i], self->rank, i);
        }
    }
    check_gaps(&output, 1);
    row_fini(&inputs);
    row_fini(&output);
}

static void
check_broadcast(walker *self, size_t count, int root)
{
    row tensor;

    row_init(self, &tensor, 1, &count, self->is_strided);
    if (self->rank == root) {
        fill(&tensor.tensors[0], root, 0);
    }
    dl_call args = {.op = DL_BROADCAST, .tensor = tensor.tensors[0], .root = root};
    dl_op_context op = next_op(self, DL_BROADCAST, &args.tensor);
    CHECK_OK(dl_broadcast_board(&self->exchange, &op, &args));
    check_values(self, &args.tensor, root, 0);
    check_gaps(&tensor, 1);
    row_fini(&tensor);
}

static void
check_every_op(walker *self, const size_t *counts, bool is_even)
{
    int root = (int)(self->sequence % (uint64_t)self->size);

    check_broadcast(self, counts[0], root);
    check_all_gather(self, counts);
    check_all_to_all(self, counts);
    check_gather(self, counts, root, true);
    check_scatter(self, counts, root, true);
    check_reduce(self, counts[0], root);
    check_reduce_scatter(self, counts);
    if (is_even) {
        check_gather(self, counts, root, false);
        check_scatter(self, counts, root, false);
    }
}

#endif
