/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "pg/fingerprint.h"
#include "pg/record/wait_graph.h"

#define RANKS 4

/* The states of a job, each of which knows the group "0". */
typedef struct job {
    dl_wait_state states[RANKS];
    dl_wait_state *known[RANKS];
} job;

static job *
job_new(void)
{
    job *made = calloc(1, sizeof *made);

    for (int rank = 0; rank < RANKS; rank++) {
        dl_wait_state *state = &made->states[rank];
        *state = (dl_wait_state){.rank = rank, .group_count = 1};
        state->groups[0] = (dl_wait_group){.name = "0"};
        made->known[rank] = state;
    }
    return made;
}

static void
call(job *job, int rank, uint8_t op, int64_t sequence, int awaited)
{
    dl_wait_state *state = &job->states[rank];

    state->is_blocked = 1;
    state->doing = (dl_doing){.op = op, .sequence = sequence};
    state->awaited.count = 0;
    dl_awaited_add(&state->awaited, awaited);
}

static void
call_collective(job *job, int rank, int64_t sequence, int awaited)
{
    call(job, rank, DL_ALL_REDUCE, sequence, awaited);
    job->states[rank].groups[0].begun = (uint64_t)sequence;
}

static void
call_message(job *job, int rank, uint8_t op, int64_t tag, int peer)
{
    dl_wait_state *state = &job->states[rank];

    call(job, rank, op, tag, peer);
    state->messages[state->message_count++] =
        (dl_wait_message){.tag = tag, .peer = peer, .op = op};
}

static bool
find(const job *job, int rank, dl_wait_cycle *cycle)
{
    return dl_wait_cycle_find(job->known, RANKS, rank, cycle);
}

CHECK_CASE(a_collective_against_a_receive)
{
    job *job = job_new();
    dl_wait_cycle cycle;

    call_collective(job, 0, 3, 1);
    call_message(job, 1, DL_RECV, 0, 0);
    for (int rank = 0; rank < 2; rank++) {
        CHECK(find(job, rank, &cycle));
        CHECK_EQUAL(cycle.count, 2);
        CHECK_EQUAL(cycle.ranks[0], 0);
        CHECK_EQUAL(cycle.ranks[1], 1);
    }
    CHECK(!find(job, 2, &cycle));
    free(job);
}

CHECK_CASE(an_unknown_rank_counts_as_running)
{
    job *job = job_new();
    dl_wait_cycle cycle;

    call_collective(job, 0, 3, 1);
    call_message(job, 1, DL_RECV, 0, 0);
    job->known[1] = NULL;
    CHECK(!find(job, 0, &cycle));
    job->known[1] = &job->states[1];
    job->states[1].is_blocked = 0;
    CHECK(!find(job, 0, &cycle));
    free(job);
}

/* Rank 1 has left the collective, or is about to begin it. */
CHECK_CASE(a_rank_that_has_begun_is_not_waited_for)
{
    job *job = job_new();
    dl_wait_cycle cycle;

    call_collective(job, 0, 3, 1);
    call_message(job, 1, DL_RECV, 0, 0);
    job->states[1].groups[0].begun = 3;
    CHECK(!find(job, 0, &cycle));
    job->states[1].groups[0].begun = 2;
    job->states[1].groups[0].is_busy = 1;
    CHECK(!find(job, 0, &cycle));
    job->states[1].groups[0].is_busy = 0;
    CHECK(find(job, 0, &cycle));
    free(job);
}

/* Two ranks in one collective that move data to and fro are no cycle, but what one of them
 * waits for, the other does. */
CHECK_CASE(ranks_in_one_collective_are_looked_through)
{
    job *job = job_new();
    dl_wait_cycle cycle;

    call_collective(job, 0, 3, 1);
    call_collective(job, 1, 3, 0);
    CHECK(!find(job, 0, &cycle));
    dl_awaited_add(&job->states[1].awaited, 2);
    call_message(job, 2, DL_RECV, 0, 0);
    CHECK(find(job, 0, &cycle));
    CHECK_EQUAL(cycle.count, 2);
    CHECK_EQUAL(cycle.ranks[1], 2);
    CHECK(!find(job, 1, &cycle));
    free(job);
}

