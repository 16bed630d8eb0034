/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs small programs over shared words and rings in every order in which their threads
 * can access these: a state that was reached before is not explored again.  Each access
 * is one step, and orders are sequentially consistent; weaker ones are left to
 * ThreadSanitizer.  A sleep has no time limit, so a wake-up that is lost ends in a state
 * in which nobody can go on. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

static void step(void);
static uint64_t noted(uint64_t value);
static long futex_call(const void *word, int operation, uint32_t seen, ...);

#define ORDER __ATOMIC_SEQ_CST
#undef atomic_load
#undef atomic_store
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#define atomic_load(at) (step(), (__typeof__(+*(at)))noted(__atomic_load_n(at, ORDER)))
#define atomic_load_explicit(at, order) atomic_load(at)
#define atomic_store(at, value) (step(), __atomic_store_n(at, value, ORDER))
#define atomic_store_explicit(at, value, order) atomic_store(at, value)
#define atomic_exchange(at, value) \
    (step(), noted(__atomic_exchange_n(at, value, ORDER)))
#define atomic_fetch_add(at, more) (step(), noted(__atomic_fetch_add(at, more, ORDER)))
#define atomic_fetch_sub(at, less) (step(), noted(__atomic_fetch_sub(at, less, ORDER)))
#define syscall(number, word, operation, value, ...) \
    futex_call(word, operation, (uint32_t)(value), __VA_ARGS__)

#include "../../csrc/pg/cpu/p2p/ring.c"
#include "../../csrc/pg/cpu/shm/wait.c"

#define THREADS 3
#define STEPS 4096
#define STACK ((size_t)64 << 10)
#define STATES ((size_t)1 << 20)

typedef struct thread {
    ucontext_t context;
    void (*run)(int number);
    bool is_over;
    const void *sleeps_at;
    uint64_t history; /* of what it has read, which is all that it knows */
} thread;

static _Alignas(16) uint8_t stacks[THREADS][STACK];
static thread threads[THREADS];
static int thread_count;
static int current;
#define NOBODY (-1) /* before the threads begin */
static ucontext_t explorer;
static int choices[STEPS], counts[STEPS];
static uint64_t states[STATES];
static size_t state_count;

/* What the threads share.  Of the ring's cells and bytes only the producer writes any, so
 * they follow from its history. */
static struct {
    dl_bell bell;
    dl_word words[2];
    dl_doorbell bells[2];
    _Alignas(DL_LINE) uint8_t ring[sizeof(dl_ring_words) + 2 * 4096];
} shared;
#define COMPARED (offsetof(__typeof__(shared), ring) + sizeof(dl_ring_words))

static uint64_t
mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static void
leave(void)
{
    swapcontext(&threads[current].context, &explorer);
}

static void
step(void)
{
    if (current == NOBODY) {
        return;
    }
    threads[current].history = mix(threads[current].history, 1);
    leave();
}

static uint64_t
noted(uint64_t value)
{
    if (current == NOBODY) {
        return value;
    }
    threads[current].history = mix(threads[current].history, value);
    return value;
}

static long
futex_call(const void *word, int operation, uint32_t seen, ...)
{
    step();
    if (operation == FUTEX_WAIT && *(const uint32_t *)word == seen) {
        threads[current].sleeps_at = word;
        threads[current].history = mix(threads[current].history, 2);
        leave();
    }
    for (int i = 0; operation == FUTEX_WAKE && i < thread_count; i++) {
        threads[i].sleeps_at =
            threads[i].sleeps_at == word ? NULL : threads[i].sleeps_at;
    }
    return 0;
}

static void
begin(void)
{
    threads[current].run(current);
    threads[current].is_over = true;
    leave();
}

/* Returns whether the state is a new one. */
static bool
is_new(void)
{
    const uint64_t *memory = (const void *)&shared;
    uint64_t hash = 1;

    for (size_t i = 0; i < COMPARED / sizeof *memory; i++) {
        hash = mix(hash, memory[i]);
    }
    for (int i = 0; i < thread_count; i++) {
        hash = mix(mix(hash, threads[i].history), (uintptr_t)threads[i].sleeps_at);
        hash = mix(hash, threads[i].is_over);
    }
    size_t at = hash % STATES;
    while (states[at] != 0 && states[at] != hash) {
        at = (at + 1) % STATES;
    }
    if (states[at] == hash) {
        return false;
    }
    states[at] = hash;
    CHECK(++state_count < STATES / 2);
    return true;
}

static void
start_threads(void (*const *runs)(int))
{
    for (int i = 0; i < thread_count; i++) {
        threads[i] = (thread){.run = runs[i], .history = (uint64_t)i};
        getcontext(&threads[i].context);
        threads[i].context.uc_stack.ss_sp = stacks[i];
        threads[i].context.uc_stack.ss_size = STACK;
        makecontext(&threads[i].context, begin, 0);
    }
}

/* Runs on as `choices` say, and then with the first thread that can; returns the number of
 * steps. */
static int
run_once(int chosen)
{
    for (int at = 0;; at++) {
        int ready[THREADS];
        bool are_over = true;
        counts[at] = 0;
        for (int i = 0; i < thread_count; i++) {
            are_over = are_over && threads[i].is_over;
            if (!threads[i].is_over && threads[i].sleeps_at == NULL) {
                ready[counts[at]++] = i;
            }
        }
        /* Nobody sleeps for ever. */
        CHECK(counts[at] > 0 || are_over);
        CHECK(at + 1 < STEPS);
        if (are_over || (at > chosen && !is_new())) {
            return at;
        }
        choices[at] = at > chosen ? 0 : choices[at];
        current = ready[choices[at]];
        swapcontext(&explorer, &threads[current].context);
    }
}

