/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "pg/agree/statement.h"

/* Number of ranks that are listed one by one; the list must leave room for the text
 * before it. */
#define LISTED_RANKS 8

/* Size of the text that quotes why a rank is gone. */
#define CAUSE_SIZE 400

struct dl_agreement {
    dl_group *group;
    char *name; /* "0"; "0 (nccl)" on devices */
    dl_roll_call roll;
};

/* The result of one roll call, by which all ranks say what they call. */
typedef struct round {
    const dl_agreement *agreement;
    const dl_op_context *op;
    const dl_buffer *words; /* by rank; empty if the rank has not come */
    int gone;               /* a rank that will never come; -1 if none is known */
} round;

/* A text that grows: one line per rank. */
typedef struct table {
    char text[LISTED_RANKS * 160];
    size_t used;
} table;

static dl_statement
statement_of(const round *self, int rank)
{
    return dl_statement_read(dl_buffer_bytes(&self->words[rank]));
}

static int
size_of(const round *self)
{
    return self->agreement->roll.size;
}

/* Appends " at train.py:42 in step", or nothing if the line is unknown. */
static void
append_line(table *self, const dl_statement *said)
{
    dl_bytes line = said->lines[DL_SAYS_LINE];

    if (line.size > 0) {
        dl_text_append(self->text, sizeof self->text, &self->used, " at %.*s",
                       (int)line.size, (const char *)line.data);
    }
}

/* Appends "\n  rank 1 (pid 12 on host h) called all_reduce(...) at train.py:42". */
static void
append_rank(table *self, int rank, const dl_statement *said)
{
    dl_bytes who = said->lines[DL_SAYS_WHO];
    char call[DL_STATEMENT_TEXT_SIZE];

    dl_statement_describe(said, call, sizeof call);
    dl_text_append(self->text, sizeof self->text, &self->used,
                   "\n  rank %d (%.*s) called %s", rank, (int)who.size,
                   who.size == 0 ? "" : (const char *)who.data, call);
    append_line(self, said);
}

/* Whether the call of `rank` does_agree with that of rank `base`. */
static bool
does_agree(const round *self, int base, int rank)
{
    dl_statement left = statement_of(self, base);
    dl_statement right = statement_of(self, rank);

    return dl_statements_agree(&left, base, &right, rank);
}

/* Whether every pair of ranks must be compared: only in all_to_all do two ranks share
 * sizes that the others do not know.  In all others agreement with rank 0 is enough. */
static bool
is_pairwise(const round *self)
{
    return self->op->fingerprint.op == DL_ALL_TO_ALL;
}

/* Appends the ranks that agree with `base`: "Rank 0 is" or "Ranks 0, 2 are". */
static void
describe_agreeing(const round *self, int base, table *side_text)
{
    int count = 0;
    table list = {.used = 0};

    for (int rank = 0; rank < size_of(self); rank++) {
        if (rank == base || (!is_pairwise(self) && does_agree(self, base, rank))) {
            count++;
            dl_text_append(list.text, sizeof list.text, &list.used, "%s%d",
                           count > 1 ? ", " : "", rank);
        }
    }
    dl_text_append(side_text->text, sizeof side_text->text, &side_text->used,
                   "%s %.120s %s", count > 1 ? "Ranks" : "Rank", list.text,
                   count > 1 ? "are" : "is");
}

