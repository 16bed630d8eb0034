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

/* Up to as many lists are read by all ranks. */
#define READING_LISTS 8

/* What a leader whose list names a rank adds to the counter beside one. */
#define LISTING (INT64_C(1) << 32)

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
    bool is_later; /* not the first trial */
    /* By leader: probes of the processes that this rank cannot watch by a Unix
     * socket. */
    dl_link *links;
} trial;

/* The token is another one whenever the ranks meet anew. */
static dl_bytes
key_of(const dl_endpoint *endpoint, int rank, const char *what,
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

dl_bytes
dl_reach_key(const dl_endpoint *endpoint, int rank, char text[DL_RANK_KEY_SIZE])
{
    return key_of(endpoint, rank, "apart", text);
}

/* Return the keys of the leaders that have published their lists, and of the list of
 * whether any of these names a rank. */
static dl_bytes
counter_key(const dl_endpoint *endpoint, char text[DL_RANK_KEY_SIZE])
{
    return key_of(endpoint, 0, "tried", text);
}

static dl_bytes
sum_key(const void *context, int at, char text[DL_RANK_KEY_SIZE])
{
    const trial *self = context;

    return key_of(self->endpoint, at, "parts", text);
}

void
dl_reach_clear(const dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    const trial self = {.endpoint = (dl_endpoint *)(uintptr_t)endpoint};
    char text[DL_RANK_KEY_SIZE];
    bool existed;

    (void)dl_store_delete_key(store, counter_key(endpoint, text), &existed, deadline);
    (void)dl_store_delete_key(store, sum_key(&self, 0, text), &existed, deadline);
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

/* Returns whether the leaders are counted, so that each rank reads one value instead of
 * all lists, which nearly always are empty. */
static bool
are_counted(const trial *self)
{
    return self->endpoint->has_counters && !self->is_later
           && self->leader_count > READING_LISTS;
}

/* The last leader tells all ranks whether there is anything to be read. */
static dl_status
count_list(const trial *self, int count)
{
    const dl_endpoint *endpoint = self->endpoint;
    dl_store *store = self->options->store;
    char text[DL_RANK_KEY_SIZE];
    dl_buffer sum = {0};
    int64_t counted = 0;

    DL_TRY(dl_store_add(store, counter_key(endpoint, text), count > 0 ? LISTING + 1 : 1,
                        &counted, self->deadline));
    if (counted % LISTING != self->leader_count) {
        return DL_OK;
    }
    dl_put_u32(&sum, counted >= LISTING);
    dl_status status = dl_endpoint_store(endpoint, store, sum_key(self, 0, text), &sum,
                                         self->deadline);
    dl_buffer_fini(&sum);
    return status;
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
    dl_status status =
        dl_endpoint_store(self->endpoint, self->options->store,
                          dl_reach_key(self->endpoint, self->endpoint->rank, key),
                          &outcome, self->deadline);
    dl_buffer_fini(&outcome);
    return status == DL_OK && are_counted(self) ? count_list(self, count) : status;
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

/* A rank that has timed out has left whom it waited for. */
static dl_status
fail_ended(const trial *self, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(self->endpoint, rank, peer);
    (void)dl_fail(DL_PEER_LOST, "%s exited, was killed or gave up", peer);
    DL_TRY(dl_join_fault_check_lost(self->options->store));
    return DL_PEER_LOST;
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
    if (link->options.there == NULL) {
        dl_way way;
        dl_link_options options = {.group = self->options->group_name,
                                   .there = &endpoint->peers[rank],
                                   .rank = endpoint->rank,
                                   .peer = rank};
        dl_contacts_find_way(&endpoint->contacts, rank, &way);
        dl_link_options_aim(&options, &way, 0);
        dl_link_init(link, &options);
    }
    dl_status status = dl_link_probe(link);
    if (status == DL_PEER_LOST) {
        DL_TRY(dl_join_fault_check_lost(self->options->store));
        return DL_PEER_LOST;
    }
    return DL_OK;
}

/* Of many leaders each rank watches its own and another one, so that each is watched by
 * several. */
static bool
is_watched(const trial *self, int at)
{
    int rank = self->endpoint->rank;

    return self->leaders[at] != rank
           && (!are_counted(self) || self->leaders[at] == self->hosts[rank]
               || at == rank % self->leader_count);
}

/* Called between slices of the wait: fails if an awaited leader has ended. */
static dl_status
check_leaders(void *context)
{
    trial *self = context;
    const dl_endpoint *endpoint = self->endpoint;

    for (int i = 0; i < self->leader_count; i++) {
        int rank = self->leaders[i];
        bool is_own = rank == self->hosts[endpoint->rank] && self->sees_own;
        if (!is_watched(self, i)) {
            continue;
        }
        if (is_own && check_socket(self, rank) == DL_NOT_FOUND) {
            return fail_ended(self, rank);
        }
        if (!is_own) {
            DL_TRY(probe_leader(self, i));
        }
    }
    return DL_OK;
}

static dl_bytes
list_key(const void *context, int at, char text[DL_RANK_KEY_SIZE])
{
    const trial *self = context;

    return dl_reach_key(self->endpoint, self->leaders[at], text);
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
        dl_bytes key = list_key(self, i, text);
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
move_unreached(trial *self, int leader, const dl_buffer *sealed)
{
    dl_endpoint *endpoint = self->endpoint;
    char key[DL_RANK_KEY_SIZE];
    char reason[DL_PROBLEM_SIZE];
    dl_bytes outcome;
    int count = 0;

    if (dl_endpoint_unseal(endpoint, dl_reach_key(endpoint, leader, key), sealed,
                           &outcome)
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

/* Waits for the values of some keys. */
static dl_status
await_values(trial *self, int count, dl_rank_key_fn key, dl_buffer *values)
{
    dl_rank_keys keys = {0};
    dl_status status =
        values == NULL ? DL_NO_MEMORY : dl_rank_keys_init(&keys, count, key, self);

    if (status == DL_OK) {
        status = dl_join_fault_await(&keys, self->options->store, values,
                                     self->deadline, check_leaders, self);
        status = status == DL_TIMEOUT ? fail_no_answer(self) : status;
    }
    dl_rank_keys_fini(&keys);
    return status;
}

/* Sets whether any list names a rank, when all leaders have published theirs. */
static dl_status
read_sum(trial *self, bool *has_any)
{
    dl_buffer value = {0};
    char text[DL_RANK_KEY_SIZE];
    dl_bytes sum;
    uint32_t any = 1;

    dl_status status = await_values(self, 1, sum_key, &value);
    if (status == DL_OK) {
        status =
            dl_endpoint_unseal(self->endpoint, sum_key(self, 0, text), &value, &sum);
    }
    if (status == DL_OK) {
        dl_reader reader = dl_reader_of(sum);
        *has_any = !dl_take_u32(&reader, &any) || any != 0;
    }
    dl_buffer_fini(&value);
    return status;
}

static dl_status
read_lists(trial *self)
{
    bool has_any = true;

    if (are_counted(self)) {
        DL_TRY(read_sum(self, &has_any));
    }
    if (!has_any) {
        return DL_OK;
    }
    dl_buffer *outcomes = dl_rank_values_new(self->leader_count);
    dl_status status = await_values(self, self->leader_count, list_key, outcomes);
    for (int i = 0; status == DL_OK && i < self->leader_count; i++) {
        status = move_unreached(self, self->leaders[i], &outcomes[i]);
    }
    dl_rank_values_free(outcomes, self->leader_count);
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
        if (self->links[i].options.there != NULL) {
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
    if (status == DL_PEER_LOST) {
        /* Few ranks may watch the one that is lost, and this one as well. */
        dl_join_fault_pass_on(self->options->store, endpoint->rank);
    }
    self->is_later = true;
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
    trial self = {
        .endpoint = endpoint, .options = options, .deadline = deadline, .hosts = hosts};
    dl_status status = divide_hosts(&self);

    free(self.is_listed);
    free(self.ranks);
    free(self.leaders);
    free(self.links);
    return status;
}
