/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/prefix_store.h"

#include <stdlib.h>

typedef struct prefix_store {
    dl_store base;
    dl_store_ops ops; /* fixed after init; partly copied from the store below */
    dl_store *below;
    size_t prefix_size; /* including the slash */
    uint8_t prefix[];
} prefix_store;

/* Keys with the prefix; a single short key needs no allocation. */
typedef struct joined {
    dl_bytes *keys;
    dl_bytes one;
    void *memory;
    uint8_t room[256];
} joined;

static const prefix_store *
view_of(const dl_store *store)
{
    return (const prefix_store *)store;
}

static dl_store *
store_below(dl_store *store)
{
    return ((prefix_store *)store)->below;
}

static dl_status
join_keys(const prefix_store *self, const dl_bytes *keys, size_t count, joined *names)
{
    size_t size = 0;
    uint8_t *next = names->room;

    for (size_t i = 0; i < count; i++) {
        size += self->prefix_size + keys[i].size;
    }
    names->keys = &names->one;
    names->memory = NULL;
    if (count > 1 || size > sizeof names->room) {
        names->memory = malloc(count * sizeof *keys + size);
        if (names->memory == NULL) {
            return dl_fail_no_memory();
        }
        /* The views and their bytes share one allocation. */
        names->keys = names->memory;
        next = (uint8_t *)(names->keys + count);
    }
    for (size_t i = 0; i < count; i++) {
        names->keys[i] = (dl_bytes){next, self->prefix_size + keys[i].size};
        memcpy(next, self->prefix, self->prefix_size);
        next += self->prefix_size;
        if (keys[i].size > 0) {
            memcpy(next, keys[i].data, keys[i].size);
            next += keys[i].size;
        }
    }
    return DL_OK;
}

/* Adds the prefix to the keys and passes the request on.  num_keys() counts all keys of
 * the store below, which cannot count those of one prefix.  barrier() is passed on as
 * well, so that it waits together with callers that use the full key. */
static dl_status
prefix_execute(dl_store *store, const dl_store_request *request, dl_store_reply *reply,
               dl_deadline deadline)
{
    const prefix_store *self = view_of(store);
    dl_store_request whole = *request;
    joined names;
    size_t count;
    const dl_bytes *keys = dl_request_keys(request, &count);

    DL_TRY(join_keys(self, keys, count, &names));
    if (keys == &request->key) {
        whole.key = names.keys[0];
    } else {
        whole.keys = names.keys;
    }
    dl_status status = dl_store_execute(self->below, &whole, reply, deadline);
    free(names.memory);
    /* The slash is part of the prefix: "Po/x" is not a key of the prefix "P". */
    return status == DL_OK && request->op == DL_OP_LIST_KEYS
               ? dl_reply_keep_names(reply, (dl_bytes){self->prefix, self->prefix_size})
               : status;
}

static dl_status
prefix_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    dl_store *below_clone;

    /* The view takes a reference of its own; the clone's is dropped in either case. */
    DL_TRY(dl_store_clone(store_below(store), &below_clone, deadline));
    dl_status status =
        dl_prefix_store_new(dl_prefix_store_prefix(store), below_clone, clone);
    dl_store_unref(below_clone);
    return status;
}

static void
prefix_free(dl_store *store)
{
    dl_store_unref(store_below(store));
    free(store);
}

static const dl_store_ops prefix_ops = {
    .kind = "PrefixStore",
    .requests = UINT32_MAX,
    .execute = prefix_execute,
    .clone = prefix_clone,
    .free = prefix_free,
    .below = store_below,
};

dl_status
dl_prefix_store_new(dl_bytes prefix, dl_store *below, dl_store **store)
{
    prefix_store *self = malloc(sizeof *self + prefix.size + 1);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->ops = prefix_ops;
    /* No close operation: the store below may have other users. */
    self->ops.has_extended_api = dl_store_has_extended_api(below);
    self->below = dl_store_ref(below);
    self->prefix_size = prefix.size + 1;
    if (prefix.size > 0) {
        memcpy(self->prefix, prefix.data, prefix.size);
    }
    self->prefix[prefix.size] = '/';
    dl_store_init(&self->base, &self->ops);
    *store = &self->base;
    return DL_OK;
}

dl_bytes
dl_prefix_store_prefix(const dl_store *store)
{
    return (dl_bytes){view_of(store)->prefix, view_of(store)->prefix_size - 1};
}
