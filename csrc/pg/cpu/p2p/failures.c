/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pg/cpu/p2p/p2p_state.h"

/* Large enough for "recv from rank 1 (pid 5 on host h) with tag 7 in group 0". */
#define TEXT_SIZE 384

static void
describe_peer(const dl_p2p *engine, int rank, char text[DL_PEER_TEXT_SIZE])
{
    if (rank == DL_ANY_RANK) {
        snprintf(text, DL_PEER_TEXT_SIZE, "any rank");
    } else {
        dl_peers_describe(&engine->options.peers, rank, text);
    }
}

static void
describe_message(const dl_message *self, char text[TEXT_SIZE])
{
    char peer[DL_PEER_TEXT_SIZE];

    describe_peer(self->engine, self->peer, peer);
    if (self->tag == DL_ANY_TAG) {
        snprintf(text, TEXT_SIZE, "probe of %s with any tag in group %.100s", peer,
                 self->engine->options.group_name);
        return;
    }
    snprintf(text, TEXT_SIZE, "%s %s with tag %" PRId64 " in group %.100s",
             self->probed != NULL       ? "probe of"
             : self->work.op == DL_SEND ? "send to"
                                        : "recv from",
             peer, self->tag, self->engine->options.group_name);
}

/* `sent` describes the message, `taken` what the receive accepts; `text` is this side's
 * description of the operation. */
static dl_status
fail_types(const char *text, const dl_frame *sent, const dl_frame *taken)
{
    char dtypes[2][DL_DTYPE_TEXT_SIZE];

    dl_dtype_describe((dl_dtype)sent->dtype, sent->code, dtypes[0]);
    dl_dtype_describe((dl_dtype)taken->dtype, taken->code, dtypes[1]);
    return dl_fail(DL_MISMATCH,
                   "%s: the message has dtype %s, but the receive expects %s", text,
                   dtypes[0], dtypes[1]);
}

static dl_status
fail_mismatch(const char *text, const dl_frame *sent, const dl_frame *taken)
{
    if (sent->dtype != taken->dtype || sent->code != taken->code) {
        return fail_types(text, sent, taken);
    }
    return dl_fail(DL_MISMATCH,
                   "%s: the message of %" PRIu64 " bytes does not fit into the %" PRIu64
                   " bytes of the receive's array",
                   text, sent->total, taken->total);
}

dl_status
dl_p2p_fail_refused(const dl_message *self, const dl_frame *frame)
{
    char text[TEXT_SIZE];
    dl_frame own = {
        .total = self->size,
        .dtype = (uint8_t)self->tensor.dtype,
        .code = self->tensor.opaque_code,
    };
    bool is_send = self->work.op == DL_SEND;

    describe_message(self, text);
    return fail_mismatch(text, is_send ? &own : frame, is_send ? frame : &own);
}

dl_status
dl_p2p_fail_stopped(const dl_message *self)
{
    char text[TEXT_SIZE];

    describe_message(self, text);
    return dl_fail(DL_PEER_LOST,
                   "%s: the peer gave up after %zu of %zu bytes: it was interrupted or "
                   "timed out, or its array was moved",
                   text, self->moved, self->total);
}

static dl_status
fail_late_message(const dl_message *self)
{
    char text[TEXT_SIZE];
    const char *why = "the message did not arrive completely";

    if (self->state == DL_MESSAGE_POSTED) {
        why = "no matching message was sent";
    } else if (self->work.op == DL_SEND) {
        why = self->is_accepted ? "it was not received completely"
                                : "no matching receive was called";
    }
    describe_message(self, text);
    return dl_fail(DL_TIMEOUT, "%s timed out after %" PRId64 "ms: %s", text,
                   self->deadline.limit / DL_MILLISECOND, why);
}

static dl_status
watch_notices(const dl_p2p *engine, int rank)
{
    dl_notices *notices = engine->options.notices;

    return notices == NULL ? DL_OK : dl_notices_watch(notices, rank);
}

static dl_status
fail_gone(const dl_message *self, int rank)
{
    const dl_p2p *engine = self->engine;
    const dl_link_channel *link = engine->peers[rank].link;
    char text[TEXT_SIZE];
    char peer[DL_PEER_TEXT_SIZE];

    describe_message(self, text);
    if (link != NULL) {
        /* A rank that has given up the group may have told why before its process ended,
         * so that nothing answers at its address. */
        if (engine->options.notices != NULL) {
            dl_notices_poll(engine->options.notices);
        }
        if (watch_notices(engine, rank) == DL_OK) {
            (void)dl_rethrow(&link->cause);
        }
        dl_error cause = *dl_last_error();
        dl_status status = cause.status == DL_PROTOCOL ? DL_PROTOCOL : DL_PEER_LOST;
        return dl_fail(status, "%s: %.1500s", text, cause.text);
    }
    const dl_board_member *member =
        &engine->options.board->members[engine->options.layout->local_rank_of[rank]];
    uint32_t state = atomic_load(&member->state);
    describe_peer(self->engine, rank, peer);
    if (state == DL_ABORTED) {
        return dl_fail(DL_PEER_LOST, "%s: %s: %.*s", text, peer, DL_BOARD_REASON_SIZE,
                       member->reason);
    }
    return dl_fail(DL_PEER_LOST, "%s: %s %s", text, peer,
                   state == DL_LEFT ? "left the group" : "exited or was killed");
}

dl_status
dl_p2p_fail_described(const dl_message *self)
{
    char text[TEXT_SIZE];

    describe_message(self, text);
    return dl_fail_while("%s", text);
}

static void
keep_error(dl_message *self)
{
    self->error = malloc(sizeof *self->error);
    if (self->error != NULL) {
        *self->error = *dl_last_error();
        self->error->status = self->status;
    }
}

