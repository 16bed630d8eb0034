/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a rank gets the records of the others: those of a few ranks from the store, what
 * it needs of all others over links to them, or from the leader of its host; and whom
 * it names if they do not come. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/reader.h"
#include "net/socket.h"
#include "pg/agree/rank_keys.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/gather.h"
#include "pg/cpu/invite.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/reach.h"
#include "pg/cpu/survey.h"

static dl_bytes
record_key(const void *context, int index, char text[DL_RANK_KEY_SIZE])
{
    const int *ranks = context;

    return dl_endpoint_key(ranks == NULL ? index : ranks[index], text);
}

/* Lists the ranks that have not come; none, if the store does not answer.  Keeps the
 * thread's last error. */
static dl_rank_list
list_absent(const dl_endpoint *endpoint, dl_store *store)
{
    dl_error error = *dl_last_error();
    dl_rank_keys keys;
    dl_rank_list absent = {.count = 0};

    if (dl_rank_keys_init(&keys, endpoint->size, record_key, NULL) == DL_OK) {
        if (dl_rank_keys_absent(&keys, store, &absent) != DL_OK) {
            absent.count = 0;
        }
        dl_rank_keys_fini(&keys);
    }
    (void)dl_rethrow(&error);
    return absent;
}

/* Names the ranks that have not come.  If all have come meanwhile, keeps the store's
 * error. */
static dl_status
fail_not_joined(const dl_rank_list *absent, dl_deadline deadline)
{
    if (absent->count == 0) {
        return dl_last_error()->status;
    }
    return dl_fail(DL_TIMEOUT,
                   "timed out after %" PRId64
                   "ms: waiting for rank%s %s, which %s not joined",
                   deadline.limit / DL_MILLISECOND, absent->count > 1 ? "s" : "",
                   absent->text, absent->count > 1 ? "have" : "has");
}

static dl_status
take_record(dl_endpoint *endpoint, int rank, dl_bytes record)
{
    dl_contact contact = {.tcp.count = 0};
    dl_peer peer;

    if (dl_endpoint_take(record, &peer, &contact) != DL_OK) {
        return dl_fail_while("rank %d", rank);
    }
    return dl_endpoint_keep(endpoint, rank, &peer, &contact);
}

/* Appends a record as it is sent over links: after its rank. */
static void
put_record(dl_buffer *buffer, int rank, dl_bytes record)
{
    dl_put_u32(buffer, (uint32_t)rank);
    dl_put_bytes(buffer, record);
}

static dl_status
verify_record(dl_endpoint *endpoint, int rank, const dl_buffer *stored, dl_buffer *kept)
{
    char key[DL_ENDPOINT_KEY_SIZE];
    dl_bytes record;

    if (dl_endpoint_verify(endpoint, dl_endpoint_key(rank, key), stored, &record)
        != DL_OK) {
        return dl_fail_while("rank %d", rank);
    }
    if (kept != NULL) {
        put_record(kept, rank, record);
    }
    return take_record(endpoint, rank, record);
}

/* Waits for the records of these ranks, and reads them; appends them to `kept`, unless
 * it is NULL. */
static dl_status
read_records(dl_endpoint *endpoint, dl_store *store, const int *ranks, int count,
             dl_buffer *kept, dl_deadline deadline)
{
    dl_buffer *records = dl_rank_values_new(count);
    dl_rank_keys keys = {0};
    dl_status status = records == NULL
                           ? DL_NO_MEMORY
                           : dl_rank_keys_init(&keys, count, record_key, ranks);

    if (status == DL_OK) {
        status = dl_join_fault_await(&keys, store, records, deadline, NULL, NULL);
    }
    if (status == DL_TIMEOUT) {
        dl_rank_list absent = list_absent(endpoint, store);
        status = fail_not_joined(&absent, deadline);
    }
    for (int i = 0; status == DL_OK && i < count; i++) {
        status = verify_record(endpoint, ranks[i], &records[i], kept);
    }
    dl_rank_keys_fini(&keys);
    dl_rank_values_free(records, count);
    return status;
}

static dl_status
read_all_records(dl_endpoint *endpoint, dl_store *store, dl_buffer *kept,
                 dl_deadline deadline)
{
    int *ranks = malloc((size_t)endpoint->size * sizeof *ranks);
    int count = 0;

    if (ranks == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < endpoint->size; rank++) {
        if (rank != endpoint->rank) {
            ranks[count++] = rank;
        }
    }
    dl_status status =
        count == 0 ? DL_OK
                   : read_records(endpoint, store, ranks, count, kept, deadline);
    free(ranks);
    return status;
}

