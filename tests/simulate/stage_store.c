/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_store.h"

#include "history.h"
#include "net/listen.h"
#include "store/tcp/journal.h"
#include "store/tcp/server.h"

#define SERVER_HOST 0

/* How long whoever starts servers waits before it starts the next one. */
#define RESTART_LEAST (5 * DL_MILLISECOND)
#define RESTART_MOST (2 * DL_SECOND)

/* A client that lost its server looks for it with pauses of up to a second. */
#define SETTLE (3 * DL_SECOND)

/* When faults begin and how long they come. */
#define FAULTS_FROM (1000 * DL_SECOND)
#define FAULTS_SPAN (2 * DL_SECOND)

/* The whole run; what waits longer hangs. */
#define RUN_LIMIT (1600 * DL_SECOND)

/* Sizes from which a journal is replaced, in most runs. */
#define JOURNAL_LEAST 200
#define JOURNAL_MOST 4000

/* The journal's interval of syncs, and what a sync may take. */
#define INTERVAL_LOSS (DL_SECOND + 100 * DL_MILLISECOND)

sim_store_run sim_store;

static struct {
    sim_process *process;
    bool has_journal;
    dl_journal_sync sync;
    bool is_serving;
    bool is_planned; /* a start of the next one */
    int64_t serving_since;
    bool must_stop;
    bool has_stopped;
    bool may_fail; /* its faults may keep it from starting, or from freeing nothing */
    bool is_full;
    int started;
    sim_random random;
} server;

bool
sim_store_is_calm(int64_t at)
{
    return at > sim_store.plan.calm_at + SETTLE && server.is_serving
           && at > server.serving_since + SETTLE;
}

/* The server. */

static bool
must_stop(void *context)
{
    (void)context;
    return server.must_stop;
}

static void
check_nothing_left(const sim_process *process)
{
    if (process->live_allocations != 0) {
        sim_fail("%s has %ld blocks of memory left", process->name,
                 process->live_allocations);
    }
    int left = sim_net_open_count(process) + sim_disk_open_count(process);
    if (left != 0) {
        sim_fail("%s has %d descriptors left", process->name, left);
    }
    if (process->live_tasks != 1) {
        sim_fail("%s has %d threads left", process->name, process->live_tasks - 1);
    }
}

static void start_server(void *context);

static void
plan_restart(void)
{
    server.is_serving = false;
    if (!server.must_stop) {
        server.is_planned = true;
        int64_t at =
            sim.now + sim_random_span(&server.random, RESTART_LEAST, RESTART_MOST);
        int64_t up_at = sim.host_up_at[SERVER_HOST];
        sim_at(at > up_at ? at : up_at + DL_MILLISECOND, start_server, NULL);
    }
}

/* A server that cannot start says why, and is started again. */
static void
note_failed_start(void)
{
    sim_note("the server does not start: %s", dl_last_error()->text);
    if (!server.may_fail && !server.is_full) {
        sim_fail("the server does not start: %s", dl_last_error()->text);
    }
    plan_restart();
}

static void *
server_main(void *argument)
{
    const dl_server_options options = {
        .journal = server.has_journal ? SIM_JOURNAL : NULL,
        .sync = server.sync,
    };
    dl_server *started;
    int fd;

    (void)argument;
    dl_status status = dl_socket_listen(SIM_SERVER_ADDRESS, SIM_PORT,
                                        dl_deadline_after(DL_SECOND), &fd);
    if (status == DL_OK) {
        status = dl_server_start(&dl_loop_epoll_ops, fd, &options, &started);
    }
    if (status != DL_OK) {
        note_failed_start();
        check_nothing_left(sim_process_current());
        return NULL;
    }
    sim_note("the server serves");
    server.is_serving = true;
    server.serving_since = sim.now;
    sim_wait("the end of the run", must_stop, NULL, SIM_FOREVER);
    dl_server_stop(started);
    check_nothing_left(sim_process_current());
    server.has_stopped = true;
    return NULL;
}

