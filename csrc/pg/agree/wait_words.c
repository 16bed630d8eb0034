/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/wait_words.h"

#include <inttypes.h>
#include <string.h>

#include "base/deadline.h"
#include "base/text.h"
#include "pg/fingerprint.h"

static const char opening[] = "deadlock: these ranks wait for each other:";

/* A text that grows at its end and is cut at its limit. */
typedef struct picture {
    char *text;
    size_t room;
    size_t size;
} picture;

/* A call as described by rows of waits and by recordings. */
typedef struct call {
    dl_fingerprint what;
    int64_t sequence;
    const char *peer; /* of a message: "to" or "from"; NULL to omit the peer */
    const char *group;
    const char *site;
} call;

static void
append_site(picture *self, const char *site)
{
    if (site[0] != '\0') {
        dl_text_append(self->text, self->room, &self->size, ", called at %s", site);
    }
}

static void
append_call(picture *self, const call *call)
{
    char text[DL_FINGERPRINT_TEXT_SIZE];

    dl_fingerprint_describe(&call->what, text, sizeof text);
    dl_text_append(self->text, self->room, &self->size, "%s", text);
    if (call->peer != NULL) {
        dl_text_append(self->text, self->room, &self->size, " %s rank %" PRIu32,
                       call->peer, call->what.root);
    }
    dl_text_append(self->text, self->room, &self->size, "%s%" PRId64,
                   dl_op_type_is_message(call->what.op) ? " with tag " : " #",
                   call->sequence);
    dl_text_append(self->text, self->room, &self->size, " in group %s", call->group);
    append_site(self, call->site);
}

static void
append_span(picture *self, int64_t span)
{
    dl_text_append(self->text, self->room, &self->size, " %.1f s ago",
                   (double)span / (double)DL_SECOND);
}

static void
append_operation(picture *self, const dl_wait_state *state, const dl_wait_row *row)
{
    call made = {
        .what = {.op = row->op,
                 .dtype = row->dtype,
                 .root = row->root,
                 .detail = row->reduce_op},
        .sequence = row->sequence,
        .group = state->groups[row->group].name,
        .site = row->site,
    };

    dl_fingerprint_set_count(&made.what, row->count);
    append_call(self, &made);
    append_span(self, row->waited);
}

void
dl_wait_words_cycle(const dl_wait_state *const *states, const dl_wait_cycle *cycle,
                    char *text)
{
    picture picture = {.text = text, .room = DL_WAIT_TEXT_SIZE};

    dl_text_append(picture.text, picture.room, &picture.size, "%s", opening);
    for (int i = 0; i < cycle->count; i++) {
        dl_wait_step step = cycle->steps[i];
        const dl_wait_state *state = states[step.rank];
        dl_text_append(picture.text, picture.room, &picture.size,
                       "\n  rank %d (pid %" PRId64 " on host %s) waits for rank %d in ",
                       step.rank, state->pid, state->host,
                       cycle->steps[(i + 1) % cycle->count].rank);
        append_operation(&picture, state, &state->rows[step.row]);
        if (state->others > 0) {
            dl_text_append(picture.text, picture.room, &picture.size,
                           "; it has %" PRIu32
                           " more thread%s, which may still make the call",
                           state->others, state->others == 1 ? "" : "s");
        }
    }
}

char *
dl_wait_words_find_cycle(char *text)
{
    return strstr(text, opening);
}

static picture
continue_late(char text[DL_WAIT_LATE_SIZE])
{
    return (picture){.text = text, .room = DL_WAIT_LATE_SIZE, .size = strlen(text)};
}

void
dl_wait_words_late(int rank, const dl_doing *doing, char text[DL_WAIT_LATE_SIZE])
{
    picture picture = continue_late(text);
    call last = {
        .what = {.op = doing->op,
                 .dtype = doing->dtype,
                 .root = doing->root,
                 .detail = doing->reduce_op},
        .sequence = doing->sequence,
        .peer = doing->op == DL_SEND   ? "to"
                : doing->op == DL_RECV ? "from"
                                       : NULL,
        .group = doing->group,
        .site = doing->site,
    };

    dl_text_append(picture.text, picture.room, &picture.size,
                   "; rank %d (pid %" PRId64 " on host %s) ", rank, doing->pid,
                   doing->host);
    if (doing->state == 0) {
        dl_text_append(picture.text, picture.room, &picture.size,
                       "has called no operation yet");
        return;
    }
    if (doing->wait[0] != '\0') {
        dl_text_append(picture.text, picture.room, &picture.size, "is in %s",
                       doing->wait);
        append_site(&picture, doing->site);
        append_span(&picture, doing->span);
        return;
    }
    dl_text_append(picture.text, picture.room, &picture.size, "is in %s",
                   doing->state == DL_RECORD_ENDED ? "no operation since " : "");
    dl_fingerprint_set_count(&last.what, doing->count);
    append_call(&picture, &last);
    dl_text_append(picture.text, picture.room, &picture.size, "%s",
                   doing->state == DL_RECORD_ENDED ? ", which ended" : "");
    append_span(&picture, doing->span);
}

void
dl_wait_words_more(int count, char text[DL_WAIT_LATE_SIZE])
{
    picture picture = continue_late(text);

    dl_text_append(picture.text, picture.room, &picture.size, "; and %d more", count);
}
