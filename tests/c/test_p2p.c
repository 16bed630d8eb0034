/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "groups.h"
#include "base/interrupt.h"
#include "pg/cpu/cpu_state.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/p2p/p2p_state.h"
#include "pg/group_state.h"
#include "tensor/strided.h"

#define LARGE ((size_t)300 * 1000) /* int64: several rings full */
#define SHORT (200 * DL_MILLISECOND)

typedef struct world {
    dl_store *store;
    atomic_int turn;
} world;

static void
world_run(int size, dl_rank_fn run)
{
    world all = {0};

    CHECK_OK(dl_hash_store_new(&all.store));
    dl_run_ranks(size, run, &all);
    dl_store_unref(all.store);
}

static dl_group *
join(void *context, int rank, int size)
{
    return join_group(((world *)context)->store, "g", rank, size);
}

/* Everybody is done before anybody leaves. */
static void
end(dl_group *group)
{
    CHECK_OK(dl_group_barrier(group, soon()));
    end_group(group);
}

static dl_call
message(int64_t *data, size_t count, int peer, int64_t tag)
{
    return (dl_call){
        .tensor = tensor_of(data, count, DL_INT64), .peer = peer, .tag = tag};
}

static dl_status
send_to(dl_group *group, int64_t value, int peer, int64_t tag)
{
    dl_call args = message(&value, 1, peer, tag);

    return exchange_as(group, DL_SEND, &args, soon(), NULL);
}

static int64_t
receive(dl_group *group, int peer, int64_t tag, dl_message_end *end)
{
    int64_t value = -1;
    dl_call args = message(&value, 1, peer, tag);

    CHECK_OK(exchange_as(group, peer < 0 ? DL_RECV_ANY : DL_RECV, &args, soon(), end));
    return value;
}

static dl_work *
post(dl_group *group, dl_op_type op, dl_call args)
{
    dl_work *work = NULL;

    CHECK_OK(post_as(group, op, &args, soon(), &work));
    return work;
}

static void
wait_and_drop(dl_work *work)
{
    CHECK_OK(dl_work_wait(work, soon()));
    CHECK_OK(dl_work_wait(work, soon()));
    dl_work_unref(work);
}

static void
ping_pong(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);

    for (int64_t i = 0; i < 2000; i++) {
        dl_message_end end = {.source = -1};
        if (rank == 0) {
            CHECK_OK(send_to(group, i, 1, 5));
            CHECK_EQUAL(receive(group, 1, 5, &end), i + 1);
            CHECK_EQUAL(end.source, 1);
        } else {
            int64_t got = receive(group, 0, 5, &end);
            CHECK_EQUAL(got, i);
            CHECK_OK(send_to(group, got + 1, 0, 5));
        }
    }
    end(group);
}

CHECK_CASE(messages_go_to_and_fro)
{
    world_run(2, ping_pong);
}

static void
order(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    enum { COUNT = 200 };
    int64_t values[COUNT];
    dl_work *works[COUNT];

    if (rank == 0) {
        for (int i = 0; i < COUNT; i++) {
            values[i] = i;
            works[i] = post(group, DL_SEND, message(&values[i], 1, 1, i % 3));
        }
        for (int i = COUNT - 1; i >= 0; i--) {
            wait_and_drop(works[i]);
        }
    } else {
        for (int tag = 2; tag >= 0; tag--) {
            for (int i = tag; i < COUNT; i += 3) {
                CHECK_EQUAL(receive(group, tag == 1 ? -1 : 0, tag, NULL), i);
            }
        }
    }
    end(group);
}

CHECK_CASE(messages_of_a_tag_keep_their_order)
{
    world_run(2, order);
}

static void
both_ways(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *out = malloc(LARGE * sizeof *out);
    int64_t *in = calloc(LARGE * (size_t)size, sizeof *in);
    dl_work *works[2 * DL_RANKS_LIMIT];
    int count = 0;

    for (size_t i = 0; i < LARGE; i++) {
        out[i] = (int64_t)i * (rank + 3);
    }
    for (int peer = 0; peer < size; peer++) {
        if (peer != rank) {
            works[count++] = post(group, DL_SEND, message(out, LARGE, peer, 1));
            works[count++] = post(group, DL_RECV,
                                  message(in + LARGE * (size_t)peer, LARGE, peer, 1));
        }
    }
    /* A small one overtakes, with another tag. */
    dl_work *small = post(group, DL_SEND, message(out + 1, 1, (rank + 1) % size, 2));
    CHECK_EQUAL(receive(group, -1, 2, NULL), 3 + (rank + size - 1) % size);
    wait_and_drop(small);
    while (count > 0) {
        wait_and_drop(works[--count]);
    }
    for (int peer = 0; peer < size; peer++) {
        for (size_t i = 0; i < LARGE && peer != rank; i++) {
            CHECK_EQUAL(in[LARGE * (size_t)peer + i], (int64_t)i * (peer + 3));
        }
    }
    free(in);
    free(out);
    end(group);
}

