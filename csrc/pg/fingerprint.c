/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>

#include "tensor/reducer.h"

/* Parts of a description, in the order in which they appear. */
enum op_detail {
    COUNT = 1,
    DTYPE = 2,
    REDUCE_OP = 4,
    SIZES = 8, /* hash of sizes, in place of a root */
};

typedef struct op_entry {
    const char *name;
    unsigned details;
    const char *root; /* its preposition, "from" or "to"; NULL if there is no root */
} op_entry;

static const op_entry entries[DL_OP_TYPE_COUNT] = {
    [DL_BROADCAST] = {"broadcast", COUNT | DTYPE, "from"},
    [DL_ALL_REDUCE] = {"all_reduce", COUNT | DTYPE | REDUCE_OP, NULL},
    [DL_ALL_REDUCE_COALESCED] = {"all_reduce_coalesced",
                                 COUNT | DTYPE | REDUCE_OP | SIZES, NULL},
    [DL_REDUCE] = {"reduce", COUNT | DTYPE | REDUCE_OP, "to"},
    [DL_ALL_GATHER] = {"all_gather", COUNT | DTYPE, NULL},
    [DL_ALL_GATHER_COALESCED] = {"all_gather_coalesced", COUNT | DTYPE | SIZES, NULL},
    [DL_GATHER] = {"gather", COUNT | DTYPE, "to"},
    [DL_SCATTER] = {"scatter", COUNT | DTYPE, "from"},
    [DL_REDUCE_SCATTER] = {"reduce_scatter", COUNT | DTYPE | REDUCE_OP, NULL},
    [DL_ALL_TO_ALL] = {"all_to_all", DTYPE, NULL},
    [DL_SEND] = {"send", COUNT | DTYPE, NULL},
    [DL_RECV] = {"recv", COUNT | DTYPE, NULL},
    [DL_RECV_ANY] = {"recv", COUNT | DTYPE, NULL},
    [DL_BARRIER] = {"barrier", 0, NULL},
    [DL_ALL_GATHER_V] = {"all_gather_v", COUNT | DTYPE | SIZES, NULL},
    [DL_GATHER_V] = {"gather_v", DTYPE, "to"},
    [DL_SCATTER_V] = {"scatter_v", DTYPE, "from"},
    [DL_REDUCE_SCATTER_V] = {"reduce_scatter_v", COUNT | DTYPE | REDUCE_OP | SIZES,
                             NULL},
    [DL_REDUCE_SCATTER_COALESCED] = {"reduce_scatter_coalesced",
                                     COUNT | DTYPE | REDUCE_OP | SIZES, NULL},
    [DL_SCAN] = {"scan", COUNT | DTYPE | REDUCE_OP, NULL},
    [DL_EXSCAN] = {"exscan", COUNT | DTYPE | REDUCE_OP, NULL},
    [DL_WINDOW] = {"window", DTYPE, NULL},
    [DL_BROADCAST_OBJECTS] = {"broadcast_object_list", 0, "from"},
    [DL_ALL_GATHER_OBJECTS] = {"all_gather_object", 0, NULL},
    [DL_GATHER_OBJECTS] = {"gather_object", 0, "to"},
    [DL_SCATTER_OBJECTS] = {"scatter_object_list", 0, "from"},
};

static const op_entry unknown = {"unknown operation", 0, NULL};

/* Fingerprints may come from other ranks, with any number as their op. */
static const op_entry *
entry_of(uint8_t op)
{
    bool is_known = op < DL_OP_TYPE_COUNT && entries[op].name != NULL;

    return is_known ? &entries[op] : &unknown;
}

const char *
dl_op_type_name(uint8_t op)
{
    return entry_of(op)->name;
}

bool
dl_fingerprint_has_reducer(const dl_fingerprint *self)
{
    return entry_of(self->op)->details & REDUCE_OP && self->dtype == DL_OPAQUE;
}

bool
dl_op_type_reduces(uint8_t op)
{
    return (entry_of(op)->details & REDUCE_OP) != 0;
}

