/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives over several hosts, which are made of boards and of TCP at loopback; ranks
 * are threads.  Values are whole numbers that float32 holds, so that sums are exact in
 * any order. */
#include "pg/cpu/hosts/hosts.h"

#include "boards.h"
#include "pg/cpu/algorithms/algorithms.h"
#include "traffics.h"

#define PATIENCE (60 * DL_SECOND)
#define CHUNK ((size_t)16 << 10)
#define HOSTS_LIMIT 8 /* of those that have several ranks */

typedef struct world {
    int size;
    const int *hosts; /* by rank */
    dl_layout layouts[DL_RANKS_LIMIT];
    test_boards boards[HOSTS_LIMIT];
    test_traffics traffics;
    dl_notices notices[DL_RANKS_LIMIT];
    dl_probes probes[DL_RANKS_LIMIT];
    dl_exchange exchanges[DL_RANKS_LIMIT];
    dl_hosts handles[DL_RANKS_LIMIT];
    uint64_t sequence[DL_RANKS_LIMIT];
    int sent[DL_RANKS_LIMIT];      /* messages that count_sent() has counted */
    size_t count;                  /* of elements, for the case */
    size_t counts[DL_RANKS_LIMIT]; /* of an all_to_all; 0: `count` */
    dl_dtype dtype;
    bool is_plain;        /* the arrays of a reduce_scatter are contiguous */
    atomic_bool is_ahead; /* of run_ahead() */
} world;

/* State that the ranks exchange beside their links. */
static void
make_outlook(world *all, int rank)
{
    test_traffics *traffics = &all->traffics;
    dl_hosts *hosts = &all->handles[rank];
    dl_notices_options options = {.group_name = "g",
                                  .layout = &all->layouts[rank],
                                  .peers = dl_peers_of(traffics->peers),
                                  .tcp_contacts = traffics->known,
                                  .listener = &traffics->listeners[rank]};
    dl_probes probes = {.rank = rank,
                        .size = all->size,
                        .peers = options.peers,
                        .tcp_contacts = options.tcp_contacts};

    CHECK_OK(dl_notices_init(&all->notices[rank], &options));
    CHECK_OK(dl_probes_init(&all->probes[rank], &probes));
    hosts->notices = &all->notices[rank];
    hosts->probes = &all->probes[rank];
    hosts->traffic->options.notify = dl_hosts_notify;
    if (hosts->board != NULL) {
        hosts->board->options.elsewhere = dl_hosts_check_others;
        hosts->board->options.context = hosts;
    }
}

static void
make_rank(world *all, int rank)
{
    dl_layout *layout = &all->layouts[rank];
    dl_hosts *hosts = &all->handles[rank];

    CHECK_OK(dl_layout_init(layout, rank, all->size, all->hosts));
    int local_rank = layout->local_rank_of[rank];
    int locals = dl_layout_count(layout, layout->host);
    test_boards *boards = locals > 1 ? &all->boards[layout->host] : NULL;
    if (local_rank == 0 && locals > 1) {
        boards_init(boards, locals, CHUNK, false);
    }
    hosts->layout = layout;
    hosts->traffic = &all->traffics.traffics[rank];
    hosts->traffic->options.check = dl_hosts_check;
    hosts->traffic->options.context = hosts;
    if (locals > 1) {
        hosts->board = &boards->boards[local_rank];
        hosts->board->options.names = dl_layout_ranks(layout, layout->host);
        hosts->board->options.phases = DL_HOSTS_PHASES;
        CHECK_OK(dl_exchange_init(&all->exchanges[rank], hosts->board));
        hosts->exchange = &all->exchanges[rank];
    }
    make_outlook(all, rank);
    CHECK_OK(dl_hosts_init(hosts));
}

static void
world_run(const int *hosts, int size, dl_rank_fn run, world *all)
{
    all->size = size;
    all->hosts = hosts;
    memset(all->sequence, 0, sizeof all->sequence);
    traffics_init(&all->traffics, size);
    for (int rank = 0; rank < size; rank++) {
        make_rank(all, rank);
    }
    dl_run_ranks(size, run, all);
    for (int rank = 0; rank < size; rank++) {
        if (all->handles[rank].exchange != NULL) {
            dl_exchange_fini(&all->exchanges[rank]);
        }
        dl_hosts_fini(&all->handles[rank]);
        dl_notices_fini(&all->notices[rank]);
        dl_probes_fini(&all->probes[rank]);
    }
    for (int host = 0; host < HOSTS_LIMIT; host++) {
        if (all->boards[host].size > 0) {
            boards_fini(&all->boards[host]);
            all->boards[host].size = 0;
        }
    }
    for (int rank = 0; rank < size; rank++) {
        dl_layout_fini(&all->layouts[rank]);
    }
    traffics_fini(&all->traffics);
}

