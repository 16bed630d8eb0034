/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups for tests: ranks are threads over a HashStore, or processes over a
 * FileStore. */
#ifndef DISTLITE_TESTS_GROUPS_H
#define DISTLITE_TESTS_GROUPS_H

#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>

#include "pg/group.h"
#include "ranks.h"
#include "store/file_store.h"
#include "store/hash_store.h"

#define GROUP_PATIENCE (10 * DL_SECOND)

DL_CHECK_UNUSED static dl_deadline
soon(void)
{
    return dl_deadline_after(GROUP_PATIENCE);
}

/* Changes a setting, NAME=value, of the double that is loaded as the library that
 * `variable` names. */
DL_CHECK_UNUSED static void
change_double(const char *variable, const char *setting)
{
    void *library = dlopen(getenv(variable), RTLD_NOW);
    void (*change)(const char *);

    CHECK(library != NULL);
    *(void **)&change = dlsym(library, "double_change");
    change(setting);
}

DL_CHECK_UNUSED static dl_group *
join_group(dl_store *store, const char *name, int rank, int size)
{
    dl_group_options options = {.name = name,
                                .backend = "cpu",
                                .rank = rank,
                                .size = size,
                                .timeout = GROUP_PATIENCE};
    dl_group *group = NULL;

    CHECK_OK(dl_group_new(&options, store, &group));
    return group;
}

DL_CHECK_UNUSED static void
end_group(dl_group *group)
{
    dl_group_close(group);
    dl_group_unref(group);
}

DL_CHECK_UNUSED static dl_tensor
tensor_of(void *data, size_t count, dl_dtype dtype)
{
    return (dl_tensor){.data = data,
                       .count = count,
                       .item_size = dl_dtype_size(dtype),
                       .dtype = dtype,
                       .ndim = 1,
                       .is_contiguous = true,
                       .is_writable = true};
}

DL_CHECK_UNUSED static dl_status
all_reduce(dl_group *group, int64_t *data, size_t count)
{
    dl_call args = {.op = DL_ALL_REDUCE,
                    .tensor = tensor_of(data, count, DL_INT64),
                    .reduction = DL_SUM};

    return dl_group_run(group, &args, soon());
}

/* Post the message, or wait for it, as an operation of the given kind. */
DL_CHECK_UNUSED static dl_status
post_as(dl_group *group, dl_op_type op, const dl_call *message, dl_deadline deadline,
        dl_work **work)
{
    dl_call call = *message;

    call.op = op;
    return dl_group_post(group, &call, deadline, work);
}

DL_CHECK_UNUSED static dl_status
exchange_as(dl_group *group, dl_op_type op, const dl_call *message,
            dl_deadline deadline, dl_message_end *end)
{
    dl_call call = *message;

    call.op = op;
    return dl_group_exchange(group, &call, deadline, end);
}

/* Ranks that are processes of one case. */
typedef struct rank_processes {
    int size;
    char path[256]; /* of the FileStore */
    pid_t pids[DL_RANKS_LIMIT];
} rank_processes;

DL_CHECK_UNUSED static dl_store *
open_file_store(const rank_processes *all)
{
    dl_store *store;

    CHECK_OK(dl_file_store_new(all->path, -1, &store));
    return store;
}

typedef void (*rank_process_fn)(int rank, const rank_processes *all, void *context);

/* Starts one process per rank.  The harness kills those that are left
 * at the case's end. */
DL_CHECK_UNUSED static void
start_processes(rank_processes *all, int size, rank_process_fn run, void *context)
{
    *all = (rank_processes){.size = size};
    const char *folder = getenv("TMPDIR");
    snprintf(all->path, sizeof all->path, "%s/distlite-group-XXXXXX",
             folder != NULL ? folder : "/tmp");
    int fd = mkstemp(all->path);
    CHECK(fd >= 0);
    close(fd);
    for (int rank = 0; rank < size; rank++) {
        all->pids[rank] = fork();
        CHECK(all->pids[rank] >= 0);
        if (all->pids[rank] == 0) {
            run(rank, all, context);
            exit(0);
        }
    }
}

DL_CHECK_UNUSED static bool
is_stopped(pid_t pid)
{
    char path[32], line[512] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    fclose(file);
    return strstr(line, ") T ") != NULL;
}

/* Waits for all processes: those in `killed`, a bit each, must die of SIGKILL, and the
 * others exit with 0. */
DL_CHECK_UNUSED static void
join_processes(rank_processes *all, uint64_t killed)
{
    for (int rank = 0; rank < all->size; rank++) {
        int status = -1;
        CHECK(waitpid(all->pids[rank], &status, 0) == all->pids[rank]);
        if (rank < 64 && ((killed >> rank) & 1)) {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else if (status != 0) {
            DL_CHECK_FAIL("rank %d of %d ended with status %#x", rank, all->size,
                          (unsigned)status);
        }
    }
    unlink(all->path);
}

#endif
