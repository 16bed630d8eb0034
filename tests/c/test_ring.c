/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "pg/cpu/p2p/ring.h"
#include "ranks.h"

#define CAPACITY ((size_t)4096)

/* More than dl_ring_memory(). */
static _Alignas(DL_LINE) uint8_t memory[sizeof(dl_ring_words) + 2 * CAPACITY];

static bool
push(dl_ring *ring, uint64_t id, size_t size)
{
    uint8_t *payload = dl_ring_reserve(ring, size);
    dl_frame frame = {.id = id, .total = size, .size = (uint16_t)size, .kind = 1};

    if (payload == NULL) {
        return false;
    }
    memset(payload, (int)(id & 0xff), size);
    dl_ring_publish(ring, &frame);
    return true;
}

static void
pop(dl_ring *ring, uint64_t id, size_t size)
{
    const dl_frame *frame = dl_ring_peek(ring);

    CHECK(frame != NULL);
    CHECK_EQUAL(frame->id, id);
    CHECK_EQUAL(frame->size, size);
    for (size_t i = 0; i < size; i++) {
        CHECK(dl_ring_payload(ring)[i] == (id & 0xff));
    }
}

CHECK_CASE(an_empty_ring_has_nothing)
{
    dl_ring in;

    dl_ring_open(&in, memory, CAPACITY);
    CHECK(!dl_ring_has_frame(&in));
    CHECK(dl_ring_peek(&in) == NULL);
}

CHECK_CASE(frames_of_all_sizes_come_in_order_and_whole)
{
    dl_ring in, out;

    dl_ring_open(&out, memory, CAPACITY);
    dl_ring_open(&in, memory, CAPACITY);
    for (uint64_t id = 1; id < 3000; id++) {
        size_t size = (size_t)(id * 37 % 1000);
        CHECK(push(&out, id, size));
        CHECK(dl_ring_has_frame(&in));
        pop(&in, id, size);
        CHECK(!dl_ring_release(&in));
        CHECK(!dl_ring_has_frame(&in));
    }
}

CHECK_CASE(a_payload_shares_a_line_with_its_head_or_begins_one)
{
    dl_ring out;

    CHECK(dl_ring_memory(CAPACITY) <= sizeof memory);
    dl_ring_open(&out, memory, CAPACITY);
    for (size_t size = 0; size < 100; size++) {
        uintptr_t at = (uintptr_t)dl_ring_reserve(&out, size) % DL_RING_UNIT;
        CHECK_EQUAL(at, size <= DL_RING_INLINE ? sizeof(dl_frame) : 0);
    }
}

CHECK_CASE(room_that_was_not_used_changes_nothing)
{
    dl_ring in, out;

    dl_ring_open(&out, memory, CAPACITY);
    dl_ring_open(&in, memory, CAPACITY);
    for (uint64_t id = 1; id < 200; id++) {
        CHECK(dl_ring_reserve(&out, 1000) != NULL);
        CHECK(push(&out, id, id * 37 % 300));
        pop(&in, id, id * 37 % 300);
        CHECK(!dl_ring_release(&in));
    }
}

/* Lets the producer get ahead as far as there is room, and the consumer catch up. */
static void
run_ahead(dl_ring *out, dl_ring *in, size_t size)
{
    uint64_t count = 0;

    while (push(out, count + 1, size)) {
        count++;
    }
    CHECK(count * size >= out->capacity / 2);
    for (uint64_t id = 1; id <= count; id++) {
        pop(in, id, size);
        (void)dl_ring_release(in);
    }
}

/* Passes payloads on, each of which is taken before the next one comes.  Returns where
 * the last byte of one was at most, but for the first few, which may go on where earlier
 * ones ended. */
static size_t
keep_up(dl_ring *out, dl_ring *in, size_t size, uint64_t count)
{
    size_t most = 0;

    for (uint64_t id = 1; id <= count; id++) {
        CHECK(push(out, id, size));
        pop(in, id, size);
        size_t end = (size_t)(dl_ring_payload(in) - out->data) + size;
        most = id < 20 || end < most ? most : end;
        CHECK(!dl_ring_release(in));
    }
    return most;
}

/* Opens both sides of a larger ring in memory that is to be freed. */
static void *
open_larger(dl_ring *out, dl_ring *in, size_t capacity)
{
    void *larger = calloc(1, dl_ring_memory(capacity) + DL_LINE);
    void *aligned = (void *)dl_round_up((uintptr_t)larger, DL_LINE);

    dl_ring_open(out, aligned, capacity);
    dl_ring_open(in, aligned, capacity);
    return larger;
}