CHECK_CASE(large_messages_cross)
{
    world_run(2, both_ways);
}

CHECK_CASE(large_messages_cross_between_three)
{
    world_run(3, both_ways);
}

/* No rank waits for the messages: the ranks meet in a barrier instead. */
static void
unattended(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(LARGE, sizeof *data);

    data[LARGE - 1] = 7 * (1 - rank);
    if (rank == 0) {
        dl_call args = message(data, LARGE, 1, 0);
        CHECK_OK(exchange_as(group, DL_SEND, &args, soon(), NULL));
        CHECK_OK(dl_group_barrier(group, soon()));
    } else {
        dl_work *work = post(group, DL_RECV, message(data, LARGE, 0, 0));
        CHECK_OK(dl_group_barrier(group, soon()));
        wait_and_drop(work);
        CHECK_EQUAL(data[LARGE - 1], 7);
    }
    free(data);
    end(group);
}

CHECK_CASE(messages_move_without_a_waiter)
{
    world_run(2, unattended);
}

static void
strides(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t grid[100][50];
    int64_t shape[2] = {50, 100};
    int64_t steps[2] = {8, 50 * 8};
    dl_call args = message(grid[0], 5000, 1 - rank, 0);

    memset(grid, 0, sizeof grid);
    args.tensor.ndim = 2;
    for (int i = 0; i < 5000 && rank == 0; i++) {
        grid[i % 100][i / 100] = i;
    }
    if (rank == 0) { /* transposed here, in a row there */
        args.tensor.is_contiguous = false;
        args.tensor.shape = shape;
        args.tensor.strides = steps;
        dl_work *work = post(group, DL_SEND, args);
        memset(shape, 0, sizeof shape);
        wait_and_drop(work);
    } else {
        CHECK_OK(exchange_as(group, DL_RECV, &args, soon(), NULL));
        for (int i = 0; i < 5000; i++) {
            CHECK_EQUAL((&grid[0][0])[i], i);
        }
    }
    end(group);
}

CHECK_CASE(arrays_may_have_strides)
{
    world_run(2, strides);
}

static void
check_text(const char *const *texts)
{
    for (; *texts != NULL; texts++) {
        CHECK(strstr(dl_last_error()->text, *texts) != NULL);
    }
}

/* One rank sends what the other has no room for, or another dtype.  A small send has
 * ended before: only the receive fails. */
static void
misfit(dl_group *group, int rank, const dl_call *args, const char *const *texts)
{
    dl_op_type op = rank == 0 ? DL_SEND : DL_RECV;
    bool is_small = dl_tensor_size(&args->tensor) < 1000;
    dl_status status = exchange_as(group, op, args, soon(), NULL);

    if (rank == 0 && is_small) {
        CHECK_OK(status);
        return;
    }
    CHECK_STATUS(status, DL_MISMATCH);
    check_text(texts);
    CHECK(
        strstr(dl_last_error()->text, rank == 0 ? "send to rank 1" : "recv from rank 0")
        != NULL);
}

static void
misfits(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(LARGE, sizeof *data);
    size_t counts[] = {4, LARGE};
    const char *const sizes[][3] = {{"of 32 bytes", "the 24 bytes"},
                                    {"of 2400000 bytes", "the 24 bytes"}};
    const char *const dtypes[] = {"dtype float64", "expects int64", NULL};

    for (int i = 0; i < 2; i++) {
        dl_call args = message(data, rank == 0 ? counts[i] : 3, 1 - rank, 0);
        misfit(group, rank, &args, sizes[i]);
        args = message(data, 3, 1 - rank, 1);
        args.tensor.dtype = rank == 0 ? DL_FLOAT64 : DL_INT64;
        misfit(group, rank, &args, dtypes);
    }
    /* Shorter ones fit, and nothing else is broken. */
    dl_call args = message(data, rank == 0 ? 2 : 3, 1 - rank, 0);
    data[0] = data[1] = data[2] = rank + 1;
    CHECK_OK(exchange_as(group, rank == 0 ? DL_SEND : DL_RECV, &args, soon(), NULL));
    CHECK(data[0] == 1 && data[1] == 1 && data[2] == rank + 1);
    args = message(data, 0, 1 - rank, 0);
    CHECK_OK(exchange_as(group, rank == 0 ? DL_SEND : DL_RECV, &args, soon(), NULL));
    free(data);
    end(group);
}

CHECK_CASE(a_message_that_does_not_fit_fails_alone)
{
    world_run(2, misfits);
}

/* A send that has ended is not undone by a receive that does not take its message, and
 * a message in parts leaves nothing behind in either rank. */
