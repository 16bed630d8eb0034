/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/check.h"

#include "groups.h"

static int32_t memory[64];
static dl_group *group;

static dl_tensor
ints(size_t start, size_t count)
{
    return tensor_of(memory + start, count, DL_INT32);
}

/* Ranks 0 and 1 of two, as threads: checks need no other rank, but a group does. */
static dl_group *members[2];

static void
join(int rank, int size, void *store)
{
    members[rank] = join_group(store, "g", rank, size);
}

static void
with_group_of_two(void (*body)(void))
{
    dl_store *store;

    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(2, join, store);
    group = members[0];
    body();
    end_group(members[0]);
    end_group(members[1]);
    dl_store_unref(store);
}

static void
check_refused(dl_check_fn check, dl_op_type op, const void *args, const char *text)
{
    dl_fingerprint fingerprint = {.op = (uint8_t)op};

    CHECK_STATUS(check(group, args, &fingerprint), DL_INVALID);
    CHECK_CONTAINS(dl_last_error()->text, text);
    CHECK_CONTAINS(dl_last_error()->text, dl_op_type_name((uint8_t)op));
}

static dl_fingerprint
check_accepted(dl_check_fn check, dl_op_type op, const void *args)
{
    dl_fingerprint fingerprint = {.op = (uint8_t)op};

    CHECK_OK(check(group, args, &fingerprint));
    return fingerprint;
}

static void
refuse_gathers(void)
{
    dl_tensor outputs[] = {ints(0, 4), ints(4, 4)};
    dl_call args = {.op = DL_ALL_GATHER, .tensor = ints(8, 4), .outputs = outputs};

    check_accepted(dl_check_all_gather, DL_ALL_GATHER, &args);
    args.tensor = ints(0, 4);
    check_accepted(dl_check_all_gather, DL_ALL_GATHER, &args);
    args.tensor = ints(4, 4);
    check_refused(dl_check_all_gather, DL_ALL_GATHER, &args,
                  "an output shares memory with an input");
    args.tensor = ints(8, 3);
    check_refused(dl_check_all_gather, DL_ALL_GATHER, &args,
                  "own block has 3 elements in the input, but 4 in the output");
    args.tensor = ints(8, 4);
    outputs[1] = ints(3, 4);
    check_refused(dl_check_all_gather, DL_ALL_GATHER, &args,
                  "outputs 0 and 1 share memory");
    outputs[1] = ints(4, 4);
    outputs[1].is_writable = false;
    check_refused(dl_check_all_gather, DL_ALL_GATHER, &args, "read-only");
    outputs[1] = tensor_of(memory + 4, 4, DL_FLOAT32);
    check_refused(dl_check_all_gather, DL_ALL_GATHER, &args,
                  "output 1 has dtype float32, but output 0 has dtype int32");
    outputs[0] = tensor_of(memory, 4, DL_FLOAT32);
    check_refused(dl_check_all_gather, DL_ALL_GATHER, &args,
                  "the input has dtype int32, but the output has dtype float32");
}

CHECK_CASE(gathers_that_cannot_be_are_refused)
{
    with_group_of_two(refuse_gathers);
}

static void
refuse_uneven_blocks(void)
{
    dl_tensor blocks[] = {ints(0, 4), ints(4, 5)};
    dl_call gather = {.op = DL_GATHER, .tensor = ints(16, 4), .outputs = blocks};
    dl_call scatter = {.op = DL_SCATTER, .inputs = blocks, .tensor = ints(16, 4)};

    check_refused(dl_check_rooted, DL_GATHER, &gather,
                  "output 1 has 5 elements, output 0 has 4");
    check_refused(dl_check_rooted, DL_SCATTER, &scatter,
                  "input 1 has 5 elements, input 0 has 4");
    gather.root = 2;
    check_refused(dl_check_rooted, DL_GATHER, &gather, "rank 2 is not in group g of 2");
    scatter.root = -1;
    check_refused(dl_check_rooted, DL_SCATTER, &scatter, "rank -1 is not in group g");
}

CHECK_CASE(uneven_blocks_are_for_the_uneven_forms)
{
    with_group_of_two(refuse_uneven_blocks);
}

