/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process learns of its host and of itself: names, numbers, interfaces, and the
 * descriptors that stand for processes and for memory. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/futex.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "local.h"

#define FIRST_HOST 0x0a000001u /* 10.0.0.1 */
#define FIRST_PID 100
#define OUTSIDE_PID 99 /* of constructors, before there are processes */

pid_t __wrap_getpid(void);
int __wrap_access(const char *path, int mode);
FILE *__wrap_fopen(const char *path, const char *mode);
int __wrap_gethostname(char *name, size_t size);
int __wrap_stat(const char *path, struct stat *found);
int __wrap_getifaddrs(struct ifaddrs **all);
void __wrap_freeifaddrs(struct ifaddrs *all);
int __wrap_pipe2(int ends[2], int flags);
int __wrap_madvise(void *at, size_t size, int advice);
int __wrap_sched_yield(void);
int __wrap_sched_getcpu(void);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask);
int __wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask);
long __wrap_syscall(long number, ...);

pid_t
__wrap_getpid(void)
{
    const sim_process *process = sim_process_current();

    return process == NULL ? OUTSIDE_PID : FIRST_PID + process->number;
}

int
__wrap_gethostname(char *name, size_t size)
{
    snprintf(name, size, "h%d", sim_process_current()->host);
    return 0;
}

/* There are no control groups, and no files of the kernel that list them. */
FILE *
__wrap_fopen(const char *path, const char *mode)
{
    (void)path;
    (void)mode;
    errno = ENOENT;
    return NULL;
}

int
__wrap_access(const char *path, int mode)
{
    (void)path;
    (void)mode;
    errno = ENOENT;
    return -1;
}

/* Each host has one network namespace. */
int
__wrap_stat(const char *path, struct stat *found)
{
    (void)path;
    *found = (struct stat){.st_ino = 1};
    return 0;
}

typedef struct interface {
    struct ifaddrs entry;
    struct sockaddr_in address;
    char name[8];
} interface;

int
__wrap_getifaddrs(struct ifaddrs **all)
{
    interface *made = sim_allocate(sizeof *made);
    uint32_t host = (uint32_t)sim_process_current()->host;

    sim_call("getifaddrs");
    made->address = (struct sockaddr_in){.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(FIRST_HOST + host)};
    strcpy(made->name, "eth0");
    made->entry = (struct ifaddrs){.ifa_name = made->name,
                                   .ifa_flags = IFF_UP,
                                   .ifa_addr = (struct sockaddr *)&made->address};
    *all = &made->entry;
    return 0;
}

void
__wrap_freeifaddrs(struct ifaddrs *all)
{
    sim_release(all);
}

static int
open_lifeline(void)
{
    return sim_object_open(sim_object_new(SIM_LIFELINE));
}

int
__wrap_pipe2(int ends[2], int flags)
{
    (void)flags;
    sim_call("pipe2");
    ends[0] = open_lifeline();
    if (ends[0] < 0) {
        return -1;
    }
    ends[1] = open_lifeline();
    if (ends[1] < 0) {
        int error = errno;
        sim_descriptor_close(sim_descriptor_at(ends[0]));
        errno = error;
        return -1;
    }
    return 0;
}

int
__wrap_madvise(void *at, size_t size, int advice)
{
    (void)at;
    (void)size;
    (void)advice;
    return 0;
}

int
__wrap_sched_yield(void)
{
    sim_call("sched_yield");
    sim_yield();
    return 0;
}

int
__wrap_sched_getcpu(void)
{
    return 0;
}

int
__wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)
{
    (void)pid;
    memset(mask, 0, size);
    ((uint8_t *)mask)[0] = 0xf;
    return 0;
}

int
__wrap_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
    (void)pid;
    (void)size;
    (void)mask;
    return 0;
}

/* Whoever sleeps at a word; the entries are on their coroutines' stacks. */
typedef struct sleeper {
    sim_place place;
    bool is_woken;
    struct sleeper *next;
} sleeper;

static sleeper *sleepers;

static bool
is_woken(void *context)
{
    return ((sleeper *)context)->is_woken;
}

static long
wait_at(const uint32_t *word, uint32_t seen, const struct timespec *span)
{
    sleeper self = {sim_place_of(word), false, sleepers};

    if (*word != seen) {
        errno = EAGAIN;
        return -1;
    }
    sleepers = &self;
    int64_t until = span == NULL
                        ? SIM_FOREVER
                        : sim.now + (int64_t)span->tv_sec * DL_SECOND + span->tv_nsec;
    bool is_in_time = sim_wait("a futex", is_woken, &self, until);
    sleeper **at = &sleepers;
    while (*at != &self) {
        at = &(*at)->next;
    }
    *at = self.next;
    errno = ETIMEDOUT;
    return is_in_time ? 0 : -1;
}

static long
wake_at(const uint32_t *word)
{
    sim_place place = sim_place_of(word);

    for (sleeper *one = sleepers; one != NULL; one = one->next) {
        one->is_woken |= one->place.space == place.space && one->place.at == place.at;
    }
    return 0;
}

long
__wrap_syscall(long number, ...)
{
    va_list arguments;

    if (number == SYS_gettid) {
        return __wrap_getpid();
    }
    sim_call("syscall");
    if (number == SYS_pidfd_open) {
        return open_lifeline();
    }
    if (number != SYS_futex) {
        sim_fail("system call %ld is not simulated", number);
    }
    va_start(arguments, number);
    const uint32_t *word = va_arg(arguments, const uint32_t *);
    int operation = va_arg(arguments, int);
    uint32_t value = va_arg(arguments, uint32_t);
    const struct timespec *span = va_arg(arguments, const struct timespec *);
    va_end(arguments);
    return (operation & FUTEX_CMD_MASK) == FUTEX_WAIT ? wait_at(word, value, span)
                                                      : wake_at(word);
}