static void
refused_late(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(20000, sizeof *data);

    for (int i = 0; i < 200; i++) {
        size_t count = i % 2 == 0 ? 2 : 20000;
        if (rank == 0) {
            dl_call args = message(data, count, 1, 3);
            CHECK_OK(exchange_as(group, DL_SEND, &args, soon(), NULL));
            CHECK_OK(send_to(group, i, 1, 3));
        } else {
            dl_call args = message(data, 1, 0, 3);
            CHECK_STATUS(exchange_as(group, DL_RECV, &args, soon(), NULL), DL_MISMATCH);
            CHECK_EQUAL(receive(group, 0, 3, NULL), i);
        }
        /* The receiver keeps up, so that all sends end before they are received. */
        CHECK_OK(dl_group_barrier(group, soon()));
    }
    CHECK_OK(dl_group_verify_calls(group, soon()));
    free(data);
    end(group);
}

CHECK_CASE(a_receive_that_does_not_take_a_message_fails_alone)
{
    world_run(2, refused_late);
}

/* Sizes around what a cell, a frame, the window and the ring hold. */
static const size_t stages[] = {0,    1,     3,     4,     100,    4095,
                                4097, 32767, 32769, 40000, 200000, LARGE};
enum { STAGES = sizeof stages / sizeof *stages };

static void
unexpected(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(LARGE, sizeof *data);
    dl_work *works[STAGES];

    if (rank == 0) {
        for (size_t i = 0; i < LARGE; i++) {
            data[i] = (int64_t)i;
        }
        for (int i = 0; i < STAGES; i++) {
            works[i] = post(group, DL_SEND, message(data, stages[i], 1, i));
        }
        CHECK_OK(send_to(group, 5, 1, STAGES));
        while (!dl_work_is_done(works[4])) {
            sched_yield();
        }
        for (int i = 0; i < STAGES; i++) {
            wait_and_drop(works[i]);
        }
    } else {
        /* All of them have arrived, as far as they come, when the last one has. */
        CHECK_EQUAL(receive(group, 0, STAGES, NULL), 5);
        for (int i = STAGES - 1; i >= 0; i--) {
            dl_call args = message(data, LARGE, 0, i);
            memset(data, 0xff, LARGE * sizeof *data);
            CHECK_OK(exchange_as(group, DL_RECV, &args, soon(), NULL));
            for (size_t k = 0; k < LARGE; k++) {
                CHECK_EQUAL(data[k], k < stages[i] ? (int64_t)k : -1);
            }
        }
    }
    free(data);
    end(group);
}

CHECK_CASE(messages_of_all_sizes_wait_for_their_receives)
{
    world_run(2, unexpected);
}

#define CROWD 3000

/* A receiver that wants something else keeps so much and no more: then sends wait. */
static void
crowd_in(dl_group *group, int rank, const char *why)
{
    int64_t data[128] = {0};
    dl_call args = message(data, 128, 1 - rank, 1);

    if (rank == 0) {
        dl_call lost = args;
        int sent = 0;
        while (exchange_as(group, DL_SEND, &lost, dl_deadline_after(SHORT), NULL)
               == DL_OK) {
            data[0] = ++sent;
            CHECK(sent < CROWD);
        }
        CHECK_STATUS(dl_last_error()->status, DL_TIMEOUT);
        CHECK(strstr(dl_last_error()->text, why) != NULL);
        CHECK_OK(dl_group_barrier(group, soon()));
        data[0] = sent;
        CHECK_OK(send_to(group, sent, 1, 3));
        CHECK_OK(exchange_as(group, DL_SEND, &args, soon(), NULL));
    } else {
        CHECK_OK(dl_group_barrier(group, soon()));
        int64_t sent = receive(group, 0, 3, NULL);
        /* Each that was sent comes once, in order, and the one that was given up never. */
        for (int64_t i = 0; i <= sent; i++) {
            dl_call next = message(data, 128, 0, 1);
            CHECK_OK(exchange_as(group, DL_RECV, &next, soon(), NULL));
            CHECK_EQUAL(data[0], i);
        }
        dl_call next = message(data, 128, 0, 1);
        CHECK_STATUS(exchange_as(group, DL_RECV, &next, dl_deadline_after(SHORT), NULL),
                     DL_TIMEOUT);
    }
    /* Now that nothing is kept, nothing waits: the first send is accepted, and says so. */
    for (int64_t i = 0; i < 100; i++) {
        if (rank == 0) {
            CHECK_OK(send_to(group, i, 1, 7));
        } else {
            CHECK_EQUAL(receive(group, 0, 7, NULL), i);
        }
    }
    CHECK_OK(dl_group_barrier(group, soon()));
    for (int64_t i = 0; i < 100; i++) {
        if (rank == 0) {
            CHECK_OK(send_to(group, i, 1, 7));
        }
    }
    CHECK_OK(dl_group_barrier(group, soon()));
    for (int64_t i = 0; i < 100 && rank == 1; i++) {
        CHECK_EQUAL(receive(group, 0, 7, NULL), i);
    }
}

static void
crowd(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);

    crowd_in(group, rank, "no matching receive was called");
    end(group);
}