/* Sanitizers do not know of threads that share one thread. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

/* Explores what the threads, which begin anew each time, can do; returns the number of
 * states. */
static size_t
explore(int count, void (*const *runs)(int), void (*prepare)(void))
{
    int chosen = 0;

    if (IS_SANITIZED) {
        return STATES;
    }
    thread_count = count;
    state_count = 0;
    memset(states, 0, sizeof states);
    memset(choices, 0, sizeof choices);
    while (chosen >= 0) {
        memset(&shared, 0, sizeof shared);
        prepare();
        start_threads(runs);
        chosen = run_once(chosen) - 1;
        while (chosen >= 0 && choices[chosen] + 1 == counts[chosen]) {
            choices[chosen--] = 0;
        }
        if (chosen >= 0) {
            choices[chosen]++;
        }
    }
    return state_count;
}

/* Words. */

static dl_status
go_on(void *context, const dl_wanted *wanted)
{
    (void)context;
    (void)wanted;
    return DL_OK;
}

static const dl_waiter waiter = {.bell = &shared.bell, .check = go_on};
static dl_words words = {shared.words, sizeof *shared.words, 2};

static void
prepare_words(void)
{
}

static void
await_first(int number)
{
    (void)number;
    CHECK_OK(dl_words_wait_range(words, 0, 0, 1, &waiter, MS(INT32_MAX)));
    CHECK(*(uint64_t *)&shared.words[0] == 1);
}

static void
await_all(int number)
{
    (void)number;
    CHECK_OK(dl_words_wait_all(words, 1, &waiter, MS(INT32_MAX)));
    CHECK(*(uint64_t *)&shared.words[0] == 1 && *(uint64_t *)&shared.words[1] == 1);
}

static void
publish_own(int number)
{
    dl_words_publish(words, number, 1, &shared.bell);
}

CHECK_CASE(a_sleeper_at_one_word_is_woken)
{
    void (*const runs[])(int) = {publish_own, await_first, await_first};

    CHECK(explore(3, runs, prepare_words) > 100);
}

CHECK_CASE(a_sleeper_for_all_words_is_woken)
{
    void (*const runs[])(int) = {publish_own, publish_own, await_all};

    CHECK(explore(3, runs, prepare_words) > 100);
}

/* Rings. */

#define FRAMES 2
#define LARGE 1024 /* four fill the ring of bytes */
#define SMALL 16   /* they fill the cells */

static size_t size;

static dl_ring_channel producer, consumer;

static void
prepare_ring(void)
{
    size = LARGE;
    producer = (dl_ring_channel){0};
    consumer = (dl_ring_channel){0};
    dl_ring_open(&producer.out, shared.ring, 4096);
    dl_ring_open(&consumer.in, shared.ring, 4096);
    producer.out.backed = consumer.in.backed = 4096;
    dl_ring_channel_init(&producer, &shared.bells[1]);
    dl_ring_channel_init(&consumer, &shared.bells[0]);
}

/* As a rank that waits for a message sleeps. */
static void
sleep_until(dl_doorbell *bell, bool (*has_come)(void))
{
    atomic_fetch_add(&bell->sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&bell->rings);
        if (has_come()) {
            break;
        }
        dl_futex_sleep(&bell->rings, seen, DL_SECOND);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
}

static uint8_t *place;

static bool
has_place(void)
{
    place = reserve_payload(&producer.base, size);
    return place != NULL;
}

static bool
has_received(void)
{
    return dl_ring_has_frame(&consumer.in);
}

static void
put(int number)
{
    dl_frame frame = {.id = (uint64_t)number, .size = (uint16_t)size, .kind = 1};

    place[0] = (uint8_t)number;
    step();
    place[size - 1] = (uint8_t)number;
    publish_frame(&producer.base, &frame);
}

static void
produce(int number)
{
    int first = (int)producer.out.next;

    (void)number;
    for (int i = first; i < first + FRAMES; i++) {
        sleep_until(&shared.bells[0], has_place);
        put(i);
    }
}

static void
consume(int number)
{
    (void)number;
    for (int i = 0; i < FRAMES; i++) {
        dl_received received;
        sleep_until(&shared.bells[1], has_received);
        CHECK(peek_frame(&consumer.base, &received));
        CHECK(received.frame->id == (uint64_t)i && received.contents[0] == i);
        step();
        CHECK(received.contents[size - 1] == i);
        release_ring(&consumer.base);
    }
}

static void (*const ends[])(int) = {produce, consume};

CHECK_CASE(an_empty_ring_loses_no_wake_up)
{
    CHECK(explore(2, ends, prepare_ring) > 100);
}

static void
fill_ring(size_t with)
{
    prepare_ring();
    size = with;
    current = NOBODY;
    for (int i = 0; has_place(); i++) {
        put(i);
    }
    /* The producer asks again. */
    atomic_store(&((dl_ring_words *)shared.ring)->wants_room, 0);
}

static void
prepare_full_ring(void)
{
    fill_ring(LARGE);
}

static void
prepare_full_cells(void)
{
    fill_ring(SMALL);
}

CHECK_CASE(a_full_ring_loses_no_wake_up)
{
    CHECK(explore(2, ends, prepare_full_ring) > 100);
}

CHECK_CASE(full_cells_lose_no_wake_up)
{
    CHECK(explore(2, ends, prepare_full_cells) > 100);
}
