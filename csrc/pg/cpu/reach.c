/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/reach.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "pg/cpu/invite.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/tcp/link.h"

/* "dlapt" and, in the last byte, a version. */
#define OUTCOME_MAGIC UINT64_C(0x0100007470616c64)

/* Of so many leaders a rank watches all while it waits for their lists. */
#define WATCHED_LEADERS 8

typedef struct trial {
    dl_endpoint *endpoint;
    const dl_backend_options *options;
    dl_deadline deadline;
    int *hosts;      /* by rank */
    bool *is_listed; /* by rank: of a leader, its list was read, or is awaited */
    int *ranks;      /* room for a list of ranks */
    int *leaders;    /* whose lists are awaited, in ascending order */
    int leader_count;
    bool sees_own; /* this rank's leader can be seen by its socket */
    int lost;      /* the leader that this rank has found to have ended; -1: none */
    /* By leader: probes of the processes that this rank cannot watch by a Unix
     * socket. */
    dl_link *links;
} trial;

/* The token is another one whenever the ranks meet anew. */
dl_bytes
dl_reach_key(const dl_endpoint *endpoint, int rank, const char *what,
             char text[DL_RANK_KEY_SIZE])
{
    const uint8_t *token = endpoint->contacts.entries[rank].token;
    int size = snprintf(text, DL_RANK_KEY_SIZE, "cpu/%d/%s/", rank, what);

    for (int i = 0; i < DL_TOKEN_SIZE; i++) {
        size +=
            snprintf(text + size, (size_t)(DL_RANK_KEY_SIZE - size), "%02x", token[i]);
    }
    return (dl_bytes){(const uint8_t *)text, (size_t)size};
}

static dl_bytes
list_key(const dl_endpoint *endpoint, int leader, char text[DL_RANK_KEY_SIZE])
{
    return dl_reach_key(endpoint, leader, "apart", text);
}

void
dl_reach_put(dl_buffer *buffer, const int *ranks, int count, const char *reason)
{
    dl_put_u64(buffer, OUTCOME_MAGIC);
    dl_put_u32(buffer, (uint32_t)count);
    for (int i = 0; i < count; i++) {
        dl_put_u32(buffer, (uint32_t)ranks[i]);
    }
    dl_put_bytes(buffer, dl_bytes_of(reason));
}

dl_status
dl_reach_take(dl_bytes bytes, int size, int *ranks, int *count,
              char reason[DL_PROBLEM_SIZE])
{
    dl_reader reader = dl_reader_of(bytes);
    uint64_t magic;
    uint32_t number = 0;
    uint32_t rank = 0;
    dl_bytes text;
    bool is_good = dl_take_u64(&reader, &magic) && magic == OUTCOME_MAGIC
                   && dl_take_u32(&reader, &number) && number < (uint32_t)size;

    for (uint32_t i = 0; is_good && i < number; i++) {
        is_good = dl_take_u32(&reader, &rank) && rank < (uint32_t)size;
        ranks[i] = (int)rank;
    }
    if (!is_good || dl_take_bytes(&reader, DL_PROBLEM_SIZE - 1, &text) != 1) {
        return dl_fail(DL_PROTOCOL, "its list, in the store, of the ranks that it "
                                    "reaches on its host is damaged");
    }
    *count = (int)number;
    snprintf(reason, DL_PROBLEM_SIZE, "%.*s", (int)text.size, (const char *)text.data);
    return DL_OK;
}

/* Sets the ranks of its host that this leader does not reach.  A rank that has ended
 * counts as one on another host; no rank reaches it there either, which the greeting of
 * the leaders detects. */
static dl_status
invite_all(trial *self, int *count, char reason[DL_PROBLEM_SIZE])
{
    int own = self->endpoint->rank;

    *count = 0;
    reason[0] = '\0';
    for (int rank = own + 1; rank < self->endpoint->size; rank++) {
        dl_status status =
            self->hosts[rank] == own
                ? dl_invite_rank(self->endpoint, self->options->group_name, rank,
                                 self->deadline)
                : DL_OK;
        if (dl_invite_is_unreached(status, self->deadline)) {
            if (*count == 0) {
                snprintf(reason, DL_PROBLEM_SIZE, "%.*s", DL_PROBLEM_SIZE - 1,
                         dl_last_error()->text);
            }
            self->ranks[(*count)++] = rank;
        } else if (status != DL_OK) {
            return status;
        }
    }
    /* A rank that has stored the reason of its failure is not taken for one on another
     * host. */
    return *count == 0 ? DL_OK : dl_join_fault_check(self->options->store);
}