/* Called between slices of the waits for links. */
static dl_status
note_awaited(void *context)
{
    dl_endpoint *endpoint = context;
    dl_deadline next = dl_join_fault_next(endpoint->deadline, endpoint->note);

    if (dl_deadline_passed(next) && !dl_deadline_passed(endpoint->deadline)) {
        (void)dl_traffic_fail_late(&endpoint->traffic);
        dl_join_fault_note(endpoint->store, endpoint->rank, endpoint->deadline,
                           &endpoint->note);
    }
    return DL_OK;
}

dl_status
dl_endpoint_open_traffic(dl_endpoint *endpoint, const char *group_name)
{
    char *name = endpoint->traffic_name;

    if (endpoint->traffic.routes != NULL) {
        return DL_OK;
    }
    snprintf(name, DL_TRAFFIC_NAME_SIZE, "%.240s/join", group_name);
    dl_traffic_options options = {
        .rank = endpoint->rank,
        .size = endpoint->size,
        .group_name = name,
        .peers = endpoint->peers,
        .tcp_contacts = dl_endpoint_tcp_contacts(endpoint),
        .listener = &endpoint->calls,
        .has_listener = true,
        .check = note_awaited,
        .context = endpoint,
    };
    return dl_traffic_init(&endpoint->traffic, &options);
}

/* Small groups read all records from the store: a few kilobytes. */
#define READING_RANKS 8

/* Limit of a record that comes over a link, in bytes, with its rank and size. */
#define RECORD_LIMIT 8192

/* Names a rank that has failed, which no link may have told, or the ranks that have not
 * come, or else the one that is awaited or, if that waits as well, what it waits for. */
static dl_status
fail_late(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    DL_TRY(dl_join_fault_check(store));
    dl_rank_list absent = list_absent(endpoint, store);
    dl_status status = fail_not_joined(&absent, deadline);

    dl_join_fault_publish(store, endpoint->rank);
    DL_TRY(dl_join_fault_check_late(store));
    return status;
}

/* Returns whether this rank can have a link to another one, which finds the same. */
static bool
can_link(const dl_endpoint *endpoint, int other)
{
    const dl_contact_entry *entries = endpoint->contacts.entries;

    return dl_survey_can_link(&entries[endpoint->rank], &entries[other]);
}

dl_status
dl_endpoint_take_all(dl_endpoint *endpoint, dl_bytes bytes)
{
    dl_reader reader = dl_reader_of(bytes);
    dl_bytes record;
    uint32_t rank;

    while (dl_reader_left(&reader) > 0) {
        if (!dl_take_u32(&reader, &rank) || rank >= (uint32_t)endpoint->size
            || dl_take_bytes(&reader, RECORD_LIMIT, &record) != 1) {
            return dl_fail(DL_PROTOCOL,
                           "the records that came over a link are damaged");
        }
        if (rank != (uint32_t)endpoint->rank) {
            DL_TRY(take_record(endpoint, (int)rank, record));
        }
    }
    for (int other = 0; other < endpoint->size; other++) {
        if (endpoint->contacts.entries[other].tail == 0) {
            return dl_fail(DL_PROTOCOL, "no record of rank %d came over a link", other);
        }
    }
    return DL_OK;
}

/* Sends the reason of a failure to the neighbours, which wait for this rank.  It is
 * stored before, because a rank that loses its link looks for it. */
static void
break_gather(dl_endpoint *endpoint, dl_store *store, const dl_gather *gather)
{
    dl_error error = *dl_last_error();
    char self_text[DL_PEER_TEXT_SIZE];

    /* Ranks that find this one gone read whom it has lost. */
    if (error.status == DL_PEER_LOST) {
        dl_join_fault_pass_on(store, endpoint->rank);
    } else {
        dl_join_fault_publish(store, endpoint->rank);
    }
    if (error.status != DL_PEER_LOST && error.status != DL_TIMEOUT) {
        dl_endpoint_describe(endpoint, endpoint->rank, self_text);
        (void)dl_fail(DL_PEER_LOST, "%s could not join: %.1800s", self_text,
                      error.status == DL_INTERRUPTED ? "it was interrupted"
                                                     : error.text);
    }
    dl_traffic_break(&endpoint->traffic, gather->neighbours, gather->neighbour_count);
    (void)dl_rethrow(&error);
}