static void
crowd_apart(int rank, const rank_processes *all, void *context)
{
    (void)context;
    setenv(DL_HOST_HINT_VARIABLE, rank == 0 ? "a" : "b", 1);
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "g", rank, all->size);

    /* The kernel's buffers may be full before the receiver's limit is reached. */
    crowd_in(group, rank, "receive");
    end(group);
    dl_store_unref(store);
}

CHECK_CASE(a_receiver_keeps_a_limited_number_of_bytes)
{
    world_run(2, crowd);
}

CHECK_CASE(a_receiver_on_another_host_keeps_a_limited_number_of_bytes)
{
    rank_processes all;

    start_processes(&all, 2, crowd_apart, NULL);
    join_processes(&all, 0);
}

/* Of two messages that a rank exchanges, the first is refused; the second never comes. */
static void
half_exchange(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(LARGE, sizeof *data);

    if (rank == 0) {
        dl_call calls[] = {message(data, LARGE, 1, 2), message(data, 1, 1, 1)};
        dl_message_end ends[2];
        calls[0].op = DL_SEND;
        calls[1].op = DL_RECV;
        CHECK_STATUS(dl_group_exchange_all(group, calls, 2, soon(), ends), DL_MISMATCH);
        CHECK(strstr(dl_last_error()->text, "send to rank 1 (") != NULL);
    } else {
        dl_call args = message(data, 1, 0, 2);
        CHECK_STATUS(exchange_as(group, DL_RECV, &args, soon(), NULL), DL_MISMATCH);
    }
    free(data);
    end(group);
}

CHECK_CASE(an_exchange_ends_when_one_of_its_messages_has_failed)
{
    world_run(2, half_exchange);
}

/* Messages of one part and of several, in both directions at once and there and back. */
static void
exchange_parts(int rank, int size, void *context)
{
    static const size_t counts[] = {1000, 1024, 1025, 2048, 3000, 8000, 32768, 32769};
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(2 * LARGE, sizeof *data);

    for (int64_t i = 0; i < 400; i++) {
        size_t count = counts[i % 8];
        dl_call calls[] = {message(data, count, 1 - rank, 1),
                           message(data + LARGE, count, 1 - rank, 1)};
        dl_message_end ends[2];
        for (size_t at = 0; at < count; at++) {
            data[at] = 1000 * i + (int64_t)at + rank;
        }
        if (i % 2 == 0) {
            calls[0].op = DL_SEND;
            calls[1].op = DL_RECV;
            CHECK_OK(dl_group_exchange_all(group, calls, 2, soon(), ends));
        } else {
            CHECK_OK(exchange_as(group, rank == 0 ? DL_SEND : DL_RECV, &calls[rank],
                                 soon(), NULL));
            CHECK_OK(exchange_as(group, rank == 0 ? DL_RECV : DL_SEND, &calls[1 - rank],
                                 soon(), NULL));
        }
        for (size_t at = 0; at < count; at++) {
            CHECK_EQUAL(data[LARGE + at], 1000 * i + (int64_t)at + 1 - rank);
        }
    }
    free(data);
    end(group);
}

CHECK_CASE(parts_of_messages_arrive_in_order)
{
    world_run(2, exchange_parts);
}

#define TOGETHER 20

/* Each rank posts all its messages in one call, small and large ones in turn, and
 * receives each in its own array.  Only of those that end at once the work is left
 * out. */
static void
post_together(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(2 * TOGETHER * LARGE, sizeof *data);
    dl_call calls[2 * TOGETHER];
    dl_work *works[2 * TOGETHER];

    for (int i = 0; i < 2 * TOGETHER; i++) {
        bool is_send = i >= TOGETHER;
        size_t count = i % 2 == 0 ? 1 : LARGE;
        int64_t *array = data + (size_t)i * LARGE;
        calls[i] = message(array, count, 1 - rank, i % TOGETHER);
        calls[i].op = is_send ? DL_SEND : DL_RECV;
        calls[i].is_work_optional = true;
        array[0] = array[count - 1] = is_send ? 100 * rank + i : -1;
    }
    CHECK_OK(dl_group_post_all(group, calls, 2 * TOGETHER, soon(), works));
    /* The first send is small; later ones may wait for room behind large ones. */
    CHECK(works[TOGETHER] == NULL);
    for (int i = 0; i < 2 * TOGETHER; i++) {
        if (works[i] != NULL) {
            wait_and_drop(works[i]);
        }
    }
    for (int i = 0; i < TOGETHER; i++) {
        size_t count = i % 2 == 0 ? 1 : LARGE;
        CHECK_EQUAL(data[(size_t)i * LARGE], 100 * (1 - rank) + TOGETHER + i);
        CHECK_EQUAL(data[(size_t)i * LARGE + count - 1],
                    100 * (1 - rank) + TOGETHER + i);
    }
    free(data);
    end(group);
}

