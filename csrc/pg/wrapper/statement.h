/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What one rank is about to do, as lines of text that ranks leave in the store for each
 * other, and what differs between two of them.  Text, because people read it in the end
 * and equality is all that is asked of it. */
#ifndef DISTLITE_PG_WRAPPER_STATEMENT_H
#define DISTLITE_PG_WRAPPER_STATEMENT_H

#include "pg/backend.h"

/* The lines, in their order. */
typedef enum dl_statement_line {
    DL_SAYS_WHO,  /* "pid 12 on host h" */
    DL_SAYS_LINE, /* "train.py:42 in step"; may be empty, as all that follow */
    DL_SAYS_OP,   /* from here on they are compared */
    DL_SAYS_DTYPE,
    DL_SAYS_SHAPE,
    DL_SAYS_REDUCE_OP,
    DL_SAYS_ROOT,
    DL_SAYS_BLOCKS,
    DL_SAYS_SENDS, /* elements for each rank, compared with what that rank receives */
    DL_SAYS_RECEIVES,
    DL_STATEMENT_LINES,
} dl_statement_line;

typedef struct dl_statement {
    dl_bytes lines[DL_STATEMENT_LINES]; /* borrowed from the text */
} dl_statement;

/* Appends the text; a failure is kept in the buffer. */
void dl_statement_write(const dl_op_context *op, const void *args, int size,
                        dl_buffer *text);

/* What is missing stays empty: the text comes from another rank. */
dl_statement dl_statement_read(dl_bytes text);

/* "all_reduce(float32[2, 3], SUM)". */
#define DL_STATEMENT_TEXT_SIZE 320
void dl_statement_describe(const dl_statement *self, char *text, size_t size);

/* Whether the two can go together, `left` being what rank `left_rank` said. */
bool dl_statements_agree(const dl_statement *left, int left_rank,
                         const dl_statement *right, int right_rank);

/* "Tensor shapes: [2, 3] vs [6]; Root: 0 vs 1". */
void dl_statements_differ(const dl_statement *left, const dl_statement *right,
                          char *text, size_t size);

#endif