/* Fails if the leader, which this rank has seen, has ended. */
static dl_status
check_leader(const dl_endpoint *endpoint, dl_store *store, int leader)
{
    char socket[DL_LOCAL_NAME_SIZE];
    char peer[DL_PEER_TEXT_SIZE];

    dl_contacts_socket(&endpoint->contacts, leader, socket);
    if (dl_local_check(socket) != DL_NOT_FOUND) {
        return DL_OK;
    }
    dl_endpoint_describe(endpoint, leader, peer);
    (void)dl_fail(DL_PEER_LOST, "%s exited, was killed or gave up", peer);
    DL_TRY(dl_join_fault_check_lost(store));
    return DL_PEER_LOST;
}

/* Returns the key that a leader sets when it has not reached a rank of its host. */
static dl_bytes
unreached_key(const dl_endpoint *endpoint, int leader, char text[DL_RANK_KEY_SIZE])
{
    return dl_reach_key(endpoint, leader, "unreached", text);
}

/* Returns whether the leader may not have reached this rank.  A store that cannot look
 * for keys leaves no reason to wait any longer. */
static bool
is_unreached(const dl_endpoint *endpoint, dl_store *store, int leader)
{
    char text[DL_RANK_KEY_SIZE];
    dl_bytes key = unreached_key(endpoint, leader, text);
    bool is_set = false;
    dl_status status = dl_store_check(store, &key, 1, &is_set,
                                      dl_deadline_after(DL_JOIN_FAULT_PATIENCE));

    return is_set || status == DL_UNSUPPORTED;
}

/* Waits for the leader of this host, and maps its table.  Reads all records instead if
 * one of the two does not reach the other; another rank that the leader does not reach
 * either may have become this one's leader meanwhile, and has no table. */
static dl_status
await_table(dl_endpoint *endpoint, dl_store *store, int leader, dl_deadline deadline)
{
    char socket[DL_LOCAL_NAME_SIZE];
    char peer[DL_PEER_TEXT_SIZE];
    /* The store is asked after two looks, eight, and so on. */
    int looks = 0;
    int pause = 2;
    bool was_unreached = false;
    int file = -1;

    dl_contacts_socket(&endpoint->contacts, leader, socket);
    dl_endpoint_describe(endpoint, leader, peer);
    if (dl_local_check(socket) != DL_OK) {
        return read_all_records(endpoint, store, NULL, deadline);
    }
    for (;;) {
        int64_t slice = was_unreached ? 0 : DL_JOIN_FAULT_LOOK;
        dl_status status = dl_invite_await(
            endpoint, endpoint->group_name, endpoint->rank,
            dl_deadline_earlier(deadline, slice), &endpoint->invited, &file);
        if (status == DL_OK && file >= 0) {
            status = dl_contacts_map(&endpoint->contacts, file);
            dl_socket_close(file);
            return status;
        }
        if (status != DL_OK && status != DL_TIMEOUT) {
            return status;
        }
        if (status == DL_OK || was_unreached) {
            return read_all_records(endpoint, store, NULL, deadline);
        }
        DL_TRY(check_leader(endpoint, store, leader));
        (void)dl_fail(DL_TIMEOUT, "timed out after %" PRId64 "ms: waiting for %s",
                      deadline.limit / DL_MILLISECOND, peer);
        if (dl_deadline_passed(deadline)) {
            return DL_TIMEOUT;
        }
        dl_join_fault_note(store, endpoint->rank, deadline, &endpoint->note);
        if (++looks == pause) {
            was_unreached = is_unreached(endpoint, store, leader);
            pause *= 4;
        }
    }
}

/* Reads what the rank above has sent: the table, if this rank leads its host, or else
 * the record of the rank that does. */
static dl_status
take_from_above(dl_endpoint *endpoint, dl_store *store, dl_buffer *bytes,
                dl_deadline deadline)
{
    dl_reader reader = dl_reader_of(dl_buffer_bytes(bytes));
    dl_bytes record;
    uint32_t leader;

    if (!dl_take_u32(&reader, &leader) || leader >= (uint32_t)endpoint->size) {
        return dl_contacts_take(&endpoint->contacts, bytes);
    }
    if (leader == (uint32_t)endpoint->rank
        || dl_take_bytes(&reader, RECORD_LIMIT, &record) != 1) {
        return dl_fail(DL_PROTOCOL, "the record of a leader that came over a link is "
                                    "damaged");
    }
    DL_TRY(take_record(endpoint, (int)leader, record));
    return await_table(endpoint, store, (int)leader, deadline);
}

/* Shares the table with the other ranks of the host, if this one leads it.  Those that
 * are not reached, which wait for it, learn that from the store; they are tried again,
 * and listed, in reach.h. */
