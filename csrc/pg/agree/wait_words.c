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

static void
append_site(report *self, const char *site)
{
    if (site[0] != '\0') {
        dl_text_append(self->text, self->room, &self->size, ", called at %s", site);
    }
}

/* `peer` is "to" or "from" for a message whose peer is named. */
static void
append_call(report *self, const dl_doing *doing, const char *peer)
{
    char text[DL_FINGERPRINT_TEXT_SIZE];
    dl_fingerprint what = {.op = doing->op,
                           .dtype = doing->dtype,
                           .root = doing->root,
                           .detail = doing->reduce_op};

    dl_fingerprint_set_count(&what, doing->count);
    dl_fingerprint_describe(&what, text, sizeof text);
    dl_text_append(self->text, self->room, &self->size, "%s", text);
    if (peer != NULL) {
        dl_text_append(self->text, self->room, &self->size, " %s rank %" PRIu32, peer,
                       what.root);
    }
    dl_text_append(self->text, self->room, &self->size, "%s%" PRId64 " in group %s",
                   dl_op_type_is_message(what.op) ? " with tag " : " #",
                   doing->sequence, doing->group);
    append_site(self, doing->site);
}

static void
append_span(report *self, int64_t span)
{
    dl_text_append(self->text, self->room, &self->size, " %.1f s ago",
                   (double)span / (double)DL_SECOND);
}

void
dl_wait_words_cycle(dl_wait_state *const *states, const dl_wait_cycle *cycle,
                    char *text)
{
    report report = {.text = text, .room = DL_WAIT_TEXT_SIZE};

    dl_text_append(report.text, report.room, &report.size, "%s", opening);
    for (int i = 0; i < cycle->count; i++) {
        int rank = cycle->ranks[i];
        const dl_wait_state *state = states[rank];
        dl_text_append(report.text, report.room, &report.size,
                       "\n  rank %d (pid %" PRId64 " on host %s) waits for rank %d in ",
                       rank, state->doing.pid, state->doing.host,
                       cycle->ranks[(i + 1) % cycle->count]);
        append_call(&report, &state->doing, NULL);
        append_span(&report, state->doing.span);
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

void
dl_wait_words_late(int rank, const dl_doing *doing, char text[DL_WAIT_LATE_SIZE])
{
    report report = {.text = text, .room = DL_WAIT_LATE_SIZE, .size = strlen(text)};
    bool has_ended = doing->state == DL_RECORD_ENDED;

    dl_text_append(report.text, report.room, &report.size,
                   "; rank %d (pid %" PRId64 " on host %s) %s", rank, doing->pid,
                   doing->host,
                   doing->state == 0 ? "has called no operation yet"
                   : has_ended       ? "is in no operation since "
                                     : "is in ");
    if (doing->state == 0) {
        return;
    }
    if (doing->wait[0] != '\0') {
        dl_text_append(report.text, report.room, &report.size, "%s", doing->wait);
        append_site(&report, doing->site);
    } else {
        append_call(&report, doing,
                    doing->op == DL_SEND   ? "to"
                    : doing->op == DL_RECV ? "from"
                                           : NULL);
        dl_text_append(report.text, report.room, &report.size, "%s",
                       has_ended ? ", which ended" : "");
    }
    append_span(&report, doing->span);
}
