/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/wrapper/disagreement.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"

/* Number of ranks that are listed one by one; the list must leave room for the text
 * before it. */
#define TOLD_RANKS 8

/* Size of the text that quotes why a rank is gone. */
#define CAUSE_SIZE 400

/* A text that grows: one line per rank. */
typedef struct table {
    char text[TOLD_RANKS * 160];
    size_t used;
} table;

static dl_statement
said_by(const dl_hearing *self, int rank)
{
    return dl_statement_read(dl_buffer_bytes(&self->words[rank]));
}

static int
size_of(const dl_hearing *self)
{
    return self->agreement->options.size;
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

/* Whether the call of `rank` agrees with that of rank `base`. */
static bool
agrees(const dl_hearing *self, int base, int rank)
{
    dl_statement left = said_by(self, base);
    dl_statement right = said_by(self, rank);

    return dl_statements_agree(&left, base, &right, rank);
}

/* Whether every pair of ranks must be compared: only in all_to_all do two ranks share
 * sizes that the others do not know.  In all others agreement with rank 0 is enough. */
static bool
is_pairwise(const dl_hearing *self)
{
    return self->op->fingerprint.op == DL_ALL_TO_ALL;
}

/* Appends the ranks that agree with `base`: "Rank 0 is" or "Ranks 0, 2 are". */
static void
describe_camp(const dl_hearing *self, int base, table *camp)
{
    int count = 0;
    table list = {.used = 0};

    for (int rank = 0; rank < size_of(self); rank++) {
        if (rank == base || (!is_pairwise(self) && agrees(self, base, rank))) {
            count++;
            dl_text_append(list.text, sizeof list.text, &list.used, "%s%d",
                           count > 1 ? ", " : "", rank);
        }
    }
    dl_text_append(camp->text, sizeof camp->text, &camp->used, "%s %.120s %s",
                   count > 1 ? "Ranks" : "Rank", list.text, count > 1 ? "are" : "is");
}

static dl_status
fail_mismatch(const dl_hearing *self, int base, int other)
{
    dl_statement left = said_by(self, base);
    dl_statement right = said_by(self, other);
    char calls[2][DL_STATEMENT_TEXT_SIZE];
    char aspects[320];
    table camps[2] = {{.used = 0}, {.used = 0}};
    table ranks = {.used = 0};

    describe_camp(self, base, &camps[0]);
    describe_camp(self, other, &camps[1]);
    dl_statement_describe(&left, calls[0], sizeof calls[0]);
    dl_statement_describe(&right, calls[1], sizeof calls[1]);
    dl_statements_differ(&left, &right, aspects, sizeof aspects);
    for (int rank = 0; rank < size_of(self) && rank < TOLD_RANKS; rank++) {
        dl_statement said = said_by(self, rank);
        append_rank(&ranks, rank, &said);
    }
    if (size_of(self) > TOLD_RANKS) {
        dl_text_append(ranks.text, sizeof ranks.text, &ranks.used, "\n  and %d more",
                       size_of(self) - TOLD_RANKS);
    }
    return dl_fail(DL_MISMATCH,
                   "Detected mismatch between collectives on ranks. %.160s running "
                   "collective: %.240s, but %.160s running collective: %.240s. "
                   "Collectives differ in the following aspects: %s. It is operation "
                   "%" PRIu64 " of group %s, nothing was sent:%s",
                   camps[0].text, calls[0], camps[1].text, calls[1], aspects,
                   self->op->sequence, self->agreement->options.group_name, ranks.text);
}

dl_status
dl_disagreement_look(const dl_hearing *self)
{
    int bases = is_pairwise(self) ? size_of(self) : 1;

    for (int base = 0; base < bases; base++) {
        for (int rank = 0; rank < size_of(self); rank++) {
            if (!agrees(self, base, rank)) {
                return fail_mismatch(self, base, rank);
            }
        }
    }
    return DL_OK;
}

/* Appends a line on a rank that has not come, with its last operation if that is
 * known. */
static void
append_absent(const dl_hearing *self, int rank, table *ranks)
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
append_ranks(const dl_hearing *self, table *ranks)
{
    int told = 0;

    /* The absent ranks come first, so that they are listed even in a large group. */
    for (int rank = 0; rank < size_of(self) && told < TOLD_RANKS; rank++) {
        if (self->words[rank].size == 0) {
            append_absent(self, rank, ranks);
            told++;
        }
    }
    for (int rank = 0; rank < size_of(self) && told < TOLD_RANKS; rank++) {
        if (self->words[rank].size > 0) {
            dl_statement said = said_by(self, rank);
            append_rank(ranks, rank, &said);
            told++;
        }
    }
}

dl_status
dl_disagreement_absent(const dl_hearing *self, dl_status status)
{
    const dl_agreement_options *options = &self->agreement->options;
    char cause[CAUSE_SIZE] = "";
    dl_rank_list late;
    table ranks = {.used = 0};

    if (self->gone >= 0) {
        snprintf(cause, sizeof cause, "\n Original exception: \n%.*s",
                 (int)sizeof cause - 32, dl_last_error()->text);
    }
    dl_roll_call_list(&self->agreement->roll, self->words, true, &late);
    append_ranks(self, &ranks);
    return dl_fail(status,
                   "[Rank %d]: Ranks %s failed to pass monitoredBarrier in %" PRId64
                   " ms%s\nThe others wait in operation %" PRIu64 " of group %s:%s",
                   options->rank, late.text, self->op->deadline.limit / DL_MILLISECOND,
                   cause, self->op->sequence, options->group_name, ranks.text);
}