static dl_status
invite_members(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    dl_contacts *contacts = &endpoint->contacts;
    int own = endpoint->rank;
    dl_layout layout = dl_survey_layout(contacts->survey, endpoint->size, own);
    int count = dl_layout_count(&layout, layout.host);

    if (!dl_layout_leads(&layout)) {
        return DL_OK;
    }
    if (count > 1) {
        DL_TRY(dl_contacts_share(contacts, &endpoint->table));
        layout = dl_survey_layout(contacts->survey, endpoint->size, own);
    }
    for (int i = 1; i < count; i++) {
        dl_status status =
            dl_invite_rank(endpoint, endpoint->group_name,
                           dl_layout_ranks(&layout, layout.host)[i], deadline);
        bool is_out = dl_invite_is_unreached(status, deadline);
        if (status != DL_OK && !is_out) {
            return status;
        }
        endpoint->has_unreached |= is_out;
    }
    char text[DL_RANK_KEY_SIZE];
    return endpoint->has_unreached
               ? dl_store_set(store, unreached_key(endpoint, own, text),
                              dl_bytes_of(""), deadline)
               : DL_OK;
}

/* Appends what a rank needs of the leader of its host, as a record. */
static dl_status
put_leader(const dl_endpoint *endpoint, int leader, dl_buffer *buffer)
{
    const dl_contacts *contacts = &endpoint->contacts;
    dl_contact contact = {.process = contacts->entries[leader].process};
    dl_buffer record = {0};

    dl_contacts_find_tcp(contacts, leader, &contact.tcp);
    dl_contacts_socket(contacts, leader, contact.socket);
    dl_peer peer = dl_contacts_peer(contacts, leader);
    dl_endpoint_put(&record, &peer, &contact);
    put_record(buffer, leader, dl_buffer_bytes(&record));
    dl_status status = dl_buffer_check(&record);
    dl_buffer_fini(&record);
    return status == DL_OK ? dl_buffer_check(buffer) : status;
}

/* Sends the ranks below this one what take_from_above() reads; `leaders` has room for
 * what is sent. */
static dl_status
send_below(dl_endpoint *endpoint, dl_gather *gather, dl_buffer *leaders)
{
    dl_bytes down[DL_GATHER_NEIGHBOURS];

    for (int i = 0; i < gather->neighbour_count; i++) {
        int rank = gather->neighbours[i];
        int leader = dl_contacts_leader(&endpoint->contacts, rank);
        if (leader != rank) {
            DL_TRY(put_leader(endpoint, leader, &leaders[i]));
        }
        down[i] = leader == rank ? dl_contacts_table(&endpoint->contacts)
                                 : dl_buffer_bytes(&leaders[i]);
    }
    return dl_gather_send_down(gather, down);
}

/* Finds out along the tree whether any leader has not reached a rank of its host: if
 * none, there is nothing to be read in the store about it. */
static dl_status
find_unreached(dl_endpoint *endpoint, dl_gather *gather)
{
    bool any = endpoint->has_unreached;

    if (endpoint->contacts.survey->is_whole) {
        DL_TRY(dl_gather_any(gather, &any));
        endpoint->has_reached = !any;
    }
    return DL_OK;
}

static dl_status
pass_records(dl_endpoint *endpoint, dl_store *store, dl_gather *gather,
             dl_buffer *records, dl_buffer *leaders, dl_deadline deadline)
{
    DL_TRY(dl_gather_up(gather, records));
    if (dl_gather_has_parent(gather)) {
        DL_TRY(dl_gather_take_down(gather, records));
        DL_TRY(take_from_above(endpoint, store, records, deadline));
    } else {
        DL_TRY(dl_endpoint_take_all(endpoint, dl_buffer_bytes(records)));
    }
    DL_TRY(dl_contacts_make_table(&endpoint->contacts));
    DL_TRY(dl_endpoint_check_own(endpoint));
    DL_TRY(invite_members(endpoint, store, deadline));
    DL_TRY(send_below(endpoint, gather, leaders));
    return find_unreached(endpoint, gather);
}

static dl_status
run_gather(dl_endpoint *endpoint, dl_store *store, dl_gather *gather,
           dl_buffer *records, dl_deadline deadline)
{
    dl_op_context op = {
        .sequence = 1, .fingerprint = {.op = DL_ALL_GATHER}, .deadline = deadline};
    dl_buffer leaders[DL_GATHER_NEIGHBOURS] = {0};

    DL_TRY(dl_endpoint_open_traffic(endpoint, endpoint->group_name));
    gather->traffic = &endpoint->traffic;
    dl_traffic_begin(&endpoint->traffic, &op);
    dl_status status =
        pass_records(endpoint, store, gather, records, leaders, deadline);
    status = status == DL_TIMEOUT ? fail_late(endpoint, store, deadline) : status;
    if (status == DL_PEER_LOST) {
        dl_error error = *dl_last_error();
        status = dl_join_fault_check_lost(store);
        status = status == DL_OK ? dl_rethrow(&error) : status;
    }
    if (status != DL_OK) {
        break_gather(endpoint, store, gather);
    }
    dl_traffic_end(&endpoint->traffic);
    /* Messages that were cut short end above. */
    for (int i = 0; i < DL_GATHER_NEIGHBOURS; i++) {
        dl_buffer_fini(&leaders[i]);
    }
    return status;
}