/* Rank 1 leads the host of ranks 2 and 3, which must arrive before it continues. */
CHECK_CASE(ranks_behind_one_that_is_awaited_count_until_they_have_begun)
{
    job *job = job_new();
    dl_wait_cycle cycle;

    call_collective(job, 0, 3, 1);
    dl_awaited_add_unless_begun(&job->states[0].awaited, 2);
    dl_awaited_add_unless_begun(&job->states[0].awaited, 3);
    job->known[1] = NULL;
    call_message(job, 2, DL_RECV, 0, 0);
    for (int rank = 0; rank < 3; rank += 2) {
        CHECK(find(job, rank, &cycle));
        CHECK_EQUAL(cycle.count, 2);
        CHECK_EQUAL(cycle.ranks[1], 2);
    }
    /* It has done its part, and waits elsewhere. */
    job->states[2].groups[0].begun = 3;
    CHECK(!find(job, 0, &cycle));
    CHECK(!find(job, 2, &cycle));
    /* What a rank that has come waits for does not matter to the first one. */
    call_collective(job, 2, 3, 3);
    call_message(job, 3, DL_RECV, 0, 0);
    job->states[0].awaited.count = 2;
    CHECK(!find(job, 0, &cycle));
    free(job);
}

CHECK_CASE(a_message_that_was_called_for_is_on_its_way)
{
    job *job = job_new();
    dl_wait_cycle cycle;
    dl_wait_message sent = {.tag = 5, .peer = 0, .op = DL_SEND};

    call_message(job, 0, DL_RECV, 5, 1);
    call_message(job, 1, DL_RECV, 6, 0);
    CHECK(find(job, 0, &cycle));
    job->states[1].messages[job->states[1].message_count++] = sent;
    CHECK(!find(job, 0, &cycle));
    /* Of another tag, or for another rank, it is of no use. */
    job->states[1].messages[1].tag = 7;
    CHECK(find(job, 0, &cycle));
    job->states[1].messages[1] = (dl_wait_message){.tag = 5, .peer = 2, .op = DL_SEND};
    CHECK(find(job, 0, &cycle));
    free(job);
}

CHECK_CASE(a_receive_from_any_rank_is_never_stuck)
{
    job *job = job_new();
    dl_wait_cycle cycle;

    call(job, 0, DL_RECV_ANY, 0, 1);
    call_message(job, 1, DL_RECV, 0, 0);
    CHECK(!find(job, 0, &cycle));
    CHECK(!find(job, 1, &cycle));
    job->states[0].doing.op = DL_RECV;
    CHECK(find(job, 0, &cycle));
    CHECK_EQUAL(cycle.count, 2);
    free(job);
}

CHECK_CASE(states_are_decoded_and_invalid_bytes_are_refused)
{
    job *job = job_new();
    dl_buffer bytes = {0};
    dl_wait_state *read = calloc(1, sizeof *read);

    call_message(job, 0, DL_RECV, 5, 1);
    job->states[0].id = 77;
    dl_wait_state_write(&job->states[0], &bytes);
    CHECK_OK(dl_buffer_check(&bytes));
    CHECK(dl_wait_state_read(dl_buffer_bytes(&bytes), read));
    CHECK_EQUAL(read->id, 77);
    CHECK_EQUAL(read->doing.sequence, 5);
    CHECK_EQUAL(read->messages[0].peer, 1);
    for (size_t size = 0; size < bytes.size; size++) {
        CHECK(!dl_wait_state_read((dl_bytes){bytes.data, size}, read));
    }
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        seed = seed * 1664525 + 1013904223;
        uint8_t kept = bytes.data[(seed >> 8) % bytes.size];
        bytes.data[(seed >> 8) % bytes.size] = (uint8_t)seed;
        if (dl_wait_state_read(dl_buffer_bytes(&bytes), read)) {
            dl_wait_cycle cycle;
            job->known[0] = read;
            (void)find(job, 0, &cycle);
        }
        bytes.data[(seed >> 8) % bytes.size] = kept;
    }
    dl_buffer_fini(&bytes);
    free(read);
    free(job);
}