static dl_status
fail_mismatch(const round *self, int base, int other)
{
    dl_statement left = statement_of(self, base);
    dl_statement right = statement_of(self, other);
    char calls[2][DL_STATEMENT_TEXT_SIZE];
    char aspects[320];
    table sides[2] = {{.used = 0}, {.used = 0}};
    table ranks = {.used = 0};

    describe_agreeing(self, base, &sides[0]);
    describe_agreeing(self, other, &sides[1]);
    dl_statement_describe(&left, calls[0], sizeof calls[0]);
    dl_statement_describe(&right, calls[1], sizeof calls[1]);
    dl_statements_differ(&left, &right, aspects, sizeof aspects);
    for (int rank = 0; rank < size_of(self) && rank < LISTED_RANKS; rank++) {
        dl_statement said = statement_of(self, rank);
        append_rank(&ranks, rank, &said);
    }
    if (size_of(self) > LISTED_RANKS) {
        dl_text_append(ranks.text, sizeof ranks.text, &ranks.used, "\n  and %d more",
                       size_of(self) - LISTED_RANKS);
    }
    return dl_fail(DL_MISMATCH,
                   "Detected mismatch between collectives on ranks. %.160s running "
                   "collective: %.240s, but %.160s running collective: %.240s. "
                   "Collectives differ in the following aspects: %s. It is operation "
                   "%" PRIu64 " of group %s, nothing was sent:%s",
                   sides[0].text, calls[0], sides[1].text, calls[1], aspects,
                   self->op->sequence, self->agreement->name, ranks.text);
}

/* Compares the calls of all ranks, all of which have come. */
static dl_status
compare_calls(const round *self)
{
    int bases = is_pairwise(self) ? size_of(self) : 1;

    for (int base = 0; base < bases; base++) {
        for (int rank = 0; rank < size_of(self); rank++) {
            if (!does_agree(self, base, rank)) {
                return fail_mismatch(self, base, rank);
            }
        }
    }
    return DL_OK;
}

/* Appends a line on a rank that has not come, with its last operation if that is
 * known. */
static void
append_absent(const round *self, int rank, table *ranks)
{
    dl_buffer words = {0};
    uint64_t before = self->op->sequence - 1;

    dl_text_append(ranks->text, sizeof ranks->text, &ranks->used,
                   "\n  rank %d has not called it", rank);
    if (before > 0
        && dl_roll_call_read(&self->agreement->roll, before, rank, &words) == DL_OK
        && words.size > 0) {
        dl_statement said = dl_statement_read(dl_buffer_bytes(&words));
        dl_bytes who = said.lines[DL_SAYS_WHO];
        dl_text_append(ranks->text, sizeof ranks->text, &ranks->used,
                       "; it (%.*s) was last in operation %" PRIu64, (int)who.size,
                       (const char *)who.data, before);
        append_line(ranks, &said);
    }
    dl_buffer_fini(&words);
}

static void
append_ranks(const round *self, table *ranks)
{
    int listed = 0;

    /* The absent ranks come first, so that they are listed even in a large group. */
    for (int rank = 0; rank < size_of(self) && listed < LISTED_RANKS; rank++) {
        if (self->words[rank].size == 0) {
            append_absent(self, rank, ranks);
            listed++;
        }
    }
    for (int rank = 0; rank < size_of(self) && listed < LISTED_RANKS; rank++) {
        if (self->words[rank].size > 0) {
            dl_statement said = statement_of(self, rank);
            append_rank(ranks, rank, &said);
            listed++;
        }
    }
}

/* Writes the error text of a roll call to which some ranks have not come, and returns
 * `status`.  If a rank is gone, the thread's last error is quoted as the cause. */
static dl_status
fail_absent(const round *self, dl_status status)
{
    char cause[CAUSE_SIZE] = "";
    dl_rank_list late;
    table ranks = {.used = 0};

    if (self->gone >= 0) {
        snprintf(cause, sizeof cause, "\n Original exception: \n%.*s",
                 (int)sizeof cause - 32, dl_last_error()->text);
    }
    dl_roll_call_list(&self->agreement->roll, self->words, &late);
    append_ranks(self, &ranks);
    return dl_fail(status,
                   "[Rank %d]: Ranks %s failed to pass monitoredBarrier in %" PRId64
                   " ms%s\nThe others wait in operation %" PRIu64 " of group %s:%s",
                   self->agreement->roll.rank, late.text,
                   self->op->deadline.limit / DL_MILLISECOND, cause, self->op->sequence,
                   self->agreement->name, ranks.text);
}