static void
start_server(void *context)
{
    (void)context;
    server.is_planned = false;
    if (!server.must_stop) {
        server.may_fail = false;
        server.process = sim_process_start(server.started++ == 0 ? "server" : "server'",
                                           SERVER_HOST, server_main, NULL);
    }
}

static void
look_for_end(void *context)
{
    (void)context;
    /* It may have been killed while it was starting. */
    if (!server.process->is_alive && !server.is_planned) {
        plan_restart();
    }
}

static void
kill_server(void)
{
    if (server.process->is_alive && server.is_serving) {
        sim_process_kill(server.process);
        plan_restart();
    }
}

static void
crash_host(int64_t span)
{
    if (!server.process->is_alive || !server.is_serving) {
        return;
    }
    if (server.sync != DL_JOURNAL_ALWAYS) {
        int64_t kept = INTERVAL_LOSS + sim_plan_span(&sim_store.plan, SIM_STOP_SERVER)
                       + sim_plan_span(&sim_store.plan, SIM_SLOW_DISK);
        sim_history_lose(server.sync == DL_JOURNAL_INTERVAL ? sim.now - kept : 0);
    }
    sim_note("the server's host crashes");
    sim.host_up_at[SERVER_HOST] = sim.now + span;
    sim_net_crash(SERVER_HOST);
    sim_process_kill(server.process);
    sim_disk_crash(SERVER_HOST);
    plan_restart();
}

/* Faults. */

static void
end_full_disk(void *context)
{
    (void)context;
    sim_disk_set_full(SERVER_HOST, false);
    server.is_full = false;
}

static void
end_slow_disk(void *context)
{
    (void)context;
    sim_disk_set_slow(SERVER_HOST, 0);
}

static void
end_fault(void *context)
{
    sim_process *process = context;

    process->fail_allocation_at[0] = 0;
    process->fail_descriptor_at[0] = 0;
    process->kill_at_call = 0;
}

static void
inject_into_server(const sim_fault *fault)
{
    sim_process *process = server.process;

    switch (fault->kind) {
    case SIM_STOP_SERVER:
        process->stopped_until = sim.now + fault->span;
        break;
    case SIM_NO_MEMORY_SERVER:
        server.may_fail = true;
        sim_fail_from(process->fail_allocation_at, process->allocations, fault->number);
        sim_at(sim.now + fault->span, end_fault, process);
        break;
    case SIM_NO_DESCRIPTORS:
        server.may_fail = true;
        sim_fail_from(process->fail_descriptor_at, process->descriptors, fault->number);
        sim_at(sim.now + fault->span, end_fault, process);
        break;
    case SIM_KILL_SERVER:
        if (fault->number % 2 == 0) {
            kill_server();
        } else if (process->is_alive) {
            process->kill_at_call = process->calls + fault->number;
            sim_at(sim.now + fault->span, end_fault, process);
        }
        break;
    case SIM_CRASH_HOST:
        crash_host(fault->span);
        break;
    case SIM_FULL_DISK:
        server.is_full = true;
        sim_disk_set_full(SERVER_HOST, true);
        sim_at(sim.now + fault->span, end_full_disk, NULL);
        break;
    case SIM_SLOW_DISK:
        sim_disk_set_slow(SERVER_HOST, fault->span);
        sim_at(sim.now + fault->span, end_slow_disk, NULL);
        break;
    default:
        break;
    }
}

static void
inject(void *context)
{
    const sim_fault *fault = context;
    sim_client *client = &sim_store.client[fault->client];
    bool is_alive = client->process->is_alive && !client->has_ended;

    sim_note("fault %d", fault->kind);
    switch (fault->kind) {
    case SIM_CUT:
        (void)sim_net_cut(&sim.wire);
        break;
    case SIM_PARTITION:
        sim_net_partition(SERVER_HOST, client->process->host, sim.now + fault->span);
        break;
    case SIM_STOP_CLIENT:
        client->process->stopped_until = sim.now + fault->span;
        break;
    case SIM_KILL_CLIENT:
        if (is_alive) {
            sim_store.are_killed = true;
            client->process->kill_at_call = client->process->calls + fault->number;
            sim_at(sim.now + fault->span, end_fault, client->process);
        }
        break;
    case SIM_NO_MEMORY_CLIENT:
        sim_fail_from(client->process->fail_allocation_at, client->process->allocations,
                      fault->number);
        sim_at(sim.now + fault->span, end_fault, client->process);
        break;
    case SIM_JUMP:
        sim.wall_offset +=
            (fault->number % 2 == 0 ? -1 : 1) * (int64_t)fault->number * DL_SECOND;
        break;
    default:
        inject_into_server(fault);
    }
}

