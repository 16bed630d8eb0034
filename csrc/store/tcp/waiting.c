/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/waiting.h"

#include <stdlib.h>

/* Between the answer to a WAIT and the pop behind it lies a round trip, and whatever keeps
 * a client that runs from its work. */
#define TURN_PATIENCE DL_SECOND

static dl_table *
table_of(dl_session *session)
{
    return &session->hub->table;
}

static void
reply_ready(dl_session *session)
{
    if (session->wait_is_checked) {
        dl_put_u8(&session->output->bytes, DL_OK);
    }
    dl_put_u8(&session->output->bytes, DL_WIRE_READY);
}

/* A wait that is over before it began is answered now, all others by dl_waiting_end(). */
static void
begin(dl_session *session, const dl_store_request *request)
{
    session->wait_is_checked = request->is_checked;
    if (!session->waiter.is_parked) {
        reply_ready(session);
    }
}

/* One name may be a queue's: the name is kept to see what the client does when its turn
 * has come.  Nobody pops after waiting for several. */
static dl_status
wait_for_one(dl_session *session, dl_bytes key)
{
    DL_TRY(dl_table_wait(table_of(session), &session->waiter, DL_WAIT_TURN, &key, 1));
    if (!session->waiter.is_parked) {
        return DL_OK;
    }
    session->turn = dl_blob_copy(key);
    if (session->turn == NULL) {
        dl_table_cancel(table_of(session), &session->waiter);
        return dl_fail_no_memory();
    }
    return DL_OK;
}

static dl_status
wait_for_all(dl_session *session, const dl_store_request *request)
{
    dl_key_walk walk = dl_key_walk_begin(request);
    dl_bytes *keys = calloc(request->count + 1, sizeof *keys); /* never of size 0 */
    size_t count = 0;

    if (keys == NULL) {
        return dl_fail_no_memory();
    }
    while (dl_key_walk_next(&walk, &keys[count], NULL)) {
        count++;
    }
    dl_status status =
        dl_table_wait(table_of(session), &session->waiter, DL_WAIT_KEYS, keys, count);
    free(keys);
    return status;
}

dl_status
dl_waiting_begin(dl_session *session, const dl_store_request *request)
{
    dl_reader items = request->items;

    dl_waiting_leave(session);
    DL_TRY(request->count == 1 ? wait_for_one(session, dl_request_take_item(&items))
                               : wait_for_all(session, request));
    begin(session, request);
    return DL_OK;
}

dl_status
dl_waiting_barrier(dl_session *session, const dl_store_request *request)
{
    dl_waiting_leave(session);
    DL_TRY(dl_table_barrier(table_of(session), &session->waiter, request->key,
                            request->number));
    begin(session, request);
    return DL_OK;
}

static void
drop_turn(dl_session *session)
{
    dl_blob_unref(session->turn);
    session->turn = NULL;
    dl_list_remove(&session->turn_node);
}

void
dl_waiting_leave(dl_session *session)
{
    bool has_turn = session->turn != NULL && !session->waiter.is_parked;

    /* Before the turn is passed on, or it might come straight back. */
    dl_table_cancel(table_of(session), &session->waiter);
    if (has_turn) {
        dl_table_queue_pass_on(table_of(session), dl_blob_bytes(session->turn));
    }
    drop_turn(session);
}

void
dl_waiting_use_turn(dl_session *session, const dl_store_request *request)
{
    if (session->turn == NULL || session->waiter.is_parked) {
        return;
    }
    if (request->op == DL_OP_QUEUE_POP
        && dl_bytes_equal(request->key, dl_blob_bytes(session->turn))) {
        drop_turn(session);
    } else {
        dl_waiting_leave(session);
    }
}

static dl_session *
oldest_turn(const dl_hub *hub)
{
    return dl_list_is_empty(&hub->turns)
               ? NULL
               : DL_LIST_ENTRY(hub->turns.next, dl_session, turn_node);
}

dl_deadline
dl_waiting_next_turn(const dl_hub *hub)
{
    const dl_session *session = oldest_turn(hub);

    return session == NULL
               ? dl_deadline_after(-1)
               : dl_deadline_after(session->turn_since + TURN_PATIENCE > dl_now()
                                       ? session->turn_since + TURN_PATIENCE - dl_now()
                                       : 0);
}

/* Its own clients find the queue empty then and wait again; to torch's, which do not, the
 * pop says that it is empty. */
void
dl_waiting_pass_turns(dl_hub *hub, int64_t now)
{
    dl_session *session;

    while ((session = oldest_turn(hub)) != NULL
           && session->turn_since + TURN_PATIENCE <= now) {
        dl_table_queue_pass_on(&hub->table, dl_blob_bytes(session->turn));
        drop_turn(session);
    }
    dl_waiting_end(hub);
}

void
dl_waiting_end(dl_hub *hub)
{
    dl_waiter *waiter;

    while ((waiter = dl_table_take_ready(&hub->table)) != NULL) {
        dl_session *session = DL_LIST_ENTRY(waiter, dl_session, waiter);
        if (session->turn != NULL) {
            session->turn_since = dl_now();
            dl_list_append(&hub->turns, &session->turn_node);
        }
        if (dl_session_open_output(session) != NULL) {
            reply_ready(session);
        } else {
            session->is_over = true; /* told by dl_session_resume() */
        }
        dl_session_mark_changed(session);
    }
}