/* The next operation of this rank, begun on its links. */
static dl_op_context
next_op(world *all, int rank, dl_op_type type)
{
    return (dl_op_context){
        .sequence = ++all->sequence[rank],
        .fingerprint = {.op = (uint8_t)type,
                        .dtype = (uint8_t)all->dtype,
                        .count_low = (uint32_t)all->count},
        .deadline = dl_deadline_after(PATIENCE),
    };
}

/* Whatever `call` is, between the beginning and the end of an operation. */
#define RUN(all, rank, op, call)                               \
    do {                                                       \
        dl_traffic_begin((all)->handles[rank].traffic, &(op)); \
        CHECK_OK(call);                                        \
        dl_traffic_end((all)->handles[rank].traffic);          \
    } while (0)

/* `data` has room for two elements per element where it is strided, and is NULL without
 * elements, as that of torch's empty tensors is. */
typedef struct array {
    dl_tensor tensor;
    int64_t shape[1];
    int64_t strides[1];
} array;

static void
array_init(array *self, size_t count, dl_dtype dtype, bool is_strided)
{
    size_t item_size = dl_dtype_size(dtype);

    self->shape[0] = (int64_t)count;
    self->strides[0] = (int64_t)(item_size * (is_strided ? 2 : 1));
    self->tensor = (dl_tensor){
        .data = count > 0 ? calloc(2 * count, item_size) : NULL,
        .count = count,
        .item_size = item_size,
        .dtype = dtype,
        .ndim = 1,
        .is_contiguous = !is_strided,
        .is_writable = true,
        .shape = self->shape,
        .strides = self->strides,
    };
}

static void
array_put(array *self, size_t at, int value)
{
    char *place = (char *)self->tensor.data + (size_t)self->strides[0] * at;
    float real = (float)value;
    int64_t whole = value;

    if (self->tensor.dtype == DL_INT64) {
        memcpy(place, &whole, sizeof whole);
    } else if (self->tensor.dtype == DL_FLOAT32) {
        memcpy(place, &real, sizeof real);
    } else {
        dl_reduce_narrow(place, self->tensor.dtype, &real, 1);
    }
}

static int
array_get(const array *self, size_t at)
{
    const char *place = (const char *)self->tensor.data + (size_t)self->strides[0] * at;
    float real;
    int64_t whole;

    if (self->tensor.dtype == DL_INT64) {
        memcpy(&whole, place, sizeof whole);
        return (int)whole;
    }
    if (self->tensor.dtype == DL_FLOAT32) {
        memcpy(&real, place, sizeof real);
    } else {
        dl_reduce_widen(&real, self->tensor.dtype, place, 1);
    }
    return (int)real;
}

static void
array_fini(array *self)
{
    free(self->tensor.data);
}

/* Small enough for float16. */
static int
value_of(int source, int target, size_t at)
{
    return source * 5 + target * 3 + (int)(at % 7) + 1;
}

static void
array_fill(array *self, int source, int target)
{
    for (size_t i = 0; i < self->tensor.count; i++) {
        array_put(self, i, value_of(source, target, i));
    }
}

static void
check_values(const array *self, int source, int target)
{
    for (size_t i = 0; i < self->tensor.count; i++) {
        CHECK_EQUAL(array_get(self, i), value_of(source, target, i));
    }
}

static int
sum_of(const world *all, int target, size_t at)
{
    int sum = 0;

    for (int rank = 0; rank < all->size; rank++) {
        sum += value_of(rank, target, at);
    }
    return sum;
}

static void
check_sums(const world *all, const array *self, int target)
{
    for (size_t i = 0; i < self->tensor.count; i++) {
        CHECK_EQUAL(array_get(self, i), sum_of(all, target, i));
    }
}