CHECK_CASE(messages_that_are_posted_together_arrive_apart)
{
    world_run(2, post_together);
}

/* Rank 0 waits for messages, and rank 1 looks whether it says on which core. */
static void
show_core(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    const dl_cpu_backend *backend = (dl_cpu_backend *)(void *)group->host.backend;
    const dl_board *board = &backend->board;
    bool is_shown = board->waiter.spin == 0; /* it is not used without free cores */

    do {
        for (int i = 0; rank == 1 && i < 100000 && !is_shown; i++) {
            is_shown = atomic_load(&board->members[0].core_mark) != 0;
        }
        if (rank == 1) {
            CHECK_OK(send_to(group, is_shown, 0, 1));
        } else {
            is_shown = receive(group, 1, 1, NULL) != 0;
        }
    } while (!is_shown);
    end(group);
}

CHECK_CASE(who_waits_for_a_message_shows_on_which_core)
{
    world_run(2, show_core);
}

/* One message of several is refused: none of them is sent. */
static void
post_none(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t data[2] = {1, 2};
    dl_call calls[] = {message(&data[0], 1, 1 - rank, 0),
                       message(&data[1], 1, size, 0)};
    dl_work *works[2];

    calls[0].op = calls[1].op = DL_SEND;
    CHECK_STATUS(dl_group_post_all(group, calls, 2, soon(), works), DL_INVALID);
    CHECK(works[0] == NULL && works[1] == NULL);
    CHECK_OK(send_to(group, 10 + rank, 1 - rank, 0));
    CHECK_EQUAL(receive(group, 1 - rank, 0, NULL), 11 - rank);
    end(group);
}

CHECK_CASE(of_messages_that_are_posted_together_all_begin_or_none)
{
    world_run(2, post_none);
}

static void
wrong_calls(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);

    CHECK_EQUAL(send_to(group, 1, rank, 0), DL_INVALID);
    CHECK(strstr(dl_last_error()->text, "Invalid destination rank") != NULL);
    CHECK_EQUAL(send_to(group, 1, size, 0), DL_INVALID);
    CHECK_EQUAL(send_to(group, 1, -1, 0), DL_INVALID);
    end(group);
}

CHECK_CASE(wrong_peers_are_refused_at_once)
{
    world_run(2, wrong_calls);
}

static void
late(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t *data = calloc(LARGE, sizeof *data);

    for (int i = 0; i < 2; i++) {
        dl_call args = message(data, LARGE, 1 - rank, 9);
        dl_op_type op = rank == 0 ? DL_SEND : DL_RECV;
        CHECK_OK(dl_group_barrier(group, soon()));
        if (rank == i) {
            CHECK_EQUAL(exchange_as(group, op, &args, dl_deadline_after(SHORT), NULL),
                        DL_TIMEOUT);
            CHECK(strstr(dl_last_error()->text, "with tag 9 in group g timed out after "
                                                "200ms")
                  != NULL);
        }
        CHECK_OK(dl_group_barrier(group, soon()));
        /* What was given up is not received, and does not receive. */
        if (rank == 0) {
            CHECK_OK(send_to(group, 5, 1, 9));
        } else {
            CHECK_EQUAL(receive(group, 0, 9, NULL), 5);
        }
    }
    free(data);
    end(group);
}

CHECK_CASE(a_timeout_ends_one_message_only)
{
    world_run(2, late);
}

static void
leave_early(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);

    if (rank == 0) {
        int64_t value = 0;
        dl_call args = message(&value, 1, 1, 3);
        dl_status status = exchange_as(group, DL_RECV, &args, soon(), NULL);
        CHECK_OK(status);
        CHECK_EQUAL(value, 8);
        CHECK_EQUAL(exchange_as(group, DL_RECV, &args, soon(), NULL), DL_PEER_LOST);
        CHECK(strstr(dl_last_error()->text, "left the group") != NULL);
        CHECK_EQUAL(exchange_as(group, DL_SEND, &args, soon(), NULL), DL_PEER_LOST);
        args.peer = DL_ANY_RANK;
        CHECK_EQUAL(exchange_as(group, DL_RECV_ANY, &args, soon(), NULL), DL_PEER_LOST);
    } else {
        CHECK_OK(send_to(group, 8, 0, 3));
    }
    end_group(group);
}

CHECK_CASE(messages_sent_before_leaving_count)
{
    world_run(2, leave_early);
}

typedef struct closer {
    dl_group *group;
    bool is_abort;
} closer;

static void *
close_soon(void *argument)
{
    closer *self = argument;

    usleep(20 * 1000);
    if (self->is_abort) {
        dl_group_abort(self->group, "enough");
    } else {
        dl_group_close(self->group);
    }
    return NULL;
}

