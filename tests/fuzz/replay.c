/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A plain driver for fuzz targets: any program with an LLVMFuzzerTestOneInput().
 *
 *     replay FILE...                        each file once
 *     replay --mutate SECONDS SEED FILE...  changed copies of them, for that long
 *
 * Before each run the input is laid down in $FUZZ_INPUT (if set), where it still is
 * after a crash. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGEST_INPUT (64u << 10)
#define SECONDS_PER_BATCH 60 /* a batch takes a few at most: more is a hang */
#define BATCH 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

static uint64_t random_state;
static int kept_fd = -1;

/* xorshift64: the same seed walks the same way. */
static uint64_t
random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t
random_below(size_t limit)
{
    return limit == 0 ? 0 : (size_t)(random_number() % limit);
}

static input
read_input(const char *path)
{
    input loaded = {.data = malloc(LARGEST_INPUT)};
    FILE *file = fopen(path, "rb");

    if (file == NULL || loaded.data == NULL) {
        perror(path);
        exit(2);
    }
    loaded.size = fread(loaded.data, 1, LARGEST_INPUT, file);
    fclose(file);
    return loaded;
}

static void
run_once(const uint8_t *data, size_t size)
{
    /* An allocation of its own, so that a read past the end is seen. */
    uint8_t *copy = malloc(size == 0 ? 1 : size);

    if (copy == NULL) {
        exit(2);
    }
    memcpy(copy, data, size);
    if (kept_fd >= 0
        && (ftruncate(kept_fd, 0) < 0 || pwrite(kept_fd, data, size, 0) < 0)) {
        exit(2);
    }
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void
overwrite_length(uint8_t *data, size_t size)
{
    static const uint64_t lengths[] = {
        0,    1,     255,      4096,     8191,        8192,       8193,
        8194, 65536, 1u << 23, 8388609u, 0x7fffffffu, UINT32_MAX, UINT64_MAX,
    };
    uint64_t length = lengths[random_below(sizeof lengths / sizeof *lengths)];

    if (size >= sizeof length) {
        memcpy(data + random_below(size - sizeof length + 1), &length, sizeof length);
    }
}

/* Copies a piece of `source` over or between the bytes of `data`. */
static size_t
graft(uint8_t *data, size_t size, const input *source)
{
    size_t from = random_below(source->size);
    size_t count = random_below(source->size - from + 1);
    size_t at = random_below(size + 1);
    size_t tail = random_below(2) == 0 ? size - at : 0;

    if (at + count + tail > LARGEST_INPUT) {
        return size;
    }
    memmove(data + at + count, data + size - tail, tail);
    memcpy(data + at, source->data + from, count);
    return at + count + tail;
}

static size_t
erase(uint8_t *data, size_t size)
{
    size_t from = random_below(size);
    size_t count = random_below(size - from + 1);

    memmove(data + from, data + from + count, size - from - count);
    return size - count;
}

static size_t
mutate(uint8_t *data, size_t size, const input *other)
{
    switch (random_below(6)) {
    case 0:
        return graft(data, size, other);
    case 1:
        return erase(data, size);
    case 2:
        overwrite_length(data, size);
        return size;
    case 3:
        if (size > 0) {
            data[random_below(size)] = (uint8_t)random_number();
        }
        return size;
    case 4:
        if (size > 0) {
            data[random_below(size)] ^= (uint8_t)(1u << random_below(8));
        }
        return size;
    default: /* cut short */
        return random_below(size + 1);
    }
}

static void
mutate_for(time_t seconds, const input *inputs, size_t count)
{
    static uint8_t data[LARGEST_INPUT];
    time_t end = time(NULL) + seconds;
    unsigned long runs = 0;

    while (time(NULL) < end) {
        alarm(SECONDS_PER_BATCH);
        for (int i = 0; i < BATCH; i++) {
            const input *base = &inputs[random_below(count)];
            size_t size = base->size;
            memcpy(data, base->data, size);
            for (size_t changes = 1 + random_below(4); changes > 0; changes--) {
                size = mutate(data, size, &inputs[random_below(count)]);
            }
            run_once(data, size);
            runs++;
        }
    }
    printf("%lu runs\n", runs);
}

int
main(int count, char **names)
{
    bool is_mutating = count > 3 && strcmp(names[1], "--mutate") == 0;
    int first = is_mutating ? 4 : 1;
    const char *kept = getenv("FUZZ_INPUT");
    size_t input_count = (size_t)(count - first);
    input *inputs = calloc(input_count + 1, sizeof *inputs);

    if (inputs == NULL || count <= first) {
        fputs("usage: replay [--mutate SECONDS SEED] FILE...\n", stderr);
        return 2;
    }
    if (kept != NULL) {
        kept_fd = open(kept, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    }
    for (size_t i = 0; i < input_count; i++) {
        inputs[i] = read_input(names[first + (int)i]);
        alarm(SECONDS_PER_BATCH);
        run_once(inputs[i].data, inputs[i].size);
    }
    if (is_mutating) {
        random_state = strtoull(names[3], NULL, 10) | 1;
        mutate_for((time_t)atol(names[2]), inputs, input_count);
    }
    for (size_t i = 0; i < input_count; i++) {
        free(inputs[i].data);
    }
    free(inputs);
    return 0;
}
