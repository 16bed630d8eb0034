/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/join.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a rank leaves in the store, and how long that may take. */
#define FAILURE_KEY_SIZE 40
#define FAILURE_PATIENCE DL_SECOND

static dl_bytes
failure_key(const dl_endpoint *endpoint, int rank, char text[FAILURE_KEY_SIZE])
{
    int name = endpoint->names == NULL ? rank : endpoint->names[rank];

    snprintf(text, FAILURE_KEY_SIZE, "cpu/%d/failure", name);
    return dl_bytes_of(text);
}

/* "123 out of memory": the pid tells it from what an earlier process has left. */
static void
leave_failure(const dl_join *join)
{
    const dl_endpoint *endpoint = join->endpoint;
    dl_error error = *dl_last_error();
    char key[FAILURE_KEY_SIZE];
    char text[DL_ERROR_TEXT_SIZE + 32];

    snprintf(text, sizeof text, "%" PRId64 " %s", endpoint->peers[endpoint->rank].pid,
             error.text);
    (void)dl_store_set(join->options->store, failure_key(endpoint, endpoint->rank, key),
                       dl_bytes_of(text), dl_deadline_after(FAILURE_PATIENCE));
    (void)dl_fail_again(&error);
}

/* Whether `rank` has left one. */
static bool
find_failure(const dl_join *join, int rank, char text[DL_ERROR_TEXT_SIZE])
{
    dl_deadline deadline = dl_deadline_after(FAILURE_PATIENCE);
    char name[FAILURE_KEY_SIZE];
    dl_bytes key = failure_key(join->endpoint, rank, name);
    dl_buffer value = {0};
    long long pid = 0;
    int start = 0;
    bool exists = false;

    if (dl_store_check(join->options->store, &key, 1, &exists, deadline) == DL_OK
        && exists
        && dl_store_get(join->options->store, key, &value, deadline) == DL_OK) {
        dl_buffer_put(&value, (dl_bytes){(const uint8_t *)"", 1});
    }
    if (value.size > 1 && dl_buffer_check(&value) == DL_OK
        && sscanf((const char *)value.data, "%lld %n", &pid, &start) == 1) {
        snprintf(text, DL_ERROR_TEXT_SIZE, "%.1800s", (const char *)value.data + start);
    }
    dl_buffer_fini(&value);
    return pid != 0 && pid == join->endpoint->peers[rank].pid;
}

dl_status
dl_join_fail_ended(const dl_join *join, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];
    char text[DL_ERROR_TEXT_SIZE];

    dl_endpoint_describe(join->endpoint, rank, peer);
    if (find_failure(join, rank, text)) {
        return dl_fail(DL_PEER_LOST, "%s could not join: %.1800s", peer, text);
    }
    return dl_fail(DL_PEER_LOST, "%s exited, was killed or gave up", peer);
}

dl_status
dl_join_fail_unreachable(const dl_join *join, int rank)
{
    const dl_endpoint *endpoint = join->endpoint;
    char here[DL_PEER_TEXT_SIZE];
    char there[DL_PEER_TEXT_SIZE];
    char text[DL_ERROR_TEXT_SIZE];

    if (find_failure(join, rank, text)) {
        return dl_join_fail_ended(join, rank);
    }

    dl_endpoint_describe(endpoint, endpoint->rank, here);
    dl_endpoint_describe(endpoint, rank, there);
    return dl_fail(DL_PEER_LOST, "%s cannot reach %s: it has ended", here, there);
}

dl_status
dl_join_run(const dl_join *join, dl_membership *membership)
{
    *membership = (dl_membership){0};
    dl_status status = join->endpoint->rank == 0 ? dl_join_lead(join, membership)
                                                 : dl_join_follow(join, membership);
    bool is_own =
        status == DL_INTERNAL || status == DL_NETWORK || status == DL_NO_MEMORY;
    if (is_own) {
        leave_failure(join);
    }
    if (status != DL_OK) {
        dl_membership_fini(membership);
    }
    return status;
}

void
dl_membership_fini(dl_membership *membership)
{
    dl_arena_fini(&membership->arena);
    *membership = (dl_membership){0};
}

void
dl_membership_forget(dl_membership *membership)
{
    dl_arena_forget(&membership->arena);
    *membership = (dl_membership){0};
}
