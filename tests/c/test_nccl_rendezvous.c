/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks that make a communicator agree on whether all of them have come. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device_groups.h"
#include "pg/nccl/nccl_make.h"

static const int members[2] = {3, 5};

static dl_nccl_watch *
new_watch(void)
{
    const dl_nccl_table *nccl;
    const dl_cuda_table *cuda;
    dl_nccl_watch *watch = NULL;

    CHECK_OK(dl_nccl_load(&nccl));
    CHECK_OK(dl_cuda_load(&cuda));
    CHECK_OK(dl_nccl_watch_new(nccl, cuda, strdup("group 0, rank 0 of 2"), &watch));
    return watch;
}

static dl_status
meet(dl_nccl_watch *watch, const char *key, int rank, int64_t patience, dl_nccl_id *id)
{
    dl_nccl_rendezvous place = {
        .store = store, .key = key, .rank = rank, .size = 2, .members = members};

    return dl_nccl_meet(watch, &place, dl_deadline_after(patience), id, 1);
}

CHECK_CASE(a_rank_that_joins_after_another_failed_gets_its_error)
{
    dl_nccl_id id = {{0}};

    CHECK_OK(dl_hash_store_new(&store));
    dl_nccl_watch *watch = new_watch();
    CHECK_STATUS(meet(watch, "late", 0, 50 * DL_MILLISECOND, &id), DL_TIMEOUT);
    CHECK_CONTAINS(dl_last_error()->text, "rank 5 did not join it within 50ms");
    /* It has the key of the first one and its own, and does not begin alone. */
    CHECK_STATUS(meet(watch, "late", 1, GROUP_PATIENCE, &id), DL_TIMEOUT);
    CHECK_CONTAINS(
        dl_last_error()->text,
        "rank 3 gave up before all ranks had joined: rank 5 did not join it");
    dl_nccl_watch_free(watch);
    dl_store_unref(store);
}

/* The last rank came just when the deadline of another one passed: that one goes on,
 * too. */
CHECK_CASE(an_outcome_counts_for_all_ranks)
{
    dl_nccl_id first = {{0}}, second = {{0}};

    CHECK_OK(dl_hash_store_new(&store));
    dl_nccl_watch *watch = new_watch();
    CHECK_OK(dl_store_set(store, DL_LITERAL("close/outcome"),
                          DL_LITERAL("all are here"), soon()));
    CHECK_OK(meet(watch, "close", 0, 50 * DL_MILLISECOND, &first));
    CHECK_OK(meet(watch, "close", 1, GROUP_PATIENCE, &second));
    CHECK(first.bytes[0] != '\0');
    CHECK(memcmp(&first, &second, sizeof first) == 0);
    dl_nccl_watch_free(watch);
    dl_store_unref(store);
}

/* A rank that leaves because its group is aborted publishes that for ranks that come
 * later. */
CHECK_CASE(an_abort_ends_the_wait)
{
    dl_error cause = {.status = DL_CANCELLED, .text = "enough"};
    dl_nccl_id id = {{0}};

    CHECK_OK(dl_hash_store_new(&store));
    dl_nccl_watch *watch = new_watch(), *other = new_watch();
    dl_nccl_watch_fail(watch, &cause);
    CHECK_STATUS(meet(watch, "abort", 0, GROUP_PATIENCE, &id), DL_CANCELLED);
    CHECK_TEXT(dl_last_error()->text, "enough");
    CHECK_STATUS(meet(other, "abort", 1, GROUP_PATIENCE, &id), DL_TIMEOUT);
    CHECK_TEXT(dl_last_error()->text,
               "rank 3 gave up before all ranks had joined: enough");
    dl_nccl_watch_free(watch);
    dl_nccl_watch_free(other);
    dl_store_unref(store);
}

static void
make_large(int rank, int size, void *context)
{
    dl_device_options unset = {0};
    dl_nccl_watch *watch = new_watch();
    dl_nccl_comm *comm = NULL;
    dl_nccl_rendezvous place = {
        .store = store,
        .key = "large",
        .rank = rank,
        .size = size,
        .ranks_per_id = 2,
        .options = &unset,
    };

    (void)context;
    CHECK_OK(
        dl_nccl_comm_make(watch, &place, dl_deadline_after(GROUP_PATIENCE), &comm));
    dl_nccl_comm_free(watch, comm, true);
    dl_nccl_watch_free(watch);
}

static int
count_scalable_ids(void)
{
    run_ranks(5, make_large);
    void *library = dlopen(getenv("DISTLITE_NCCL_LIBRARY"), RTLD_NOW);
    atomic_int *ids = library == NULL ? NULL : dlsym(library, "double_ids");
    CHECK(ids != NULL);
    return atomic_load(ids);
}

CHECK_CASE(a_large_communicator_is_made_from_several_ids)
{
    CHECK_EQUAL(count_scalable_ids(), 3);
}

/* NCCL would take one on rank 0, and several on the others. */
CHECK_CASE(it_is_made_from_one_id_at_an_address_of_the_users)
{
    setenv("NCCL_COMM_ID", "127.0.0.1:29", 1);
    CHECK_EQUAL(count_scalable_ids(), 0);
}