/* The run. */

/* The server is killed inside one of its calls by a fault, which nobody else notices. */
static void
watch_server(void *context)
{
    look_for_end(context);
    if (!server.must_stop) {
        sim_at(sim.now + 10 * DL_MILLISECOND, watch_server, NULL);
    }
}

static bool
have_clients_ended(void)
{
    for (int i = 0; i < sim_store.clients; i++) {
        if (sim_store.client[i].process->is_alive && !sim_store.client[i].has_ended) {
            return false;
        }
    }
    return true;
}

/* Also by a crash of its host, after which nobody starts it again. */
static bool
has_server_stopped(void)
{
    return server.has_stopped || !server.process->is_alive;
}

static void
print_faults(void)
{
    printf("  journal %d, sync %d\n", server.has_journal, server.sync);
    sim_plan_print(&sim_store.plan);
}

static void
draw_run(sim_random *random, uint64_t kept)
{
    server.has_journal = !sim_random_once_in(random, 3);
    server.sync = (dl_journal_sync)(DL_JOURNAL_NEVER + sim_random_below(random, 3));
    sim_store = (sim_store_run){
        .clients = 2 + (int)sim_random_below(random, SIM_CLIENTS - 1),
        .threads = 1 + (int)sim_random_below(random, 2),
        .operations = 5 + (int)sim_random_below(random, 16),
    };
    sim_plan_draw(&sim_store.plan, random, kept, sim_store.clients, server.has_journal,
                  FAULTS_FROM, FAULTS_SPAN);
    sim_store.may_forget = server.sync != DL_JOURNAL_ALWAYS
                           && sim_plan_has(&sim_store.plan, SIM_CRASH_HOST);
    server.random = sim_random_of(sim.seed, 6);
    if (!sim_random_once_in(&server.random, 3)) {
        dl_journal_least_replaced =
            (uint64_t)sim_random_span(&server.random, JOURNAL_LEAST, JOURNAL_MOST);
    }
}

void
sim_stage_store(uint64_t kept)
{
    sim_random random = sim_random_of(sim.seed, 5);

    sim.print_faults = print_faults;
    draw_run(&random, kept);
    sim_note("journal %d, sync %d, %d clients with %d threads of %d operations",
             server.has_journal, server.sync, sim_store.clients, sim_store.threads,
             sim_store.operations);
    if (sim.has_trace) {
        print_faults();
    }
    start_server(NULL);
    for (int i = 0; i < sim_store.clients; i++) {
        sim_client *client = &sim_store.client[i];
        *client = (sim_client){.number = i, .stream = 10 + 10 * (uint64_t)i};
        snprintf(client->name, sizeof client->name, "client %d", i);
        client->process =
            sim_process_start(client->name, 1 + i, sim_client_main, client);
    }
    for (int i = 0; i < sim_store.plan.count; i++) {
        sim_at(sim_store.plan.faults[i].at, inject, &sim_store.plan.faults[i]);
    }
    watch_server(NULL);
    sim_run(have_clients_ended, RUN_LIMIT);
    server.must_stop = true;
    server.process->kill_at_call = 0; /* nobody would start the next one */
    if (server.is_serving && server.process->is_alive) {
        sim_run(has_server_stopped, RUN_LIMIT);
    }
    sim_client_check();
    sim_history_check(SIM_KEY_COUNT);
    if (sim.is_damaged && server.has_stopped) {
        sim_store_damage();
    }
}