CHECK_CASE(small_payloads_stay_at_the_start_while_the_consumer_keeps_up)
{
    dl_ring in, out;
    void *larger = open_larger(&out, &in, (size_t)64 << 10);

    for (int round = 0; round < 5; round++) {
        CHECK(keep_up(&out, &in, 1000, 300) <= (size_t)12 << 10);
        run_ahead(&out, &in, 1000);
    }
    free(larger);
}

CHECK_CASE(larger_ones_begin_within_a_few_pages_and_end_in_the_whole_ring)
{
    const size_t capacity = (size_t)2 << 20;
    dl_ring in, out;
    void *larger = open_larger(&out, &in, capacity);

    CHECK(keep_up(&out, &in, 16000, 1000) <= (size_t)64 << 10);
    CHECK(out.backed <= (size_t)64 << 10);
    CHECK(keep_up(&out, &in, 16000, 10000) > capacity - 16000);
    free(larger);
}

CHECK_CASE(cells_run_out_where_payloads_are_small)
{
    dl_ring in, out;

    dl_ring_open(&out, memory, CAPACITY);
    dl_ring_open(&in, memory, CAPACITY);
    for (int round = 0; round < 3; round++) {
        for (uint64_t id = 1; id <= out.cell_count; id++) {
            CHECK(push(&out, id, 8));
        }
        CHECK(!push(&out, 1, 0));
        for (uint64_t id = 1; id <= out.cell_count; id++) {
            pop(&in, id, 8);
            CHECK_EQUAL(dl_ring_release(&in), id == 1);
        }
        CHECK(!dl_ring_has_frame(&in));
    }
}

CHECK_CASE(a_full_ring_refuses_and_its_consumer_is_notified)
{
    dl_ring in, out;
    uint64_t count = 0;

    dl_ring_open(&out, memory, CAPACITY);
    dl_ring_open(&in, memory, CAPACITY);
    while (push(&out, count + 1, 100)) {
        count++;
    }
    CHECK(count >= CAPACITY / 256);
    for (uint64_t id = 1; id <= count; id++) {
        pop(&in, id, 100);
        CHECK_EQUAL(dl_ring_release(&in), id == 1);
    }
    CHECK(push(&out, count + 1, 1000));
    pop(&in, count + 1, 1000);
}

static void
run_rank(int rank, int size, void *context)
{
    dl_ring ring;

    (void)size;
    (void)context;
    dl_ring_open(&ring, memory, CAPACITY);
    for (uint64_t id = 1; id < 20000; id++) {
        size_t length = (size_t)(id * 61 % 1000);
        if (rank == 0) {
            while (!push(&ring, id, length)) {
                sched_yield();
            }
            continue;
        }
        while (!dl_ring_has_frame(&ring)) {
            sched_yield();
        }
        pop(&ring, id, length);
        dl_ring_release(&ring);
    }
}

CHECK_CASE(two_threads_stream)
{
    dl_run_ranks(2, run_rank, NULL);
}

#define WIDE ((size_t)1 << 20)

/* Bytes of a mapping that have pages. */
static size_t
backed_bytes(void *mapped, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = (size + page - 1) / page;
    unsigned char *flags = calloc(pages, 1);
    size_t sum = 0;

    CHECK_EQUAL(mincore(mapped, size, flags), 0);
    for (size_t i = 0; i < pages; i++) {
        sum += (flags[i] & 1) * page;
    }
    free(flags);
    return sum;
}

/* Memory is taken as the ring is used, at most twice as much. */
CHECK_CASE(pages_come_a_little_ahead)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = dl_ring_memory(WIDE);
    void *mapped =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t heads = size - WIDE; /* the rest of the ring */
    dl_ring in, out;

    CHECK(mapped != MAP_FAILED);
    dl_ring_open(&out, mapped, WIDE);
    dl_ring_open(&in, mapped, WIDE);
    /* A consumer that is always behind sends the producer through all of the ring. */
    CHECK(push(&out, 0, 1000));
    for (uint64_t id = 1; id <= 2 * WIDE / 1024; id++) {
        CHECK(push(&out, id, 1000));
        pop(&in, id - 1, 1000);
        dl_ring_release(&in);
        CHECK(backed_bytes(mapped, size) <= 2 * 1024 * (id + 1) + heads + 5 * page);
    }
    CHECK(backed_bytes(mapped, size) >= WIDE);
    CHECK_EQUAL(munmap(mapped, size), 0);
}