static void
test_all_reduce(world *all, int rank)
{
    dl_op_context op = next_op(all, rank, DL_ALL_REDUCE);
    dl_call args = {.op = DL_ALL_REDUCE, .reduction = DL_SUM};
    array data;

    array_init(&data, all->count, all->dtype, false);
    array_fill(&data, rank, 0);
    args.tensor = data.tensor;
    RUN(all, rank, op, dl_hosts_all_reduce(&all->handles[rank], &op, &args));
    check_sums(all, &data, 0);
    array_fini(&data);
}

static void
test_reduce(world *all, int rank, int root)
{
    dl_op_context op = next_op(all, rank, DL_REDUCE);
    dl_call args = {
        .op = DL_REDUCE, .reduction = DL_PREMUL_SUM, .root = root, .factor = 2};
    array data;

    array_init(&data, all->count, all->dtype, rank % 2);
    array_fill(&data, rank, 0);
    args.tensor = data.tensor;
    if (all->dtype == DL_INT64) {
        args.reduction = DL_SUM;
    }
    RUN(all, rank, op, dl_hosts_reduce(&all->handles[rank], &op, &args));
    for (size_t i = 0; i < all->count; i++) {
        int sum = sum_of(all, 0, i) * (args.reduction == DL_SUM ? 1 : 2);
        CHECK_EQUAL(array_get(&data, i), rank == root ? sum : value_of(rank, 0, i));
    }
    array_fini(&data);
}

static void
test_broadcast(world *all, int rank, int root)
{
    dl_op_context op = next_op(all, rank, DL_BROADCAST);
    dl_call args = {.op = DL_BROADCAST, .root = root};
    array data;

    array_init(&data, all->count, all->dtype, (rank + root) % 2);
    array_fill(&data, rank, 1);
    args.tensor = data.tensor;
    RUN(all, rank, op, dl_hosts_broadcast(&all->handles[rank], &op, &args));
    check_values(&data, root, 1);
    array_fini(&data);
}

/* Blocks of different sizes: count, count + 1, ... elements. */
static void
make_list(world *all, array *list, dl_tensor *tensors, int rank)
{
    for (int i = 0; i < all->size; i++) {
        array_init(&list[i], all->count + (size_t)i, all->dtype, (rank + i) % 3 == 0);
        tensors[i] = list[i].tensor;
    }
}

static void
free_list(world *all, array *list)
{
    for (int i = 0; i < all->size; i++) {
        array_fini(&list[i]);
    }
}

static void
test_all_gather(world *all, int rank)
{
    dl_op_context op = next_op(all, rank, DL_ALL_GATHER_V);
    array outputs[DL_RANKS_LIMIT];
    dl_tensor tensors[DL_RANKS_LIMIT];
    array input;

    make_list(all, outputs, tensors, rank);
    array_init(&input, all->count + (size_t)rank, all->dtype, rank % 2);
    array_fill(&input, rank, 2);
    dl_call args = {.op = DL_ALL_GATHER, .tensor = input.tensor, .outputs = tensors};
    RUN(all, rank, op, dl_hosts_all_gather(&all->handles[rank], &op, &args));
    for (int i = 0; i < all->size; i++) {
        check_values(&outputs[i], i, 2);
    }
    array_fini(&input);
    free_list(all, outputs);
}

static void
test_gather(world *all, int rank, int root)
{
    dl_op_context op = next_op(all, rank, DL_GATHER_V);
    array outputs[DL_RANKS_LIMIT];
    dl_tensor tensors[DL_RANKS_LIMIT];
    array input;

    op.fingerprint.count_low = 0;
    make_list(all, outputs, tensors, rank);
    array_init(&input, all->count + (size_t)rank, all->dtype, rank % 2);
    array_fill(&input, rank, root);
    dl_call args = {.op = DL_GATHER,
                    .tensor = input.tensor,
                    .outputs = rank == root ? tensors : NULL,
                    .root = root,
                    .is_uneven = true};
    RUN(all, rank, op, dl_hosts_gather(&all->handles[rank], &op, &args));
    for (int i = 0; i < all->size && rank == root; i++) {
        check_values(&outputs[i], i, root);
    }
    array_fini(&input);
    free_list(all, outputs);
}

