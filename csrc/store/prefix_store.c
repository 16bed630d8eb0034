/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/prefix_store.h"

#include <stdlib.h>

typedef struct prefix_store {
    dl_store base;
    dl_store_ops ops; /* fixed after init: abilities are those of the store below */
    dl_store *below;
    size_t prefix_size; /* with the slash */
    uint8_t prefix[];
} prefix_store;

/* Keys with the prefix before them; short ones need no allocation. */
typedef struct joined {
    dl_bytes *keys;
    dl_bytes one;
    void *memory;
    uint8_t room[256];
} joined;

static const prefix_store *
view(const dl_store *store)
{
    return (const prefix_store *)store;
}

static dl_store *
below(dl_store *store)
{
    return ((prefix_store *)store)->below;
}

/* Every call is the same three steps: join the keys, pass the call on, free the joined
 * keys.  Written out, so that each callee can be found by its name. */
static size_t
joined_size(const prefix_store *self, const dl_bytes *keys, size_t count)
{
    size_t size = 0;

    for (size_t i = 0; i < count; i++) {
        size += self->prefix_size + keys[i].size;
    }
    return size;
}

static dl_status
join(const dl_store *store, const dl_bytes *keys, size_t count, joined *names)
{
    const prefix_store *self = view(store);
    size_t size = joined_size(self, keys, count);
    uint8_t *next = names->room;

    names->keys = &names->one;
    names->memory = NULL;
    if (count > 1 || size > sizeof names->room) {
        names->memory = malloc(count * sizeof *keys + size);
        if (names->memory == NULL) {
            return dl_fail_no_memory();
        }
        /* The views and the bytes they show share one allocation. */
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

static dl_status
done(joined *names, dl_status status)
{
    free(names->memory);
    return status;
}

static dl_status
prefix_set(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names, dl_store_set(below(store), names.keys[0], value, deadline));
}

static dl_status
prefix_get(dl_store *store, dl_bytes key, dl_buffer *value, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names, dl_store_get(below(store), names.keys[0], value, deadline));
}

static dl_status
prefix_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
           dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names,
                dl_store_add(below(store), names.keys[0], delta, sum, deadline));
}

static dl_status
prefix_compare_set(dl_store *store, dl_bytes key, dl_bytes expected, dl_bytes desired,
                   dl_buffer *held, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names, dl_store_compare_set(below(store), names.keys[0], expected,
                                             desired, held, deadline));
}

static dl_status
prefix_delete_key(dl_store *store, dl_bytes key, bool *existed, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names,
                dl_store_delete_key(below(store), names.keys[0], existed, deadline));
}

static dl_status
prefix_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
             dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, keys, count, &names));
    return done(&names,
                dl_store_check(below(store), names.keys, count, exist, deadline));
}

static dl_status
prefix_wait(dl_store *store, const dl_bytes *keys, size_t count, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, keys, count, &names));
    return done(&names, dl_store_wait(below(store), names.keys, count, deadline));
}

/* The store below cannot count the keys of one prefix. */
static dl_status
prefix_num_keys(dl_store *store, int64_t *count, dl_deadline deadline)
{
    return dl_store_num_keys(below(store), count, deadline);
}

typedef struct listing {
    dl_bytes prefix;
    dl_status (*visit)(void *context, dl_bytes key);
    void *context;
} listing;

static dl_status
visit_own(void *context, dl_bytes key)
{
    const listing *own = context;

    /* With the slash: "Po/x" is no key of the prefix "P". */
    if (!dl_bytes_start_with(key, own->prefix)) {
        return DL_OK;
    }
    return own->visit(own->context, (dl_bytes){key.data + own->prefix.size,
                                               key.size - own->prefix.size});
}

static dl_status
prefix_list_keys(dl_store *store, dl_status (*visit)(void *, dl_bytes), void *context,
                 dl_deadline deadline)
{
    listing own = {
        .prefix = {view(store)->prefix, view(store)->prefix_size},
        .visit = visit,
        .context = context,
    };

    return dl_store_list_keys(below(store), visit_own, &own, deadline);
}