static char *
name_new(const dl_group *group, const char *device)
{
    char *name = NULL;
    int size = device == NULL ? asprintf(&name, "%s", group->name)
                              : asprintf(&name, "%s (%s)", group->name, device);

    return size < 0 ? NULL : name;
}

dl_agreement *
dl_agreement_new(dl_group *group, const char *device)
{
    dl_agreement *self = malloc(sizeof *self);
    char *name = self == NULL ? NULL : name_new(group, device);

    if (name == NULL) {
        free(self);
        dl_fail_no_memory();
        return NULL;
    }
    *self = (dl_agreement){
        .group = group,
        .name = name,
        .roll = {.store = group->store,
                 .topic = device == NULL ? "debug" : "debug-device",
                 .rank = group->rank,
                 .size = group->size,
                 .check_rank = dl_group_check_rank,
                 .context = group},
    };
    return self;
}

void
dl_agreement_free(dl_agreement *self)
{
    if (self != NULL) {
        free(self->name);
        free(self);
    }
}

/* Logs the call, which the other ranks have not seen yet. */
static void
log_call(const dl_agreement *self, const dl_op_context *op, const dl_buffer *text)
{
    char call[DL_STATEMENT_TEXT_SIZE];

    if (dl_debug_level_get() == DL_DEBUG_DETAIL && dl_log_is_on(DL_LOG_INFO)) {
        dl_statement said = dl_statement_read(dl_buffer_bytes(text));
        dl_statement_describe(&said, call, sizeof call);
        dl_log(DL_LOG_INFO, "%s #%" PRIu64 " of group %s", call, op->sequence,
               self->name);
    }
}

static dl_status
announce_call(dl_agreement *self, const dl_op_context *op, const dl_call *call)
{
    dl_buffer text = {0};

    dl_statement_write(op, call, self->roll.size, &text);
    dl_buffer_put(&text, (dl_bytes){(const uint8_t *)"", 1});
    dl_status status = dl_buffer_check(&text);
    if (status == DL_OK) {
        log_call(self, op, &text);
        status = dl_roll_call_announce(&self->roll, op->sequence,
                                       (const char *)text.data, op->deadline);
    }
    dl_buffer_fini(&text);
    return status;
}

static dl_status
await_calls(dl_agreement *self, const dl_op_context *op, dl_buffer *words)
{
    self->roll.record = op->record;
    round round = {.agreement = self, .op = op, .words = words, .gone = -1};
    dl_status status =
        dl_roll_call_wait(&self->roll, op->sequence, words, &round.gone, op->deadline);

    if (status == DL_TIMEOUT || round.gone >= 0) {
        return fail_absent(&round, status);
    }
    DL_TRY(status);
    return compare_calls(&round);
}

static dl_status
reach_agreement(dl_agreement *self, const dl_op_context *op, const dl_call *call)
{
    dl_buffer *words = dl_rank_values_new(self->roll.size);
    if (words == NULL) {
        return DL_NO_MEMORY;
    }
    dl_status status = announce_call(self, op, call);
    /* This rank has completed the previous roll call, so all ranks have begun it and
     * have read the words of the one before, which can be deleted.  Those of the
     * previous one are kept: they tell what a rank that does not come did last. */
    if (status == DL_OK && op->sequence > 2) {
        dl_roll_call_delete(&self->roll, op->sequence - 2);
    }
    if (status == DL_OK) {
        status = await_calls(self, op, words);
    }
    dl_rank_values_free(words, self->roll.size);
    return status;
}

dl_status
dl_agreement_reach(dl_side *side, const dl_op_context *op, const dl_call *call)
{
    /* A group of one rank always does_agree, and may have no store. */
    if (side->agreement->roll.size == 1) {
        return DL_OK;
    }
    dl_status status = reach_agreement(side->agreement, op, call);
    if (status != DL_OK && status != DL_MISMATCH) {
        dl_error error = *dl_last_error();
        dl_error cause = dl_error_for_others();
        side->backend->ops->abort(side->backend, &cause);
        return dl_rethrow(&error);
    }
    return status;
}