static void
test_scatter(world *all, int rank, int root)
{
    dl_op_context op = next_op(all, rank, DL_SCATTER_V);
    array inputs[DL_RANKS_LIMIT];
    dl_tensor tensors[DL_RANKS_LIMIT];
    array output;

    make_list(all, inputs, tensors, rank);
    for (int i = 0; i < all->size; i++) {
        array_fill(&inputs[i], rank, i);
    }
    array_init(&output, all->count + (size_t)rank, all->dtype, rank % 2);
    dl_call args = {.op = DL_SCATTER,
                    .inputs = rank == root ? tensors : NULL,
                    .tensor = output.tensor,
                    .root = root,
                    .is_uneven = true};
    RUN(all, rank, op, dl_hosts_scatter(&all->handles[rank], &op, &args));
    check_values(&output, root, rank);
    array_fini(&output);
    free_list(all, inputs);
}

/* Each rank has `counts[i]` elements for rank i. */
static void
reduce_scatter(world *all, int rank, const size_t *counts)
{
    dl_op_context op = next_op(all, rank, DL_REDUCE_SCATTER_V);
    array inputs[DL_RANKS_LIMIT];
    dl_tensor tensors[DL_RANKS_LIMIT];
    array output;

    for (int i = 0; i < all->size; i++) {
        array_init(&inputs[i], counts[i], all->dtype,
                   (rank + i) % 3 == 0 && !all->is_plain);
        array_fill(&inputs[i], rank, i);
        tensors[i] = inputs[i].tensor;
    }
    array_init(&output, counts[rank], all->dtype, rank % 2 && !all->is_plain);
    dl_call args = {.op = DL_REDUCE_SCATTER,
                    .inputs = tensors,
                    .tensor = output.tensor,
                    .reduction = DL_SUM};
    RUN(all, rank, op, dl_hosts_reduce_scatter(&all->handles[rank], &op, &args));
    check_sums(all, &output, rank);
    for (int i = 0; i < all->size; i++) {
        check_values(&inputs[i], rank, i);
    }
    array_fini(&output);
    free_list(all, inputs);
}

static void
test_reduce_scatter(world *all, int rank)
{
    size_t counts[DL_RANKS_LIMIT];

    for (int i = 0; i < all->size; i++) {
        counts[i] = all->count + (size_t)i;
    }
    reduce_scatter(all, rank, counts);
}

/* Rank r has count + r + s elements for rank s. */
static void
test_all_to_all(world *all, int rank)
{
    dl_op_context op = next_op(all, rank, DL_ALL_TO_ALL);
    size_t count = all->counts[rank] > 0 ? all->counts[rank] : all->count;
    array lists[2][DL_RANKS_LIMIT];
    dl_tensor tensors[2][DL_RANKS_LIMIT];

    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < all->size; i++) {
            array_init(&lists[side][i], count + (size_t)(rank + i), all->dtype,
                       (i + side) % 2);
            tensors[side][i] = lists[side][i].tensor;
            array_fill(&lists[side][i], rank, side == 0 ? i : 99);
        }
    }
    dl_call args = {.op = DL_ALL_TO_ALL, .inputs = tensors[0], .outputs = tensors[1]};
    RUN(all, rank, op, dl_hosts_all_to_all(&all->handles[rank], &op, &args));
    for (int i = 0; i < all->size; i++) {
        check_values(&lists[1][i], i, rank);
    }
    free_list(all, lists[0]);
    free_list(all, lists[1]);
}

static void
run_all(int rank, int size, void *context)
{
    world *all = context;
    dl_op_context op = next_op(all, rank, DL_BARRIER);

    RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
    test_all_reduce(all, rank);
    test_all_gather(all, rank);
    test_reduce_scatter(all, rank);
    test_all_to_all(all, rank);
    for (int root = 0; root < size; root++) {
        test_reduce(all, rank, root);
        test_broadcast(all, rank, root);
        test_gather(all, rank, root);
        test_scatter(all, rank, root);
    }
}

