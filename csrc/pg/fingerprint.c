/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct op_entry {
    const char *name;
    bool has_data; /* a count and a dtype */
    bool has_reduce_op;
    bool has_root;
} op_entry;

static const op_entry entries[] = {
    [DL_BROADCAST] = {.name = "broadcast", .has_data = true, .has_root = true},
    [DL_ALL_REDUCE] = {.name = "all_reduce", .has_data = true, .has_reduce_op = true},
    [DL_BARRIER] = {.name = "barrier"},
};

static const op_entry unknown = {.name = "unknown operation"};

/* Fingerprints come from other ranks: any number may be in them. */
static const op_entry *
entry_of(uint8_t op)
{
    bool is_known = op < sizeof entries / sizeof *entries && entries[op].name != NULL;

    return is_known ? &entries[op] : &unknown;
}

const char *
dl_op_type_name(uint8_t op)
{
    return entry_of(op)->name;
}

void
dl_fingerprint_describe(const dl_fingerprint *fingerprint, char *text, size_t size)
{
    const op_entry *entry = entry_of(fingerprint->op);
    char data[96] = "";
    char detail[64] = "";

    if (entry->has_data && fingerprint->dtype == DL_OPAQUE) {
        snprintf(data, sizeof data, "%" PRIu64 " x %u bytes", fingerprint->count,
                 fingerprint->item_size);
    } else if (entry->has_data) {
        snprintf(data, sizeof data, "%" PRIu64 " x %s", fingerprint->count,
                 dl_dtype_name((dl_dtype)fingerprint->dtype));
    }
    if (entry->has_reduce_op) {
        snprintf(detail, sizeof detail, ", %s",
                 dl_reduce_op_name((dl_reduce_op)fingerprint->reduce_op));
    }
    if (entry->has_root) {
        snprintf(detail, sizeof detail, ", from rank %" PRIu32, fingerprint->root);
    }
    snprintf(text, size, "%s(%s%s)", entry->name, data, detail);
}