static void
freed(int rank, int size, void *context, bool is_abort)
{
    dl_group *group = join(context, rank, size);
    int64_t values[2] = {0};
    closer self = {group, is_abort};
    dl_call args = message(values, 1, DL_ANY_RANK, 0);
    dl_work *work = post(group, DL_RECV, message(values + 1, 1, 1 - rank, 0));
    pthread_t thread;

    CHECK_OK(dl_group_barrier(group, soon()));
    CHECK(pthread_create(&thread, NULL, close_soon, &self) == 0);
    CHECK(exchange_as(group, DL_RECV_ANY, &args, soon(), NULL) != DL_OK);
    CHECK(dl_work_wait(work, soon()) != DL_OK);
    CHECK(dl_last_error()->status != DL_TIMEOUT);
    pthread_join(thread, NULL);
    end_group(group);
    CHECK(dl_work_wait(work, soon()) != DL_OK);
    dl_work_unref(work);
}

static void
freed_by_abort(int rank, int size, void *context)
{
    freed(rank, size, context, true);
}

static void
freed_by_close(int rank, int size, void *context)
{
    freed(rank, size, context, false);
}

CHECK_CASE(abort_ends_all_waits)
{
    world_run(2, freed_by_abort);
}

CHECK_CASE(close_ends_all_waits)
{
    world_run(2, freed_by_close);
}

static void
drop_served(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    int64_t values[2] = {rank, -1};

    dl_work_unref(post(group, DL_SEND, message(values, 1, 1 - rank, 0)));
    dl_work *kept = post(group, DL_RECV, message(values + 1, 1, 1 - rank, 0));
    wait_and_drop(kept);
    CHECK_EQUAL(values[1], 1 - rank);
    end(group);
}

CHECK_CASE(a_dropped_work_goes_on)
{
    world_run(2, drop_served);
}

static void
probe_first(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);
    dl_probed found;
    bool is_found = true;

    if (rank == 0) {
        CHECK_OK(dl_group_probe(group, 1, 9, false, soon(), &found, &is_found));
        CHECK(!is_found);
        CHECK_STATUS(dl_group_probe(group, 1, 9, true, dl_deadline_after(SHORT), &found,
                                    &is_found),
                     DL_TIMEOUT);
        CHECK_STATUS(dl_group_probe(group, 1, -2, true, soon(), &found, &is_found),
                     DL_INVALID);
        CHECK_OK(send_to(group, 0, 1, 1));
        for (int64_t i = 0; i < 500; i++) {
            CHECK_OK(dl_group_probe(group, i % 2 ? 1 : DL_ANY_RANK, DL_ANY_TAG, true,
                                    soon(), &found, &is_found));
            CHECK(is_found);
            CHECK_EQUAL(found.source, 1);
            CHECK_EQUAL(found.tag, i);
            CHECK_EQUAL(found.size, sizeof(int64_t));
            CHECK_EQUAL(found.dtype, DL_INT64);
            CHECK_EQUAL(receive(group, found.source, found.tag, NULL), i);
        }
    } else {
        CHECK_EQUAL(receive(group, 0, 1, NULL), 0);
        for (int64_t i = 0; i < 500; i++) {
            CHECK_OK(send_to(group, i, 0, i));
        }
    }
    end(group);
}

CHECK_CASE(probes_leave_messages_where_they_are)
{
    world_run(2, probe_first);
}

static void
threads_receive(int rank, int size, void *context)
{
    dl_group *group = join(context, rank, size);

    if (rank < 2) {
        for (int64_t i = 0; i < 300; i++) {
            CHECK_OK(send_to(group, i, 2, rank));
        }
    } else {
        int64_t sums[2] = {0};
        for (int i = 0; i < 600; i++) {
            dl_message_end end;
            int64_t value = receive(group, i % 2 == 0 ? -1 : 1, i % 2, &end);
            CHECK_EQUAL(end.source, i % 2);
            CHECK_EQUAL(value, i / 2);
            sums[end.source] += value;
        }
        CHECK(sums[0] == sums[1]);
    }
    end(group);
}

CHECK_CASE(two_send_to_one)
{
    world_run(3, threads_receive);
}

/* Sends the first of four parts of a message that is sent at once. */
static void
send_first_part(dl_group *group, const dl_call *args)
{
    dl_p2p *engine = dl_cpu_self(group->host.backend)->p2p;
    dl_ring_channel *rings = &engine->peers[args->peer].rings;
    dl_frame frame = {.id = 1,
                      .tag = args->tag,
                      .total = dl_tensor_size(&args->tensor),
                      .size = (uint16_t)(dl_tensor_size(&args->tensor) / 4),
                      .kind = DL_FRAME_EAGER,
                      .dtype = DL_INT64};

    memcpy(dl_ring_reserve(&rings->out, frame.size), args->tensor.data, frame.size);
    dl_ring_publish(&rings->out, &frame);
}

