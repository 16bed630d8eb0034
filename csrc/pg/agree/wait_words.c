/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/wait_words.h"

#include <inttypes.h>
#include <string.h>

#include "base/deadline.h"
#include "base/text.h"
#include "pg/fingerprint.h"

static const char opening[] = "deadlock: these ranks wait for each other:";

/* A text that grows at its end and is cut at its limit. */
typedef struct report {
    char *text;
    size_t room;
    size_t size;
} report;

/* A call as described by rows of waits and by recordings. */
typedef struct call {
    dl_fingerprint what;
    int64_t sequence;
    const char *peer; /* of a message: "to" or "from"; NULL to omit the peer */
    const char *group;
    const char *site;
} call;

static void
append_site(report *self, const char *site)
{
    if (site[0] != '\0') {
        dl_text_append(self->text, self->room, &self->size, ", called at %s", site);
    }
}

static void
append_call(report *self, const call *call)
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
append_span(report *self, int64_t span)
{
    dl_text_append(self->text, self->room, &self->size, " %.1f s ago",
                   (double)span / (double)DL_SECOND);
}

static void
append_operation(report *self, const dl_wait_state *state, const dl_wait_row *row)
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
    report report = {.text = text, .room = DL_WAIT_TEXT_SIZE};

    dl_text_append(report.text, report.room, &report.size, "%s", opening);
    for (int i = 0; i < cycle->count; i++) {
        dl_wait_step step = cycle->steps[i];
        const dl_wait_state *state = states[step.rank];
        dl_text_append(report.text, report.room, &report.size,
                       "\n  rank %d (pid %" PRId64 " on host %s) waits for rank %d in ",
                       step.rank, state->pid, state->host,
                       cycle->steps[(i + 1) % cycle->count].rank);
        append_operation(&report, state, &state->rows[step.row]);
        if (state->others > 0) {
            dl_text_append(report.text, report.room, &report.size,
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

static report
continue_late(char text[DL_WAIT_LATE_SIZE])
{
    return (report){.text = text, .room = DL_WAIT_LATE_SIZE, .size = strlen(text)};
}

void
dl_wait_words_late(int rank, const dl_doing *doing, char text[DL_WAIT_LATE_SIZE])
{
    report report = continue_late(text);
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

    dl_text_append(report.text, report.room, &report.size,
                   "; rank %d (pid %" PRId64 " on host %s) ", rank, doing->pid,
                   doing->host);
    if (doing->state == 0) {
        dl_text_append(report.text, report.room, &report.size,
                       "has called no operation yet");
        return;
    }
    if (doing->wait[0] != '\0') {
        dl_text_append(report.text, report.room, &report.size, "is in %s", doing->wait);
        append_site(&report, doing->site);
        append_span(&report, doing->span);
        return;
    }
    dl_text_append(report.text, report.room, &report.size, "is in %s",
                   doing->state == DL_RECORD_ENDED ? "no operation since " : "");
    dl_fingerprint_set_count(&last.what, doing->count);
    append_call(&report, &last);
    dl_text_append(report.text, report.room, &report.size, "%s",
                   doing->state == DL_RECORD_ENDED ? ", which ended" : "");
    append_span(&report, doing->span);
}

void
dl_wait_words_more(int count, char text[DL_WAIT_LATE_SIZE])
{
    report report = continue_late(text);

    dl_text_append(report.text, report.room, &report.size, "; and %d more", count);
}