static dl_status
publish_list(trial *self)
{
    char reason[DL_PROBLEM_SIZE];
    char key[DL_RANK_KEY_SIZE];
    dl_buffer outcome = {0};
    int count;

    DL_TRY(invite_all(self, &count, reason));
    dl_reach_put(&outcome, self->ranks, count, reason);
    dl_status status = dl_endpoint_store(
        self->endpoint, self->options->store,
        list_key(self->endpoint, self->endpoint->rank, key), &outcome, self->deadline);
    dl_buffer_fini(&outcome);
    return status;
}

static dl_status
check_socket(const trial *self, int rank)
{
    char socket[DL_LOCAL_NAME_SIZE];

    dl_contacts_socket(&self->endpoint->contacts, rank, socket);
    return dl_local_check(socket);
}

/* A rank that cannot send to its leader's socket watches the leader as ranks of other
 * hosts do. */
static dl_status
check_own_leader(trial *self, int leader)
{
    dl_status status = check_socket(self, leader);

    self->sees_own = status == DL_OK;
    return status == DL_NOT_FOUND ? DL_OK : status;
}

static dl_status
fail_ended(const trial *self, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(self->endpoint, rank, peer);
    return dl_fail(DL_PEER_LOST, "%s exited, was killed or gave up", peer);
}

static dl_status
probe_leader(trial *self, int at)
{
    const dl_endpoint *endpoint = self->endpoint;
    int rank = self->leaders[at];
    dl_link *link = &self->links[at];

    if (!endpoint->contacts.entries[rank].has_address) {
        return DL_OK;
    }
    if (link->options.group == NULL) {
        dl_tcp_contact tcp;
        dl_link_options options = {.group = self->options->group_name,
                                   .peers = endpoint->peers,
                                   .rank = endpoint->rank,
                                   .peer = rank};
        dl_contacts_find_tcp(&endpoint->contacts, rank, &tcp);
        dl_link_options_aim(&options, &tcp, 0);
        dl_link_init(link, &options);
    }
    return dl_link_probe(link) == DL_PEER_LOST ? DL_PEER_LOST : DL_OK;
}

/* Of many leaders each rank watches its own and another one, so that each is watched by
 * several. */
static bool
is_watched(const trial *self, int at)
{
    int rank = self->endpoint->rank;

    return self->leaders[at] != rank
           && (self->leader_count <= WATCHED_LEADERS
               || self->leaders[at] == self->hosts[rank]
               || at == rank % self->leader_count);
}

/* Called during the wait: fails if an awaited leader has ended. */
static dl_status
check_leaders(void *context)
{
    trial *self = context;
    dl_status status = DL_OK;

    for (int i = 0; i < self->leader_count && status == DL_OK; i++) {
        int rank = self->leaders[i];
        bool is_own = rank == self->hosts[self->endpoint->rank] && self->sees_own;
        if (!is_watched(self, i)) {
            continue;
        }
        if (!is_own) {
            status = probe_leader(self, i);
        } else if (check_socket(self, rank) == DL_NOT_FOUND) {
            status = fail_ended(self, rank);
        }
        self->lost = status == DL_OK ? -1 : rank;
    }
    return status;
}

static dl_bytes
awaited_key(const void *context, int at, char text[DL_RANK_KEY_SIZE])
{
    const trial *self = context;

    return list_key(self->endpoint, self->leaders[at], text);
}

/* Names the first leader that has left no list; none, if all have meanwhile. */
static dl_status
fail_no_answer(const trial *self)
{
    char text[DL_RANK_KEY_SIZE];
    char peer[DL_PEER_TEXT_SIZE] = "the leader of a host";
    dl_deadline deadline = dl_deadline_after(DL_JOIN_FAULT_PATIENCE);
    bool has_list = true;

    for (int i = 0; i < self->leader_count && has_list; i++) {
        dl_bytes key = awaited_key(self, i, text);
        if (dl_store_check(self->options->store, &key, 1, &has_list, deadline)
            != DL_OK) {
            break;
        }
        if (!has_list) {
            dl_endpoint_describe(self->endpoint, self->leaders[i], peer);
        }
    }
    return dl_fail(DL_TIMEOUT, "timed out after %" PRId64 "ms: %s does not answer",
                   self->deadline.limit / DL_MILLISECOND, peer);
}

/* Moves the ranks that the leader did not reach to a host of their own, led by the
 * lowest of them. */
