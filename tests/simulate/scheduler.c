/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Coroutines, simulated time, and the choice of who runs next.  A coroutine has the
 * thread-local variables that its thread would have: they are copied out and in when it
 * is left and entered. */
#include <errno.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "image.h"
#include "world.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_SIZE (256u << 10)
#define TASKS 256
#define TIMERS 4096
#define PROCESSES 128

/* What one call costs.  Reading the clock is a call: a loop that only reads it ends. */
#define CALL_LEAST 200
#define CALL_MOST 3000

typedef enum task_state { TASK_READY, TASK_WAITING, TASK_OVER } task_state;

struct sim_task {
    ucontext_t context; /* in which it begins */
    jmp_buf left;       /* where it goes on */
    bool has_begun;
    int number;
    sim_process *process;
    void *(*run)(void *);
    void *argument;
    task_state state;
    const char *waits_for;
    bool (*is_ready)(void *);
    void *wait_context;
    bool has_variable; /* the context is one of the process */
    int64_t until;
    bool is_in_time;
    int error; /* errno while it does not run */
    uint8_t *locals;
};

typedef struct timer {
    int64_t at;
    void (*run)(void *);
    void *context;
} timer;

sim_world sim;

static sim_task *tasks[TASKS];
static int task_count;
static int tasks_made;
static timer timers[TIMERS];
static int timer_count;
static sim_process processes[PROCESSES];
static int process_count;
static sim_task *current;
#ifdef __SANITIZE_ADDRESS__
static ucontext_t scheduler;
static const void *scheduler_stack;
static size_t scheduler_stack_size;
#else
static jmp_buf scheduler_left;
#endif
static uint8_t *locals;
static uint8_t *first_locals;
static size_t locals_size;

static int
find_locals(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            locals = info->dlpi_tls_data;
            locals_size = info->dlpi_phdr[i].p_memsz;
        }
    }
    return 1; /* the program comes first, and contains all code under test */
}

void
sim_world_init(uint64_t seed, bool has_trace)
{
    sim = (sim_world){
        .seed = seed,
        .now = 1000 * DL_SECOND,
        .wall_offset = INT64_C(1700000000) * DL_SECOND,
        .hash = UINT64_C(14695981039346656037),
        .has_trace = has_trace,
        .schedule = sim_random_of(seed, 1),
        .wire = sim_random_of(seed, 2),
        .disk = sim_random_of(seed, 3),
        .entropy = sim_random_of(seed, 4),
    };
    sim.yield_in = 1 + sim_random_below(&sim.schedule, 8);
    dl_iterate_phdr(find_locals, NULL);
    first_locals = sim_allocate(locals_size + 1);
    memcpy(first_locals, locals, locals_size);
}

static void
add_to_hash(const void *bytes, size_t size)
{
    const uint8_t *next = bytes;

    for (size_t i = 0; i < size; i++) {
        sim.hash = (sim.hash ^ next[i]) * UINT64_C(1099511628211);
    }
}

static void
print_head(void)
{
    printf("%10.6f %-10s ", (double)(sim.now - 1000 * DL_SECOND) / 1e9,
           current == NULL ? "-" : current->process->name);
}

void
sim_fail(const char *format, ...)
{
    va_list arguments;

    printf("seed %llu failed after %llu steps: ", (unsigned long long)sim.seed,
           (unsigned long long)sim.steps);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    if (sim.print_faults != NULL) {
        sim.print_faults();
    }
    fflush(stdout);
    _exit(1);
}

void
sim_note(const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_to_hash(text, strlen(text));
    if (sim.has_trace) {
        print_head();
        puts(text);
    }
}

void
sim_result(const char *call, int64_t value)
{
    int error = errno;

    add_to_hash(&value, sizeof value);
    if (sim.has_trace) {
        print_head();
        printf("  %s = %lld\n", call, (long long)value);
    }
    errno = error;
}

sim_process *
sim_process_current(void)
{
    return current == NULL ? NULL : current->process;
}

sim_task *
sim_task_current(void)
{
    return current;
}

int
sim_task_number(const sim_task *task)
{
    return task->number;
}

bool
sim_task_is_over(void *task)
{
    return ((sim_task *)task)->state == TASK_OVER;
}

/* AddressSanitizer has to know which stack is in use: that of `to`, or the scheduler's if
 * it is NULL. */
static void
begin_switch(const ucontext_t *to)
{
    (void)to;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(NULL, to ? to->uc_stack.ss_sp : scheduler_stack,
                                   to ? to->uc_stack.ss_size : scheduler_stack_size);
#endif
}