static const int two_alone[] = {0, 1};
static const int three_alone[] = {0, 1, 2};
static const int eight_alone[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int seven_mixed[] = {0, 1, 2, 3, 4, 5, 6, 1, 6, 6};
static const int two_pairs[] = {0, 0, 1, 1};
static const int mixed[] = {0, 1, 0, 1, 1};
static const int uneven[] = {3, 1, 1, 2, 2, 2};

static void
run_grid(const int *hosts, int size)
{
    static const dl_dtype dtypes[] = {DL_INT64, DL_FLOAT32, DL_FLOAT16};
    static const size_t counts[] = {0, 1, 5, 3000};
    static world all;

    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            all.dtype = dtypes[i];
            all.count = counts[k];
            world_run(hosts, size, run_all, &all);
        }
    }
}

CHECK_CASE(two_hosts_of_one_rank)
{
    run_grid(two_alone, 2);
}

CHECK_CASE(three_hosts_of_one_rank)
{
    run_grid(three_alone, 3);
}

CHECK_CASE(two_hosts_of_two_ranks)
{
    run_grid(two_pairs, 4);
}

/* Where all arrays are plain, the blocks are sent and folded as they are. */
static void
run_partly_empty(int rank, int size, void *context)
{
    size_t counts[DL_RANKS_LIMIT];

    for (int first = 0; first < 2; first++) {
        for (int i = 0; i < size; i++) {
            counts[i] = i % 2 == first ? ((world *)context)->count : 0;
        }
        reduce_scatter(context, rank, counts);
    }
    test_all_reduce(context, rank);
}

CHECK_CASE(some_parts_of_a_reduce_scatter_are_empty)
{
    static const size_t counts[] = {0, 5, 100 * 1000};
    static world all = {.dtype = DL_FLOAT32, .is_plain = true};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        all.count = counts[i];
        for (int size = 2; size <= 5; size++) {
            world_run(eight_alone, size, run_partly_empty, &all);
        }
        world_run(two_pairs, 4, run_partly_empty, &all);
    }
}

static void
test_scan(world *all, int rank)
{
    dl_op_context op = next_op(all, rank, DL_SCAN);
    dl_call args = {.op = DL_SCAN, .reduction = DL_SUM};
    array data;

    array_init(&data, all->count, all->dtype, false);
    array_fill(&data, rank, 0);
    args.tensor = data.tensor;
    RUN(all, rank, op, dl_hosts_scan(&all->handles[rank], &op, &args));
    for (size_t i = 0; i < all->count; i++) {
        int sum = 0;
        for (int source = 0; source <= rank; source++) {
            sum += value_of(source, 0, i);
        }
        CHECK_EQUAL(array_get(&data, i), sum);
    }
    array_fini(&data);
}

/* In a large scan only leaders use their scratch memory. */
static void
run_scan_and_nothing(int rank, int size, void *context)
{
    static const size_t nothing[DL_RANKS_LIMIT];

    (void)size;
    test_scan(context, rank);
    reduce_scatter(context, rank, nothing);
    test_all_reduce(context, rank);
    test_scan(context, rank);
}

CHECK_CASE(an_empty_reduce_scatter_follows_a_large_scan)
{
    static world all = {.count = 20 * 1000};

    for (size_t i = 0; i < 2; i++) {
        all.dtype = i == 0 ? DL_FLOAT32 : DL_INT64;
        world_run(two_pairs, 4, run_scan_and_nothing, &all);
        world_run(uneven, 6, run_scan_and_nothing, &all);
    }
}

CHECK_CASE(hosts_whose_ranks_alternate)
{
    run_grid(mixed, 5);
}

CHECK_CASE(three_hosts_of_different_sizes)
{
    run_grid(uneven, 6);
}

CHECK_CASE(five_hosts_of_one_rank)
{
    run_grid(eight_alone, 5);
}

CHECK_CASE(seven_hosts_of_different_sizes)
{
    run_grid(seven_mixed, 10);
}

/* Returns what the rank has sent since the last call, without greetings. */
static int
count_sent(world *all, int rank)
{
    const dl_traffic *traffic = &all->traffics.traffics[rank];
    int before = all->sent[rank];

    all->sent[rank] = 0;
    for (int i = 0; i < traffic->used_count; i++) {
        const dl_queue *out = &traffic->routes[traffic->used[i]]->out;
        CHECK(out->end <= DL_ROUTE_QUEUE);
        for (uint64_t k = 0; k < out->end; k++) {
            all->sent[rank] += !out->cargos[k].is_greeting;
        }
    }
    return all->sent[rank] - before;
}

