/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/names.h"

#include "base/reader.h"

static void
drop(dl_blob **blob)
{
    dl_blob_unref(*blob);
    *blob = NULL;
}

void
dl_names_fini(dl_names *names)
{
    dl_table_cursor_end(&names->cursor);
    drop(&names->latest.names);
    drop(&names->begun.names);
    for (size_t i = 0; i < DL_NAMES_HELD; i++) {
        drop(&names->held[i]);
    }
}

/* Releases `latest`, or moves it to `held` while a client still reads it.  Returns
 * false when `held` is full. */
static bool
retire_latest(dl_names *names)
{
    for (size_t i = 0; i < DL_NAMES_HELD; i++) {
        if (names->held[i] != NULL && dl_blob_is_unique(names->held[i])) {
            drop(&names->held[i]);
        }
    }
    if (names->latest.names == NULL || dl_blob_is_unique(names->latest.names)) {
        drop(&names->latest.names);
        return true;
    }
    for (size_t i = 0; i < DL_NAMES_HELD; i++) {
        if (names->held[i] == NULL) {
            names->held[i] = names->latest.names;
            names->latest.names = NULL;
            return true;
        }
    }
    return false;
}

static dl_status
begin(dl_names *names, dl_table *table)
{
    if (!retire_latest(names)) {
        return dl_fail(DL_NO_MEMORY,
                       "LIST_KEYS: clients have not read %d earlier listings; read the "
                       "replies, or ask less often while keys are set and deleted",
                       DL_NAMES_HELD);
    }
    names->begun = (dl_listing){
        .names = dl_blob_new(0),
        .version = table->names_version,
    };
    if (names->begun.names == NULL) {
        return dl_fail_no_memory();
    }
    /* Names set meanwhile are appended behind the present ones, so that all of these
     * are visited within this many steps. */
    names->left = dl_table_num_keys(table);
    dl_table_cursor_begin(table, &names->cursor);
    return DL_OK;
}

static dl_status
put_name(dl_listing *listing, dl_bytes name)
{
    uint8_t bytes[sizeof(uint64_t)];

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)((uint64_t)name.size >> 8 * i);
    }
    DL_TRY(dl_blob_append(&listing->names, (dl_bytes){bytes, sizeof bytes}));
    DL_TRY(dl_blob_append(&listing->names, name));
    listing->count++;
    return DL_OK;
}

/* Discards the unfinished listing and returns `status`. */
static dl_status
give_up(dl_names *names, dl_status status)
{
    dl_table_cursor_end(&names->cursor);
    drop(&names->begun.names);
    return status;
}

bool
dl_names_make(dl_names *names, dl_table *table, uint64_t since, int *work,
              dl_status *status)
{
    dl_bytes name;

    *status = DL_OK;
    while (names->latest.names == NULL || names->latest.version < since) {
        if (names->begun.names == NULL) {
            *status = begin(names, table);
            if (*status != DL_OK) {
                return false;
            }
        }
        while (names->left > 0 && dl_table_cursor_next(&names->cursor, &name)) {
            if (put_name(&names->begun, name) != DL_OK) {
                *status = give_up(names, DL_NO_MEMORY);
                return false;
            }
            names->left--;
            if (--*work <= 0) {
                return false;
            }
        }
        dl_table_cursor_end(&names->cursor);
        /* Overwrites nothing: begin() has released the earlier `latest`. */
        names->latest = names->begun;
        names->begun = (dl_listing){0};
    }
    return true;
}
