/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A statement: the call that one rank is about to make, as lines of text that the ranks
 * exchange through the store; and the comparison of two statements.  It is text because
 * it is compared for equality only, and appears in error texts. */
#ifndef DISTLITE_PG_AGREE_STATEMENT_H
#define DISTLITE_PG_AGREE_STATEMENT_H

#include "pg/backend.h"

/* The lines of a statement, in their order. */
typedef enum dl_statement_line {
    DL_SAYS_WHO,  /* "pid 12 on host h" */
    DL_SAYS_LINE, /* "train.py:42 in step"; may be empty, as all that follow */
    DL_SAYS_OP,   /* this line and all that follow are compared */
    DL_SAYS_DTYPE,
    DL_SAYS_SHAPE,
    DL_SAYS_REDUCE_OP,
    DL_SAYS_ROOT,
    DL_SAYS_BLOCKS,
    DL_SAYS_SENDS, /* elements sent to each rank; compared with its DL_SAYS_RECEIVES */
    DL_SAYS_RECEIVES,
    DL_STATEMENT_LINES,
} dl_statement_line;

typedef struct dl_statement {
    dl_bytes lines[DL_STATEMENT_LINES]; /* borrowed from the text */
} dl_statement;

/* Appends the statement of a call; a failed allocation is kept in the buffer. */
void dl_statement_write(const dl_op_context *op, const dl_call *call, int size,
                        dl_buffer *text);

/* Splits `text` into lines, which point into it.  Missing lines are empty, since the
 * text comes from another rank and may be anything. */
dl_statement dl_statement_read(dl_bytes text);

/* Writes "all_reduce(float32[2, 3], SUM)". */
#define DL_STATEMENT_TEXT_SIZE 320
void dl_statement_describe(const dl_statement *self, char *text, size_t size);

/* Whether the calls of ranks `left_rank` and `right_rank` match each other. */
bool dl_statements_agree(const dl_statement *left, int left_rank,
                         const dl_statement *right, int right_rank);

/* Writes what differs: "Tensor shapes: [2, 3] vs [6]; Root rank: 0 vs 1". */
void dl_statements_differ(const dl_statement *left, const dl_statement *right,
                          char *text, size_t size);

#endif
