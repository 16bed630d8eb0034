/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/wait_words.h"

#include <inttypes.h>
#include <string.h>

#include "base/deadline.h"
#include "base/text.h"
#include "pg/fingerprint.h"

static const char opening[] = "deadlock: these ranks wait for each other:";

/* Text that grows at its end and is cut at its limit. */
typedef struct picture {
    char *text; /* of DL_WAIT_TEXT_SIZE bytes */
    size_t size;
} picture;

static void
append_operation(picture *self, const dl_wait_state *state, const dl_wait_row *row)
{
    char call[DL_FINGERPRINT_TEXT_SIZE];
    dl_fingerprint what = {
        .op = row->op,
        .dtype = row->dtype,
        .root = row->root,
        .detail = row->reduce_op,
    };

    dl_fingerprint_set_count(&what, row->count);
    dl_fingerprint_describe(&what, call, sizeof call);
    dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, "%s", call);
    if (dl_wait_is_message(row->op)) {
        dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, " with tag %" PRId64,
                       row->sequence);
    } else {
        dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, " #%" PRId64,
                       row->sequence);
    }
    dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, " in group %s",
                   state->groups[row->group].name);
    if (row->site[0] != '\0') {
        dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, ", called at %s",
                       row->site);
    }
    dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, " %.1f s ago",
                   (double)row->waited / (double)DL_SECOND);
}

static void
append_awaited(picture *self, const dl_wait_row *row, int rank)
{
    if (rank >= 0) {
        dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, "rank %d", rank);
        return;
    }
    dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, "any of ranks");
    for (uint32_t i = 0; i < row->awaited.count; i++) {
        dl_text_append(self->text, DL_WAIT_TEXT_SIZE, &self->size, "%s %" PRId32,
                       i == 0 ? "" : ",", row->awaited.ranks[i]);
    }
}

void
dl_wait_words_cycle(const dl_wait_state *const *states, const dl_wait_cycle *cycle,
                    char *text)
{
    picture picture = {.text = text};

    dl_text_append(picture.text, DL_WAIT_TEXT_SIZE, &picture.size, "%s", opening);
    for (int i = 0; i < cycle->count; i++) {
        dl_wait_step step = cycle->steps[i];
        const dl_wait_state *state = states[step.rank];
        dl_text_append(picture.text, DL_WAIT_TEXT_SIZE, &picture.size,
                       "\n  rank %d (pid %" PRId64 " on host %s) waits for ", step.rank,
                       state->pid, state->host);
        append_awaited(&picture, &state->rows[step.row], step.awaits);
        dl_text_append(picture.text, DL_WAIT_TEXT_SIZE, &picture.size, " in ");
        append_operation(&picture, state, &state->rows[step.row]);
        if (state->others > 0) {
            dl_text_append(picture.text, DL_WAIT_TEXT_SIZE, &picture.size,
                           "; it has %" PRIu32
                           " more thread%s, which may yet make the call",
                           state->others, state->others == 1 ? "" : "s");
        }
    }
}

char *
dl_wait_words_find_cycle(char *text)
{
    return strstr(text, opening);
}