static void
end_switch(bool is_in_task)
{
    (void)is_in_task;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, is_in_task ? &scheduler_stack : NULL,
                                    is_in_task ? &scheduler_stack_size : NULL);
#endif
}

/* Unlike swapcontext(), these make no call to the kernel, which would save the mask of
 * signals.  AddressSanitizer does not know that they change the stack. */
static void
leave_task(sim_task *self)
{
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&self->context, &scheduler);
#else
    if (_setjmp(self->left) == 0) {
        _longjmp(scheduler_left, 1);
    }
#endif
}

static void
enter_task(sim_task *next)
{
#ifdef __SANITIZE_ADDRESS__
    swapcontext(&scheduler, &next->context);
#else
    if (_setjmp(scheduler_left) != 0) {
        return;
    }
    if (next->has_begun) {
        _longjmp(next->left, 1);
    }
    next->has_begun = true;
    setcontext(&next->context);
#endif
}

/* Leaves the coroutine for the scheduler. */
static void
leave(void)
{
    sim_task *self = current;

    self->error = errno;
    memcpy(self->locals, locals, locals_size);
    begin_switch(NULL);
    leave_task(self);
    end_switch(true);
    errno = self->error;
}

static void
begin_task(void)
{
    sim_task *self = current;

    end_switch(true);
    self->run(self->argument);
    self->state = TASK_OVER;
    self->process->live_tasks--;
    leave();
}

sim_task *
sim_task_start(sim_process *process, void *(*run)(void *), void *argument)
{
    sim_task *made = sim_allocate(sizeof *made);

    if (task_count == TASKS) {
        sim_fail("more than %d threads", TASKS);
    }
    made->number = ++tasks_made;
    made->process = process;
    made->run = run;
    made->argument = argument;
    made->locals = sim_allocate(locals_size + 1);
    memcpy(made->locals, first_locals, locals_size);
    getcontext(&made->context);
    made->context.uc_stack.ss_sp = sim_allocate(STACK_SIZE);
    made->context.uc_stack.ss_size = STACK_SIZE;
    makecontext(&made->context, begin_task, 0);
    tasks[task_count++] = made;
    process->live_tasks++;
    return made;
}

sim_process *
sim_process_start(const char *name, int host, void *(*run)(void *), void *argument)
{
    if (process_count == PROCESSES) {
        sim_fail("more than %d processes", PROCESSES);
    }
    sim_process *made = &processes[process_count];
    *made = (sim_process){
        .name = name, .number = process_count++, .host = host, .is_alive = true};
    sim_image_start(made);
    sim_note("start %s", name);
    sim_task_start(made, run, argument);
    return made;
}

void
sim_process_kill(sim_process *process)
{
    if (!process->is_alive) {
        return;
    }
    sim_note("kill %s", process->name);
    process->is_alive = false;
    process->live_tasks = 0;
    for (int i = 0; i < task_count; i++) {
        if (tasks[i]->process == process) {
            tasks[i]->state = TASK_OVER;
        }
    }
    sim_net_kill(process);
    sim_disk_kill(process);
    if (current != NULL && current->process == process) {
        leave();
    }
}

void
sim_host_kill(int host)
{
    for (int i = 0; i < process_count; i++) {
        if (processes[i].host == host) {
            sim_process_kill(&processes[i]);
        }
    }
}

void
sim_call(const char *name)
{
    sim_process *process = sim_process_current();

    if (process == NULL) {
        return;
    }
    sim.steps++;
    sim.now +=
        CALL_LEAST + (int64_t)sim_random_below(&sim.schedule, CALL_MOST - CALL_LEAST);
    add_to_hash(name, strlen(name));
    add_to_hash(&sim.now, sizeof sim.now);
    if (sim.has_trace) {
        print_head();
        printf("%s\n", name);
    }
    process->calls++;
    if (process->kill_at_call != 0 && process->calls >= process->kill_at_call) {
        sim_process_kill(process);
    }
    if (sim_random_once_in(&sim.schedule, sim.yield_in)) {
        sim_yield();
    }
}

bool
sim_wait(const char *what, bool (*is_ready)(void *), void *context, int64_t until)
{
    sim_task *self = current;

    self->state = TASK_WAITING;
    self->waits_for = what;
    self->is_ready = is_ready;
    self->wait_context = context;
    self->has_variable = false;
    self->until = until;
    leave();
    return self->is_in_time;
}

