/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory by process: counts what each holds, and fails when a fault says so.  A head
 * before each block names its owner. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define MARK UINT64_C(0x51d1e77e51d1e77e)

typedef struct head {
    uint64_t mark;
    sim_process *owner;
} head;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_asprintf(char **made, const char *format, ...);
void __wrap_free(void *memory);

void *
sim_allocate(size_t size)
{
    void *memory = __real_calloc(1, size);

    if (memory == NULL) {
        sim_fail("the simulator itself is out of memory");
    }
    return memory;
}

void
sim_release(void *memory)
{
    __real_free(memory);
}

void *
sim_grow(void *memory, size_t used, size_t size)
{
    void *grown = sim_allocate(size);

    if (used > 0) {
        memcpy(grown, memory, used);
    }
    __real_free(memory);
    return grown;
}

bool
sim_allocation_fails(void)
{
    sim_process *process = sim_process_current();

    if (process == NULL) {
        return false;
    }
    process->allocations++;
    return process->fail_allocation_at[0] != 0
           && process->allocations >= process->fail_allocation_at[0]
           && process->allocations <= process->fail_allocation_at[1];
}

void
sim_fail_from(uint64_t failing[2], uint64_t count, uint64_t number)
{
    failing[0] = count + number;
    failing[1] = failing[0] + number % 7;
}

static void *
own(head *made)
{
    if (made == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    *made = (head){MARK, sim_process_current()};
    if (made->owner != NULL) {
        made->owner->live_allocations++;
    }
    return made + 1;
}

/* Memory that was not cleared has other contents than zeros. */
void *
__wrap_malloc(size_t size)
{
    head *made = sim_allocation_fails() ? NULL : __real_malloc(sizeof(head) + size);

    if (made != NULL) {
        memset(made, 0xa5, sizeof(head) + size);
    }
    return own(made);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return own(sim_allocation_fails() ? NULL
                                      : __real_calloc(1, sizeof(head) + count * size));
}

void *
__wrap_realloc(void *memory, size_t size)
{
    if (memory == NULL) {
        return __wrap_malloc(size);
    }
    if (sim_allocation_fails()) {
        errno = ENOMEM;
        return NULL;
    }
    head *moved = __real_realloc((head *)memory - 1, sizeof(head) + size);
    return moved + 1;
}

char *
__wrap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);

    return copy == NULL ? NULL : memcpy(copy, text, size);
}

int
__wrap_asprintf(char **made, const char *format, ...)
{
    char text[512];
    va_list values;

    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    *made = __wrap_strdup(text);
    return *made == NULL ? -1 : size;
}

void
__wrap_free(void *memory)
{
    if (memory == NULL) {
        return;
    }
    head *block = (head *)memory - 1;
    if (block->mark != MARK) {
        sim_fail("memory is freed that was not allocated, or is freed twice");
    }
    block->mark = 0;
    if (block->owner != NULL) {
        block->owner->live_allocations--;
    }
    __real_free(block);
}
