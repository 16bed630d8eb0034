/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A simulated world in which the real code runs: its threads are coroutines of one
 * thread, and the linker sends its calls to the system (-Wl,--wrap=...) to the files of
 * this folder.  Each such call may hand over to another coroutine.  All choices come
 * from one seed, so that a seed always has the same run.
 *
 *     main.c -> stage_*.c -> the code under test
 *                                  | wrapped calls
 *          threads.c  clock.c  memory.c  net*.c  disk.c
 *                                  |
 *                             scheduler.c  */
#ifndef DISTLITE_SIMULATE_WORLD_H
#define DISTLITE_SIMULATE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/deadline.h"

#define SIM_HOSTS 16
#define SIM_FOREVER INT64_MAX

/* A stream of choices.  Streams of a seed are independent, so that leaving out one fault
 * disturbs the others little. */
typedef struct sim_random {
    uint64_t state;
} sim_random;

sim_random sim_random_of(uint64_t seed, uint64_t stream);
uint64_t sim_random_next(sim_random *random);
/* Returns a number from 0 to `limit` - 1. */
uint64_t sim_random_below(sim_random *random, uint64_t limit);
/* Is true once in `count` times. */
bool sim_random_once_in(sim_random *random, uint64_t count);
/* Returns a duration between `least` and `most`, whose logarithm is uniform. */
int64_t sim_random_span(sim_random *random, int64_t least, int64_t most);

/* What one process of the simulated hosts is and owns. */
typedef struct sim_process {
    const char *name;
    int number;
    int host;
    bool is_alive;
    int64_t stopped_until; /* as by SIGSTOP */
    uint64_t calls;
    uint64_t kill_at_call;          /* 0: never */
    uint64_t allocations;           /* since its start */
    uint64_t fail_allocation_at[2]; /* numbers of the first and the last; 0: none */
    uint64_t fail_descriptor_at[2]; /* the same, of `descriptors` */
    uint64_t descriptors;           /* opened since its start */
    long live_allocations;
    int live_tasks;
    uint8_t *image; /* its static variables while another one runs */
} sim_process;

typedef struct sim_task sim_task;

/* Everything the files of this folder share. */
typedef struct sim_world {
    uint64_t seed;
    int64_t now;
    int64_t wall_offset;
    uint64_t hash; /* of all calls so far, with what they returned */
    uint64_t steps;
    int logged; /* lines of the log */
    bool has_trace;
    uint64_t yield_in;   /* a call hands over once in so many times */
    sim_random schedule; /* which coroutine runs next */
    sim_random wire;     /* delays and sizes of what travels */
    sim_random disk;     /* what a crash leaves */
    sim_random entropy;  /* what getrandom() returns */
    bool has_buffers;    /* the first bytes of a connection are always taken whole */
    bool is_apart;       /* no Unix sockets, and one rank on each host */
    bool is_damaged;     /* the journal is changed at the end */
    int64_t host_up_at[SIM_HOSTS];
    void (*print_faults)(void); /* what sim_fail() adds */
} sim_world;

extern sim_world sim;

void sim_world_init(uint64_t seed, bool has_trace);

/* Ends the run: prints the text, the seed and the hash, and exits with status 1. */
__attribute__((noreturn, format(printf, 1, 2))) void sim_fail(const char *format, ...);

/* Prints a line of the trace, and adds it to the hash. */
__attribute__((format(printf, 1, 2))) void sim_note(const char *format, ...);

/* Adds a number to the hash, and prints it with TRACE; keeps errno. */
void sim_result(const char *call, int64_t value);

sim_process *sim_process_start(const char *name, int host, void *(*run)(void *),
                               void *argument);
sim_process *sim_process_current(void); /* NULL in the scheduler */

/* Kills the process, as kill -9 does; does not return if it is the current one's. */
void sim_process_kill(sim_process *process);
/* The same of all processes of a host. */
void sim_host_kill(int host);

/* Every call to the system begins with this: it takes some time, and may hand over to
 * another coroutine, or never return. */
void sim_call(const char *name);

/* Blocks the coroutine until `is_ready` says so (NULL: never) or the time has come.
 * Returns false for the latter. */
bool sim_wait(const char *what, bool (*is_ready)(void *), void *context, int64_t until);
/* The same; `context` may be a static variable of the core. */
bool sim_wait_for(const char *what, bool (*is_ready)(void *), void *variable,
                  int64_t until);
/* Hands over to another coroutine, if there is one that can run. */
void sim_yield(void);

/* Calls `run`, unless it is NULL, from the scheduler at that time. */
void sim_at(int64_t at, void (*run)(void *), void *context);

/* Runs until nothing is left to do but what `is_over` says; fails if everything waits
 * for ever or after `limit`. */
void sim_run(bool (*is_over)(void), int64_t limit);

/* Adds what each process has reached to the files of a build that counts it. */
void sim_coverage_write(void);

sim_task *sim_task_start(sim_process *process, void *(*run)(void *), void *argument);
sim_task *sim_task_current(void);
int sim_task_number(const sim_task *task);
bool sim_task_is_over(void *task);
/* The current task of the running coroutine ends with its function. */

/* net.c: hosts have the addresses 10.0.0.1, 10.0.0.2, ... */
void sim_net_kill(sim_process *process); /* its sockets are closed */
void sim_net_crash(int host);            /* nobody is told */
bool sim_net_cut(sim_random *random);    /* some connection is reset */
void sim_net_partition(int first, int second, int64_t until);
int sim_net_open_count(const sim_process *process);

/* disk.c: one disk per host. */
void sim_disk_kill(sim_process *process);
void sim_disk_crash(int host);
/* Returns the size of a file as processes read it, 0 if there is none. */
size_t sim_disk_look(int host, const char *path, const uint8_t **bytes);
/* Changes a file, also on the disk, or removes it, without a process. */
void sim_disk_put(int host, const char *path, const uint8_t *bytes, size_t size);
void sim_disk_set_full(int host, bool is_full);
void sim_disk_set_slow(int host, int64_t extra);
int sim_disk_open_count(const sim_process *process);

/* Counts an opened descriptor; false: there is none left. */
bool sim_descriptor_take(void);

/* memory.c */
void *sim_allocate(size_t size); /* zeroed, outside every process; never fails */
void sim_release(void *memory);
/* Sets which allocations or descriptors fail: the one with the number, counted from
 * `count`, and up to six after it. */
void sim_fail_from(uint64_t failing[2], uint64_t count, uint64_t number);
/* Counts an allocation of the current process; true: a fault says that it fails. */
bool sim_allocation_fails(void);
/* Moves the first `used` bytes of such memory, which may be NULL, to a larger one. */
void *sim_grow(void *memory, size_t used, size_t size);

#endif