static void
refuse_reductions(void)
{
    dl_tensor inputs[] = {ints(0, 4), ints(4, 4)};
    dl_call args = {.op = DL_REDUCE_SCATTER,
                    .inputs = inputs,
                    .tensor = ints(0, 4),
                    .reduction = DL_SUM,
                    .factor = 1};
    dl_call rooted = {
        .op = DL_REDUCE, .tensor = ints(0, 4), .reduction = DL_AVG, .factor = 1};

    check_accepted(dl_check_reduce_scatter, DL_REDUCE_SCATTER, &args);
    args.tensor = ints(2, 4);
    check_refused(dl_check_reduce_scatter, DL_REDUCE_SCATTER, &args, "shares memory");
    args.tensor = ints(8, 4);
    args.reduction = DL_AVG;
    CHECK_STATUS(dl_group_run(group, &args, soon()), DL_INVALID);
    CHECK_STATUS(dl_group_run(group, &rooted, soon()), DL_INVALID);
    rooted = (dl_call){
        .op = DL_REDUCE, .tensor = ints(0, 4), .reduction = DL_SUM, .factor = 1};
    rooted.tensor.is_writable = false;
    check_refused(dl_check_reduce, DL_REDUCE, &rooted, "read-only");
    rooted.root = 1;
    check_accepted(dl_check_reduce, DL_REDUCE, &rooted);
    CHECK_EQUAL(dl_group_sequence(group), 0);
}

CHECK_CASE(reductions_that_cannot_be_are_refused)
{
    with_group_of_two(refuse_reductions);
}

static void
compare_fingerprints(void)
{
    dl_tensor even[] = {ints(0, 4), ints(4, 4)};
    dl_tensor uneven[] = {ints(0, 4), ints(4, 5)};
    dl_tensor other[] = {ints(0, 4), ints(4, 6)};
    dl_call gather = {.op = DL_ALL_GATHER, .tensor = ints(16, 4), .outputs = even};
    dl_fingerprint prints[3];

    prints[0] = check_accepted(dl_check_all_gather, DL_ALL_GATHER, &gather);
    CHECK(prints[0].op == DL_ALL_GATHER && prints[0].count_low == 4);
    gather.outputs = uneven;
    prints[1] = check_accepted(dl_check_all_gather, DL_ALL_GATHER, &gather);
    CHECK(prints[1].op == DL_ALL_GATHER_V && prints[1].count_low == 9);
    gather.outputs = other;
    prints[2] = check_accepted(dl_check_all_gather, DL_ALL_GATHER, &gather);
    CHECK(prints[1].root != prints[2].root);
    /* A rank that sends and the root that does not know its size have equal fingerprints. */
    dl_call root = {
        .op = DL_GATHER, .tensor = ints(16, 4), .outputs = uneven, .is_uneven = true};
    dl_call leaf = {
        .op = DL_GATHER, .tensor = ints(16, 7), .root = 1, .is_uneven = true};
    prints[0] = check_accepted(dl_check_rooted, DL_GATHER, &root);
    prints[1] = check_accepted(dl_check_rooted, DL_GATHER, &leaf);
    prints[1].root = 0;
    CHECK(prints[0].op == DL_GATHER_V && dl_fingerprint_equal(&prints[0], &prints[1]));
    dl_call pairs[] = {{.op = DL_ALL_TO_ALL, .inputs = even, .outputs = uneven},
                       {.op = DL_ALL_TO_ALL, .inputs = uneven, .outputs = other}};
    other[0] = ints(32, 4);
    other[1] = ints(36, 6);
    uneven[0] = ints(16, 4);
    uneven[1] = ints(20, 5);
    prints[0] = check_accepted(dl_check_all_to_all, DL_ALL_TO_ALL, &pairs[0]);
    prints[1] = check_accepted(dl_check_all_to_all, DL_ALL_TO_ALL, &pairs[1]);
    CHECK(dl_fingerprint_equal(&prints[0], &prints[1]));
}

CHECK_CASE(fingerprints_have_what_all_ranks_must_agree_on)
{
    with_group_of_two(compare_fingerprints);
}

