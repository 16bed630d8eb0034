/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/key_list.h"

#include "base/reader.h"

static dl_status
put_key(void *list, dl_bytes key)
{
    dl_put_bytes(list, key);
    return dl_buffer_check(list);
}

dl_status
dl_key_list_copy(const dl_table *table, dl_buffer *list)
{
    return dl_table_list(table, put_key, list);
}

dl_status
dl_key_list_visit(const dl_buffer *list, dl_status (*visit)(void *, dl_bytes),
                  void *context)
{
    dl_reader reader = dl_reader_of(dl_buffer_bytes(list));
    dl_bytes key;

    while (dl_take_bytes(&reader, SIZE_MAX, &key) == 1) {
        DL_TRY(visit(context, key));
    }
    return DL_OK;
}
