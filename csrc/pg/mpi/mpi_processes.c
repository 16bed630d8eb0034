/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/hash.h"
#include "pg/cpu/cpu_backend.h"

/* A process that is killed closes its lifeline first, and a busy machine may not let it go
 * on at once. */
#define PIDFD_DELAY DL_SECOND

typedef struct watched {
    int pid; /* 0: not watched */
    int fd;
} watched;

static struct {
    pthread_mutex_t lock;
    watched *ranks; /* by rank in the world; never freed, as MPI's world ends late */
    int count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A hash of the kernel's boot id and the pid namespace; 0 if one of them is not
 * known. */
static uint64_t
own_space(void)
{
    static const uint64_t seed[2] = {0, 0}; /* the same on all ranks */
    struct {
        char boot[40];
        uint64_t space;
    } facts;
    struct stat space;

    memset(&facts, 0, sizeof facts);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, facts.boot, sizeof facts.boot);
    if (fd >= 0) {
        close(fd);
    }
    if (size <= 0 || stat("/proc/self/ns/pid", &space) != 0) {
        return 0;
    }
    facts.space = (uint64_t)space.st_ino;
    return dl_hash_seeded((dl_bytes){(const uint8_t *)&facts, sizeof facts}, seed);
}

dl_mpi_process
dl_mpi_process_own(void)
{
    return (dl_mpi_process){.pid = (int)getpid(), .space = own_space()};
}

void
dl_mpi_process_watch(int world_rank, int world_size, const dl_mpi_process *process)
{
    dl_mpi_process own = dl_mpi_process_own();

    if (own.space == 0 || own.space != process->space || own.pid == process->pid) {
        return;
    }
    pthread_mutex_lock(&table.lock);
    if (table.ranks == NULL) {
        table.ranks = calloc((size_t)world_size, sizeof *table.ranks);
        table.count = table.ranks == NULL ? 0 : world_size;
    }
    if (world_rank < table.count && table.ranks[world_rank].pid == 0) {
        int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
        if (fd >= 0) {
            table.ranks[world_rank] = (watched){process->pid, fd};
        }
    }
    pthread_mutex_unlock(&table.lock);
}

static bool
has_ended_locked(int world_rank)
{
    struct pollfd asked = {.fd = table.ranks[world_rank].fd, .events = POLLIN};

    return table.ranks[world_rank].pid != 0 && poll(&asked, 1, 0) == 1
           && (asked.revents & POLLIN) != 0;
}

bool
dl_mpi_process_has_ended(int world_rank, int *pid)
{
    pthread_mutex_lock(&table.lock);
    bool has_ended = world_rank < table.count && has_ended_locked(world_rank);
    if (has_ended && pid != NULL) {
        *pid = table.ranks[world_rank].pid;
    }
    pthread_mutex_unlock(&table.lock);
    return has_ended;
}

static bool
any_has_ended_by_now(void)
{
    bool has_ended = false;

    pthread_mutex_lock(&table.lock);
    for (int rank = 0; !has_ended && rank < table.count; rank++) {
        has_ended = has_ended_locked(rank);
    }
    pthread_mutex_unlock(&table.lock);
    return has_ended;
}

bool
dl_mpi_process_any_has_ended(void)
{
    int64_t seen = dl_cpu_last_end();
    int64_t end = seen == 0 ? 0 : seen + PIDFD_DELAY;
    bool has_ended = any_has_ended_by_now();

    while (!has_ended && dl_now() < end) {
        (void)poll(NULL, 0, 1);
        has_ended = any_has_ended_by_now();
    }
    return has_ended;
}