static dl_status
move_unreached(trial *self, int leader, const dl_buffer *stored)
{
    dl_endpoint *endpoint = self->endpoint;
    char key[DL_RANK_KEY_SIZE];
    char reason[DL_PROBLEM_SIZE];
    dl_bytes outcome;
    int count = 0;

    if (dl_endpoint_verify(endpoint, list_key(endpoint, leader, key), stored, &outcome)
            != DL_OK
        || dl_reach_take(outcome, endpoint->size, self->ranks, &count, reason)
               != DL_OK) {
        return dl_fail_while("rank %d", leader);
    }
    for (int i = 0; i < count; i++) {
        int rank = self->ranks[i];
        if (rank <= leader || self->hosts[rank] != leader) {
            return dl_fail(DL_PROTOCOL,
                           "rank %d reports that it cannot reach rank %d, which is on "
                           "another host",
                           leader, rank);
        }
        self->hosts[rank] = self->ranks[0];
    }
    if (count > 0 && endpoint->apart[0] == '\0') {
        snprintf(endpoint->apart, sizeof endpoint->apart, "rank %d to rank %d: %.400s",
                 leader, self->ranks[0], reason);
    }
    return DL_OK;
}

/* Waits for the lists of all leaders. */
static dl_status
await_lists(trial *self, dl_buffer *lists)
{
    dl_rank_keys keys = {0};
    dl_status status =
        lists == NULL ? DL_NO_MEMORY
                      : dl_rank_keys_init(&keys, self->leader_count, awaited_key, self);

    if (status == DL_OK) {
        status = dl_join_fault_await(&keys, self->options->store, lists, self->deadline,
                                     check_leaders, self);
        status = status == DL_TIMEOUT ? fail_no_answer(self) : status;
    }
    dl_rank_keys_fini(&keys);
    return status;
}

static dl_status
read_lists(trial *self)
{
    dl_buffer *lists = dl_rank_values_new(self->leader_count);
    dl_status status = await_lists(self, lists);

    for (int i = 0; status == DL_OK && i < self->leader_count; i++) {
        status = move_unreached(self, self->leaders[i], &lists[i]);
    }
    dl_rank_values_free(lists, self->leader_count);
    return status;
}

static bool
is_awaited(const trial *self, int leader)
{
    for (int i = 0; i < self->leader_count; i++) {
        if (self->leaders[i] == leader) {
            return true;
        }
    }
    return false;
}

/* Lists the leaders whose lists were not read yet.  A rank that is alone on its host
 * publishes none. */
static void
list_leaders(trial *self)
{
    self->leader_count = 0;
    for (int rank = 0; rank < self->endpoint->size; rank++) {
        int leader = self->hosts[rank];
        if (rank != leader && !self->is_listed[leader]) {
            self->is_listed[leader] = true;
            self->leaders[self->leader_count++] = leader;
        }
    }
}

static void
close_links(trial *self)
{
    for (int i = 0; i < self->leader_count; i++) {
        if (self->links[i].options.group != NULL) {
            dl_link_fini(&self->links[i]);
        }
        self->links[i] = (dl_link){.is_open = false};
    }
}

static dl_status
run_trial(trial *self)
{
    const dl_endpoint *endpoint = self->endpoint;
    int own = self->hosts[endpoint->rank];

    if (is_awaited(self, own)) {
        DL_TRY(own == endpoint->rank ? publish_list(self)
                                     : check_own_leader(self, own));
    }
    dl_status status = read_lists(self);
    if (status == DL_PEER_LOST && self->lost >= 0) {
        /* Few ranks may watch the one that is lost, and this one as well. */
        char key[DL_RANK_KEY_SIZE];
        dl_join_fault_put(self->options->store, list_key(endpoint, self->lost, key));
        dl_join_fault_pass_on(self->options->store, endpoint->rank);
    }
    close_links(self);
    return status;
}

static dl_status
divide_hosts(trial *self)
{
    size_t count = (size_t)self->endpoint->size;

    self->is_listed = calloc(count, sizeof *self->is_listed);
    self->ranks = calloc(count, sizeof *self->ranks);
    self->leaders = calloc(count, sizeof *self->leaders);
    self->links = calloc(count, sizeof *self->links);
    if (self->is_listed == NULL || self->ranks == NULL || self->leaders == NULL
        || self->links == NULL) {
        return dl_fail_no_memory();
    }
    for (list_leaders(self); self->leader_count > 0; list_leaders(self)) {
        DL_TRY(run_trial(self));
    }
    return DL_OK;
}

dl_status
dl_reach_divide(dl_endpoint *endpoint, const dl_backend_options *options,
                dl_deadline deadline, int *hosts)
{
    trial self = {.endpoint = endpoint,
                  .options = options,
                  .deadline = deadline,
                  .hosts = hosts,
                  .lost = -1};
    dl_status status = divide_hosts(&self);

    free(self.is_listed);
    free(self.ranks);
    free(self.leaders);
    free(self.links);
    return status;
}