static int
rounds_of(int count)
{
    int rounds = 0;

    for (int reached = 1; reached < count; reached *= 2) {
        rounds++;
    }
    return rounds;
}

/* Returns the messages of a rank in a binomial tree that begins at `root`. */
static int
count_below(int rank, int size, int root)
{
    int place = (rank - root + size) % size;
    int count = 0;

    for (int bit = 1; bit < size && (place & bit) == 0; bit *= 2) {
        count += place + bit < size;
    }
    return count;
}

/* The head of a group sends to the heads in rounds, and to the others of its group; these
 * send to it.  Data from a root goes down a tree, data to it up through the heads.  Larger
 * arrays go through all leaders in rounds, twice where these reduce
 * them; small blocks too, and large ones to each other leader. */
static void
run_counted(int rank, int size, void *context)
{
    world *all = context;
    bool is_small = all->count < 5000;
    int group = all->handles[rank].group;
    int others = (size - rank < group ? size - rank : group) - 1;
    int whole = rank % group > 0 ? 1 : others + rounds_of((size + group - 1) / group);
    int shares = is_small ? whole : 2 * rounds_of(size);
    int blocks = is_small ? rounds_of(size) : size - 1;
    dl_op_context op = next_op(all, rank, DL_BARRIER);

    CHECK(whole <= 2 * rounds_of(size) + 3);
    RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
    CHECK_EQUAL(count_sent(all, rank), whole);
    test_broadcast(all, rank, size - 2);
    CHECK_EQUAL(count_sent(all, rank), count_below(rank, size, size - 2));
    test_all_reduce(all, rank);
    CHECK_EQUAL(count_sent(all, rank), shares);
    test_reduce(all, rank, size - 1);
    CHECK_EQUAL(count_sent(all, rank), is_small ? rank != size - 1 : shares);
    test_all_gather(all, rank);
    CHECK_EQUAL(count_sent(all, rank), blocks);
    test_reduce_scatter(all, rank);
    CHECK_EQUAL(count_sent(all, rank), blocks);
    /* Only from the second on do ranks know how large the blocks are. */
    test_all_to_all(all, rank);
    CHECK_EQUAL(count_sent(all, rank), size - 1);
    test_all_to_all(all, rank);
    CHECK_EQUAL(count_sent(all, rank), is_small ? rounds_of(size) : size - 1);
}

static void
count_messages(int size, size_t count)
{
    static world all = {.dtype = DL_FLOAT32};
    int hosts[DL_RANKS_LIMIT];

    for (int rank = 0; rank < size; rank++) {
        hosts[rank] = rank;
    }
    memset(all.sent, 0, sizeof all.sent);
    all.count = count;
    world_run(hosts, size, run_counted, &all);
}

CHECK_CASE(few_messages_between_many_hosts)
{
    count_messages(5, 100);
    count_messages(8, 5000);
    count_messages(13, 100);
    count_messages(13, 5000);
    count_messages(70, 100);
}

/* Larger blocks than in the operation before, in part or all of them, as large ones, and
 * smaller ones. */
static void
run_exchanges(int rank, int size, void *context)
{
    static const size_t counts[] = {5, 5, 30, 900, 900, 0, 1, 700, 3};
    world *all = context;

    (void)size;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        all->counts[rank] = counts[i];
        test_all_to_all(all, rank);
    }
}

/* Another rank may have said that its blocks are as large as none can be. */
static void
run_absurd_class(int rank, int size, void *context)
{
    world *all = context;

    (void)size;
    all->handles[rank].block_class = DL_NOTE_LIMIT;
    test_all_to_all(all, rank);
    test_all_to_all(all, rank);
}

CHECK_CASE(blocks_of_the_largest_class_go_directly)
{
    static world all = {.dtype = DL_INT64, .count = 3};

    world_run(eight_alone, 8, run_absurd_class, &all);
}

CHECK_CASE(blocks_of_any_size_pass_through_others)
{
    static world all = {.dtype = DL_INT64};

    world_run(eight_alone, 5, run_exchanges, &all);
    world_run(eight_alone, 8, run_exchanges, &all);
    world_run(seven_mixed, 10, run_exchanges, &all);
}

