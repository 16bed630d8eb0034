/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The static variables of the core, of which each process has its own.  The linker places
 * those of the simulator before edge.c's and those of the core behind them, so the core's
 * are two ranges of memory, which are copied out and in when another process runs. */
#include "image.h"

#include <string.h>

extern char _edata[]; /* of the linker: the ends of .data and .bss */
extern char _end[];

typedef struct range {
    char *first;
    size_t size;
} range;

static range ranges[2];
static uint8_t *initial;
static sim_process *loaded;

/* The pieces that any process has changed so far; the others need no copying. */
#define PIECE 512
#define PIECES 8192

static bool is_changed[PIECES];

#ifdef __SANITIZE_ADDRESS__
/* Not memcpy(), for which it reports the gaps between variables. */
__attribute__((no_sanitize("address"), optimize("O2"))) static void
copy(char *to, const char *from, size_t size)
{
    uint64_t *next = (void *)to;
    const uint64_t *source = (const void *)from;

    for (size_t i = 0; i < size / sizeof *next; i++) {
        next[i] = source[i];
    }
}

__attribute__((no_sanitize("address"))) static bool
is_same(const char *left, const char *right, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (left[i] != right[i]) {
            return false;
        }
    }
    return true;
}
#else
#define copy memcpy
#define is_same(left, right, size) (memcmp(left, right, size) == 0)
#endif

/* Saves the variables in the image, or loads them from there. */
static void
move(uint8_t *image, bool is_saved)
{
    bool *changed = is_changed;
    size_t before = 0;

    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < ranges[i].size; at += PIECE, changed++) {
            size_t left = ranges[i].size - at;
            size_t size = left < PIECE ? left : PIECE;
            char *variables = ranges[i].first + at;
            char *saved = (char *)image + before + at;
            if (is_saved && !*changed) {
                *changed = !is_same(variables, (char *)initial + before + at, size);
            }
            if (*changed) {
                copy(is_saved ? saved : variables, is_saved ? variables : saved, size);
            }
        }
        before += ranges[i].size;
    }
}

static range
range_of(void *edge, char *end)
{
    uintptr_t first = ((uintptr_t)edge + 7) & ~(uintptr_t)7;

    return (range){(char *)first, ((uintptr_t)end - first) & ~(uintptr_t)7};
}

void
sim_image_start(sim_process *process)
{
    if (initial == NULL) {
        ranges[0] = range_of(sim_data_edge + sizeof sim_data_edge, _edata);
        ranges[1] = range_of(sim_bss_edge + sizeof sim_bss_edge, _end);
        initial = sim_allocate(ranges[0].size + ranges[1].size);
        if ((ranges[0].size + ranges[1].size) / PIECE + 2 > PIECES) {
            sim_fail("the core has too many static variables");
        }
        copy((char *)initial, ranges[0].first, ranges[0].size);
        copy((char *)initial + ranges[0].size, ranges[1].first, ranges[1].size);
    }
    process->image = sim_allocate(ranges[0].size + ranges[1].size);
    memcpy(process->image, initial, ranges[0].size + ranges[1].size);
}

void
sim_image_load(sim_process *process)
{
    if (process == loaded) {
        return;
    }
    if (loaded != NULL) {
        move(loaded->image, true);
    }
    move(process->image, false);
    loaded = process;
}

void *
sim_image_find(const sim_process *process, void *at)
{
    size_t before = 0;

    for (int i = 0; i < 2 && process != loaded; i++) {
        uintptr_t offset = (uintptr_t)at - (uintptr_t)ranges[i].first;
        if (offset < ranges[i].size) {
            return process->image + before + offset;
        }
        before += ranges[i].size;
    }
    return at;
}