/* Sends the reason why a neighbour's record was not read to those neighbours that have
 * come, which wait for this rank. */
static void
notify_neighbours(dl_endpoint *endpoint, dl_store *store, const int *neighbours,
                  int count)
{
    dl_error error = *dl_last_error();
    dl_deadline deadline = dl_deadline_after(DL_JOIN_FAULT_PATIENCE);
    dl_op_context op = {
        .sequence = 1, .fingerprint = {.op = DL_ALL_GATHER}, .deadline = deadline};
    dl_gather gather = {.neighbour_count = 0};
    char text[DL_ENDPOINT_KEY_SIZE];

    for (int i = 0; i < count; i++) {
        dl_bytes key = dl_endpoint_key(neighbours[i], text);
        bool has_come = false;
        if (dl_store_check(store, &key, 1, &has_come, deadline) == DL_OK && has_come
            && read_records(endpoint, store, &neighbours[i], 1, NULL, deadline) == DL_OK
            && can_link(endpoint, neighbours[i])) {
            gather.neighbours[gather.neighbour_count++] = neighbours[i];
        }
    }
    if (dl_endpoint_open_traffic(endpoint, endpoint->group_name) == DL_OK) {
        dl_traffic_begin(&endpoint->traffic, &op);
        (void)dl_rethrow(&error);
        break_gather(endpoint, store, &gather);
        dl_traffic_end(&endpoint->traffic);
    }
    (void)dl_rethrow(&error);
}

/* Gets the table of all ranks by links to the neighbours in the tree.  A rank that
 * cannot have such a link reads all records from the store instead; what is wrong, all
 * ranks find in the records. */
static dl_status
gather_records(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    dl_gather gather = {.rank = endpoint->rank,
                        .size = endpoint->size,
                        .limit = (uint64_t)endpoint->size * 2 * RECORD_LIMIT};
    int neighbours[DL_GATHER_NEIGHBOURS];
    int count = dl_gather_neighbours(endpoint->rank, endpoint->size, neighbours);
    dl_buffer records = {0};

    dl_status status = read_records(endpoint, store, neighbours, count, NULL, deadline);
    if (status != DL_OK) {
        notify_neighbours(endpoint, store, neighbours, count);
        return status;
    }
    for (int i = 0; i < count; i++) {
        if (can_link(endpoint, neighbours[i])) {
            gather.neighbours[gather.neighbour_count++] = neighbours[i];
        }
    }
    bool has_all = gather.neighbour_count < count;
    if (has_all) {
        status = read_all_records(endpoint, store, &records, deadline);
    }
    put_record(&records, endpoint->rank, dl_buffer_bytes(&endpoint->record));
    status = status == DL_OK ? dl_buffer_check(&records) : status;
    status = status == DL_OK ? run_gather(endpoint, store, &gather, &records, deadline)
                             : status;
    dl_buffer_fini(&records);
    return status;
}

dl_status
dl_endpoint_get_records(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    if (endpoint->size > READING_RANKS) {
        return gather_records(endpoint, store, deadline);
    }
    DL_TRY(read_all_records(endpoint, store, NULL, deadline));
    return dl_contacts_make_table(&endpoint->contacts);
}

void
dl_endpoint_clear(const dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    const dl_layout *layout = &endpoint->layout;
    int own = endpoint->rank;
    bool is_leader = dl_layout_leader(layout, layout->host) == own;
    char text[DL_RANK_KEY_SIZE];
    bool existed;

    (void)dl_store_delete_key(store, dl_endpoint_key(own, text), &existed, deadline);
    if (is_leader && dl_layout_count(layout, layout->host) > 1
        && !endpoint->has_reached) {
        (void)dl_store_delete_key(store, dl_reach_key(endpoint, own, "apart", text),
                                  &existed, deadline);
    }
    if (endpoint->has_unreached) {
        (void)dl_store_delete_key(store, unreached_key(endpoint, own, text), &existed,
                                  deadline);
    }
}
