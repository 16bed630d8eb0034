/* SPDX-License-Identifier: BSD-3-Clause
 *
 *     simulate STAGE FIRST LAST     runs the seeds, each in a process of its own
 *     simulate --trace STAGE SEED   runs one and prints every call
 *     simulate --twice STAGE FIRST LAST   runs each twice and compares the traces
 *     simulate --hunt STAGE FIRST LAST    prints the first seed that fails
 *
 * The faults of a seed that fails are left out one by one, as long as it still fails. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "stage_collectives.h"
#include "stage_join.h"
#include "stage_store.h"

#define ALL UINT64_MAX

/* A run that computes for longer does so for ever. */
#define RUN_SECONDS 60

/* What a run tells its parent. */
typedef struct outcome {
    uint64_t hash;
    uint64_t steps;
    int64_t simulated;
} outcome;

static outcome *shared;

static const struct {
    const char *name;
    void (*run)(uint64_t kept);
    bool is_apart, is_damaged;
} stages[] = {{"collectives", sim_stage_collectives, false, false},
              {"collectives-apart", sim_stage_collectives, true, false},
              {"damage", sim_stage_store, false, true},
              {"join", sim_stage_join, false, false},
              {"join-apart", sim_stage_join, true, false},
              {"store", sim_stage_store, false, false}};

static bool
keep_line(const char *line, size_t size)
{
    const char *text = strchr(line, ']') + 2; /* its head has the time */

    sim.logged++;
    sim_note("log: %.*s", (int)(line + size - 1 - text), text);
    return true;
}

static void
run_stage(const char *stage, uint64_t seed, uint64_t kept, bool has_trace)
{
    sim_world_init(seed, has_trace);
    setenv("DISTLITE_STORE_UNIX", "0", 1);
    setenv("DISTLITE_TLS", "off", 1);
    dl_log_install(keep_line);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        if (strcmp(stages[i].name, stage) == 0) {
            sim.is_apart = stages[i].is_apart;
            sim.is_damaged = stages[i].is_damaged;
            stages[i].run(kept);
            *shared = (outcome){sim.hash, sim.steps, sim.now - 1000 * DL_SECOND};
            return;
        }
    }
    sim_fail("there is no stage %s", stage);
}

static void
limit_run(void)
{
    const struct rlimit limit = {RUN_SECONDS, RUN_SECONDS + 1};

    setrlimit(RLIMIT_CPU, &limit);
}

/* Returns whether the seed passes. */
static bool
run_seed(const char *stage, uint64_t seed, uint64_t kept, bool is_quiet)
{
    int status = 0;

    *shared = (outcome){0};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (is_quiet && freopen("/dev/null", "w", stdout) == NULL) {
            _exit(2);
        }
        limit_run();
        run_stage(stage, seed, kept, false);
        sim_coverage_write();
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && !is_quiet) {
        printf("seed %llu: %s\n", (unsigned long long)seed,
               strsignal(WTERMSIG(status)));
    }
    return status == 0;
}

/* Leaves out one fault after the other and returns those that the failure needs. */
static uint64_t
shrink(const char *stage, uint64_t seed)
{
    uint64_t kept = (UINT64_C(1) << SIM_FAULTS) - 1;

    for (int i = 0; i < SIM_FAULTS; i++) {
        uint64_t fewer = kept & ~(UINT64_C(1) << i);
        if (fewer != kept && !run_seed(stage, seed, fewer, true)) {
            kept = fewer;
        }
    }
    return kept;
}

static void
explain(const char *stage, uint64_t seed)
{
    uint64_t kept = shrink(stage, seed);

    printf("seed %llu needs only the faults 0x%llx:\n", (unsigned long long)seed,
           (unsigned long long)kept);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        limit_run();
        run_stage(stage, seed, kept, false);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static double
seconds(void)
{
    return (double)time(NULL);
}

static bool
passes_twice(const char *stage, uint64_t seed)
{
    if (!run_seed(stage, seed, ALL, false)) {
        return false;
    }
    outcome first = *shared;
    if (!run_seed(stage, seed, ALL, false)) {
        return false;
    }
    if (first.hash != shared->hash) {
        printf("seed %llu: two runs differ\n", (unsigned long long)seed);
        return false;
    }
    return true;
}

static int
run_range(const char *mode, const char *stage, uint64_t first, uint64_t last)
{
    bool is_hunt = strcmp(mode, "--hunt") == 0;
    bool is_twice = strcmp(mode, "--twice") == 0;
    double start = seconds();
    int64_t simulated = 0;
    uint64_t steps = 0;
    int failed = 0;

    for (uint64_t seed = first; seed < last; seed++) {
        bool is_passed =
            is_twice ? passes_twice(stage, seed) : run_seed(stage, seed, ALL, is_hunt);
        simulated += shared->simulated;
        steps += shared->steps;
        if (!is_passed && is_hunt) {
            printf("%llu\n", (unsigned long long)seed);
            return 1;
        }
        if (!is_passed) {
            failed++;
            explain(stage, seed);
        }
    }
    double took = seconds() - start;
    printf("%llu seeds, %d failed: %llu calls, %.0f s of simulated time in %.0f s\n",
           (unsigned long long)(last - first), failed, (unsigned long long)steps,
           (double)simulated / 1e9, took);
    return failed > 0;
}

int
main(int count, char **arguments)
{
    bool has_mode = count > 1 && arguments[1][0] == '-';
    char **rest = arguments + 1 + has_mode;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (has_mode && strcmp(arguments[1], "--trace") == 0 && count >= 4) {
        uint64_t kept = count > 4 ? strtoull(rest[2], NULL, 0) : ALL;
        run_stage(rest[0], strtoull(rest[1], NULL, 10), kept, true);
        printf("hash %016llx\n", (unsigned long long)sim.hash);
        return 0;
    }
    if (count != 4 + has_mode) {
        fprintf(stderr, "usage: simulate [--twice | --hunt] STAGE FIRST LAST\n"
                        "       simulate --trace STAGE SEED [FAULTS]\n");
        return 2;
    }
    return run_range(has_mode ? arguments[1] : "", rest[0], strtoull(rest[1], NULL, 10),
                     strtoull(rest[2], NULL, 10));
}