static dl_status
prefix_append(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names, dl_store_append(below(store), names.keys[0], value, deadline));
}

static dl_status
prefix_multi_get(dl_store *store, const dl_bytes *keys, size_t count, dl_buffer *values,
                 dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, keys, count, &names));
    return done(&names,
                dl_store_multi_get(below(store), names.keys, count, values, deadline));
}

static dl_status
prefix_multi_set(dl_store *store, const dl_bytes *keys, const dl_bytes *values,
                 size_t count, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, keys, count, &names));
    return done(&names,
                dl_store_multi_set(below(store), names.keys, values, count, deadline));
}

static dl_status
prefix_queue_push(dl_store *store, dl_bytes key, dl_bytes value, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names,
                dl_store_queue_push(below(store), names.keys[0], value, deadline));
}

static dl_status
prefix_queue_pop(dl_store *store, dl_bytes key, bool is_blocking, dl_buffer *value,
                 dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names, dl_store_queue_pop(below(store), names.keys[0], is_blocking,
                                           value, deadline));
}

static dl_status
prefix_queue_len(dl_store *store, dl_bytes key, int64_t *count, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names,
                dl_store_queue_len(below(store), names.keys[0], count, deadline));
}

/* Passed on like any other call, so that it meets callers who use the whole key. */
static dl_status
prefix_barrier(dl_store *store, dl_bytes key, int64_t world_size, dl_deadline deadline)
{
    joined names;

    DL_TRY(join(store, &key, 1, &names));
    return done(&names,
                dl_store_barrier(below(store), names.keys[0], world_size, deadline));
}

static dl_status
prefix_clone(dl_store *store, dl_store **clone, dl_deadline deadline)
{
    dl_store *below_clone;

    /* The view takes a reference of its own; that of the clone is given back either
     * way. */
    DL_TRY(dl_store_clone(below(store), &below_clone, deadline));
    dl_status status =
        dl_prefix_store_new(dl_prefix_store_prefix(store), below_clone, clone);
    dl_store_unref(below_clone);
    return status;
}

/* Nothing to spare in a forked child: the store below knows for itself what it must not
 * touch there. */
static bool
prefix_local_address(dl_store *store, struct dl_address *address)
{
    return dl_store_local_address(below(store), address);
}

static void
prefix_free(dl_store *store)
{
    dl_store_unref(below(store));
    free(store);
}

static const dl_store_ops prefix_ops = {
    .kind = "PrefixStore",
    .set = prefix_set,
    .get = prefix_get,
    .add = prefix_add,
    .compare_set = prefix_compare_set,
    .delete_key = prefix_delete_key,
    .check = prefix_check,
    .wait = prefix_wait,
    .num_keys = prefix_num_keys,
    .list_keys = prefix_list_keys,
    .append = prefix_append,
    .multi_get = prefix_multi_get,
    .multi_set = prefix_multi_set,
    .queue_push = prefix_queue_push,
    .queue_pop = prefix_queue_pop,
    .queue_len = prefix_queue_len,
    .barrier = prefix_barrier,
    .clone = prefix_clone,
    .free = prefix_free,
    .timeout_owner = below,
    .local_address = prefix_local_address,
};

dl_status
dl_prefix_store_new(dl_bytes prefix, dl_store *below, dl_store **store)
{
    prefix_store *self = malloc(sizeof *self + prefix.size + 1);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->ops = prefix_ops;
    /* No close: the store below belongs to others too. */
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

dl_store *
dl_prefix_store_below(const dl_store *store)
{
    return view(store)->below;
}

dl_bytes
dl_prefix_store_prefix(const dl_store *store)
{
    return (dl_bytes){view(store)->prefix, view(store)->prefix_size - 1};
}