bool
sim_wait_for(const char *what, bool (*is_ready)(void *), void *variable, int64_t until)
{
    sim_task *self = current;

    self->state = TASK_WAITING;
    self->waits_for = what;
    self->is_ready = is_ready;
    self->wait_context = variable;
    self->has_variable = true;
    self->until = until;
    leave();
    return self->is_in_time;
}

void
sim_yield(void)
{
    current->state = TASK_READY;
    leave();
}

void
sim_at(int64_t at, void (*run)(void *), void *context)
{
    if (timer_count == TIMERS) {
        sim_fail("more than %d timers", TIMERS);
    }
    timers[timer_count++] = (timer){at, run, context};
}

/* Runs the first timer that is due; those of one time in the order in which they were
 * set. */
static bool
run_timer(void)
{
    int first = -1;

    for (int i = 0; i < timer_count; i++) {
        if (timers[i].at <= sim.now && (first < 0 || timers[i].at < timers[first].at)) {
            first = i;
        }
    }
    if (first < 0) {
        return false;
    }
    timer due = timers[first];
    memmove(&timers[first], &timers[first + 1],
            (size_t)(--timer_count - first) * sizeof *timers);
    if (due.run != NULL) {
        due.run(due.context);
    }
    return true;
}

static void
forget_ended(void)
{
    int kept = 0;

    for (int i = 0; i < task_count; i++) {
        if (tasks[i]->state != TASK_OVER) {
            tasks[kept++] = tasks[i];
        }
    }
    task_count = kept;
}

static bool
may_run(sim_task *task)
{
    if (task->process->stopped_until > sim.now) {
        return false;
    }
    if (task->state == TASK_READY) {
        return true;
    }
    void *context = task->has_variable
                        ? sim_image_find(task->process, task->wait_context)
                        : task->wait_context;
    task->is_in_time = task->is_ready != NULL && task->is_ready(context);
    return task->is_in_time || task->until <= sim.now;
}

static sim_task *
choose_task(void)
{
    sim_task *ready[TASKS];
    int count = 0;

    for (int i = 0; i < task_count; i++) {
        if (may_run(tasks[i])) {
            ready[count++] = tasks[i];
        }
    }
    return count == 0 ? NULL : ready[sim_random_below(&sim.schedule, (uint64_t)count)];
}

static int64_t
next_time(void)
{
    int64_t at = SIM_FOREVER;

    for (int i = 0; i < timer_count; i++) {
        at = timers[i].at < at ? timers[i].at : at;
    }
    for (int i = 0; i < task_count; i++) {
        int64_t own = tasks[i]->state == TASK_WAITING ? tasks[i]->until : 0;
        int64_t resumed = tasks[i]->process->stopped_until;
        if (resumed > sim.now) {
            own = resumed;
        }
        at = own > sim.now && own < at ? own : at;
    }
    return at;
}

__attribute__((noreturn)) static void
fail_stuck(const char *why)
{
    for (int i = 0; i < task_count; i++) {
        printf("  %s, thread %d: %s\n", tasks[i]->process->name, tasks[i]->number,
               tasks[i]->state == TASK_WAITING ? tasks[i]->waits_for : "runs");
    }
    sim_fail("%s", why);
}

void
sim_run(bool (*is_over)(void), int64_t limit)
{
    while (!is_over()) {
        if (run_timer()) {
            continue;
        }
        forget_ended();
        sim_task *next = choose_task();
        if (next == NULL) {
            int64_t at = next_time();
            if (at == SIM_FOREVER) {
                fail_stuck("everything waits for ever");
            }
            sim.now = at > sim.now ? at : sim.now;
            continue;
        }
        if (sim.now > limit) {
            fail_stuck("it has not ended in time");
        }
        current = next;
        next->state = TASK_READY;
        sim_image_load(next->process);
        memcpy(locals, next->locals, locals_size);
        begin_switch(&next->context);
        enter_task(next);
        end_switch(false);
        current = NULL;
    }
}

#ifdef DL_COVERAGE
void __gcov_dump(void);

/* The counters are static variables, of which each process has its own. */
void
sim_coverage_write(void)
{
    for (int i = 0; i < process_count; i++) {
        sim_image_load(&processes[i]);
        __gcov_dump();
    }
}
#else
void
sim_coverage_write(void)
{
}
#endif

bool
sim_descriptor_take(void)
{
    sim_process *process = sim_process_current();
    const uint64_t *failing = process->fail_descriptor_at;

    process->descriptors++;
    return failing[0] == 0 || process->descriptors < failing[0]
           || process->descriptors > failing[1];
}