bool
dl_op_type_has_root(uint8_t op)
{
    return entry_of(op)->root != NULL;
}

/* FNV-1a over whole counts instead of bytes, with the high half folded in. */
static uint64_t
mix_counts(uint64_t mixed, const dl_tensor *blocks, int count)
{
    for (int i = 0; i < count; i++) {
        const dl_pieces *pieces = blocks[i].pieces;
        mixed = (mixed ^ blocks[i].count) * UINT64_C(0x100000001b3);
        mixed ^= mixed >> 32;
        if (pieces != NULL) {
            mixed = mix_counts(mixed, pieces->tensors, pieces->count);
        }
    }
    return mixed;
}

uint32_t
dl_fingerprint_of_blocks(const dl_tensor *blocks, int count)
{
    return (uint32_t)mix_counts(UINT64_C(0xcbf29ce484222325), blocks, count) | 1;
}

#define DATA_SIZE (DL_DTYPE_TEXT_SIZE + 32)

static void
describe_data(const dl_fingerprint *fingerprint, bool has_count, char text[DATA_SIZE])
{
    char dtype[DL_DTYPE_TEXT_SIZE];

    if (dl_fingerprint_has_reducer(fingerprint)) {
        dl_reducer_describe(fingerprint->detail, dtype);
    } else {
        dl_dtype_describe((dl_dtype)fingerprint->dtype, fingerprint->detail, dtype);
    }
    if (has_count) {
        snprintf(text, DATA_SIZE, "%" PRIu64 " x %s", dl_fingerprint_count(fingerprint),
                 dtype);
    } else {
        snprintf(text, DATA_SIZE, "%s", dtype);
    }
}

void
dl_fingerprint_describe(const dl_fingerprint *fingerprint, char *text, size_t size)
{
    const op_entry *entry = entry_of(fingerprint->op);
    char data[DATA_SIZE] = "";
    char op[32] = "";
    char detail[48] = "";

    if (entry->details & DTYPE) {
        describe_data(fingerprint, entry->details & COUNT, data);
    }
    if (entry->details & REDUCE_OP && !dl_fingerprint_has_reducer(fingerprint)) {
        snprintf(
            op, sizeof op, ", %s",
            dl_reduce_op_name((dl_reduce_op)dl_fingerprint_reduce_op(fingerprint)));
    }
    if (entry->root != NULL) {
        snprintf(detail, sizeof detail, "%s%s rank %" PRIu32,
                 entry->details == 0 ? "" : ", ", entry->root, fingerprint->root);
    } else if (entry->details & SIZES) {
        snprintf(detail, sizeof detail, ", in blocks of sizes #%08" PRIx32,
                 fingerprint->root);
    }
    snprintf(text, size, "%s(%s%s%s)", entry->name, data, op, detail);
}

/* Room for "3 x float32", or "12 bytes". */
#define SIZE_TEXT_SIZE 64

/* Writes `bytes` bytes in elements of the fingerprint's dtype, unless it is opaque. */
static void
describe_size(const dl_fingerprint *fingerprint, uint64_t bytes,
              char text[SIZE_TEXT_SIZE])
{
    uint64_t item_size = dl_dtype_size((dl_dtype)fingerprint->dtype);

    if (item_size == 0) {
        snprintf(text, SIZE_TEXT_SIZE, "%" PRIu64 " bytes", bytes);
    } else {
        snprintf(text, SIZE_TEXT_SIZE, "%" PRIu64 " x %s", bytes / item_size,
                 dl_dtype_name((dl_dtype)fingerprint->dtype));
    }
}

dl_status
dl_fingerprint_fail_size(const dl_fingerprint *fingerprint, int source, uint64_t sent,
                         int destination, uint64_t expected)
{
    char texts[2][SIZE_TEXT_SIZE];

    describe_size(fingerprint, sent, texts[0]);
    describe_size(fingerprint, expected, texts[1]);
    return dl_fail(DL_MISMATCH, "rank %d has %s for rank %d, which expects %s", source,
                   texts[0], destination, texts[1]);
}