/* Rank 0 does nothing that another rank has to wait for before it has sent everything. */
static void
run_ahead(int rank, int size, void *context)
{
    world *all = context;
    dl_op_context op = next_op(all, rank, DL_BARRIER);

    (void)size;
    RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
    /* Connections need both sides. */
    test_broadcast(all, rank, 0);
    test_scatter(all, rank, 0);
    while (rank != 0 && !atomic_load(&all->is_ahead)) {
        (void)dl_sleep_until(dl_deadline_after(DL_MILLISECOND));
    }
    for (uint32_t i = 0; i < (DL_ROUTE_HISTORY - 4) / 2; i++) {
        test_broadcast(all, rank, 0);
        test_scatter(all, rank, 0);
    }
    atomic_store(&all->is_ahead, true);
    for (uint32_t i = 0; i < DL_ROUTE_HISTORY; i++) {
        test_reduce(all, rank, 1);
        test_broadcast(all, rank, (int)i % 2);
        test_gather(all, rank, 1);
    }
    op = next_op(all, rank, DL_BARRIER);
    RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
}

CHECK_CASE(a_root_runs_ahead)
{
    static world all = {.dtype = DL_FLOAT32, .count = 100};

    world_run(two_alone, 2, run_ahead, &all);
    atomic_store(&all.is_ahead, false);
    world_run(eight_alone, 6, run_ahead, &all);
    atomic_store(&all.is_ahead, false);
    world_run(uneven, 6, run_ahead, &all);
}

/* Another backend lets the ranks meet before it carries out a rooted operation itself. */
static void
meet_within_rooted(int rank, int size, void *context)
{
    world *all = context;
    static const dl_op_type types[] = {DL_BARRIER, DL_BROADCAST, DL_REDUCE, DL_GATHER,
                                       DL_SCATTER};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        dl_op_context op = next_op(all, rank, types[i]);
        if (rank == size - 1) {
            (void)dl_sleep_until(dl_deadline_after(5 * DL_MILLISECOND));
            atomic_store(&all->is_ahead, true);
        }
        RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
        CHECK(atomic_load(&all->is_ahead));
        op = next_op(all, rank, DL_BARRIER);
        RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
        if (rank == size - 1) {
            atomic_store(&all->is_ahead, false);
        }
        op = next_op(all, rank, DL_BARRIER);
        RUN(all, rank, op, dl_hosts_barrier(&all->handles[rank], &op));
    }
}

CHECK_CASE(barriers_within_rooted_operations_wait_for_all)
{
    static world all = {.dtype = DL_FLOAT32, .count = 1};

    world_run(two_alone, 2, meet_within_rooted, &all);
    world_run(eight_alone, 6, meet_within_rooted, &all);
    world_run(uneven, 6, meet_within_rooted, &all);
}

/* More pieces than a leader may be ahead, from one root and the next. */
static void
run_pieces(int rank, int size, void *context)
{
    test_broadcast(context, rank, 5);
    test_broadcast(context, rank, size - 1);
}

CHECK_CASE(large_broadcasts_go_down_a_tree)
{
    static world all = {.dtype = DL_FLOAT32, .count = 600 * 1000 + 7};
    int hosts[24];

    for (int rank = 0; rank < 24; rank++) {
        hosts[rank] = rank;
    }
    world_run(hosts, 24, run_pieces, &all);
    all.count = 70 * 1000;
    world_run(seven_mixed, 10, run_pieces, &all);
}

/* Several rounds between hosts, and several of the boards. */
static void
run_large(int rank, int size, void *context)
{
    (void)size;
    test_all_reduce(context, rank);
    test_reduce(context, rank, 1);
    test_broadcast(context, rank, 1);
    test_all_reduce(context, rank);
}

CHECK_CASE(large_arrays_go_in_rounds)
{
    static world all = {.dtype = DL_FLOAT32, .count = 400 * 1000 + 7};

    world_run(two_alone, 2, run_large, &all);
    world_run(three_alone, 3, run_large, &all);
    world_run(mixed, 5, run_large, &all);
}

CHECK_CASE(arrays_of_two_hosts_cross_whole)
{
    static world all = {.dtype = DL_FLOAT32, .count = 100 * 1000 + 7};

    world_run(two_alone, 2, run_large, &all);
    world_run(two_pairs, 4, run_large, &all);
    all.dtype = DL_FLOAT16;
    world_run(two_pairs, 4, run_large, &all);
}
