/* SPDX-License-Identifier: BSD-3-Clause
 *
 * To be preloaded: malloc and its kin, of which one call fails that comes out of a given
 * range of code, and which knows what of such calls has not been freed. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

/* Of blocks in use at a time; beyond them none is remembered. */
#define BLOCKS (1u << 16)
#define GONE ((void *)1)

static atomic_uintptr_t low, high;
static atomic_long calls, failing;
static struct {
    void *memory;
    size_t size;
    uintptr_t caller;
} blocks[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool
is_watched(uintptr_t caller)
{
    return caller >= atomic_load(&low) && caller < atomic_load(&high);
}

static bool
shall_fail(uintptr_t caller)
{
    if (!is_watched(caller)) {
        return false;
    }
    if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&failing)) {
        return false;
    }
    errno = ENOMEM;
    return true;
}

static uint32_t
place_of(const void *memory)
{
    return (uint32_t)(((uintptr_t)memory >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 48);
}

static void *
remember(void *memory, size_t size, uintptr_t caller)
{
    if (memory == NULL || !is_watched(caller)) {
        return memory;
    }
    pthread_mutex_lock(&lock);
    uint32_t place = place_of(memory);
    for (uint32_t i = 0; i < BLOCKS; i++, place = (place + 1) % BLOCKS) {
        if (blocks[place].memory == NULL || blocks[place].memory == GONE) {
            blocks[place].memory = memory;
            blocks[place].size = size;
            blocks[place].caller = caller;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

static void
forget(const void *memory)
{
    if (memory == NULL || atomic_load(&high) == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    uint32_t place = place_of(memory);
    for (uint32_t i = 0; i < BLOCKS && blocks[place].memory != NULL; i++) {
        if (blocks[place].memory == memory) {
            blocks[place].memory = GONE;
            break;
        }
        place = (place + 1) % BLOCKS;
    }
    pthread_mutex_unlock(&lock);
}

void *
malloc(size_t size)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);

    return shall_fail(caller) ? NULL : remember(__libc_malloc(size), size, caller);
}

void *
calloc(size_t count, size_t size)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);

    return shall_fail(caller)
               ? NULL
               : remember(__libc_calloc(count, size), count * size, caller);
}

void *
realloc(void *memory, size_t size)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);

    if (shall_fail(caller)) {
        return NULL;
    }
    forget(memory);
    return remember(__libc_realloc(memory, size), size, caller);
}

void *
aligned_alloc(size_t alignment, size_t size)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);

    return shall_fail(caller)
               ? NULL
               : remember(__libc_memalign(alignment, size), size, caller);
}

int
posix_memalign(void **memory, size_t alignment, size_t size)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);

    if (shall_fail(caller)) {
        return ENOMEM;
    }
    *memory = remember(__libc_memalign(alignment, size), size, caller);
    return *memory == NULL ? ENOMEM : 0;
}

char *
strdup(const char *text)
{
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    size_t size = strlen(text) + 1;
    char *copy =
        shall_fail(caller) ? NULL : remember(__libc_malloc(size), size, caller);

    return copy == NULL ? NULL : memcpy(copy, text, size);
}

void
free(void *memory)
{
    int before = errno;

    forget(memory);
    __libc_free(memory);
    errno = before;
}

/* The code whose calls are meant. */
void
soak_watch(uintptr_t from, uintptr_t to)
{
    atomic_store(&low, from);
    atomic_store(&high, to);
}

/* The `number`-th of its calls from now on (from 1) fails, that one only; 0: none. */
void
soak_doom(long number)
{
    atomic_store(&calls, 0);
    atomic_store(&failing, number);
}

/* Whether it has failed; none does from now on. */
int
soak_has_failed(void)
{
    long number = atomic_exchange(&failing, 0);

    return number != 0 && atomic_load(&calls) >= number;
}

/* What is in use: how many blocks, and, as far as there is room, for each "size@caller",
 * the caller from the beginning of the code. */
long
soak_in_use(char *text, size_t room)
{
    long count = 0;
    size_t used = 0;

    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].memory == NULL || blocks[i].memory == GONE) {
            continue;
        }
        count++;
        if (used < room) {
            used +=
                (size_t)snprintf(text + used, room - used, "%zu@%#zx ", blocks[i].size,
                                 (size_t)(blocks[i].caller - atomic_load(&low)));
        }
    }
    pthread_mutex_unlock(&lock);
    return count;
}