/* Every operation on a group of one, which keeps its own block. */
CHECK_CASE(a_group_of_one_keeps_its_own)
{
    int32_t input[] = {1, 2, 3};
    int32_t output[3];
    dl_tensor from = tensor_of(input, 3, DL_INT32);
    dl_tensor to = tensor_of(output, 3, DL_INT32);
    dl_group *one = join_group(NULL, "one", 0, 1);
    dl_call all_gather = {.op = DL_ALL_GATHER, .tensor = from, .outputs = &to};
    dl_call gather = {.op = DL_GATHER, .tensor = from, .outputs = &to};
    dl_call scatter = {
        .op = DL_SCATTER, .inputs = &from, .tensor = to, .is_uneven = true};
    dl_call reduce_scatter = {.op = DL_REDUCE_SCATTER,
                              .inputs = &from,
                              .tensor = to,
                              .reduction = DL_MAX,
                              .factor = 1};
    dl_call all_to_all = {.op = DL_ALL_TO_ALL, .inputs = &from, .outputs = &to};
    dl_call reduce = {
        .op = DL_REDUCE, .tensor = from, .reduction = DL_SUM, .factor = 1};

    for (int op = 0; op < 5; op++) {
        memset(output, 0, sizeof output);
        CHECK_OK(op == 0   ? dl_group_run(one, &all_gather, soon())
                 : op == 1 ? dl_group_run(one, &gather, soon())
                 : op == 2 ? dl_group_run(one, &scatter, soon())
                 : op == 3 ? dl_group_run(one, &reduce_scatter, soon())
                           : dl_group_run(one, &all_to_all, soon()));
        CHECK(memcmp(input, output, sizeof input) == 0);
    }
    CHECK_OK(dl_group_run(one, &reduce, soon()));
    CHECK_EQUAL(input[2], 3);
    float scaled[] = {1.5f, -2};
    dl_call twice = {.op = DL_ALL_REDUCE,
                     .tensor = tensor_of(scaled, 2, DL_FLOAT32),
                     .reduction = DL_PREMUL_SUM,
                     .factor = 2.0};
    CHECK_OK(dl_group_run(one, &twice, soon()));
    CHECK(scaled[0] == 3 && scaled[1] == -4);
    end_group(one);
}

static dl_store *store;

/* Each rank's own factor; non-roots and inputs stay as they are. */
static void
premultiply(int rank, int size, void *unused)
{
    dl_group *mine = join_group(store, "premultiplied", rank, size);
    float data[8];
    float result[2];
    dl_tensor blocks[4];

    (void)unused;
    for (int i = 0; i < 8; i++) {
        data[i] = (float)(i + rank);
    }
    for (int i = 0; i < size; i++) {
        blocks[i] = tensor_of(data + 2 * i, 2, DL_FLOAT32);
    }
    dl_call scattered = {.op = DL_REDUCE_SCATTER,
                         .inputs = blocks,
                         .tensor = tensor_of(result, 2, DL_FLOAT32),
                         .reduction = DL_PREMUL_SUM,
                         .factor = rank + 1.0};
    CHECK_OK(dl_group_run(mine, &scattered, soon()));
    dl_call rooted = {.op = DL_REDUCE,
                      .tensor = tensor_of(data, 8, DL_FLOAT32),
                      .root = 2,
                      .reduction = DL_PREMUL_SUM,
                      .factor = rank + 1.0};
    CHECK(data[3] == (float)(3 + rank));
    CHECK_OK(dl_group_run(mine, &rooted, soon()));
    for (int i = 0; i < 8; i++) {
        float sum = 0;
        for (int peer = 0; peer < size; peer++) {
            sum += (float)((i + peer) * (peer + 1));
        }
        CHECK(data[i] == (rank == 2 ? sum : (float)(i + rank)));
        CHECK(i / 2 != rank || result[i % 2] == sum);
    }
    end_group(mine);
}

CHECK_CASE(factors_multiply_before_the_sum)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(4, premultiply, NULL);
    dl_store_unref(store);
}

static void
disagree(int rank, int size, void *unused)
{
    dl_group *mine = join_group(store, "odd", rank, size);
    int64_t data[16] = {0};
    dl_tensor blocks[3];

    (void)unused;
    for (int i = 0; i < size; i++) {
        blocks[i] = tensor_of(data + 4 * i, rank == 1 ? 3 : 4, DL_INT64);
    }
    dl_call args = {.op = DL_ALL_GATHER, .tensor = blocks[rank], .outputs = blocks};
    CHECK_STATUS(dl_group_run(mine, &args, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "called all_gather(4 x int64)");
    CHECK_CONTAINS(dl_last_error()->text, "rank 1 called all_gather(3 x int64)");
    CHECK_STATUS(dl_group_barrier(mine, soon()), DL_MISMATCH);
    CHECK_CONTAINS(dl_last_error()->text, "group odd is broken");
    end_group(mine);
}

CHECK_CASE(ranks_that_disagree_are_named)
{
    CHECK_OK(dl_hash_store_new(&store));
    dl_run_ranks(3, disagree, NULL);
    dl_store_unref(store);
}
