/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/late_ranks.h"

#include <string.h>

#include "base/deadline.h"
#include "pg/doing_publisher.h"
#include "pg/recorder.h"

/* Late ranks that are described one by one; the others are only counted. */
#define TOLD_RANKS 3

/* Notes that are read from the store at most: a few more than are described, as some
 * turn out not to be late. */
#define MOST_ASKED 6

#define LATE_RANKS DL_WAIT_AWAITED

typedef struct late_rank {
    int rank;
    bool is_known;
    bool is_here; /* it has begun the operation after all */
    dl_doing doing;
} late_rank;

typedef struct late_list {
    const char *group;
    int64_t sequence;
    bool is_message;
    int count;
    int asked; /* notes requested from the store */
    late_rank ranks[LATE_RANKS];
} late_list;

static bool
take_recording(void *context, const char *path, dl_bytes snapshot)
{
    late_list *self = context;
    dl_recording_header header;

    (void)path;
    if (!dl_recording_check(snapshot.data, snapshot.size, &header)) {
        return true;
    }
    for (int i = 0; i < self->count; i++) {
        late_rank *late = &self->ranks[i];
        if (late->rank == header.rank) {
            late->is_known = dl_doing_read(snapshot, &late->doing);
            late->is_here =
                !self->is_message
                && dl_doing_has_begun(snapshot, self->group, (uint64_t)self->sequence);
        }
    }
    return true;
}

/* The description is as old as the note, so its span grows by the note's age. */
static void
take_old(late_rank *late, const dl_doing *doing, int64_t written)
{
    int64_t age = dl_wall_clock() - written;

    late->doing = *doing;
    late->doing.span += age > 0 ? age : 0;
    late->is_known = true;
}

/* Asks the store for a rank whose recording is not on this host. */
static void
ask(late_list *self, late_rank *late, const dl_wait_state *state, dl_store *store)
{
    dl_doing_note note;

    if (state != NULL && state->doing.pid != 0) {
        take_old(late, &state->doing, state->written);
    } else if (store != NULL && self->asked++ < MOST_ASKED
               && dl_doing_note_get(store, late->rank, &note)) {
        take_old(late, &note.doing, note.written);
        late->is_here = !self->is_message && strcmp(note.doing.group, self->group) == 0
                        && note.doing.sequence >= self->sequence
                        && !dl_op_type_is_message(note.doing.op);
    }
}

void
dl_late_ranks_describe(const dl_wait_state *const *states, int size, dl_store *store,
                       int rank, int row, char text[DL_WAIT_LATE_SIZE])
{
    const dl_wait_row *own = &states[rank]->rows[row];
    int ranks[LATE_RANKS];
    late_list late = {
        .group = states[rank]->groups[own->group].name,
        .sequence = own->sequence,
        .is_message = dl_op_type_is_message(own->op),
        .count = dl_wait_late_find(states, size, rank, row, ranks, LATE_RANKS),
    };
    int told = 0;
    int more = 0;

    for (int i = 0; i < late.count; i++) {
        late.ranks[i].rank = ranks[i];
    }
    dl_recorder_visit_job(take_recording, &late);
    text[0] = '\0';
    for (int i = 0; i < late.count; i++) {
        if (!late.ranks[i].is_known) {
            ask(&late, &late.ranks[i], states[ranks[i]], store);
        }
        if (!late.ranks[i].is_known || late.ranks[i].is_here || ranks[i] == rank) {
            continue;
        }
        if (told < TOLD_RANKS) {
            dl_wait_words_late(ranks[i], &late.ranks[i].doing, text);
            told++;
        } else {
            more++;
        }
    }
    if (more > 0) {
        dl_wait_words_more(more, text);
    }
}
