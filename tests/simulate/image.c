/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The static variables of the core, of which each process has its own.  The linker places
 * those of the simulator before edge.c's and those of the core behind them, so the core's
 * are two ranges of memory, which are copied out and in when another process runs. */
#include "image.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

extern char _edata[]; /* of the linker: the ends of .data and .bss */
extern char _end[];

typedef struct range {
    char *first;
    size_t size;
} range;

static range ranges[2];
static uint8_t *initial;
static sim_process *loaded;

/* Only pieces that some process has changed need copying.  To find them, the pages are
 * protected against writing until they are written for the first time; a piece of such a
 * page is compared with what it was until it has changed. */
#define PIECE 512
#define PIECES 8192

typedef struct piece {
    char *variables;
    size_t at; /* in an image */
    size_t size;
} piece;

static piece protected[PIECES];
static piece watched[PIECES];
static piece changed[PIECES];
static int protected_count;
static int watched_count;
static int changed_count;

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

static char *
page_of(const char *at)
{
    return (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
}

/* The first write to a page. */
static void
watch_page(int number, siginfo_t *info, void *context)
{
    char *page = page_of(info->si_addr);
    int left = 0;
    int before = watched_count;

    (void)context;
    for (int i = 0; i < protected_count; i++) {
        if (page_of(protected[i].variables) == page) {
            watched[watched_count++] = protected[i];
        } else {
            protected[left++] = protected[i];
        }
    }
    protected_count = left;
    if (watched_count == before) {
        signal(number, SIG_DFL); /* the fault happens again */
    } else if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0) {
        abort();
    }
}

static void
save(uint8_t *image)
{
    int left = 0;

    for (int i = 0; i < watched_count; i++) {
        const piece at = watched[i];
        if (is_same(at.variables, (char *)initial + at.at, at.size)) {
            watched[left++] = at;
        } else {
            changed[changed_count++] = at;
        }
    }
    watched_count = left;
    for (int i = 0; i < changed_count; i++) {
        copy((char *)image + changed[i].at, changed[i].variables, changed[i].size);
    }
}

static void
load(const uint8_t *image)
{
    for (int i = 0; i < changed_count; i++) {
        copy(changed[i].variables, (const char *)image + changed[i].at,
             changed[i].size);
    }
}

/* Pages that others use, too, are not protected. */
static void
divide(range whole, size_t before)
{
    char *first_page = page_of(whole.first + PAGE - 1);
    char *last_page = page_of(whole.first + whole.size);

    for (size_t at = 0; at < whole.size;) {
        char *variables = whole.first + at;
        size_t left = whole.size - at;
        size_t in_page = (size_t)(page_of(variables) + PAGE - variables);
        size_t size = in_page < left ? in_page : left;
        size = size < PIECE ? size : PIECE;
        const piece found = {variables, before + at, size};
        if (variables >= first_page && variables < last_page) {
            protected[protected_count++] = found;
        } else {
            watched[watched_count++] = found;
        }
        at += size;
    }
    if (first_page < last_page
        && mprotect(first_page, (size_t)(last_page - first_page), PROT_READ) != 0) {
        sim_fail("the core's variables cannot be protected");
    }
}

static void
divide_all(void)
{
    const struct sigaction action = {
        .sa_sigaction = watch_page,
        .sa_flags = SA_SIGINFO,
    };

    if ((ranges[0].size + ranges[1].size) / PIECE + 100 > PIECES) {
        sim_fail("the core has too many static variables");
    }
    if (sigaction(SIGSEGV, &action, NULL) != 0) {
        sim_fail("the core's variables cannot be watched");
    }
    divide(ranges[0], 0);
    divide(ranges[1], ranges[0].size);
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
        copy((char *)initial, ranges[0].first, ranges[0].size);
        copy((char *)initial + ranges[0].size, ranges[1].first, ranges[1].size);
        divide_all();
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
        save(loaded->image);
    }
    load(process->image);
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
