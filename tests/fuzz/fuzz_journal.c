/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes are a journal's, with checksums that need not be guessed: the first byte says
 * whether they are a file as it is, or the records of frames to be sealed.  A file that
 * can be read is cut off where the reader says, and must then be read to the same end. */
#include <stdlib.h>

#include "store/table.h"
#include "store/journal_format.h"
#include "store/tcp/replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

typedef struct contents {
    dl_table table;
    dl_replies replies;
    dl_blob *popped;
} contents;

static dl_status
apply(void *context, const dl_change *change)
{
    contents *into = context;

    return change->kind == DL_CHANGE_REPLY || change->kind == DL_CHANGE_FORGET
               ? dl_replies_apply(&into->replies, &into->table, change, DL_LITERAL("q"),
                                  into->popped)
               : dl_table_apply(&into->table, change, &into->popped);
}

static dl_status
read_once(dl_bytes file, dl_journal_contents *report, int64_t *keys)
{
    contents into = {0};

    dl_table_init(&into.table);
    dl_replies_init(&into.replies);
    into.table.size_limit = 64u << 20;
    into.replies.limit = 4096;
    dl_status status = dl_journal_read(file, apply, &into, report);
    *keys = dl_table_num_keys(&into.table);
    dl_blob_unref(into.popped);
    dl_replies_fini(&into.replies);
    dl_table_fini(&into.table);
    return status;
}

/* A file of frames with `step` bytes of records each. */
static dl_buffer
seal(dl_bytes records, size_t step)
{
    static const uint8_t zeros[DL_JOURNAL_IDENTITY_SIZE];
    dl_buffer file = {0};

    dl_journal_put_head(&file, zeros);
    while (records.size > 0) {
        dl_buffer frame = {0};
        size_t taken = records.size < step ? records.size : step;
        dl_buffer_put(&frame, (dl_bytes){zeros, DL_JOURNAL_FRAME_HEAD});
        dl_buffer_put(&frame, (dl_bytes){records.data, taken});
        require(dl_buffer_check(&frame) == DL_OK);
        dl_journal_checksum_frame(&frame, file.size);
        dl_buffer_put(&file, dl_buffer_bytes(&frame));
        dl_buffer_fini(&frame);
        records.data += taken;
        records.size -= taken;
    }
    require(dl_buffer_check(&file) == DL_OK);
    return file;
}

static void
check_file(dl_bytes file)
{
    dl_journal_contents first, again;
    int64_t keys, keys_again;

    if (read_once(file, &first, &keys) != DL_OK) {
        return;
    }
    require(first.size <= file.size);
    require(first.is_torn || first.has_hole || first.size == file.size);
    require(read_once((dl_bytes){file.data, (size_t)first.size}, &again, &keys_again)
            == DL_OK);
    require(!again.is_torn && !again.has_hole && again.size == first.size
            && keys_again == keys);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    dl_bytes rest = {data + 1, size - 1};
    if (data[0] == 0) {
        check_file(rest);
        return 0;
    }
    dl_buffer file = seal(rest, data[0] == 255 ? SIZE_MAX : 16u + data[0]);
    check_file(dl_buffer_bytes(&file));
    dl_buffer_fini(&file);
    return 0;
}