/* Sends a message, or only a part of one that `context` has the size of, and dies. */
static void
die(int rank, const rank_processes *all, void *context)
{
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "g", rank, all->size);
    size_t count = context == NULL ? LARGE : *(size_t *)context;
    int64_t *data = calloc(count, sizeof *data);
    dl_call args = message(data, count, 1 - rank, 0);

    if (rank == 1 && context != NULL) {
        send_first_part(group, &args);
        kill(getpid(), SIGKILL);
    } else if (rank == 1) {
        dl_work_unref(post(group, DL_SEND, args));
        kill(getpid(), SIGKILL);
    }
    int64_t began = dl_now();
    dl_status status = exchange_as(group, DL_RECV, &args, soon(), NULL);
    if (status == DL_OK) { /* the whole message was there before the death */
        status = exchange_as(group, DL_RECV, &args, soon(), NULL);
    }
    CHECK(status == DL_PEER_LOST);
    CHECK(dl_now() - began < DL_SECOND + CHECK_SLACK);
    CHECK(strstr(dl_last_error()->text, "rank 1 (pid ") != NULL);
    CHECK(strstr(dl_last_error()->text, "exited or was killed") != NULL);
    end_group(group);
    dl_store_unref(store);
    free(data);
}

CHECK_CASE(the_death_of_a_sender_is_reported)
{
    rank_processes all;

    start_processes(&all, 2, die, NULL);
    join_processes(&all, 1u << 1);
}

CHECK_CASE(the_death_of_a_sender_between_parts_is_reported)
{
    rank_processes all;
    size_t count = 4096;

    start_processes(&all, 2, die, &count);
    join_processes(&all, 1u << 1);
}

#define HUGE ((size_t)1 << 20) /* items: 8 MiB, more than a connection's buffers hold */
#define COLUMNS 4096

static dl_call
huge_message(int64_t *data, int peer)
{
    return (dl_call){.tensor = tensor_of(data, HUGE, DL_INT64), .peer = peer};
}

/* So slow a receiver that the connection is full when the last bytes are sent. */
static dl_status
receive_by_columns(dl_group *group, int64_t *data)
{
    int64_t shape[] = {COLUMNS, (int64_t)HUGE / COLUMNS};
    int64_t strides[] = {sizeof *data, COLUMNS * sizeof *data};
    dl_call args = huge_message(data, 0);

    args.tensor.shape = shape;
    args.tensor.strides = strides;
    args.tensor.ndim = 2;
    args.tensor.is_contiguous = false;
    return exchange_as(group, DL_RECV, &args, soon(), NULL);
}

/* Between two hosts. */
static void
send_huge(dl_group *group, int rank)
{
    int64_t *data = calloc(HUGE, sizeof *data);

    if (rank == 0) {
        data[HUGE - 1] = 7;
        dl_call args = huge_message(data, 1);
        CHECK_OK(exchange_as(group, DL_SEND, &args, soon(), NULL));
    } else {
        CHECK_OK(receive_by_columns(group, data));
        CHECK_EQUAL(data[HUGE - 1], 7);
    }
    free(data);
}

static void
send_and_meet(int rank, const rank_processes *all, void *context)
{
    (void)context;
    setenv(DL_HOST_HINT_VARIABLE, rank == 0 ? "a" : "b", 1);
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "g", rank, all->size);

    /* Each time the last bytes may find room at once. */
    for (int i = 0; i < 20; i++) {
        send_huge(group, rank);
        CHECK_OK(dl_group_barrier(group, soon()));
    }
    end_group(group);
    dl_store_unref(store);
}

CHECK_CASE(a_message_arrives_while_its_sender_waits_elsewhere)
{
    rank_processes all;

    start_processes(&all, 2, send_and_meet, NULL);
    join_processes(&all, 0);
}

static void
send_and_leave(int rank, const rank_processes *all, void *context)
{
    (void)context;
    setenv(DL_HOST_HINT_VARIABLE, rank == 0 ? "a" : "b", 1);
    dl_store *store = open_file_store(all);

    for (int i = 0; i < 8; i++) {
        char name[] = {'g', (char)('0' + i), '\0'};
        dl_group *group = join_group(store, name, rank, all->size);
        send_huge(group, rank);
        end_group(group);
    }
    dl_store_unref(store);
}

CHECK_CASE(a_message_arrives_though_its_sender_has_left)
{
    rank_processes all;

    start_processes(&all, 2, send_and_leave, NULL);
    join_processes(&all, 0);
}

#define UNTAKEN 8 /* messages of HUGE items */

/* What two processes share. */
typedef struct slow_peer {
    _Atomic pid_t pid;
    int checks;
} slow_peer;

static slow_peer *slow;
static const int64_t *first_received; /* in the process that receives */

static void
post_all(dl_group *group, dl_op_type op, int64_t *data, dl_work *works[UNTAKEN])
{
    for (int i = 0; i < UNTAKEN; i++) {
        dl_call call = huge_message(data, op == DL_RECV ? 0 : 1);
        call.op = op;
        CHECK_OK(dl_group_post(group, &call, soon(), &works[i]));
    }
}