void
dl_p2p_end(dl_message *self, dl_status status)
{
    self->status = status;
    self->state = DL_MESSAGE_ENDED;
    if (status != DL_OK) {
        keep_error(self);
    }
    self->engine->pending--;
    dl_list_remove(&self->node);
    dl_list_append(&self->engine->ended, &self->node);
}

/* Ends the message, after a frame to the peer if that knows of it, which is so once the
 * RTS frame is in the channel. */
void
dl_p2p_give_up(dl_message *self, dl_status status)
{
    dl_frame frame = {.id = self->id, .kind = DL_FRAME_CANCEL};
    bool is_known =
        self->state != DL_MESSAGE_QUEUED && self->state != DL_MESSAGE_POSTED;

    if (self->state == DL_MESSAGE_FILLING) {
        frame.kind = DL_FRAME_STOP;
    }
    if (is_known) {
        dl_p2p_control(self->engine, self->peer, &frame);
    }
    dl_p2p_end(self, status);
}

bool
dl_p2p_is_in_place(dl_message *self)
{
    if (dl_guard_check(self->guard) == DL_OK) {
        return true;
    }
    dl_p2p_give_up(self, dl_p2p_fail_described(self));
    return false;
}

/* Returns true if `rank` left the group in order, so that none of its messages is
 * missing. */
static bool
has_left(const dl_p2p *engine, int rank)
{
    const dl_link_channel *link = engine->peers[rank].link;
    int local_rank = engine->options.layout->local_rank_of[rank];

    return link != NULL ? link->is_lost && link->cause.status == DL_CLOSED
                        : atomic_load(&engine->options.board->members[local_rank].state)
                              == DL_LEFT;
}

/* Returns the rank because of which a receive from any rank fails, or -1.  One lost
 * rank suffices, because the message might have come from it; ranks that left in order
 * matter only when all others have left. */
static int
lost_source(const dl_p2p *engine)
{
    int missing = -1;
    int gone = 0;

    for (int rank = 0; rank < engine->size; rank++) {
        if (rank == engine->rank || !engine->peers[rank].is_gone) {
            continue;
        }
        gone++;
        missing = rank;
        if (!has_left(engine, rank)) {
            return rank;
        }
    }
    return gone == engine->size - 1 ? missing : -1;
}

void
dl_p2p_end_if_failed(dl_message *self)
{
    const dl_p2p *engine = self->engine;
    int missing = self->peer;

    if (engine->is_aborted) {
        dl_p2p_end(self, dl_rethrow(&engine->cause));
        return;
    }
    if (self->peer == DL_ANY_RANK) {
        missing = lost_source(engine);
    } else if (!engine->peers[self->peer].is_gone) {
        missing = -1;
    }
    if (missing >= 0) {
        dl_p2p_end(self, fail_gone(self, missing));
    } else if (dl_deadline_passed(self->deadline)) {
        dl_p2p_give_up(self, fail_late_message(self));
    }
}

static void
end_failed_in(dl_list *list)
{
    for (dl_list *node = list->next; node != list;) {
        dl_list *next = node->next;
        dl_p2p_end_if_failed(DL_LIST_ENTRY(node, dl_message, node));
        node = next;
    }
}

/* News is consulted only while the link is not open.  An open link is more precise: it
 * delivers what the rank sent before it gave up, and then its end. */
static bool
is_gone_elsewhere(const dl_p2p *engine, const dl_link_channel *link, int rank)
{
    if (link == NULL) {
        return false;
    }
    return link->is_lost
           || (!link->link.is_open && watch_notices(engine, rank) != DL_OK);
}

/* The board has the state of this host's ranks, links and notices that of other hosts'
 * ranks. */
static bool
is_gone(const dl_p2p *engine, int rank)
{
    const dl_board *board = engine->options.board;
    const dl_layout *layout = engine->options.layout;
    int local_rank = layout->local_rank_of[rank];

    if (layout->host_of[rank] != layout->host) {
        return is_gone_elsewhere(engine, engine->peers[rank].link, rank);
    }
    return dl_board_has_ended(board, local_rank)
           || atomic_load(&board->members[local_rank].state) != DL_STAYING;
}

bool
dl_p2p_is_gone_here(dl_p2p *engine, int rank)
{
    dl_p2p_peer *peer = &engine->peers[rank];

    if (dl_p2p_is_here(peer)) {
        peer->is_gone = is_gone(engine, rank);
    }
    return dl_p2p_is_here(peer) && peer->is_gone;
}

static void
note_gone(dl_p2p *engine)
{
    dl_process_table_poll();
    if (engine->options.notices != NULL) {
        dl_notices_poll(engine->options.notices);
    }
    for (int rank = 0; rank < engine->size; rank++) {
        if (engine->peers[rank].link != NULL) {
            dl_link_channel_check_host(engine->peers[rank].link);
        }
        engine->peers[rank].is_gone = is_gone(engine, rank);
    }
}

/* First reads which peers are gone, then receives what they have sent, and only then
 * ends messages: what a peer sent before its end still counts. */
bool
dl_p2p_end_failed(dl_p2p *engine)
{
    bool has_moved = false;

    note_gone(engine);
    if (!engine->is_aborted) {
        dl_p2p_begin(engine);
        has_moved = dl_p2p_progress(engine);
    }
    for (int rank = 0; rank < engine->size; rank++) {
        end_failed_in(&engine->peers[rank].queued);
        end_failed_in(&engine->peers[rank].streaming);
        end_failed_in(&engine->peers[rank].draining);
    }
    end_failed_in(&engine->offered);
    end_failed_in(&engine->posted);
    end_failed_in(&engine->filling);
    return has_moved;
}
