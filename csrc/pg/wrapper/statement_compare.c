/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "pg/wrapper/statement.h"

/* Names of the compared lines, in torch's words where it has any. */
static const char *const aspects[DL_STATEMENT_LINES] = {
    [DL_SAYS_OP] = "Op type",          [DL_SAYS_DTYPE] = "Tensor dtypes",
    [DL_SAYS_SHAPE] = "Tensor shapes", [DL_SAYS_REDUCE_OP] = "Reduce op",
    [DL_SAYS_ROOT] = "Root rank",      [DL_SAYS_BLOCKS] = "Block sizes",
};

/* Longest part of a line that is quoted. */
#define TOLD 120

static int
told(dl_bytes line)
{
    return line.size > TOLD ? TOLD : (int)line.size;
}

static const char *
text_of(dl_bytes line)
{
    return line.size == 0 ? "" : (const char *)line.data;
}

void
dl_statement_describe(const dl_statement *self, char *text, size_t size)
{
    dl_bytes op = self->lines[DL_SAYS_OP];
    dl_bytes dtype = self->lines[DL_SAYS_DTYPE];
    dl_bytes shape = self->lines[DL_SAYS_SHAPE];
    static const struct {
        dl_statement_line line;
        const char *before;
    } details[] = {
        {DL_SAYS_REDUCE_OP, ""},         {DL_SAYS_ROOT, "root "},
        {DL_SAYS_BLOCKS, "blocks of "},  {DL_SAYS_SENDS, "sends "},
        {DL_SAYS_RECEIVES, "receives "},
    };
    size_t used = 0;

    dl_text_append(text, size, &used, "%.*s(%.*s%.*s", told(op), text_of(op),
                   told(dtype), text_of(dtype), told(shape), text_of(shape));
    for (size_t i = 0; i < sizeof details / sizeof *details; i++) {
        dl_bytes line = self->lines[details[i].line];
        if (line.size > 0) {
            dl_text_append(text, size, &used, ", %s%.*s", details[i].before, told(line),
                           text_of(line));
        }
    }
    dl_text_append(text, size, &used, ")");
}

/* Returns the entry number `index` of "3, 4, 5"; empty if there are not so many. */
static dl_bytes
entry_of(dl_bytes line, int index)
{
    for (;; index--) {
        const uint8_t *end = line.size == 0 ? NULL : memchr(line.data, ',', line.size);
        if (index == 0 || end == NULL) {
            size_t size = end == NULL ? line.size : (size_t)(end - line.data);
            return index == 0 ? (dl_bytes){line.data, size} : (dl_bytes){0};
        }
        size_t taken = (size_t)(end - line.data) + 2; /* the comma and the space */
        if (taken > line.size) {
            return (dl_bytes){0};
        }
        line = (dl_bytes){line.data + taken, line.size - taken};
    }
}

static bool
fits(const dl_statement *sender, int sender_rank, const dl_statement *receiver,
     int receiver_rank)
{
    dl_bytes sent = entry_of(sender->lines[DL_SAYS_SENDS], receiver_rank);
    dl_bytes received = entry_of(receiver->lines[DL_SAYS_RECEIVES], sender_rank);

    return dl_bytes_equal(sent, received);
}

bool
dl_statements_agree(const dl_statement *left, int left_rank, const dl_statement *right,
                    int right_rank)
{
    for (int i = DL_SAYS_OP; i < DL_SAYS_SENDS; i++) {
        if (!dl_bytes_equal(left->lines[i], right->lines[i])) {
            return false;
        }
    }
    return fits(left, left_rank, right, right_rank)
           && fits(right, right_rank, left, left_rank);
}

void
dl_statements_differ(const dl_statement *left, const dl_statement *right, char *text,
                     size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = DL_SAYS_OP; i < DL_SAYS_SENDS; i++) {
        dl_bytes one = left->lines[i];
        dl_bytes other = right->lines[i];
        if (!dl_bytes_equal(one, other)) {
            dl_text_append(text, size, &used, "%s%s: %s%.*s vs %s%.*s",
                           used > 0 ? "; " : "", aspects[i],
                           one.size == 0 ? "none" : "", told(one), text_of(one),
                           other.size == 0 ? "none" : "", told(other), text_of(other));
        }
    }
    if (used == 0) {
        dl_text_append(text, size, &used,
                       "elements that one sends and the other receives");
    }
}
