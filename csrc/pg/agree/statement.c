/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/agree/statement.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "pg/record/recorder.h"

__attribute__((format(printf, 2, 3))) static void
put_text(dl_buffer *text, const char *format, ...)
{
    char part[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(part, sizeof part, format, arguments);
    va_end(arguments);
    dl_buffer_put(text, dl_bytes_of(part));
}

static void
put_who(dl_buffer *text)
{
    char host[65] = "";

    gethostname(host, sizeof host - 1);
    put_text(text, "pid %d on host %s\n", (int)getpid(), host);
}

static void
put_line(const dl_op_context *op, dl_buffer *text)
{
    char site[DL_DOING_SITE_SIZE] = "";

    if (op->record != NULL) {
        dl_recorder_describe_site(
            atomic_load_explicit(&op->record->place, memory_order_relaxed), site);
    }
    /* The name of a file may contain newlines. */
    for (char *end = site; (end = strchr(end, '\n')) != NULL;) {
        *end = ' ';
    }
    put_text(text, "%s\n", site);
}

static void
put_dtype(const dl_fingerprint *fingerprint, dl_buffer *text)
{
    char dtype[DL_DTYPE_TEXT_SIZE] = "";

    if (fingerprint->op != DL_BARRIER) {
        dl_dtype_describe((dl_dtype)fingerprint->dtype, fingerprint->detail, dtype);
    }
    put_text(text, "%s\n", dtype); /* with a reducer, its name is part of this text */
}

/* Returns the array whose shape must be equal on all ranks, or NULL if there is none:
 * uneven blocks differ, and what ranks announce of a window is not the caller's. */
static const dl_tensor *
shared_tensor(const dl_fingerprint *fingerprint, const dl_call *call)
{
    switch (fingerprint->op) {
    case DL_BARRIER:
    case DL_WINDOW:
    case DL_ALL_TO_ALL:
    case DL_ALL_GATHER_V:
    case DL_GATHER_V:
    case DL_SCATTER_V:
    case DL_REDUCE_SCATTER_V:
        return NULL;
    default:
        return &call->tensor;
    }
}

static void
put_shape(const dl_tensor *tensor, dl_buffer *text)
{
    if (tensor == NULL) {
        put_text(text, "\n");
        return;
    }
    for (int i = 0; tensor->pieces != NULL && i < tensor->pieces->count; i++) {
        put_text(text, "%s[%zu]", i > 0 ? ", " : "", tensor->pieces->tensors[i].count);
    }
    if (tensor->pieces != NULL) {
        put_text(text, "\n");
        return;
    }
    if (tensor->shape == NULL) {
        put_text(text, "[%zu]\n", tensor->count);
        return;
    }
    put_text(text, "[");
    for (int i = 0; i < tensor->ndim; i++) {
        put_text(text, "%s%" PRId64, i > 0 ? ", " : "", tensor->shape[i]);
    }
    put_text(text, "]\n");
}

static void
put_reduce_op_and_root(const dl_fingerprint *fingerprint, dl_buffer *text)
{
    put_text(
        text, "%s\n",
        dl_op_type_reduces(fingerprint->op) && fingerprint->dtype != DL_OPAQUE
            ? dl_reduce_op_name((dl_reduce_op)dl_fingerprint_reduce_op(fingerprint))
            : "");
    if (dl_op_type_has_root(fingerprint->op)) {
        put_text(text, "%" PRIu32, fingerprint->root);
    }
    put_text(text, "\n");
}

/* Writes the number of elements of each rank's block as "3, 4, 5"; an empty line if
 * `blocks` is NULL. */
static void
put_counts(const dl_tensor *blocks, int size, dl_buffer *text)
{
    for (int rank = 0; blocks != NULL && rank < size; rank++) {
        put_text(text, "%s%zu", rank > 0 ? ", " : "", blocks[rank].count);
    }
    put_text(text, "\n");
}

/* Returns the blocks that may differ in size and whose sizes all ranks know, or
 * NULL. */
static const dl_tensor *
shared_blocks(const dl_fingerprint *fingerprint, const dl_call *call)
{
    switch (fingerprint->op) {
    case DL_ALL_GATHER_V:
        return call->outputs;
    case DL_REDUCE_SCATTER_V:
        return call->inputs;
    default:
        return NULL;
    }
}

void
dl_statement_write(const dl_op_context *op, const dl_call *call, int size,
                   dl_buffer *text)
{
    const dl_fingerprint *fingerprint = &op->fingerprint;
    bool is_exchange = fingerprint->op == DL_ALL_TO_ALL;

    put_who(text);
    put_line(op, text);
    put_text(text, "%s\n", dl_op_type_name(fingerprint->op));
    put_dtype(fingerprint, text);
    put_shape(shared_tensor(fingerprint, call), text);
    put_reduce_op_and_root(fingerprint, text);
    put_counts(shared_blocks(fingerprint, call), size, text);
    put_counts(is_exchange ? call->inputs : NULL, size, text);
    put_counts(is_exchange ? call->outputs : NULL, size, text);
}

dl_statement
dl_statement_read(dl_bytes text)
{
    dl_statement self = {.lines = {{0}}};

    for (int i = 0; i < DL_STATEMENT_LINES && text.size > 0; i++) {
        const uint8_t *end = memchr(text.data, '\n', text.size);
        size_t size = end == NULL ? text.size : (size_t)(end - text.data);
        self.lines[i] = (dl_bytes){text.data, size};
        size_t taken = end == NULL ? size : size + 1;
        text = (dl_bytes){text.data + taken, text.size - taken};
    }
    return self;
}

/* Names of the compared lines, in torch's words where it has any. */
static const char *const aspects[DL_STATEMENT_LINES] = {
    [DL_SAYS_OP] = "Op type",          [DL_SAYS_DTYPE] = "Tensor dtypes",
    [DL_SAYS_SHAPE] = "Tensor shapes", [DL_SAYS_REDUCE_OP] = "Reduce op",
    [DL_SAYS_ROOT] = "Root rank",      [DL_SAYS_BLOCKS] = "Block sizes",
};

/* Longest part of a line that is quoted. */
#define QUOTED 120

static int
quoted_size(dl_bytes line)
{
    return line.size > QUOTED ? QUOTED : (int)line.size;
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

    dl_text_append(text, size, &used, "%.*s(%.*s%.*s", quoted_size(op), text_of(op),
                   quoted_size(dtype), text_of(dtype), quoted_size(shape),
                   text_of(shape));
    for (size_t i = 0; i < sizeof details / sizeof *details; i++) {
        dl_bytes line = self->lines[details[i].line];
        if (line.size > 0) {
            dl_text_append(text, size, &used, ", %s%.*s", details[i].before,
                           quoted_size(line), text_of(line));
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
block_sizes_match(const dl_statement *sender, int sender_rank,
                  const dl_statement *receiver, int receiver_rank)
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
    return block_sizes_match(left, left_rank, right, right_rank)
           && block_sizes_match(right, right_rank, left, left_rank);
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
            dl_text_append(
                text, size, &used, "%s%s: %s%.*s vs %s%.*s", used > 0 ? "; " : "",
                aspects[i], one.size == 0 ? "none" : "", quoted_size(one), text_of(one),
                other.size == 0 ? "none" : "", quoted_size(other), text_of(other));
        }
    }
    if (used == 0) {
        dl_text_append(text, size, &used,
                       "elements that one sends and the other receives");
    }
}