static void
end_all(dl_work *works[UNTAKEN])
{
    for (int i = 0; i < UNTAKEN; i++) {
        CHECK_OK(dl_work_wait(works[i], soon()));
        dl_work_unref(works[i]);
    }
}

typedef ssize_t (*recvmsg_fn)(int, struct msghdr *, int);

/* Stops the process once, before it takes more of what it has begun to receive, whichever
 * thread does that. */
ssize_t
recvmsg(int fd, struct msghdr *message, int flags)
{
    recvmsg_fn real;
    pid_t none = 0;

    *(void **)&real = dlsym(RTLD_NEXT, "recvmsg");
    if (first_received != NULL && *first_received != 0
        && atomic_compare_exchange_strong(&slow->pid, &none, getpid())) {
        raise(SIGSTOP);
    }
    return real(fd, message, flags);
}

/* As Ctrl-C, which reaches the main thread only. */
static dl_status
interrupt_at_once(void)
{
    bool is_main = gettid() == getpid();

    slow->checks += is_main;
    return is_main ? DL_INTERRUPTED : DL_OK;
}

static void
finish_beside_a_stopped_peer(dl_group *group, int64_t *data)
{
    dl_work *works[UNTAKEN];
    dl_deadline limit = soon();

    data[0] = 7;
    post_all(group, DL_SEND, data, works);
    while (atomic_load(&slow->pid) == 0 || !is_stopped(slow->pid)) {
        CHECK(!dl_deadline_passed(limit));
        usleep(1000);
    }
    dl_interrupt_install(interrupt_at_once);
    CHECK_OK(dl_group_finish(group, dl_deadline_after(0)));
    CHECK_EQUAL(slow->checks, 0);
    CHECK_EQUAL(dl_group_finish(group, soon()), DL_INTERRUPTED);
    CHECK_EQUAL(slow->checks, 1);
    dl_interrupt_install(NULL);
    kill(slow->pid, SIGCONT);
    end_all(works);
}

static void
send_to_a_stopped_peer(int rank, const rank_processes *all, void *context)
{
    dl_work *works[UNTAKEN];

    (void)context;
    setenv(DL_HOST_HINT_VARIABLE, rank == 0 ? "a" : "b", 1);
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "g", rank, all->size);
    int64_t *data = calloc(HUGE, sizeof *data);

    if (rank == 0) {
        finish_beside_a_stopped_peer(group, data);
    } else {
        first_received = data;
        post_all(group, DL_RECV, data, works);
        end_all(works);
    }
    end_group(group);
    dl_store_unref(store);
    free(data);
}

CHECK_CASE(an_interrupt_or_the_deadline_ends_the_wait_for_a_peer_that_takes_nothing)
{
    rank_processes all;

    slow = mmap(NULL, sizeof *slow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    CHECK(slow != MAP_FAILED);
    start_processes(&all, 2, send_to_a_stopped_peer, NULL);
    join_processes(&all, 0);
}

static void
come_and_go(int rank, const rank_processes *all, void *context)
{
    (void)context;
    setenv(DL_HOST_HINT_VARIABLE, rank == 0 ? "a" : "b", 1);
    dl_store *store = open_file_store(all);

    end_group(join_group(store, "g", rank, all->size));
    dl_store_unref(store);
}

/* Whose places there this rank's own board does not have. */
CHECK_CASE(a_leaving_rank_need_not_have_met_a_larger_host)
{
    rank_processes all;

    start_processes(&all, 9, come_and_go, NULL);
    join_processes(&all, 0);
}

/* A frame's size depends on the number of ranks on the sender's host, and so may be more
 * than those of the receiver's host send each other ahead. */
static void
send_to_a_larger_host(int rank, const rank_processes *all, void *context)
{
    enum { COUNT = 7000 };
    int64_t data[COUNT];

    (void)context;
    setenv(DL_HOST_HINT_VARIABLE, rank == 0 ? "a" : "b", 1);
    dl_store *store = open_file_store(all);
    dl_group *group = join_group(store, "g", rank, all->size);

    for (int i = 0; i < COUNT; i++) {
        data[i] = rank == 0 ? i : -1;
    }
    dl_call args = message(data, COUNT, 1 - rank, 1);
    if (rank == 0) {
        CHECK_OK(exchange_as(group, DL_SEND, &args, soon(), NULL));
        CHECK_OK(send_to(group, 5, 1, 2));
    } else if (rank == 1) {
        CHECK_EQUAL(receive(group, 0, 2, NULL), 5);
        CHECK_OK(exchange_as(group, DL_RECV, &args, soon(), NULL));
        CHECK(data[0] == 0 && data[COUNT - 1] == COUNT - 1);
    }
    end(group);
    dl_store_unref(store);
}

CHECK_CASE(a_larger_host_keeps_the_messages_of_a_smaller_one)
{
    rank_processes all;

    start_processes(&all, 18, send_to_a_larger_host, NULL);
    join_processes(&all, 0);
}
